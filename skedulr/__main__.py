"""The two commands. Only the master patches, and it does so before it imports anything else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import config
from .errors import ConfigError

#: Where processes are forked and sockets have names in the file system.
_WINDOWS = "runs on Linux and macOS; on Windows use the Windows Subsystem for Linux"


def main() -> int:
    """``skedulr``: talk to a running system; ``skedulr master`` is ``skedulr-master``."""
    if sys.platform == "win32":
        print(f"skedulr: it {_WINDOWS}", file=sys.stderr)
        return 2
    if sys.argv[1:2] == ["master"]:
        del sys.argv[1]
        return master()
    from .cli import run

    return run(sys.argv[1:])


def master() -> int:
    """``skedulr-master``: fork the pools' children, supervise them, serve the UI."""
    if sys.platform == "win32":
        print(f"skedulr-master: it {_WINDOWS}", file=sys.stderr)
        return 2
    unpatched = _not_patched(sys.argv[1:])
    problem = _too_early(unpatched)
    if problem:
        print(f"skedulr-master: {problem}", file=sys.stderr)
        return 2
    from gevent import monkey

    monkey.patch_all(**dict.fromkeys(unpatched, False))
    from .launch import run

    return run(sys.argv[1:])


def _not_patched(arguments: list[str]) -> tuple[str, ...]:
    """What ``--no-patch``, the environment or the file say is not to be patched.

    Flags are read by hand here, since parsing them all imports too much; what is wrong with a
    setting is said later, by the launcher.
    """
    flag = _flag(arguments, "--no-patch")
    file = _flag(arguments, "--config") or os.environ.get("SKEDULR_CONFIG")
    try:
        return config.load(
            {} if flag is None else {"no_patch": flag}, {}, os.environ,
            Path(_flag(arguments, "--chdir") or "."), Path(file) if file else None,
        ).no_patch
    except ConfigError:
        return ()


def _flag(arguments: list[str], flag: str) -> str | None:
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else "".join(arguments[at + 1:at + 2])
    return None


def _too_early(unpatched: tuple[str, ...]) -> str | None:
    """What was imported before patching and would not work after it, in words; None: nothing.

    That is ``ssl``: a module that took ``SSLContext`` out of it keeps the unpatched one, whose
    connections block the whole process, or recurse for ever. ``sitecustomize``, a ``.pth`` file or
    a wrapper around this command imports it so early.
    """
    ssl = sys.modules.get("ssl")
    if ssl is None or "ssl" in unpatched or _is_patched("ssl"):
        return None
    holders = sorted({
        name.partition(".")[0]
        for name, module in list(sys.modules.items())
        if name != "ssl" and _holds(module, ssl)
    })
    by = f" (by {', '.join(holders)})" if holders else ""
    return (
        f"the module ssl was imported before gevent could patch it{by}: import it later, or give "
        "--no-patch ssl if its connections may block"
    )


def _is_patched(name: str) -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched(name))


def _holds(module: object, ssl: object) -> bool:
    values = getattr(module, "__dict__", {})
    return values.get("ssl") is ssl or "SSLContext" in values


if __name__ == "__main__":
    sys.exit(main())
