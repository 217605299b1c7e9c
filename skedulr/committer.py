"""Group commit: submits from many greenlets or threads share script calls.

One committer per pool and process sends whatever gathered while its last call was under way, up to
500 tasks at once; each caller waits only for its own answer, so one alone waits for nothing. It
is a daemon thread, which under monkey-patching is a greenlet. It is not led by one of the callers:
a leading caller that is killed by a time-out of its own would lose the others' submits.

Nothing is buffered after ``submit`` returned. A submit may be repeated, because the same id with
the same envelope counts as stored; so a lost reply costs a repeat and never a second task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from . import message
from .errors import SkedulrError, StorageUnavailable
from .store import BATCH, TAKEN, Store, Submission
from .wire import NotAnswered, Wire, WireError

log = logging.getLogger("skedulr.client")

#: Between two tries at a server that does not answer or refuses, seconds; doubled up to the second.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


class Parcel:
    """Up to 500 submissions of one caller, and the answer it waits for."""

    __slots__ = (
        "_answered", "deadline", "error", "holders", "sent", "submissions", "verdicts",
    )

    def __init__(self, submissions: Sequence[Submission], deadline: float) -> None:
        self.submissions, self.deadline = submissions, deadline
        self.verdicts: str | None = None
        #: Who holds the unique key of each submission whose verdict is TAKEN, by its index.
        self.holders: dict[int, str] = {}
        self.error: BaseException | None = None
        #: Whether Redis may have stored it although no answer came.
        self.sent = False
        self._answered = threading.Lock()
        self._answered.acquire()

    def wait(self) -> str:
        """A verdict letter a submission; raises what kept it from being stored."""
        if self.verdicts is not None:
            return self.verdicts
        if self.error is not None:
            raise self.error
        # The committer answers by the deadline; this bound is for a committer that can not run,
        # because native code holds this process's only thread.
        if not self._answered.acquire(timeout=max(0.0, self.deadline - time.monotonic()) + 1.0):
            raise StorageUnavailable("no answer in time", maybe_submitted=True)
        if self.error is not None:
            raise self.error
        assert self.verdicts is not None
        return self.verdicts

    def answer(self, verdicts: str | None, error: BaseException | None = None) -> None:
        """Give the caller its answer; only the first one counts."""
        if self._answered.locked():
            self.verdicts, self.error = verdicts, error
            self._answered.release()


class Committer:
    """Sends the parcels of one pool."""

    def __init__(self, *, store: Store, wire: Wire, timeout_s: float, capacity: int = 0) -> None:
        self._store, self._wire = store, wire
        self._timeout_s, self._capacity = timeout_s, capacity
        self._waiting: deque[Parcel] = deque()
        self._replaced = message.entry(
            message.CANCELLED, "", 0, 0, "replaced by a newer task with the same unique key"
        )
        # A lock used as a bell: locked while silent. It belongs to no caller.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def post(self, submissions: Sequence[Submission], timeout_s: float | None = None) -> Parcel:
        """Hand in up to 500 submissions; ``wait`` on the parcel for the answer."""
        parcel = Parcel(
            submissions, time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        )
        self._waiting.append(parcel)
        if self._thread is None:
            self._start()
        self._ring()
        return parcel

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name=f"skedulr-committer-{self._store.keys.pool}", daemon=True
                )
                thread.start()
                self._thread = thread

    def _ring(self) -> None:
        if self._bell.locked():
            try:
                self._bell.release()
            except RuntimeError:
                pass  # another thread rang in between: once is enough

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            while self._waiting:
                batch = self._gather()
                try:
                    self._commit(batch)
                except BaseException as error:
                    # A fault of ours, or this greenlet is killed: nobody may wait in vain.
                    for parcel in batch:
                        parcel.answer(None, error)
                    if not isinstance(error, Exception):
                        self._thread = None
                        raise
                    log.exception("a batch of submits failed")

    def _gather(self) -> list[Parcel]:
        """What fits into one call; at least one parcel."""
        batch = [self._waiting.popleft()]
        room = BATCH - len(batch[0].submissions)
        while self._waiting and len(self._waiting[0].submissions) <= room:
            parcel = self._waiting.popleft()
            room -= len(parcel.submissions)
            batch.append(parcel)
        return batch

    def _commit(self, batch: list[Parcel]) -> None:
        pause_s = _FIRST_PAUSE_S
        while batch:
            left_s = max(parcel.deadline for parcel in batch) - time.monotonic()
            self._wire.timeout_s = max(0.01, left_s)
            submissions = [one for parcel in batch for one in parcel.submissions]
            try:
                verdicts, holders = self._store.submit(
                    self._wire, submissions, self._capacity, self._replaced
                )
            except WireError as error:
                batch = self._give_up_late(batch, error, pause_s)
                if batch:
                    time.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            self._deal_out(batch, verdicts, holders)
            return

    @staticmethod
    def _deal_out(batch: list[Parcel], verdicts: str, holders: list[str]) -> None:
        """Each parcel its part of the answer."""
        at = 0
        remaining = iter(holders)
        for parcel in batch:
            part = verdicts[at:at + len(parcel.submissions)]
            at += len(part)
            if TAKEN in part:
                parcel.holders = {
                    i: next(remaining) for i, letter in enumerate(part) if letter == TAKEN
                }
            parcel.answer(part)

    def _give_up_late(
        self, batch: list[Parcel], error: WireError, pause_s: float
    ) -> list[Parcel]:
        """Answer those whose time is over; the others, to try again."""
        left = []
        for parcel in batch:
            parcel.sent = parcel.sent or (isinstance(error, NotAnswered) and error.sent)
            if time.monotonic() + pause_s < parcel.deadline:
                left.append(parcel)
            else:
                parcel.answer(None, unavailable(error, maybe_submitted=parcel.sent))
        return left


def unavailable(error: WireError, *, maybe_submitted: bool = False) -> SkedulrError:
    """The one documented error for a Redis that does not answer or refuses."""
    known = (
        "the task may have been stored" if maybe_submitted else "certainly nothing was stored"
    )
    failure = StorageUnavailable(f"Redis is not available ({error}); {known}", maybe_submitted)
    failure.__cause__ = error
    return failure
