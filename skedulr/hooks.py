"""Hooks: functions of the application that are told what happened.

A hook that raises is logged and changes nothing: what it was told about is already decided.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .errors import ConfigError, nearest

if TYPE_CHECKING:
    from .tasks import Call

log = logging.getLogger("skedulr.hooks")

F = TypeVar("F", bound=Callable[..., Any])

#: What can be listened to, and what a hook is called with.
EVENTS = {
    "success": "the context of the run, and its result",
    "retry": "the context of the run, the error, and the seconds until the next attempt",
    "dead": "the context of the run (None if it never began), and the error; at least once for "
            "each task that ends as dead. Where its process died with it, or hung and was killed, "
            "some child of the pool is told: a context as its record has it, and a TaskFailed",
    "child_start": "the pool's name, in each child once its workers are ready",
    "long_queue": "the statistics of a pool whose predicted wait passed the upper edge of "
                  "--target-wait, or came back; once in the cluster",
    "leader_change": "the id of the node that leads now, and of the one before or None; once in "
                     "the cluster",
    "stats": "the statistics of the namespace, once a minute in the cluster",
}


class Threshold(NamedTuple):
    """Which queues a hook is told of: those that wait longer than ``seconds`` (None: the upper edge
    of ``--target-wait``), of one pool or of any."""

    seconds: float | None
    pool: str | None

    def name(self, usual_s: float) -> str:
        """How the threshold is called in Redis: the same in every process."""
        seconds = usual_s if self.seconds is None else self.seconds
        return f"{seconds:g} {self.pool or '*'}"


class Hooks:
    """An app's hooks, in the order they were added."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {}
        self._long_queue: list[tuple[Threshold, Callable[..., Any]]] = []
        #: Asked at each submit for headers to send along.
        self.before_submit: list[Callable[[Call[Any]], Mapping[str, Any] | None]] = []

    def on(self, event: str) -> Callable[[F], F]:
        """A decorator that has the function called at each ``event``; ConfigError for others."""
        if event not in EVENTS:
            raise ConfigError(f"no event is called {event!r}{nearest(event, EVENTS)}")

        if event == "long_queue":
            return self.on_long_queue(None, None)

        def add(hook: F) -> F:
            self._hooks.setdefault(event, []).append(hook)
            return hook

        return add

    def on_long_queue(self, seconds: float | None, pool: str | None) -> Callable[[F], F]:
        """A decorator for a hook with a threshold of its own. ConfigError for an unusable one."""
        if seconds is not None and not (
            isinstance(seconds, int | float) and not isinstance(seconds, bool)
            and 0 < seconds < math.inf
        ):
            raise ConfigError(f"threshold={seconds!r}: a number of seconds above 0")

        def add(hook: F) -> F:
            self._long_queue.append((Threshold(seconds, pool), hook))
            return hook

        return add

    @property
    def thresholds(self) -> set[Threshold]:
        """Those that hooks have for long queues."""
        return {one for one, _ in self._long_queue}

    def headers_for(self, call: Call[Any]) -> dict[str, Any]:
        """What the ``before_submit`` hooks add to a call. One that raises refuses the submit."""
        headers: dict[str, Any] = {}
        for hook in self.before_submit:
            headers |= hook(call) or {}
        return headers

    def has(self, event: str) -> bool:
        """Whether anyone listens."""
        return event in self._hooks or (event == "long_queue" and bool(self._long_queue))

    def fire(self, event: str, *told: Any) -> None:
        """Call the hooks of ``event``."""
        self._call(event, self._hooks.get(event, ()), told)

    def fire_threshold(self, name: str, usual_s: float, told: Mapping[str, Any]) -> None:
        """Call the hooks for long queues that have the threshold of this name."""
        hooks = [hook for one, hook in self._long_queue if one.name(usual_s) == name]
        self._call("long_queue", hooks, (told,))

    @staticmethod
    def _call(event: str, hooks: Iterable[Callable[..., Any]], told: tuple[Any, ...]) -> None:
        for hook in hooks:
            try:
                hook(*told)
            except BaseException:
                # Also its sys.exit(), and a time limit that ran out in it: what it was told of has
                # been decided, and one outcome must not become two.
                log.exception("a hook for %r failed", event)
