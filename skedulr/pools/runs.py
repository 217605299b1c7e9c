"""A claimed task, and one attempt at running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..context import Context
    from ..tasks import Task
    from .workers import Worker

#: Why a run was interrupted; it decides the outcome, whatever the handler makes of it.
TIMED_OUT, CANCELLED, LOST, SHUTDOWN = "timed out", "cancelled", "lost", "shutdown"


class Claimed:
    """A task this process holds: its claim's token, its place in the queue, its journal so far.

    ``header`` is b"" for a plain task, else what the scripts know of it (see header.lua).
    ``came_at``: monotonic seconds. ``starting``: the claim said that it starts at once, as opposed
    to a task that was taken ahead of need.
    """

    __slots__ = ("body", "came_at", "header", "place", "starting", "token", "uid")

    def __init__(
        self, uid: bytes, token: bytes, place: int, body: bytes, header: bytes, came_at: float,
        starting: bool,
    ) -> None:
        self.uid, self.token, self.place = uid, token, place
        self.body, self.header, self.came_at = body, header, came_at
        self.starting = starting

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
    """One attempt under way."""

    __slots__ = (
        "abandoned", "attempt", "claimed", "context", "limit", "name", "reason", "spawned",
        "started_ms", "task", "worker",
    )

    def __init__(self, claimed: Claimed, worker: Worker, started_ms: int) -> None:
        self.claimed, self.worker, self.started_ms = claimed, worker, started_ms
        self.attempt = 1
        self.name = ""
        self.task: Task[..., Any] | None = None
        self.context: Context | None = None
        self.reason: str | None = None
        #: Its handler did not end when it was interrupted; whatever it comes to is dropped.
        self.abandoned = False
        #: Greenlets that its handler started and that have not ended, if it ever did.
        self.spawned: set[Any] | None = None
        #: The wheel's entry of its time limit, or of the end of its last words.
        self.limit: Any = None
