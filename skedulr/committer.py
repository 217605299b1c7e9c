"""Group commit: submits from many greenlets or threads share script calls.

One committer per pool and process sends whatever gathered while its last call was under way, up to
500 tasks at once; each caller waits only for its own answer. It is a daemon thread, which under
monkey-patching is a greenlet. It is not led by one of the callers: a leading caller that is killed
by a time-out of its own would lose the others' submits.

A caller that is alone carries its own submit, for handing it to a thread and back takes longer
than the rest: on a connection that is there, nobody waiting, the last call not shared. It never
carries another's. What goes wrong it leaves to the committer.

Where replicas are to have a task before it counts, each call is followed by a WAIT, on the same
connection. One that is not reached in time is a try that failed: the submit is repeated, which
stores nothing twice, until the caller's time is over.

Nothing is buffered after ``submit`` returned. A submit may be repeated, because the same id with
the same envelope counts as stored; so a lost reply costs a repeat and never a second task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from redis.exceptions import RedisError, ResponseError

from . import message, transports
from .errors import SkedulrError, StorageUnavailable
from .lookout import Lookout
from .storage import ALREADY, BATCH, STORED, TAKEN, Submission
from .store import Store
from .wire import NotAnswered, Wire, WireError

log = logging.getLogger("skedulr.client")

#: Between two tries at a server that does not answer or refuses, seconds; doubled up to the second.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
#: An answer may come this much after its caller's time is over: no try is shorter, or a crowd of
#: callers whose times end one after the other would cut each other's tries to nothing.
_LATE_S = 0.5
#: A call that has this many bytes takes no more: it is to be sent and stored well within the time.
CALL_BYTES = 4_194_304
#: Larger submits are not carried by their caller: sending may take as long again as the answer.
_SMALL_BYTES = 16_384


class Parcel:
    """Up to 500 submissions of one caller, and the answer it waits for.

    ``patience_s``: of one that is handed in before its caller waits for it, how long that waits.
    """

    __slots__ = (
        "_answered", "_patience_s", "abandoned", "at", "deadline", "error", "flying", "holders",
        "sent", "submissions", "verdicts",
    )

    def __init__(
        self, submissions: Sequence[Submission], deadline: float, at: Callable[[], str] = str,
        patience_s: float = 0.0,
    ) -> None:
        self.submissions, self.deadline, self.at = submissions, deadline, at
        self._patience_s = patience_s
        self.verdicts: str | None = None
        #: Who holds the unique key of each submission whose verdict is TAKEN, by its index.
        self.holders: dict[int, str] = {}
        self.error: BaseException | None = None
        #: A try is under way; an earlier one may have been stored although no answer came.
        self.flying = self.sent = False
        #: Its caller is gone: if it was not sent by then, it is not sent any more.
        self.abandoned = False
        #: What its caller sleeps on; only who hands it over needs one.
        self._answered: threading.Lock | None = None

    def hand_over(self) -> None:
        """Its caller is going to wait for another to answer it."""
        self._answered = threading.Lock()
        self._answered.acquire()

    def wait(self) -> str:
        """A verdict letter a submission; raises what kept it from being stored."""
        if self.verdicts is None and self.error is None:
            # What its caller did until now (prepare the next ones, in a greenlet that lets nothing
            # else run) was no time of Redis'.
            self.deadline = max(self.deadline, time.monotonic() + self._patience_s)
            self._sleep()
        if self.error is not None:
            raise self.error
        assert self.verdicts is not None
        return self.verdicts

    def _sleep(self) -> None:
        # The committer answers by the deadline. This bound is for a committer that can not: native
        # code holds this process's only thread, or the host's name is looked up for ever.
        assert self._answered is not None
        bound_s = max(0.0, self.deadline - time.monotonic()) + 1.5 * _LATE_S
        answered = False
        try:
            answered = self._answered.acquire(timeout=bound_s)
        finally:
            self.abandoned = not answered
        if not answered:
            maybe = self.sent or self.flying
            raise unavailable("no answer in time", at=self.at(), maybe_submitted=maybe)

    def answer(self, verdicts: str | None, error: BaseException | None = None) -> None:
        """Give the caller its answer; only the first one counts."""
        if self.verdicts is None and self.error is None:
            self.verdicts, self.error = verdicts, error
            if self._answered is not None:
                self._answered.release()


class Committer:
    """Sends the parcels of one pool. ``announce`` is called with each new connection, and ``at``
    tells in errors which server that is."""

    def __init__(
        self, *, store: Store, wire: Wire, timeout_s: float, capacity: int = 0,
        wait_replicas: int = 0, announce: Callable[[Wire], None] = lambda wire: None,
        at: Callable[[], str] = str,
    ) -> None:
        self._at = at
        self._store, self._wire, self._announce = store, wire, announce
        self._wait_replicas = wait_replicas
        self._timeout_s, self._capacity = timeout_s, capacity
        self._replaced = message.entry(
            message.CANCELLED, "", 0, 0, "replaced by a newer task with the same unique key"
        )
        self._waiting: deque[Parcel] = deque()
        # A lock used as a bell: locked while silent. It belongs to no caller.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._guard = threading.Lock()
        #: Under "wire" who uses it: the committer itself, or the parcel of a caller that carries
        #: its own. In a dict, for there ``setdefault`` asks and takes in one step.
        self._users: dict[str, Committer | Parcel] = {}
        #: Whether the last call had one parcel only.
        self._alone = True
        self._thread: threading.Thread | None = None
        self._stopped = False
        #: Of those who carry their own: the committer's thread has others beside it to do.
        self._lookout = Lookout()

    def submit(self, submissions: Sequence[Submission]) -> Parcel:
        """Store up to 500; an answered parcel. Raises what kept them from being stored."""
        parcel = self._parcel(submissions)
        try:
            if self._alone and self._may_carry(parcel):
                self._carry(parcel)
        finally:
            # Also where a time-out or a signal's handler raised: the wire is free again.
            if self._users.get("wire") is parcel:
                del self._users["wire"]
                if self._waiting:
                    self._wake()
        if parcel.verdicts is None:
            self._enqueue(parcel)
            parcel.wait()
        return parcel

    def post(self, submissions: Sequence[Submission]) -> Parcel:
        """Hand in up to 500 submissions; ``wait`` on the parcel for the answer."""
        parcel = self._parcel(submissions, self._timeout_s)
        self._enqueue(parcel)
        return parcel

    def _parcel(self, submissions: Sequence[Submission], patience_s: float = 0.0) -> Parcel:
        return Parcel(submissions, time.monotonic() + self._timeout_s, self._at, patience_s)

    def stop(self) -> None:
        """Close the connection and let the thread end, once what was handed in is answered."""
        self._stopped = True
        if self._thread is None:
            self._wire.close()
        else:
            self._wake()

    def leave_parent(self) -> None:
        """As ``Wire.leave``."""
        self._wire.leave()

    # A caller that carries its own

    def _may_carry(self, parcel: Parcel) -> bool:
        if self._waiting or not self._wire.usable_here or _size(parcel) > _SMALL_BYTES:
            return False
        return self._users.setdefault("wire", parcel) is parcel

    def _carry(self, parcel: Parcel) -> None:
        """Try once, for the caller; what it does not answer, the committer is to go on with."""
        self._wire.lookout = self._lookout
        try:
            self._send([parcel])
        except WireError as error:
            parcel.sent = error.sent
            if time.monotonic() + _FIRST_PAUSE_S >= parcel.deadline:
                raise unavailable(error, at=self._at(), maybe_submitted=parcel.sent) from error
        except RedisError as error:
            raise _refused(error) from error
        finally:
            self._wire.lookout = None

    # Handing over

    def _enqueue(self, parcel: Parcel) -> None:
        parcel.hand_over()
        self._waiting.append(parcel)
        # A caller that carries its own wakes the committer when it is done.
        if not isinstance(self._users.get("wire"), Parcel):
            self._wake()

    def _wake(self) -> None:
        """Have the committer look, and have one: it starts at the first need, or was killed."""
        if self._thread is None or not self._thread.is_alive():
            with self._guard:
                if self._thread is None or not self._thread.is_alive():
                    name = f"skedulr-committer-{self._store.keys.pool}"
                    self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                    self._thread.start()
        if self._bell.locked():
            try:
                self._bell.release()
            except RuntimeError:
                pass  # another thread rang in between: once is enough

    # The committer

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            while self._waiting and self._take_wire():
                batch = self._gather()
                try:
                    self._commit(batch)
                except Exception as error:
                    if not isinstance(error, (RedisError, SkedulrError)):
                        log.exception("a batch of submits failed")
                    for parcel in batch:
                        parcel.answer(None, _refused(error))
                except BaseException:
                    self._die(batch)
                    raise
                # Not where it was killed: by then its successor may have the wire.
                self._users.pop("wire", None)
            if self._stopped and not self._waiting:
                self._wire.close()
                return

    def _die(self, batch: list[Parcel]) -> None:
        """Killed: nobody may wait in vain, and those behind get a new committer."""
        for parcel in batch:
            maybe = parcel.sent or parcel.flying
            parcel.answer(None, unavailable(
                "its sender was killed", at=self._at(), maybe_submitted=maybe
            ))
        self._thread = None
        self._users.clear()
        if self._waiting:
            self._wake()

    def _take_wire(self) -> bool:
        return self._users.setdefault("wire", self) is self

    def _gather(self) -> list[Parcel]:
        """What fits into one call; at least one parcel."""
        batch = [self._waiting.popleft()]
        room, room_bytes = BATCH - len(batch[0].submissions), CALL_BYTES - _size(batch[0])
        while self._waiting and len(self._waiting[0].submissions) <= room and room_bytes > 0:
            parcel = self._waiting.popleft()
            room -= len(parcel.submissions)
            room_bytes -= _size(parcel)
            batch.append(parcel)
        self._alone = len(batch) == 1
        return batch

    def _commit(self, batch: list[Parcel]) -> None:
        """Try until Redis answered, or nobody is left whose time is not over.

        Everyone gets one try: who comes late to it did so because this process was busy, which
        says nothing of Redis. (A caller that is gone is not tried for.)

        A copy that a fork made of this greenlet goes on as well; what it repeats is stored already.
        """
        pause_s = _FIRST_PAUSE_S
        batch = [parcel for parcel in batch if not parcel.abandoned]
        while batch:
            try:
                self._try(batch)
                return
            except WireError as error:
                for parcel in batch:
                    parcel.sent = parcel.sent or (parcel.flying and error.sent)
                    parcel.flying = False
                batch = _in_time(batch, error, pause_s)
                if batch:
                    time.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                batch = _in_time(batch, error)

    def _try(self, batch: list[Parcel]) -> None:
        if not self._wire.connected:
            self._connect()
        now = time.monotonic()
        # One that is late already goes along, and is no reason to cut the others' try short.
        left_s = min((one.deadline - now for one in batch if one.deadline > now), default=0.0)
        # The connection's usual bound costs nothing to use, another one two system calls.
        hurry = left_s < self._timeout_s - _LATE_S
        self._wire.timeout_s = max(_LATE_S, left_s) if hurry else self._timeout_s
        for parcel in batch:
            parcel.flying = True
        try:
            self._send(batch)
        finally:
            self._wire.timeout_s = self._timeout_s

    def _send(self, batch: list[Parcel]) -> None:
        """One call; each parcel gets its part of the answer."""
        submissions = batch[0].submissions if len(batch) == 1 else [
            one for parcel in batch for one in parcel.submissions
        ]
        try:
            verdicts, holders = self._store.submit(
                self._wire, submissions, self._capacity, self._replaced
            )
        except ResponseError as error:
            verdicts, holders = transports.elsewhere(self._store, error).submit(
                self._wire, submissions, self._capacity, self._replaced
            )
        if self._wait_replicas and (STORED in verdicts or ALREADY in verdicts):
            self._replicate(batch, repeated=ALREADY in verdicts)
        if len(batch) == 1 and not holders:
            batch[0].answer(verdicts)
            return
        at, remaining = 0, iter(holders)
        for parcel in batch:
            part = verdicts[at:at + len(parcel.submissions)]
            at += len(part)
            if TAKEN in part:
                parcel.holders = {
                    i: next(remaining) for i, letter in enumerate(part) if letter == TAKEN
                }
            parcel.answer(part)

    def _replicate(self, batch: list[Parcel], *, repeated: bool) -> None:
        """Wait until enough replicas have what was stored. Raises a WireError that says it was."""
        left_s = min(parcel.deadline for parcel in batch) - time.monotonic()
        stats = self._store.keys.stats
        try:
            if repeated:
                # An earlier try stored it, maybe on another connection, and WAIT is about the
                # writes of this one: so it gets one, which changes nothing.
                self._wire.call("HINCRBY", stats, "succeeded", 0)
            # Never 0 ms, which is for ever.
            wait_ms = max(1, round(1000 * left_s))
            reached = self._wire.replicated(stats, self._wait_replicas, wait_ms)
        except WireError as error:
            raise NotAnswered(f"stored, and not known to be at replicas: {error}", sent=True) from (
                error
            )
        if reached < self._wait_replicas:
            raise NotAnswered(
                f"stored, and at {reached} of {self._wait_replicas} replicas", sent=True
            )

    def _connect(self) -> None:
        self._wire.connect()
        try:
            self._announce(self._wire)
        except BaseException:
            # Unannounced, the pool would be on no list: not without it.
            self._wire.close()
            raise


def unavailable(
    why: object, *, at: str = "", maybe_submitted: bool | None = None
) -> StorageUnavailable:
    """The one documented error for a Redis that does not answer or refuses; ``at`` is which.

    ``maybe_submitted``: None where nothing was to be stored.
    """
    known = {
        None: "", True: "; the task may have been stored", False: "; certainly nothing was stored",
    }[maybe_submitted]
    where = f" at {at}" if at else ""
    text = f"Redis is not available{where}: {why}{known}"
    failure = StorageUnavailable(text, bool(maybe_submitted))
    if isinstance(why, BaseException):
        # The cause tells what kind of trouble it is. Where in the depths of a connection it came
        # up, and in which library's words before ours, would only bury the one line that helps.
        why.__traceback__ = why.__cause__ = None
        why.__suppress_context__ = True
        failure.__cause__ = why
    return failure


def _in_time(batch: list[Parcel], problem: WireError, ahead_s: float = 0.0) -> list[Parcel]:
    """Those whose time is not over ``ahead_s`` from now; the others are answered."""
    left = []
    for parcel in batch:
        if parcel.abandoned and not parcel.sent:
            continue
        if time.monotonic() + ahead_s < parcel.deadline:
            left.append(parcel)
        else:
            parcel.answer(None, unavailable(problem, at=parcel.at(), maybe_submitted=parcel.sent))
    return left


def _refused(error: Exception) -> SkedulrError:
    """For what Redis can not do now or later: a script's fault, a user without the right to it."""
    if isinstance(error, SkedulrError):
        return error
    failure = SkedulrError(f"the submit failed: {error}")
    failure.__cause__ = error
    return failure


def _size(parcel: Parcel) -> int:
    if len(parcel.submissions) == 1:
        return len(parcel.submissions[0].envelope)
    return sum(len(one.envelope) for one in parcel.submissions)
