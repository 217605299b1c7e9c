"""``skedulr``: talk to a running system from a terminal or a script.

``run`` parses, hands over to the module that the command names, and turns whatever went wrong
into one line on stderr and an exit status. The modules of the other commands stay unloaded, and
so do redis and gevent until a command needs a connection.

============  ===============================================================
grammar       every command, its flags, its help
session       settings, server and client of this run
output        one JSON document for programs, tables and colour for people
submitting    submit
asking        task, result, list
steering      cancel, resubmit, remove; pause, resume, scale
limits        limits list, limits set, limits reset
dead          dead list, dead resubmit, dead purge
transfer      export, import
watching      stats, pools, nodes, check
top           top
doctor        doctor
bench         bench
settings      config
completion    completion
============  ===============================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from . import exits
from .grammar import find, parse


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments (without the program's name) say; the exit status."""
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return exits.BROKEN_PIPE
    except OSError as error:
        print(f"skedulr: {error}", file=sys.stderr)
        _close_output()
        return exits.FAILURE


def _run(arguments: Sequence[str]) -> int:
    try:
        given = parse(arguments)
    except SystemExit as asked:  # --help, --version, or a mistake that argparse has told
        return asked.code if isinstance(asked.code, int) else exits.USAGE
    command = find(given.command)
    session = import_module(".session", __name__).Session(given)
    module, _, function = command.runs.partition(":")
    try:
        status: int = getattr(import_module(f".{module}", __name__), function)(session)
        return status
    except Exception as error:
        known: int | None = session.status_of(error)
        if known is None:
            raise
        session.complain(session.explain(error))
        return known


def _close_output() -> None:
    """Give up what could not be written; the interpreter's own flush at its end stays silent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
