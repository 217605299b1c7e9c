"""Python source run in a process of its own: patched by gevent or not, nothing imported before.

    found = run("import skedulr; report(sorted(sys.modules))")

The source finds ``report`` (what it is given, as JSON, is what ``run`` returns: of several the
last), ``ARGS``, and the modules of ``tests/``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
_MARK = "@report "
_PATCH = "from gevent import monkey; monkey.patch_all()\n"
_PRELUDE = f"""\
import json, sys
ARGS = sys.argv[1:]
def report(value):
    sys.stdout.write("\\n{_MARK}" + json.dumps(value) + "\\n")
    sys.stdout.flush()
"""


def run(
    source: str, *arguments: str, patched: bool = False, timeout_s: float = 60,
    cwd: Path | None = None, environ: dict[str, str] | None = None,
) -> Any:
    """What ``source`` reported; AssertionError with its output where it failed or said nothing."""
    text = (_PATCH if patched else "") + _PRELUDE + source
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True,
        timeout=timeout_s, cwd=cwd, env=_environ(environ or {}),
    )
    reports = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    assert done.returncode == 0 and reports, (
        f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return json.loads(reports[-1].removeprefix(_MARK))


def _environ(extra: dict[str, str]) -> dict[str, str]:
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **extra}
