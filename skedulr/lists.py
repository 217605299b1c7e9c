"""Lists: pages of tasks by state, pool, name and text, newest first, over any number of pools.

A page costs the same wherever it begins: places in sorted sets are found by rank, and at most
MOST_LOOKED_AT tasks and MOST_BYTES of them are read. With a filter a page may therefore hold few
tasks, or none, and a cursor to go on from. A cursor names the last task that was looked at, so it
stays right while others come and go.

Order: what runs, waits in the queue, is due later, has ended; within each the newest first, save
that scheduled tasks come in the order they are due.

Text is looked for in the id and in the whole stored journal (name, arguments, errors), without
regard to case. Facets narrow it: ``tag:``, ``key:``, ``error:``, ``name:``, ``worker:``.
"""

from __future__ import annotations

import base64
import heapq
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

from . import message
from .errors import ConfigError
from .keys import PoolKeys
from .queries import MOST_ITEMS, PoolQueries, check_state
from .streams import newest_first
from .views import Facts, task_view
from .wire import Wire

#: The most tasks one page looks at.
MOST_LOOKED_AT = 2_000
#: The most bytes of tasks one page reads, though always at least one task.
MOST_BYTES = 8_000_000
_WINDOW = 200

#: Sorted sets by state; each tuple is merged into one order.
_ENDED = (("done",),)
_GROUPS: dict[str | None, tuple[tuple[str, ...], ...]] = {
    None: (
        ("leases",), ("ready", "suspects", "parked"), ("delayed",), ("held",), ("dead", "done"),
    ),
    "running": (("leases",),), "queued": (("ready", "suspects", "parked"),),
    "scheduled": (("delayed",),), "dead": (("dead",),), "waiting": (("held",),),
}
_FACETS = ("tag", "key", "error", "name", "worker")
_TERM = re.compile(rf'(?:({"|".join(_FACETS)}):)?(?:"([^"]*)"|(\S+))')


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tasks are meant. ``name`` is a task's whole name; ``query`` is text with facets."""

    state: str | None = None
    pool: str | None = None
    name: str | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        check_state(self.state)
        if self.pool is not None:
            PoolKeys("n", self.pool)

    @property
    def filters(self) -> bool:
        """Whether tasks have to be read to know if they are meant."""
        return bool(self.name or self.query)


@dataclass(slots=True)
class Page:
    """Some tasks, where the next page begins (None: nowhere), how many tasks were looked at."""

    items: list[dict[str, Any]]
    cursor: str | None
    looked_at: int


def page(
    wire: Wire, namespace: str, pools: Sequence[str], selection: Selection,
    limit: int = 50, cursor: str | None = None,
) -> Page:
    """The tasks of ``pools`` that are meant, up to ``limit``, from ``cursor`` on.

    Raises ConfigError for a limit or cursor that can not be.
    """
    if not 1 <= limit <= MOST_ITEMS:
        raise ConfigError(f"limit={limit!r} is not usable: 1 to {MOST_ITEMS}")
    groups = _GROUPS.get(selection.state, _ENDED)
    names = [selection.pool] if selection.pool is not None else sorted(pools)
    reader = _Reader(wire, namespace, selection, limit)
    streamed = _streamed(wire, namespace, names)
    start = Mark.read(cursor) if cursor else None
    for number, kinds in enumerate(groups):
        if start is not None and number < start.group:
            continue
        after = start if start is not None and number == start.group else None
        sources = [(name, kind) for name in names for kind in _kinds(kinds, name in streamed)]
        if reader.walk(number, sources, after):
            return reader.page(more=True)
    return reader.page(more=False)


def _streamed(wire: Wire, namespace: str, pools: Sequence[str]) -> set[str]:
    """Those whose ready work is in a stream."""
    kept = wire.calls([
        ("HGET", PoolKeys(namespace, pool).meta, "transport") for pool in pools
    ]) if pools else []
    return {pool for pool, transport in zip(pools, kept, strict=True) if transport == b"streams"}


def _kinds(kinds: Sequence[str], streamed: bool) -> list[str]:
    """Where a pool's tasks are to be found. A stream has both what waits and what is claimed; but
    suspects, which stay in sorted sets."""
    instead = {"ready": ["stream"], "leases": ["leases", "pending"]} if streamed else {}
    return [one for kind in kinds for one in instead.get(kind, [kind])]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a list: the task that was looked at last."""

    group: int
    score: float
    pool: str
    kind: str
    uid: str

    def text(self) -> str:
        """The cursor."""
        packed = json.dumps([self.group, self.score, self.pool, self.kind, self.uid])
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Mark:
        """The place a cursor names; ConfigError."""
        try:
            packed = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
            group, score, pool, kind, uid = json.loads(packed)
            if not (isinstance(group, int) and {type(one) for one in (pool, kind, uid)} == {str}):
                raise ValueError
            return cls(group, float(score), pool, kind, uid)
        except (ValueError, TypeError):
            text = f"cursor={text[:60]!r} is not one that this list gave"
            raise ConfigError(text) from None


@dataclass(slots=True)
class _Reader:
    wire: Wire
    namespace: str
    selection: Selection
    limit: int
    items: list[dict[str, Any]] = field(default_factory=list)
    looked_at: int = 0
    bytes_left: int = field(default_factory=lambda: MOST_BYTES)
    last: Mark | None = None

    def page(self, *, more: bool) -> Page:
        """What was found."""
        cursor = self.last.text() if more and self.last is not None else None
        return Page(self.items, cursor, self.looked_at)

    def walk(self, group: int, sources: list[tuple[str, str]], after: Mark | None) -> bool:
        """Look at one group's tasks in order; True once the page is full, or reading ended."""
        merged = heapq.merge(*(
            entries(self.wire, PoolKeys(self.namespace, pool), kind, after)
            for pool, kind in sources
        ))
        while True:
            # Without a filter every task looked at is one found.
            want = self.limit - len(self.items) if not self.selection.filters else _WINDOW
            batch = list(islice(merged, min(want, MOST_LOOKED_AT - self.looked_at)))
            if not batch:
                return False
            if self._look(group, batch):
                return True

    def _look(self, group: int, batch: list[Entry]) -> bool:
        sizes = self._sizes(batch)
        found = self._facts(batch, self._affordable(sizes))
        for entry, facts in zip(batch, found, strict=False):
            self.looked_at += 1
            self.last = Mark(group, abs(entry.order), entry.pool, entry.kind, entry.uid)
            view = self._chosen(entry, facts)
            if view is not None:
                self.items.append(view)
            if len(self.items) >= self.limit:
                return True
        return self.looked_at >= MOST_LOOKED_AT or len(found) < len(batch)

    def _sizes(self, batch: list[Entry]) -> list[int]:
        hashes = [
            ("HSTRLEN", entry.keys.records if entry.ended else entry.keys.tasks, entry.uid)
            for entry in batch
        ]
        return self.wire.calls(hashes)

    def _affordable(self, sizes: list[int]) -> int:
        """How many of the batch may be read; one at least, or nobody would get past it."""
        count = 0
        for size in sizes:
            if self.bytes_left < size and (count or self.looked_at):
                break
            self.bytes_left -= size
            count += 1
        return count

    def _facts(self, batch: list[Entry], count: int) -> list[Facts]:
        found: list[Facts] = []
        for _, run in groupby(batch[:count], key=lambda entry: entry.pool):
            entries = list(run)
            uids = [entry.uid for entry in entries]
            found += PoolQueries(entries[0].keys).look(self.wire, uids)
        return found

    def _chosen(self, entry: Entry, facts: Facts) -> dict[str, Any] | None:
        """The task's view if it is meant. The cheap tests come first: most tasks are not."""
        selection, journal = self.selection, facts.record or facts.body
        if journal is None:
            return None
        if selection.name and not message.is_named(journal, selection.name):
            return None
        terms = _terms(selection.query)
        held = journal.lower() + b"\0" + facts.uid.lower().encode() + (facts.claim or b"")
        if not all(_wanted(text) in held for _, text in terms):
            return None
        state = facts.state
        if state is None or selection.state not in (None, state):
            return None  # it moved on between two looks
        if entry.state not in (None, state):
            return None  # a stream keeps for a while what was taken out
        view = task_view(entry.pool, facts, state)
        if b"redact" in journal and not _shows(view, terms):
            return None
        return view if all(_fits(view, facet, text) for facet, text in terms if facet) else None


@dataclass(slots=True)
class Entry:
    """One member of a sorted set; entries sort in the order of the list."""

    order: float
    pool: str
    kind: str
    uid: str
    keys: PoolKeys

    def __lt__(self, other: Entry) -> bool:
        return (self.order, self.pool, self.kind) < (other.order, other.pool, other.kind)

    @property
    def ended(self) -> bool:
        return self.kind in ("dead", "done")

    @property
    def state(self) -> str | None:
        """What a task in a stream is, or else is not there any more."""
        return {"stream": "queued", "pending": "running"}.get(self.kind)


def entries(wire: Wire, keys: PoolKeys, kind: str, after: Mark | None) -> Iterator[Entry]:
    """The members of one place of one pool in the order of the list, those after a mark."""
    if kind in ("stream", "pending"):
        return _entries_of_stream(wire, keys, kind, after)
    return _Source(wire, keys, kind).entries(after)


def _entries_of_stream(
    wire: Wire, keys: PoolKeys, kind: str, after: Mark | None
) -> Iterator[Entry]:
    below = "+"
    if after is not None:
        place = f"{after.score:.0f}"
        below = place if (keys.pool, kind) > (after.pool, after.kind) else f"({place}"
    seen = set()
    for uid, at in newest_first(wire, keys, claimed=kind == "pending", below=below):
        # One that was taken out and put back may be there twice for a while.
        if uid not in seen:
            seen.add(uid)
            yield Entry(-float(at), keys.pool, kind, uid, keys)


class _Source:
    """One sorted set of one pool, read window by window."""

    def __init__(self, wire: Wire, keys: PoolKeys, kind: str) -> None:
        self._wire, self._keys, self._kind = wire, keys, kind
        self._key: str = getattr(keys, kind)
        self._falling = kind != "delayed"

    def entries(self, after: Mark | None) -> Iterator[Entry]:
        """Its members in order, those after a mark."""
        offset = 0 if after is None else self._offset(after)
        command, sign = ("ZREVRANGE", -1) if self._falling else ("ZRANGE", 1)
        while True:
            flat = self._wire.call(command, self._key, offset, offset + _WINDOW - 1, "WITHSCORES")
            for uid, score in zip(flat[::2], flat[1::2], strict=True):
                yield Entry(
                    sign * float(score), self._keys.pool, self._kind, uid.decode(), self._keys
                )
            if len(flat) < 2 * _WINDOW:
                return
            offset += _WINDOW

    def _offset(self, after: Mark) -> int:
        """How many members the list has passed."""
        mine, theirs = (self._keys.pool, self._kind), (after.pool, after.kind)
        if mine == theirs:
            rank = self._wire.call(
                "ZREVRANK" if self._falling else "ZRANK", self._key, after.uid
            )
            score = self._wire.call("ZSCORE", self._key, after.uid)
            if rank is not None and score is not None and float(score) == after.score:
                return int(rank) + 1
            # It is gone; those of the same score may come again, none is left out.
        place = f"{after.score:.0f}"
        bound = place if mine < theirs else f"({place}"
        span = (bound, "+inf") if self._falling else ("-inf", bound)
        return int(self._wire.call("ZCOUNT", self._key, *span))


def _terms(query: str | None) -> list[tuple[str, str]]:
    """(facet or '', text) of each part of a query; all must fit.

    >>> _terms('tag:eu "card declined" error:ValueError')
    [('tag', 'eu'), ('', 'card declined'), ('error', 'ValueError')]
    """
    return [
        (facet, quoted or word)
        for facet, quoted, word in _TERM.findall(query or "") if quoted or word
    ]


def _wanted(text: str) -> bytes:
    """A text as it stands in a journal that was made lower case, its ASCII letters that is."""
    return text.encode("utf-8", "surrogatepass").lower()


def _shows(view: dict[str, Any], terms: list[tuple[str, str]]) -> bool:
    """Whether all texts stand in what is shown: nobody finds out by asking what is redacted."""
    shown = json.dumps(view, default=str, ensure_ascii=False).casefold()
    return all(text.casefold() in shown for _, text in terms)


def _fits(view: dict[str, Any], facet: str, text: str) -> bool:
    """Whether a task fits one facet."""
    wanted = text.casefold()
    if facet == "tag":
        return any(wanted == str(tag).casefold() for tag in view.get("tags") or ())
    if facet == "key":
        return wanted == str(view.get("key") or "").casefold()
    if facet == "error":
        return wanted in str((view.get("error") or {}).get("type") or "").casefold()
    return wanted in str(view.get(facet) or "").casefold()
