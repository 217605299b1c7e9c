"""The two commands. Only the master patches, and it does so before it imports anything else."""

from __future__ import annotations

import sys


def main() -> int:
    """``skedulr``: talk to a running system; ``skedulr master`` is ``skedulr-master``."""
    if sys.argv[1:2] == ["master"]:
        del sys.argv[1]
        return master()
    from .cli import run

    return run(sys.argv[1:])


def master() -> int:
    """``skedulr-master``: fork the pools' children, supervise them, serve the UI."""
    from gevent import monkey

    monkey.patch_all(**{name: False for name in _not_patched(sys.argv[1:])})
    from .launch import run

    return run(sys.argv[1:])


def _not_patched(arguments: list[str]) -> list[str]:
    """What ``--no-patch a,b`` names; read by hand, since parsing properly imports too much."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--no-patch":
            value = value if equals else "".join(arguments[at + 1:at + 2])
            return [part for part in value.replace(",", " ").split() if part]
    return []


if __name__ == "__main__":
    sys.exit(main())
