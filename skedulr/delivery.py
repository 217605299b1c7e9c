"""Delivery: how children hear of their parents, whatever pools they are in and whoever dies.

A script touches one pool, so an edge is made and told in steps, each of them safe to repeat:

1. submit.lua stores the child, what it waits for, and "to be tied" in its own outbox.
2. attach.lua, in the parent's pool, keeps the edge there and says whether the parent has ended.
   A map step's tasks are made first, by whoever is about to tie it to them (see spreading.py).
3. Whatever ends a parent that has edges notes that in its own outbox, in the same script.
4. resolve.lua, in the child's pool, counts the edge once: the child goes into the queue, waits on,
   or is skipped, which is an end and goes on with 3.

An item leaves the outbox only after what it stands for is done; so wherever a process dies the
next one does the rest, and what was done already changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import message, spreading
from .dependencies import Waits, read_waits
from .errors import PayloadError
from .keys import PoolKeys, SpaceKeys, split_id
from .spreading import round_of
from .storage import NO_PRIORITY
from .store import BATCH, DUPLICATE, ENDED, MISSING, PENDING, PRIORITY, Store, Submission
from .wire import Wire

#: A workflow whose steps are not all stored after this long is dropped, ms.
UNFINISHED_MS = 60_000
#: Tasks are made in calls of so many bytes, or not much more.
MOST_CALL_BYTES = 4_194_304
#: Records read at once: they may be large.
_RECORDS = 50
#: Items of the outbox taken at once.
_ITEMS = 500

_ENDS = {"d": "dead", "c": "cancelled", "e": "expired", "k": "skipped", "p": "removed"}
#: What keeps a task from running all whose parents were to fail.
_EXHAUSTED = message.entry(
    message.SKIPPED, "", 0, 0, "all of the tasks succeeded of which one had to fail"
)
_AGAIN = message.entry(message.RESUBMITTED, "", 0, 0, spreading.AGAIN)


class Edge(NamedTuple):
    """A child, by pool and uid, which of its parents this is (from 1), and in which round."""

    pool: str
    uid: str
    place: int
    round: int

    @classmethod
    def read(cls, text: str, parent: str) -> Edge:
        """From what ``text`` makes of it."""
        child, *numbers = text.split(",")
        place, round = ([int(one) for one in numbers] + [1, 0][len(numbers):])
        pool, _, uid = parent.partition("/")
        if "/" in child:
            pool, _, uid = child.partition("/")
        elif child == "^":
            uid = uid.rpartition(".")[0]
        elif child.startswith("~"):
            uid = uid.rpartition(".")[0] + "." + child[1:]
        else:
            uid = child
        return cls(pool, uid, place, round)

    def text(self, parent: str) -> str:
        """As attach.lua keeps it with ``parent``: ``"<pool>/<uid>,<place>,<round>"``, or shorter.

        Without the pool where it is the parent's; of a step ("<workflow>.<number>") of the same
        workflow "~" and its number; "^" for the map step that made the parent ("<map step>.<n>").
        Without the round where it is 0, and without the place where that is 1 then. There are as
        many edges as there are tasks in a workflow, and Redis keeps all of them in memory.
        """
        pool, _, uid = parent.partition("/")
        before = uid.rpartition(".")[0]
        if pool != self.pool:
            child = f"{self.pool}/{self.uid}"
        elif before and self.uid == before:
            child = "^"
        elif before and self.uid.rpartition(".")[0] == before:
            child = "~" + self.uid[len(before) + 1:]
        else:
            child = self.uid
        if self.round:
            return f"{child},{self.place},{self.round}"
        return child if self.place == 1 else f"{child},{self.place}"


class Child(NamedTuple):
    """A task that is to be tied to its parents."""

    pool: str
    uid: str
    round: int
    waits: Waits


class Delivery:
    """Ties and tells, over one wire; of any pool of the namespace."""

    def __init__(self, namespace: str, wire: Wire) -> None:
        self._namespace, self._wire = namespace, wire
        self._stores: dict[str, Store] = {}
        #: Delivered, and still to be removed from the outbox, by pool.
        self._delivered: dict[str, list[tuple[bytes, bytes]]] = {}
        #: Pools whose outboxes were filled by what was told here.
        self.told: set[str] = set()

    # Tying

    def attach(self, children: Sequence[Child], *, skip_lost: bool = True) -> dict[str, str]:
        """Tie children to their parents, and tell them of those that have ended; the first unknown
        parent by child. With ``skip_lost`` such a child is skipped."""
        lost: dict[str, str] = {}
        open_edges = [
            (parent, Edge(one.pool, one.uid, at + 1, one.round), one.waits.missing)
            for one in children for at, parent in enumerate(one.waits.parents)
        ]
        news = _News(self)
        for parent, edge, _ in self._tie_all(open_edges, news):
            id = f"{edge.pool}/{edge.uid}"
            if id not in lost:
                lost[id] = parent
                if skip_lost:
                    news.add(edge._replace(place=0), _unknown(parent))
        news.flush()
        return lost

    def tie_again(self, edges: Sequence[tuple[str, Edge, bool]]) -> None:
        """Tie children to some of their parents (id, edge, whether it may be missing), and tell
        them of those that have ended, or are unknown. What was so already stays as it is."""
        news = _News(self)
        for parent, edge, _ in self._tie_all(edges, news):
            news.add(edge._replace(place=0), _unknown(parent))
        news.flush()

    def _tie_all(
        self, edges: Sequence[tuple[str, Edge, bool]], news: _News
    ) -> Iterator[tuple[str, Edge, bool]]:
        """Tie children, and tell of the parents that have ended; yields edges whose parents are
        unknown. A parent that went to another pool is followed there."""
        while edges:
            ended: list[tuple[str, Edge, bool]] = []
            for edge, letter in self._tie(edges):
                if letter == ENDED:
                    ended.append(edge)
                elif letter != PENDING:
                    yield edge
            elsewhere: list[tuple[str, Edge, bool]] = []
            for edge, home in self._tell_ended(ended, news):
                if home is None:
                    yield edge
                else:
                    elsewhere.append((home, *edge[1:]))
            edges = elsewhere

    def _tie(
        self, edges: Sequence[tuple[str, Edge, bool]]
    ) -> Iterator[tuple[tuple[str, Edge, bool], str]]:
        by_pool: dict[str, list[tuple[str, Edge, bool]]] = {}
        for edge in edges:
            by_pool.setdefault(split_id(edge[0])[0], []).append(edge)
        for pool, theirs in by_pool.items():
            for part in _parts(theirs, BATCH):
                letters = self._store(pool).attach(self._wire, [
                    (split_id(parent)[1], edge.text(parent), MISSING if missing else "")
                    for parent, edge, missing in part
                ])
                yield from zip(part, letters, strict=True)

    def _tell_ended(
        self, edges: Sequence[tuple[str, Edge, bool]], news: _News
    ) -> Iterator[tuple[tuple[str, Edge, bool], str | None]]:
        """Tell of parents that have ended already; yields the edges of those that went to another
        pool, with their ids there, or None where nothing is known of them any more."""
        by_parent: dict[str, list[tuple[str, Edge, bool]]] = {}
        for one in edges:
            by_parent.setdefault(one[0], []).append(one)
        for parent, record in self._records(by_parent):
            home = None if record is None else message.moved_to(record)
            entry = None if record is None or home else _outcome(parent, record)
            for one in by_parent[parent]:
                if record is None or home is not None:
                    yield one, home
                else:
                    news.add(one[1], entry, None if entry is None else parent)

    # Telling

    def deliver(self, pool: str, *, ahead_ms: int = 0) -> int:
        """Deliver what the outbox of a pool holds, and what comes of that, in any pool; how many
        items. What was delivered last is removed by the next call."""
        count, todo = 0, {pool}
        while todo:
            here = todo.pop()
            self.told.discard(here)
            taken, done = self._deliver_some(here, ahead_ms)
            count += done
            if taken >= _ITEMS:
                todo.add(here)
            todo |= self.told
        return count

    def settle(self, pools: Iterable[str], *, ahead_ms: int = 0) -> int:
        """Deliver until nothing is left in any of ``pools``; how many items."""
        count = 0
        for pool in pools:
            count += self.deliver(pool, ahead_ms=ahead_ms)
        while self._delivered:
            count += self.deliver(next(iter(self._delivered)), ahead_ms=ahead_ms)
        return count

    @property
    def owes(self) -> bool:
        """Whether delivered items are still to be removed."""
        return bool(self._delivered)

    def _deliver_some(self, pool: str, ahead_ms: int) -> tuple[int, int]:
        """How many items were taken, and how many of them delivered."""
        store = self._store(pool)
        delivered = self._delivered.pop(pool, [])
        try:
            score, items = store.take(self._wire, delivered, ahead_ms=ahead_ms, limit=_ITEMS)
        except BaseException:
            self._delivered[pool] = delivered
            raise
        if not items:
            return 0, 0
        now_ms = int(float(score))
        news, children, reopened, done = _News(self), [], [], []
        for item, held in items:
            letter, uid = chr(item[0]), item[2:].decode()
            if letter in "at":
                child, finished = self._child(pool, uid, held, now_ms, news)
                if child is not None:
                    children.append(child)
                if not finished:
                    continue
            elif letter == "m":
                self._tell_of_move(pool, uid, held)
            elif letter in "rR":
                reopened.append((letter, uid, held))
            else:
                entry = None if letter in "sw" else _skipped(f"{pool}/{uid} is {_ENDS[letter]}")
                doubted = f"{pool}/{uid}" if letter in "dcek" else None
                for edge in self._edges(pool, uid, held):
                    news.add(edge, entry, doubted)
            done.append((item, score))
        # Of one task both may be here: that it ended, and that this was taken back.
        news.flush()
        for letter, uid, held in reopened:
            if letter == "r" or not self._has_failed(f"{pool}/{uid}"):
                self._reopen(pool, uid, held)
        if children:
            self.attach(children)
        if done:
            self._delivered[pool] = self._delivered.get(pool, []) + done
        return len(items), len(done)

    def _child(
        self, pool: str, uid: str, body: bytes, now_ms: int, news: _News
    ) -> tuple[Child | None, bool]:
        """What there is to tie of a child, and whether its item is done with that."""
        try:
            journal = message.read_journal(body)
        except PayloadError:
            return None, True  # it is gone, or nobody can tell what it waits for
        if "steps" in journal.extras:
            if now_ms - journal.submitted_ms < UNFINISHED_MS:
                return None, False
            self.drop(f"{pool}/{uid}", journal)
            return None, True
        if spreading.spread_of(journal) is not None:
            self._make(pool, uid, journal, news)
            return None, True
        waits = read_waits(journal.extras)
        return None if waits is None else Child(pool, uid, round_of(journal), waits), True

    # Making

    def _make(self, pool: str, uid: str, journal: message.Journal, news: _News) -> None:
        """Make the tasks of a map step and tie it to them, a chunk after the other. Those that are
        there already are left as they are."""
        round = round_of(journal)

        def never(reason: str) -> None:
            news.add(Edge(pool, uid, 0, round), _skipped(reason))

        source, count = spreading.source_of(journal), spreading.spread_of(journal)
        items = self._list_in(source)
        if items is None or len(items) != count:
            never(f"the result of {source}, which it goes over, is gone")
            return
        made = 0
        for batch in _by_size(spreading.children(uid, journal, items)):
            verdicts, _ = self._store(pool).submit(self._wire, batch, maker=uid)
            if not verdicts:
                break  # it was cancelled, or another process has made all of them
            if PRIORITY in verdicts:
                never(f"pool {pool!r} has no priorities and no limits: {NO_PRIORITY}")
                return
            if (odd := verdicts.find(DUPLICATE)) >= 0:
                never(f"{pool}/{batch[odd].uid} is another task already: what it goes over has "
                      "changed since; submit the workflow anew")
                return
            edges = [
                (f"{pool}/{one.uid}", Edge(pool, uid, at, round), False)
                for at, one in enumerate(batch, made + 1)
            ]
            for parent, edge, _ in self._tie_all(edges, news):
                news.add(edge._replace(place=0), _unknown(parent))
            made += len(batch)
        if self._given_up(pool, uid):
            # Whoever cancels it cancels these, too, and may have died in the middle of that.
            self._cancel_children(pool, uid, made)

    def _list_in(self, source: str) -> list[Any] | None:
        """The result of a task, where that is a list."""
        for _, record in self._records([source]):
            home = None if record is None else message.moved_to(record)
            if home is not None:
                return self._list_in(home)
            try:
                last = message.read_journal(record or b"").entries[-1:]
            except PayloadError:
                return None
            if last and last[0].kind == message.SUCCEEDED and isinstance(last[0].value, list):
                return last[0].value
        return None

    def _given_up(self, pool: str, uid: str) -> bool:
        """Whether a map step was cancelled or removed. One that is skipped already, because a task
        of it failed, may be opened again, and the others run as they do beside any join."""
        store = self._store(pool)
        if store.waits(self._wire, uid):
            return False
        for _, record in self._records([f"{pool}/{uid}"]):
            if record is None:
                return not self._wire.call("HEXISTS", store.keys.tasks, uid)
            try:
                return message.read_journal(record).end_state == "cancelled"
            except PayloadError:
                return False
        return False

    def _cancel_children(self, pool: str, uid: str, made: int) -> None:
        entry = message.entry(message.CANCELLED, "", 0, 0, "cancelled before it started")
        channel = SpaceKeys(self._namespace).control
        for at in range(made):
            self._store(pool).cancel(self._wire, f"{uid}.{at}", entry, channel)

    def drop(self, id: str, journal: message.Journal) -> bool:
        """Remove a workflow whose steps were not all stored; False where it has begun."""
        pool, uid = split_id(id)
        store = self._store(pool)
        if store.begin(self._wire, "stop", uid) == ENDED:
            return False
        by_pool: dict[str, list[str]] = {}
        for at, (_, where, *_) in enumerate(journal.extras["steps"]):
            by_pool.setdefault(where, []).append(f"{uid}.{at}")
        for where, uids in by_pool.items():
            for part in _parts(uids, BATCH):
                self._store(where).purge(self._wire, part, ended=False)
        store.begin(self._wire, "drop", uid)
        return True

    def _tell_of_move(self, pool: str, uid: str, first: bytes) -> None:
        """The parent goes on elsewhere: its edges go with it."""
        for _, record in self._records([f"{pool}/{uid}"]):
            home = None if record is None else message.moved_to(record)
            if home is None:
                return
            news = _News(self)
            edges = [(home, edge, False) for edge in self._edges(pool, uid, first)]
            for parent, edge, _ in self._tie_all(edges, news):
                news.add(edge, _unknown(parent))
            news.flush()

    def _reopen(self, pool: str, uid: str, first: bytes) -> None:
        """A task was resubmitted: those that were skipped for it wait again."""
        self._reopen_all(self._edges(pool, uid, first))

    def _reopen_all(self, edges: Iterable[Edge]) -> None:
        by_pool: dict[str, set[str]] = {}
        for edge in edges:
            by_pool.setdefault(edge.pool, set()).add(f"{edge.pool}/{edge.uid}")
        for where, ids in by_pool.items():
            self._open_again(where, sorted(ids), ("skipped",))

    def _has_failed(self, id: str) -> bool:
        """Whether a task has ended, and not well."""
        return any(
            record is not None and _outcome(id, record) is not None
            for _, record in self._records([id])
        )

    def doubt(self, failed: Mapping[str, Sequence[Edge]]) -> None:
        """Children were just told that these parents had failed. One may have been resubmitted
        before that was told, and whoever was to open what is skipped for it found nothing skipped
        yet: then it is to be done now."""
        for parent, record in list(self._records(failed)):
            if record is not None and _outcome(parent, record) is not None:
                continue
            pool, uid = split_id(parent)
            if record is not None or self._wire.call("HEXISTS", self._store(pool).keys.tasks, uid):
                self._reopen_all(failed[parent])

    def open_again(self, ids: Iterable[str]) -> int:
        """Have tasks that were cancelled or skipped wait again for what they waited for; how many
        do."""
        by_pool: dict[str, list[str]] = {}
        for id in ids:
            by_pool.setdefault(split_id(id)[0], []).append(id)
        states = ("skipped", "cancelled")
        return sum(self._open_again(pool, theirs, states) for pool, theirs in by_pool.items())

    def _open_again(self, pool: str, ids: Sequence[str], states: tuple[str, ...]) -> int:
        batch: list[tuple[str, int, str, bytes]] = []
        count = 0
        for id, record in self._records(ids):
            text = None if record is None else _waiting_again(id, record, states)
            if record is not None and text is not None:
                batch.append((split_id(id)[1], len(record), text, _AGAIN))
        for part in _parts(batch, BATCH):
            if opened := self._store(pool).reopen(self._wire, part):
                count += opened
                self.told.add(pool)
        return count

    # Looking

    def _edges(self, pool: str, uid: str, first: bytes) -> Iterator[Edge]:
        if not first:
            return
        parent = f"{pool}/{uid}"
        head, *texts = first.decode().split(" ")
        yield from (Edge.read(text, parent) for text in texts)
        for page in range(1, int(head.partition(",")[0]) + 1):
            more = self._wire.call("HGET", self._store(pool).keys.edges, f"{uid},{page}") or b""
            yield from (Edge.read(text, parent) for text in more.decode().split())

    def _records(self, ids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        by_pool: dict[str, list[str]] = {}
        for id in ids:
            by_pool.setdefault(split_id(id)[0], []).append(id)
        for pool, theirs in by_pool.items():
            for part in _parts(theirs, _RECORDS):
                uids = [split_id(id)[1] for id in part]
                found = self._wire.call("HMGET", self._store(pool).keys.records, *uids)
                yield from zip(part, found, strict=True)

    def living(self, pool: str, uid: bytes) -> bool:
        """Whether a child of this ended task has not ended itself."""
        first = self._wire.call("HGET", self._store(pool).keys.edges, uid) or b""
        by_pool: dict[str, list[str]] = {}
        for edge in self._edges(pool, uid.decode(), first):
            by_pool.setdefault(edge.pool, []).append(edge.uid)
        return any(
            any(length > 0 for length in self._lengths(where, part))
            for where, uids in by_pool.items() for part in _parts(uids, BATCH)
        )

    def _lengths(self, pool: str, uids: Sequence[str]) -> list[int]:
        tasks = self._store(pool).keys.tasks
        lengths: list[int] = self._wire.calls([("HSTRLEN", tasks, uid) for uid in uids])
        return lengths

    def _store(self, pool: str) -> Store:
        known = self._stores.get(pool)
        if known is None:
            known = self._stores[pool] = Store(PoolKeys(self._namespace, pool))
        return known

    def resolve(
        self, pool: str, entries: Sequence[bytes], edges: Sequence[tuple[str, str, int]]
    ) -> None:
        """Tell children of a pool; see ``Store.resolve``."""
        if self._store(pool).resolve(self._wire, _EXHAUSTED, entries, edges):
            self.told.add(pool)


class _News:
    """What children are to be told, gathered into as few calls as possible."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._pools: dict[str, tuple[dict[bytes, int], list[tuple[str, str, int]]]] = {}
        self._failed: dict[str, list[Edge]] = {}

    def add(self, edge: Edge, entry: bytes | None, parent: str | None = None) -> None:
        """A child's parent succeeded (None), or did not, which the entry says. Where ``parent``
        may come to something else yet, that is looked at when this was told."""
        if parent is not None:
            self._failed.setdefault(parent, []).append(edge)
        entries, edges = self._pools.setdefault(edge.pool, ({}, []))
        number = 0 if entry is None else entries.setdefault(entry, len(entries) + 1)
        edges.append((edge.uid, f"{edge.place},{edge.round}", number))
        if len(edges) >= BATCH:
            self._flush(edge.pool)

    def flush(self) -> None:
        """Send what is left."""
        for pool in list(self._pools):
            self._flush(pool)
        failed, self._failed = self._failed, {}
        if failed:
            self._delivery.doubt(failed)

    def _flush(self, pool: str) -> None:
        entries, edges = self._pools.pop(pool)
        self._delivery.resolve(pool, list(entries), edges)


def _skipped(reason: str) -> bytes:
    return message.entry(message.SKIPPED, "", 0, 0, reason)


def _unknown(parent: str) -> bytes:
    return _skipped(f"no task {parent} is known")


def _outcome(parent: str, record: bytes) -> bytes | None:
    """None where the task of this record succeeded, else why its children can not run."""
    try:
        state = message.read_journal(record).end_state or "dead"
    except PayloadError:
        state = "dead"
    return None if state == "succeeded" else _skipped(f"{parent} is {state}")


def _waiting_again(id: str, record: bytes, states: tuple[str, ...]) -> str | None:
    """What ``waiting`` is to hold of a task that is opened again; None for one that ended
    otherwise, or waited for nothing."""
    try:
        journal = message.read_journal(record)
    except PayloadError:
        return None
    waits = spreading.waits_now(id, journal)
    if waits is None or journal.end_state not in states:
        return None
    return spreading.waiting_text(journal, waits.letters)


def _by_size(tasks: Iterable[Submission]) -> Iterator[list[Submission]]:
    """In batches that one call takes."""
    batch: list[Submission] = []
    size = 0
    for one in tasks:
        batch.append(one)
        size += len(one.envelope)
        if len(batch) == BATCH or size >= MOST_CALL_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _parts(items: Sequence[Any], size: int) -> Iterator[Any]:
    for at in range(0, len(items), size):
        yield items[at:at + size]
