"""The Storage contract: what one pool's storage promises to whoever submits, claims and finishes.

``Storage`` is what the committer, the fetcher, the recorder, the heart, the sweeper and the master
use of a pool, and ``skedulr.testing.conformance`` is the suite that every one passes.
``store.Store`` keeps all of it in Redis, ready work in sorted sets or in a stream. Clients submit,
cancel, pause and wait through whichever storage a pool has (``transports.on_storage``); lists, the
UI, schedules and workflows go by ``Store`` alone. ``examples/sqlite_transport`` is another one.

**One step.** Each method is atomic: of two calls at once one comes first, whole. A caller that dies
in the middle of one leaves all of it done or nothing. ``WireError`` says that it may be either.

**Repeats.** An answer can be lost. ``claim``, ``finish``, ``retry``, ``defer`` and ``moved`` are
numbered by their lane, one in flight, and the last number repeated gets the first answer again;
``submit`` may be repeated by id (the same envelope counts as stored); everything else may simply be
called again, and does no harm.

**Fencing.** A claim names a token, new for each claim. Whatever comes under a token that is not the
task's present one changes nothing and is answered LOST. An owner that was released is ``Gone``.

**Order.** With ``Flags.priority`` the highest priority first, else the order of becoming ready;
what is due later counts from when it became due. With ``Flags.keeps_place`` a task that comes back
without an attempt (released, recovered) stands where it stood, else behind the others.

**Time** is the storage's own, in ms since 1970, and comes with the answers: claims run out, delayed
tasks become due and retries too by its clock alone.

**What is kept** of a task is its journal (``message``): the envelope as it was handed in, a stamp,
and after each entry (an attempt, a cancel, its end) another: a msgpack uint64 of the ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from .dependencies import Waits
from .keys import PoolKeys
from .redis_scripts import Script
from .wire import Runner, Sleeper, WireError

T = TypeVar("T")

#: The most tasks one call takes.
BATCH = 500

#: What becomes of a submission or resubmission. PRIORITY: it has one, and the pool can not.
STORED, ALREADY, DUPLICATE, FULL, TAKEN, UNKNOWN, PRIORITY = "s", "a", "d", "f", "u", "n", "p"
#: Why there is none, for people.
NO_PRIORITY = "its transport runs tasks in the order in which they become ready"


def without_priorities(pool: str) -> str:
    """What who asked for a priority or a limit in such a pool is told."""
    return f"pool {pool!r} has no priorities and no limits: {NO_PRIORITY}"


#: What becomes of the outcome of a run.
KEPT, LOST, CANCEL_MEANWHILE = "k", "l", "c"

#: What attach says of a parent, and is told of one that may be missing.
PENDING, ENDED, MISSING = "p", "e", "m"
#: An item of the outbox comes again after this long if its deliverer died.
TAKEN_MS = 5000

#: Kinds of an end, as scripts know them.
END_SUCCEEDED, END_DEAD, END_CANCELLED, END_EXPIRED, END_SKIPPED = "s", "d", "c", "e", "k"


class Submission(NamedTuple):
    """One task to store: uid, envelope, and '' or ``"<priority> <when> <unique>[ <letters>]"``.

    The letters say what it waits for, one for each parent in ``waits`` (see hold_back.lua).
    """

    uid: str
    envelope: bytes
    options: str
    waits: Waits | None = None


class Ending(NamedTuple):
    """A run that ended: its claim's token, how, and its journal entry.

    ``kind`` is a letter, or ``"<letter> <waited ms or -> <ran ms or -> <name>"`` to have it counted
    under the task's name; where the claim is lost it is not.
    """

    uid: bytes
    token: bytes
    kind: str
    entry: bytes


@dataclass(frozen=True, slots=True)
class Judgement:
    """How the death of an owner is judged. ``culprit`` is the task that had the CPU, or b"".

    A crash is charged to it; at ``limit`` crashes it is dead. ``back`` and ``death`` are the
    journal entries for the two. With ``suspecting``, what was started is suspect where nobody is
    named. With ``loss`` nothing shows that a task was at fault: losses are counted apart, up to
    ``limit`` of them.
    """

    culprit: bytes
    limit: int
    back: bytes
    death: bytes
    suspecting: bool = True
    loss: bool = False
    #: What the culprit's task is called, for the statistics; "" where that is not known.
    name: str = ""


class Deferral(NamedTuple):
    """A claimed task that is put off ``delay_ms``, uncounted: nobody here knows its name."""

    uid: bytes
    token: bytes
    delay_ms: int


class Relocation(NamedTuple):
    """A claimed task that goes to ``pool``, where its name belongs.

    ``options`` as of a Submission; ``cancelled``: it is to be cancelled instead, there too, where
    an earlier try may have put it.
    """

    uid: bytes
    token: bytes
    pool: str
    envelope: bytes
    options: str
    cancelled: bool


class Suspension(NamedTuple):
    """A claimed task that is to wait for others: its journal entry, and what waiting is to hold of
    it (see hold_back.lua)."""

    uid: bytes
    token: bytes
    entry: bytes
    text: str


class Failure(NamedTuple):
    """A failed attempt that is to be tried again ``delay_ms`` from now.

    ``sample`` as behind the letter of an Ending's kind, or "".
    """

    uid: bytes
    token: bytes
    delay_ms: int
    entry: bytes
    sample: str = ""


@dataclass(slots=True)
class Claims:
    """What one claim took. ``rows`` is flat: uid, place, body, header, uid, ...

    ``next_due_ms``: from when another one may find something, as far as is known; not later than
    ``now_ms`` where more is there.
    """

    now_ms: int
    next_due_ms: int | None
    cancelled: list[bytes]
    rows: list[bytes]
    token: bytes


class Returned(NamedTuple):
    """What became of dead owners' claims: uids given back, those of them that were charged with
    a crash, those that are dead now; and whether more may be left, hooks are to be told of any that
    died (``Storage.mourn``), and there is something to deliver."""

    uids: list[bytes]
    charged: list[bytes]
    dead: list[bytes]
    more: bool
    untold: bool = False
    undelivered: bool = False

    @classmethod
    def read(cls, reply: list[Any]) -> Returned:
        """From the reply of release.lua or recover.lua."""
        _, uids, more, *judged = reply
        charged, dead, *there = judged or ([], [])
        untold, undelivered = there or (0, 0)
        return cls(uids, charged, dead, bool(more), bool(dead or untold), bool(undelivered))


class Trimmed(NamedTuple):
    """How many records were forgotten; the old ones that stay because they have children."""

    forgotten: int
    done: list[bytes]
    dead: list[bytes]


class Records(NamedTuple):
    """Ended and dead records that are kept, and the mean bytes of one in Redis (0 for none)."""

    done: int
    dead: int
    mean_bytes: float


def give_up(error: WireError, tries: int) -> None:
    """Rides nothing out: the first failure is the last."""
    raise error


class Lane:
    """Calls of one kind from one owner, numbered, one in flight.

    ``ride_out(error, tries)`` is asked after each failure: it waits and returns to have the call
    repeated under its number, or raises to give up (then the owner must not use the lane again,
    unless the next call is the same); by default it gives up at once.
    """

    def __init__(
        self, wire: Runner, owner: str, ride_out: Callable[[WireError, int], None] = give_up
    ) -> None:
        self.wire, self.owner, self._ride_out = wire, owner, ride_out
        self.number = 0

    def run(self, called: Script, keys: list[str], args: list[Any]) -> Any:
        """Run a script whose first argument after ``args[:k]`` is ``self.number + 1`` already."""
        return self.turn(lambda number: self.wire.run(called, keys, args))

    def run_after(
        self, wait: tuple[Any, ...], wait_s: float, called: Script, keys: list[str],
        args: list[Any],
    ) -> Any:
        """As ``run``, once a command that blocks for up to ``wait_s`` is through. A repeat does not
        wait: the call may have been answered already."""
        first = iter((True,))

        def step(number: int) -> Any:
            if next(first, False):
                return cast(Sleeper, self.wire).run_after(wait, wait_s, called, keys, args)
            return self.wire.run(called, keys, args)

        return self.turn(step)

    def turn(self, step: Callable[[int], T]) -> T:
        """Take the next numbered step, under its number until it is answered."""
        number = self.number + 1
        reply = self.insist(lambda: step(number))
        self.number = number
        return reply

    def insist(self, step: Callable[[], T]) -> T:
        """Take a step that may be repeated, until it is answered."""
        tries = 0
        while True:
            try:
                return step()
            except WireError as error:
                tries += 1
                self._ride_out(error, tries)


@dataclass(frozen=True, slots=True)
class Flags:
    """What kind of storage it is. ``priority``: it has priorities; else a submit of one that is not
    0 is answered PRIORITY. ``keeps_place``: what comes back stands where it stood.
    ``removes_waiting``: what is cancelled leaves nothing behind at once; else a mark stays where it
    stood until a claim or the sweep gets there (it is counted no more, and never claimed)."""

    priority: bool = True
    keeps_place: bool = True
    removes_waiting: bool = True


class Standing(NamedTuple):
    """A claimed task: its claim's token, when it was started (ms, 0 if not yet), its journal, and
    how many attempts were counted before this one."""

    token: bytes
    started_ms: int
    body: bytes
    attempts: int


class Storage(Protocol):
    """The tasks of one pool. ``wire`` and ``lane`` are the caller's connection, which a storage
    that has none of Redis ignores; uids are bytes where they come from a claim."""

    @property
    def keys(self) -> PoolKeys:
        """Whose storage it is: namespace and pool."""
        ...

    @property
    def flags(self) -> Flags: ...

    #: Called when tasks ended that others wait for: a deliverer should look.
    on_told: Callable[[], None]

    # For producers

    def submit(
        self, wire: Runner, batch: Sequence[Submission], capacity: int = 0, replaced: bytes = b"",
    ) -> tuple[str, list[str]]:
        """Store up to BATCH tasks, each or none of it: a verdict letter each (STORED, ALREADY,
        DUPLICATE, FULL, TAKEN, PRIORITY), and of each TAKEN who holds its key.

        ``capacity``: how many may be ready and delayed together, 0 for any number. ``replaced`` is
        the journal entry of tasks whose place is taken by one of these.
        """
        ...

    def resubmit(
        self, wire: Runner, batch: Iterable[tuple[str, str, bytes]], capacity: int = 0,
        ended_by_ms: int = 0,
    ) -> str:
        """Put finished tasks back, attempts and crashes at 0: uid, options, journal entry; a letter
        each: STORED, ALREADY (it is not finished), FULL, TAKEN, UNKNOWN. Only what ended by
        ``ended_by_ms``, 0 for all."""
        ...

    def cancel(self, wire: Runner, uid: str, entry: bytes, channel: str) -> str:
        """Cancel a task; what it was: queued, scheduled, waiting (it has ended now), running (its
        owner learns of it from ``renew`` at the latest), ended or unknown."""
        ...

    def purge(self, wire: Runner, uids: Sequence[bytes | str], *, ended: bool) -> int:
        """Remove up to BATCH tasks for good, those that have ended or those that have not
        started; how many were."""
        ...

    def pause(self, wire: Runner, paused: bool) -> bool:
        """Claim nothing any more, or go on; whether that was a change."""
        ...

    def watch(self, wire: Runner, uid: str, channel: str) -> bytes | bool:
        """The record of an ended task; True: ``channel`` will hear of it; False: unknown id."""
        ...

    def unwatch(self, wire: Runner, uid: str, channel: str) -> None:
        """Take back a ``watch``."""
        ...

    # For workers

    def claim(
        self, lane: Lane, want: int, starting: int, lease_ms: int, aging_ms: int = 0,
        sleep_s: float = 0.0,
    ) -> Claims:
        """Take up to ``want`` tasks (at most BATCH), the first ``starting`` of which are started at
        once. What is due is ready first, and what has waited ``aging_ms`` (0: nothing does) goes
        before what is of a higher priority. Fewer may come than there are; none while paused, and
        none where none is wanted: that ends the lane, for a call of this number that is still on
        its way too.

        With ``sleep_s`` it takes nothing before somebody said that there may be work, or so long
        has passed. Who is told may find nothing, and only one sleeper is told. A repeat does not
        sleep again.
        """
        ...

    def finish(
        self, lane: Lane, endings: Sequence[Ending], started: Iterable[tuple[bytes, bytes]] = ()
    ) -> str:
        """End up to BATCH runs and note which tasks (uid, token) were started since; a verdict
        letter each: KEPT or LOST."""
        ...

    def retry(self, lane: Lane, failures: Sequence[Failure]) -> str:
        """Count failed attempts and plan the next ones; a letter each: KEPT, LOST, or
        CANCEL_MEANWHILE: it is still claimed, and the caller has to finish it."""
        ...

    def defer(self, lane: Lane, batch: Iterable[Deferral]) -> str:
        """Put claimed tasks off, no attempt counted; letters as of ``retry``."""
        ...

    def moved(self, lane: Lane, batch: Iterable[tuple[bytes, bytes, bytes]]) -> str:
        """End claimed tasks that were stored in other pools: uid, token, entry; letters as of
        ``retry``."""
        ...

    def suspend(self, lane: Lane, batch: Iterable[Suspension]) -> str:
        """Have claimed tasks wait for others, no attempt counted; letters as of ``retry``."""
        ...

    def progress(self, wire: Runner, batch: Iterable[tuple[bytes, bytes, bytes]]) -> str:
        """Keep what running tasks report: uid, token, what; a letter each: KEPT or LOST."""
        ...

    def renew(
        self, wire: Runner, owner: str, held: Iterable[tuple[bytes, bytes]], lease_ms: int
    ) -> tuple[int, list[bytes], list[bytes]]:
        """Claims (uid, token) last ``lease_ms`` from now on, also those that were over and not
        recovered; (now ms, uids that are lost, uids that are to be cancelled)."""
        ...

    def release(self, wire: Runner, owner: str, held: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Give back named claims that still hold, no attempt counted; the uids that were."""
        ...

    def promote(self, wire: Runner, limit: int = BATCH) -> tuple[int, int, int | None]:
        """What is due becomes ready; (now ms, how many, when the next is due or None)."""
        ...

    # For whoever looks after the workers

    def recover(
        self, wire: Runner, lease_ms: int, gap_ms: int, judgement: Judgement, limit: int = BATCH
    ) -> Returned:
        """Give back what nobody renewed in time, up to ``limit``, and judge it as a death that
        named nobody. Where nothing swept for ``gap_ms``, nothing for one lease: the storage was
        away, and the owners could not renew."""
        ...

    def release_owner(
        self, wire: Runner, owner: str, judgement: Judgement | None = None
    ) -> Returned:
        """Give back up to BATCH claims of a dead owner, which is Gone from now on. Without a
        judgement nobody is charged."""
        ...

    def mourn(
        self, wire: Runner, told: Sequence[tuple[bytes, bytes]], limit: int = 20
    ) -> tuple[bytes, list[tuple[bytes, bytes, bytes]]]:
        """Let go of what was ``told``, (uid, score) pairs, and take tasks that died without a run
        of theirs that could say so: their score, and (uid, record, journal) of each, either of them
        b"" where there is none. What is not let go of comes again."""
        ...

    def note_death(self, wire: Runner, uid: bytes) -> None:
        """A claimed task is about to be ended as dead by another than its owner: ``mourn`` is to
        find it. Where that does not happen the note goes when the task has ended."""
        ...

    def standing(self, wire: Runner, uid: bytes) -> Standing | None:
        """What is known of a claimed task; None for one that is not claimed."""
        ...

    def held_by(self, wire: Runner, owner: str) -> list[tuple[bytes, bytes]]:
        """(uid, token) of everything an owner holds."""
        ...

    def last_number(self, wire: Runner, owner: str, kind: str) -> int:
        """The last number of an owner's lane, "claim" or "finish"; 0 for none."""
        ...

    def records(self, wire: Any) -> Records:
        """How many records the pool keeps, and about how many bytes one takes."""
        ...

    def fold(self, wire: Any, pages: int = 20) -> int:
        """Add minutes that are over to longer spans of the statistics; how many were. 0 where a
        storage keeps none."""
        ...

    def trim(
        self, wire: Runner, age_ms: int, most_done: int, most_dead: int, limit: int = BATCH,
        passed: tuple[int, int] = (0, 0), loose: Sequence[bytes] = (),
    ) -> Trimmed:
        """Forget the oldest records beyond age and count, none younger than a minute, and none of
        parents: ``passed`` of the oldest ended, and dead, ones stay because children need them;
        ``loose`` are parents that none needs."""
        ...
