"""Middleware: functions around every run of a task, on the worker's side.

A middleware takes the next step and gives back one of its own, first given outermost:

    def timed(call_next):
        def run(context):
            began = time.monotonic()
            try:
                return call_next(context)
            finally:
                print(context.name, time.monotonic() - began)
        return run
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from .context import Context

Step = Callable[[Context], Any]
Middleware = Callable[[Step], Step]


def compose(middleware: Iterable[Middleware], function: Callable[..., Any]) -> Step:
    """One step that goes through all of ``middleware`` and then calls ``function``.

    >>> step = compose([lambda call_next: lambda context: call_next(context) + 1], int)
    """

    def innermost(context: Context) -> Any:
        return function(*context.args, **context.kwargs)

    step: Step = innermost
    for one in reversed(list(middleware)):
        step = one(step)
    return step


class Logging:
    """Middleware that writes a line when a run begins and when it ends; arguments are not shown."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._log = logger or logging.getLogger("skedulr.task")
        self._level = level

    def __call__(self, call_next: Step) -> Step:
        def run(context: Context) -> Any:
            self._log.log(self._level, "%s %s begins, attempt %d", context.name, context.id,
                          context.attempt)
            try:
                result = call_next(context)
            except BaseException as error:
                self._log.log(self._level, "%s %s ended with %s", context.name, context.id,
                              type(error).__name__)
                raise
            self._log.log(self._level, "%s %s is done", context.name, context.id)
            return result

        return run
