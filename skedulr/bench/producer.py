"""A process that submits: patched by gevent, as those of Skedulr's users are.

    echo '{"job": "bulk", "count": 1000, "to": {...}}' | python -m skedulr.bench.producer

One job a process: it is read as JSON from stdin, its figures go to stdout as one line of JSON.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Do the job on stdin."""
    from gevent import monkey

    monkey.patch_all()
    from .jobs import JOBS, Producer

    job = json.loads(sys.stdin.read())
    print(json.dumps(JOBS[job["job"]](Producer(**job["to"]), job)))


if __name__ == "__main__":
    main()
