"""Functions that test_django.py makes tasks of Django's own; made once Django is set up."""

from __future__ import annotations

import importlib
from typing import Any

exceptions: Any
signals: Any


def define(tasks: Any) -> None:
    """Decorate the functions of this module with ``tasks.task``; safe to repeat."""
    here = globals()
    here["exceptions"] = importlib.import_module(f"{tasks.__name__}.exceptions")
    here["signals"] = importlib.import_module(f"{tasks.__name__}.signals")
    for name in ("add", "fails", "later", "unsendable", "about"):
        if not hasattr(here[name], "enqueue"):
            here[name] = tasks.task(takes_context=name == "about")(here[name])


def add(a: int, b: list[int]) -> int:
    return a + sum(b)


def fails() -> None:
    raise ZeroDivisionError("not by that")


def about(context: Any) -> list[Any]:
    return [context.task_result.id, context.attempt, str(context.task_result.status)]


async def later(number: int) -> int:
    return 2 * number


def unsendable() -> object:
    return object()
