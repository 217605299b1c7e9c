"""Hooks: functions of the application that are told what happened.

A hook that raises is logged and changes nothing: what it was told about is already decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import ConfigError, nearest

if TYPE_CHECKING:
    from .tasks import Call

log = logging.getLogger("skedulr.hooks")

F = TypeVar("F", bound=Callable[..., Any])

#: What can be listened to, and what a hook is called with.
EVENTS = {
    "success": "the context of the run, and its result",
    "retry": "the context of the run, the error, and the seconds until the next attempt",
    "dead": "the context of the run (None if it never began), and the error",
    "child_start": "the pool's name, in each child once its workers are ready",
}


class Hooks:
    """An app's hooks, in the order they were added."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {}
        #: Asked at each submit for headers to send along.
        self.before_submit: list[Callable[[Call[Any]], Mapping[str, Any] | None]] = []

    def on(self, event: str) -> Callable[[F], F]:
        """A decorator that has the function called at each ``event``; ConfigError for others."""
        if event not in EVENTS:
            raise ConfigError(f"no event is called {event!r}{nearest(event, EVENTS)}")

        def add(hook: F) -> F:
            self._hooks.setdefault(event, []).append(hook)
            return hook

        return add

    def headers_for(self, call: Call[Any]) -> dict[str, Any]:
        """What the ``before_submit`` hooks add to a call. One that raises refuses the submit."""
        headers: dict[str, Any] = {}
        for hook in self.before_submit:
            headers |= hook(call) or {}
        return headers

    def has(self, event: str) -> bool:
        """Whether anyone listens."""
        return event in self._hooks

    def fire(self, event: str, *told: Any) -> None:
        """Call the hooks of ``event``."""
        for hook in self._hooks.get(event, ()):
            try:
                hook(*told)
            except BaseException:
                # Also its sys.exit(), and a time limit that ran out in it: what it was told of has
                # been decided, and one outcome must not become two.
                log.exception("a hook for %r failed", event)
