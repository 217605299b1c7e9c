"""Findings: which states of what Redis holds are broken, judged from plain facts.

Pure: facts in, findings out. Reading the facts and mending is ``doctor.py``'s. No script leaves any
of these states behind; they come from a failover that lost writes, an operator's hand, another
program on the same server, or a mistake of ours.

A live task has a body in ``tasks`` and is in one place: ready, delayed, suspects, parked by a
limit, waiting for others (in waiting and in held), or claimed (a claim, a lease, an entry in what
its owner holds). One that ended has a record instead, listed in done or dead. All else beside them
(header, cancel flag, watch, progress, lock) goes with the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import message
from .errors import PayloadError


class Kind(NamedTuple):
    """What a kind of finding is about, and what mends it: a script and what that is told to do,
    or a plain command, or what delivery.py does; nothing where we may not."""

    subject: str
    script: str = ""
    action: str = ""


KINDS: dict[str, Kind] = {
    "running-without-lease": Kind("task", "mend", "lease"),
    "lease-too-long": Kind("task", "mend", "lease"),
    "lease-without-claim": Kind("task", "mend", "unlease"),
    "claim-without-body": Kind("task", "mend", "unclaim"),
    "claim-unreadable": Kind("task", "mend", "unclaim"),
    "queued-without-body": Kind("task", "mend", "unqueue"),
    "record-and-body": Kind("task", "mend", "one_life"),
    "in-two-places": Kind("task", "mend", "one_place"),
    "in-no-place": Kind("task", "mend", "requeue"),
    "waits-in-no-place": Kind("task", "mend", "hold"),
    "record-unlisted": Kind("task", "mend", "file"),
    "record-misfiled": Kind("task", "mend", "file"),
    "listed-without-record": Kind("task", "mend", "unlist"),
    "header-unreadable": Kind("task", "mend", "header"),
    "body-unreadable": Kind("task", "bury"),
    "record-unreadable": Kind("task", "bury"),
    "header-without-body": Kind("task", "mend", "forget"),
    "cancel-without-body": Kind("task", "mend", "forget"),
    "watch-without-body": Kind("task", "mend", "forget"),
    "progress-without-body": Kind("task", "mend", "forget"),
    "claim-unowned": Kind("task", "mend_owner", "own"),
    "owned-without-claim": Kind("task", "mend_owner", "disown"),
    "newer-release": Kind("task"),
    "suspect": Kind("task"),
    "held-without-waiting": Kind("waiting", "mend", "hold"),
    "waiting-unreadable": Kind("waiting", "mend", "hold"),
    "start-forgotten": Kind("waiting", "mend", "hold"),
    "waiting-without-held": Kind("waiting", "mend", "list_held"),
    "edges-unreadable": Kind("edges", "mend", "unedge"),
    "edge-lost": Kind("waiting", "tie"),
    "parent-ended": Kind("waiting", "tie"),
    "parent-unknown": Kind("waiting", "tie"),
    "edges-without-parent": Kind("edges", "mend", "untie"),
    "outbox-unreadable": Kind("outbox", "mend", "untell"),
    "outbox-too-late": Kind("outbox", "mend", "hurry"),
    "outbox-overdue": Kind("outbox", "deliver"),
    "owner-for-ever": Kind("owner", "mend_owner", "expire"),
    "lock-without-holder": Kind("lock", "mend", "unlock"),
    "lock-unreadable": Kind("lock", "mend", "unlock"),
    "lock-without-window": Kind("lock", "mend", "window"),
    "window-without-lock": Kind("lock", "mend", "unwindow"),
    "slot-without-claim": Kind("limit", "mend", "unslot"),
    "slots-miscounted": Kind("limit", "mend", "recount"),
    "parked-in-no-queue": Kind("limit", "mend", "unpark"),
    "queue-member-not-parked": Kind("limit", "mend", "unmember"),
    "set-waits-for-nothing": Kind("limit", "mend", "wait"),
    "wait-without-set": Kind("limit", "mend", "unwait"),
    "limit-stuck": Kind("limit", "mend", "let_out"),
    "release-unnoted": Kind("limit", "mend", "note"),
    "set-aside": Kind("note", "mend", "unnote"),
    "wake-overfull": Kind("note", "mend", "one_wake"),
    "schedule-incomplete": Kind("schedule", "mend_schedule", "remove"),
    "schedule-without-tick": Kind("schedule", "mend_schedule", "tick"),
    "schedule-rests-and-ticks": Kind("schedule", "mend_schedule", "rest"),
    "schedule-unlisted": Kind("schedule", "command"),
    "listed-without-schedule": Kind("listing", "command"),
    "node-silent": Kind("node", "command"),
    "node-unreadable": Kind("node", "command"),
    "pool-unlisted": Kind("pool", "command"),
    "lock-for-ever": Kind("operation", "command"),
    "key-unknown": Kind("key"),
    "key-of-wrong-type": Kind("key"),
}

#: A lease that ends later than this was written under another clock, ms: no owner renews so far.
FURTHEST_LEASE_MS = 86_400_000
#: A window that ended this long ago and still has an entry without a lock stays for ever, ms.
#: (Cancelling a task lets its lock go at once; the sweep takes the entry when its time has come.)
WINDOW_LEFT_MS = 300_000

_HEADER = re.compile(
    rb"-?\d+ \d+ \d+(\+\d+)? \d+ \S+( \d+( (?![lf]:)\S+)?)?( l:\S+)?( f:\S+)?"
)
_CLAIM = re.compile(rb"(\S+) \d+ \d+( s)?")
_LOCK = re.compile(rb"(\S+) (\d+)")
_PLAN = re.compile(rb"\S+ \S+ \S+ \d \d+ \d+ \S+")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something broken. ``uid`` names what it is about: mostly a task, else a key, a lock's digest,
    a schedule or a node; ``pool`` is None for what belongs to the whole namespace.

    ``detail`` is for the mend; ``owner`` names the process that is concerned. ``left_alone``: of a
    kind that could be mended, and not now.
    """

    kind: str
    pool: str | None
    uid: str
    text: str
    detail: bytes = b""
    owner: str = ""
    left_alone: bool = False

    @property
    def fixable(self) -> bool:
        """Whether ``Doctor.mend`` does something about it."""
        return bool(KINDS[self.kind].script) and not self.left_alone

    @property
    def place(self) -> tuple[str, str | None, str, str]:
        """What makes it the same finding at a second look."""
        return self.kind, self.pool, self.owner, self.uid

    def view(self) -> dict[str, Any]:
        """The form in which it is shown."""
        return {"kind": self.kind, "pool": self.pool, "uid": self.uid, "text": self.text,
                "fixable": self.fixable}


@dataclass(slots=True)
class TaskFacts:
    """Where a task's id stands, read in one step. ``ready`` to ``dead`` are its scores there."""

    uid: str
    body: bool
    record: bool
    watched: bool
    progress: bool
    cancelled: bool
    claim: bytes | None
    header: bytes | None
    ready: float | None
    delayed: float | None
    suspect: float | None
    lease: float | None
    done: float | None
    dead: float | None
    held: float | None = None
    parked: float | None = None
    waiting: bool = False
    #: Whether what is ready is in a stream: an entry of nobody's goes when a claim gets there.
    streamed: bool = False

    @property
    def queues(self) -> list[str]:
        """The places in which it waits to be claimed."""
        return [name for name, score in (
            ("ready", self.ready), ("delayed", self.delayed), ("suspects", self.suspect),
            ("waiting", 0.0 if self.waiting else self.held), ("parked", self.parked),
        ) if score is not None]

    @property
    def holder(self) -> str | None:
        """Who has claimed it, by a claim that can be read."""
        return None if self.claim is None else owner_of(self.claim)


class Sight(NamedTuple):
    """What a judgement says; see ``Finding``."""

    kind: str
    text: str
    detail: bytes = b""
    left_alone: bool = False


def judge_task(f: TaskFacts, now_ms: int, grace_ms: int) -> Iterator[Sight]:
    """All that is broken about a task, save its journal. ``grace_ms`` is for a lease to be made."""
    yield from _judge_claim(f, now_ms, grace_ms)
    yield from _judge_places(f)
    if not f.record and (f.done is not None or f.dead is not None):
        yield Sight("listed-without-record", f"listed in {_lists(f)}, and its record is gone")
    if not f.body and f.claim is None:
        yield from _judge_leftovers(f)
    if f.body and f.header is not None and not _HEADER.fullmatch(f.header):
        yield Sight("header-unreadable", f"its header can not be read: {f.header[:60]!r}; without "
                    "it, its priority is 0 and its attempts count from 0")


def _judge_claim(f: TaskFacts, now_ms: int, grace_ms: int) -> Iterator[Sight]:
    lease = b"%d %d" % (grace_ms, FURTHEST_LEASE_MS)
    if f.claim is None:
        if f.lease is not None:
            yield Sight("lease-without-claim", "it has a lease, and nobody has claimed it")
    elif f.holder is None:
        yield Sight("claim-unreadable", f"its claim can not be read: {f.claim[:60]!r}")
    elif not f.body:
        yield Sight("claim-without-body", f"claimed by {f.holder}, and its body is gone")
    elif f.lease is None:
        yield Sight("running-without-lease", f"claimed by {f.holder}, without a lease: no sweep "
                    "would find it", lease)
    elif f.lease > now_ms + FURTHEST_LEASE_MS:
        days = (f.lease - now_ms) / 86_400_000
        yield Sight("lease-too-long", f"claimed by {f.holder}, with a lease of {days:,.0f} days: "
                    "was the server's clock set back?", lease)


def _judge_places(f: TaskFacts) -> Iterator[Sight]:
    queues, claimed = f.queues, f.holder is not None
    if queues and not f.body:
        lost = "its record is there" if f.record else "what it was to do is lost"
        yield Sight("queued-without-body",
                    f"queued in {' and '.join(queues)}, and its body is gone: {lost}",
                    left_alone=f.streamed and f.ready is not None)
    if f.body and f.record:
        yield Sight("record-and-body", "it has ended, and its body is still there")
    elif f.body and not queues and f.claim is None:
        yield Sight("in-no-place", "its body is there, and nothing would ever run it")
    if f.body and len(queues) + claimed > 1:
        places = [*queues, *(["running"] if claimed else [])]
        yield Sight("in-two-places", f"in {' and '.join(places)} at once: it may run twice")
    elif f.body and queues == ["suspects"]:
        yield Sight("suspect", "it ran when a process died and nobody was named: it is run alone "
                    "next")


def _judge_leftovers(f: TaskFacts) -> Iterator[Sight]:
    of = "of a task that " + ("has ended" if f.record else "is gone")
    if f.header is not None:
        yield Sight("header-without-body", f"the header {of}")
    if f.cancelled:
        yield Sight("cancel-without-body", f"a cancel {of}")
    if f.watched:
        yield Sight("watch-without-body", f"somebody waits for the end {of}")
    if f.progress:
        yield Sight("progress-without-body", f"the progress {of}")


def judge_body(f: TaskFacts, body: bytes) -> Iterator[Sight]:
    """What is broken about a journal of a task that has not ended."""
    why = _unreadable(body)
    if why is None:
        return
    if _is_newer(why):
        yield Sight("newer-release", f"its body is of a newer release: {why}")
    elif f.claim is not None:
        # Its worker buries it.
        yield Sight("body-unreadable", f"it runs, and its body can not be read: {why}", body, True)
    else:
        yield Sight("body-unreadable", f"its body can not be read: {why}", body, f.record)


def judge_record(f: TaskFacts, record: bytes, now_ms: int) -> Iterator[Sight]:
    """What is broken about the journal of a task that has ended, and where it is listed."""
    why = _unreadable(record)
    if why is None:
        if not f.body:
            yield from _judge_listing(f, record, now_ms)
    elif _is_newer(why):
        yield Sight("newer-release", f"its record is of a newer release: {why}")
    else:
        yield Sight("record-unreadable", f"its record can not be read: {why}", record, f.body)


def _judge_listing(f: TaskFacts, record: bytes, now_ms: int) -> Iterator[Sight]:
    entries = message.read_journal(record).entries
    kind = entries[-1].kind if entries else 0
    known = kind == message.MOVED or kind in message.END_STATES
    home, wrong = ("dead", f.done) if kind == message.DEAD or not known else ("done", f.dead)
    detail = b"%s %d" % (home.encode(), entries[-1].at_ms if entries else now_ms)
    if f.done is None and f.dead is None:
        yield Sight("record-unlisted", "its record is in no list: it would stay for ever", detail)
    elif wrong is not None and (known or f.dead is not None):
        yield Sight("record-misfiled", f"listed in {_lists(f)}, and it belongs in {home}", detail)


def judge_lock(
    lock: bytes | None, holder_lives: bool, window_ms: float | None, now_ms: int
) -> Iterator[Sight]:
    """What is broken about a unique key: its lock, and the entry that ends its window."""
    if lock is None:
        if window_ms is not None and window_ms < now_ms - WINDOW_LEFT_MS:
            yield Sight("window-without-lock", "the window of a lock that is gone")
        return
    holder, expiry_ms = read_lock(lock)
    if holder is None:
        yield Sight("lock-unreadable", f"a unique key's lock can not be read: {lock[:60]!r}")
    elif expiry_ms == 0 and not holder_lives:
        yield Sight("lock-without-holder", f"a unique key is held by task {holder}, which is gone")
    elif expiry_ms and window_ms is None:
        yield Sight("lock-without-window",
                    f"a unique key is held by task {holder}, and nothing ends that")


def judge_schedule(
    definition: bytes | None, plan: bytes | None, resting: bytes | None, tick_ms: float | None
) -> Iterator[Sight]:
    """What is broken about a schedule."""
    if definition is None:
        yield Sight("schedule-incomplete", "it can not be fired: its definition is gone")
    elif plan is None:
        yield Sight("schedule-incomplete", "it can not be fired: its state is gone")
    elif not _PLAN.fullmatch(plan):
        yield Sight("schedule-incomplete",
                    f"it can not be fired: its state can not be read: {plan[:60]!r}")
    elif tick_ms is None and resting is None:
        yield Sight("schedule-without-tick", "it has no next tick, and no reason to rest")
    elif tick_ms is not None and resting is not None:
        why = resting[:60].decode("utf-8", "replace")
        yield Sight("schedule-rests-and-ticks", f"it rests ({why}), and has a next tick")


def owner_of(claim: bytes) -> str | None:
    """Who holds a claim; None for a claim that can not be read."""
    found = _CLAIM.fullmatch(claim)
    return None if found is None else name(found[1].rpartition(b":")[0])


def read_lock(lock: bytes) -> tuple[str | None, int]:
    """The uid that holds a lock and when its window ends (ms, 0: with the task); (None, 0)."""
    found = _LOCK.fullmatch(lock)
    return (None, 0) if found is None else (name(found[1]), int(found[2]))


def name(raw: bytes) -> str:
    """A name from Redis as text, whatever bytes it is made of; ``raw`` gives them back."""
    return raw.decode("utf-8", "surrogateescape")


def raw(text: str) -> bytes:
    """What ``name`` was made of."""
    return text.encode("utf-8", "surrogateescape")


def _unreadable(journal: bytes) -> str | None:
    try:
        entries = message.read_journal(journal).entries
    except PayloadError as error:
        return str(error)
    if all(type(one.kind) is int and type(one.at_ms) is int for one in entries):
        return None
    return "an entry of its journal is none of Skedulr's"


def _is_newer(why: str) -> bool:
    """Whether a journal is of a later release, which must not be touched: by our own words."""
    return "this release reads" in why or "newer Skedulr" in why


def _lists(f: TaskFacts) -> str:
    return " and ".join(
        name for name, score in (("done", f.done), ("dead", f.dead)) if score is not None
    )
