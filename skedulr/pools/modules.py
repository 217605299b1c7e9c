"""The tasks' modules: imported, and which app they define."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType, TracebackType

from .. import app as application
from ..errors import SkedulrError

#: Where Skedulr's own code lies.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def load_modules(modules: Iterable[str]) -> application.Skedulr:
    """Import the tasks' modules in order; the app that is served.

    ``MODULE:ATTR`` names the app to serve; else it is the only ``Skedulr`` found in the modules,
    else the default app.
    """
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    found: list[application.Skedulr] = []
    named: application.Skedulr | None = None
    for item in modules:
        module_name, _, attribute = item.partition(":")
        module = _imported(module_name, directory)
        if attribute:
            served = module
            for part in attribute.split("."):
                served = getattr(served, part)
            if not isinstance(served, application.Skedulr):
                raise TypeError(f"{item} is not a Skedulr app, but of type {type(served).__name__}")
            named = served
        found += [
            value for value in vars(module).values()
            if isinstance(value, application.Skedulr) and value not in found
        ]
    if named is not None:
        return named
    return found[0] if len(found) == 1 else application.default


def _imported(name: str, directory: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only where it is the module itself that is missing, not one that it imports.
        if error.name is not None and (name + ".").startswith(error.name + "."):
            error.add_note(_where_it_may_be(name, directory))
        raise


def _where_it_may_be(name: str, directory: str) -> str:
    close = get_close_matches(name, (one.name for one in pkgutil.iter_modules([directory])), n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"It was looked for in {directory} (--chdir gives another folder){hint}"


def print_error(error: BaseException) -> None:
    """The user's own mistake, with their traceback and nothing of ours around it."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    while frames and _is_ours(frames[0]):
        del frames[0]
    # What we refuse is the mistake of whoever called us: it ends at their line. An error of another
    # kind that comes out of our code is shown with the way there.
    while frames and isinstance(error, SkedulrError) and _is_ours(frames[-1]):
        del frames[-1]
    # A syntax error, or a module that is not there, has no frame of theirs: its text says it all.
    traceback.print_exception(type(error), error, _chained(frames))


def _is_ours(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file.startswith((_PACKAGE, importlib.__file__, "<frozen importlib"))


def _chained(frames: list[TracebackType]) -> TracebackType | None:
    """These frames, each followed by the next, as a traceback."""
    chain = None
    for one in reversed(frames):
        chain = TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return chain
