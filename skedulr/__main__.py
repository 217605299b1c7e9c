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
    unpatched = _not_patched(sys.argv[1:])
    problem = _too_early(unpatched)
    if problem:
        print(f"skedulr-master: {problem}", file=sys.stderr)
        return 2
    from gevent import monkey

    monkey.patch_all(**dict.fromkeys(unpatched, False))
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


def _too_early(unpatched: list[str]) -> str | None:
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
