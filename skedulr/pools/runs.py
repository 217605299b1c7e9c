"""A claimed task, and one attempt at running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..context import Context
    from ..tasks import Task
    from .workers import Worker

#: Why a run was interrupted; it decides the outcome, whatever the handler makes of it.
TIMED_OUT, CANCELLED, LOST, SHUTDOWN = "timed out", "cancelled", "lost", "shutdown"


class Claimed(NamedTuple):
    """A task this process holds: its claim's token, its place in the queue, its journal so far.

    ``header`` is b"" for a plain task, else what the scripts know of it (see header.lua).
    ``came_at``: monotonic seconds. ``starting``: the claim said that it starts at once, as opposed
    to a task that was taken ahead of need.
    """

    uid: bytes
    token: bytes
    place: int
    body: bytes
    header: bytes
    came_at: float
    starting: bool

    def counters(self) -> tuple[int, int]:
        """Attempts that ended so far, and when it was due (ms, 0 for a task without a delay)."""
        if not self.header:
            return 0, 0
        parts = self.header.split(b" ", 4)
        return int(parts[1]), int(parts[3])

    def unknown_since_ms(self) -> int:
        """When it was first put off because nobody knew its name, 0 if it never was."""
        parts = self.header.split(b" ")
        return int(parts[5]) if len(parts) >= 6 else 0


class Run:
    """One attempt under way. ``describe(run)`` makes the context that its handler may ask for."""

    __slots__ = (
        "_context", "_describe", "abandoned", "args", "attempt", "began", "claimed", "deadline",
        "due_ms", "extras", "kwargs", "limit", "name", "reason", "spawned", "started_ms", "task",
        "uid", "worker",
    )

    #: Of its envelope; there once that was read.
    args: list[Any]
    kwargs: dict[str, Any]
    extras: dict[str, Any]

    def __init__(
        self, claimed: Claimed, worker: Worker, started_ms: int,
        describe: Callable[[Run], Context],
    ) -> None:
        self.claimed, self.worker, self.started_ms = claimed, worker, started_ms
        self.uid, self._describe = claimed.uid, describe
        self._context: Context | None = None
        self.attempt, self.due_ms = 1, 0
        self.name = ""
        self.task: Task[..., Any] | None = None
        #: Whether its handler was begun.
        self.began = False
        #: When its time limit ends, monotonic seconds.
        self.deadline: float | None = None
        self.reason: str | None = None
        #: Its handler did not end when it was interrupted; whatever it comes to is dropped.
        self.abandoned = False
        #: Greenlets that its handler started and that have not ended, if it ever did.
        self.spawned: set[Any] | None = None
        #: The wheel's entry of its time limit, or of the end of its last words.
        self.limit: Any = None

    @property
    def context(self) -> Context | None:
        """The run as its handler and hooks see it, made when somebody asks; None before its
        handler was begun."""
        if self._context is None and self.began:
            self._context = self._describe(self)
        return self._context

    @property
    def id(self) -> str:
        """Of the task, without its pool."""
        return self.uid.decode()

    def interrupt(self, reason: str) -> None:
        """Note why it is broken off; the first reason counts."""
        self.reason = reason
        if self._context is not None:
            self._context.cancelled = True
