"""The doctor's rounds over tasks that wait for others: these tasks, the edges by which their
parents find them, and the outbox from which they are told.

What is under way between two scripts of delivery.py is no fault. All the while a child is being
tied, "a <child>" or "t <child>" is in its pool's outbox, or (a step of a workflow) the task that
stands for the workflow has a body; all the while the end of a parent is being told, that is in the
outbox of the parent's pool. A child is read first, then what stands for its workflow, then its
parents, then the child again: one that reads the same both times was tied to them before they were
looked at, and told of whatever their outboxes do not hold any more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from . import message
from .counts import SILENT_S
from .delivery import Edge
from .errors import PayloadError
from .findings import Finding, name, raw
from .held import Held, is_start, made_anew, mend_detail, waits_of, wrong_with
from .keys import PoolKeys, SpaceKeys, split_id
from .rounds import JOURNALS, PAGE, Found, affordable, at_once, now_of, pages, scan
from .wire import Wire

#: So many edges are remembered, so that those of a parent of many are read once.
MOST_EDGES = 300_000
#: So many pages of a parent's edges are read at once.
MOST_PAGES = 50
#: A task that went from pool to pool more often than that is not followed.
MOST_MOVES = 5
#: Something is still to be told this long after its time, ms, though all that while processes were
#: there that tell.
OVERDUE_MS = 600_000
#: Nobody puts anything into an outbox that is to be told so late, ms.
FURTHEST_ITEM_MS = 3_600_000

#: From this score on an import that is not through yet keeps it back (see take.lua).
IMPORTED = 2 ** 52

#: What an outbox may say of a parent: it was told, or is about to be (see take.lua).
_TELLING = b"sdcekmwprR"
_UID = rb"[A-Za-z0-9][A-Za-z0-9_.:@=+-]{0,199}"
_ITEM = re.compile(rb"[at%s] (%s)" % (_TELLING, _UID))
_FIELD = re.compile(rb"(%s)(?:,([1-9]\d*))?" % _UID)
_EDGE = rb" (?:\^|~%s|(?:[A-Za-z0-9_.-]{1,64}/)?%s)(?:,\d+){0,2}" % (_UID, _UID)
_FIRST = re.compile(rb"(\d+),(\d+)(?:%s)*" % _EDGE)
_MORE = re.compile(rb"(?:%s)*" % _EDGE)


@dataclass(slots=True)
class Child:
    """A waiting task, read in one step. ``tying``: it is in hand, or will be."""

    uid: str
    body: bytes | None
    text: bytes | None
    listed: bool
    tying: bool
    #: It runs, or stands in another queue as well: that is what is to be mended first.
    elsewhere: bool
    journal: message.Journal | None = None
    held: Held | None = None
    #: Why no news of its parents would free it.
    why: str = ""


class Broken(NamedTuple):
    """A parent of which a child will never hear."""

    child: Child
    kind: str
    parent: str
    edge: Edge
    missing: bool


class Kept:
    """The edges that parents of a pool have, as texts. Read once, as long as there is room."""

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys
        #: By parent: its first page, which changes with each edge, and all edges.
        self._known: dict[bytes, tuple[bytes | None, frozenset[bytes]]] = {}
        self._size = 0

    def look(self, uids: Sequence[bytes]) -> dict[bytes, frozenset[bytes]]:
        """By parent; as they were when they were read first."""
        found = {uid: known[1] for uid in uids if (known := self._known.get(uid)) is not None}
        for part in pages((uid for uid in uids if uid not in found), PAGE):
            firsts = self._wire.call("HMGET", self._keys.edges, *part)
            found |= {uid: self.now(uid, first) for uid, first in zip(part, firsts, strict=True)}
        return found

    def now(self, uid: bytes, first: bytes | None) -> frozenset[bytes]:
        """Those of a parent whose first page was just read."""
        known = self._known.get(uid)
        if known is not None and known[0] == first:
            return known[1]
        edges = frozenset(self._texts(uid, first))
        if self._size + len(edges) > MOST_EDGES:
            self._known.clear()
            self._size = 0
        self._size += 1 + len(edges)
        self._known[uid] = first, edges
        return edges

    def _texts(self, uid: bytes, first: bytes | None) -> Iterator[bytes]:
        parent = f"{self._keys.pool}/{name(uid)}"
        for text in self._stored(uid, first):
            # Version 0.1.0 wrote them out in full.
            full = b"/" in text or text.endswith(b",0")
            yield Edge.read(text.decode(), parent).text(parent).encode() if full else text

    def _stored(self, uid: bytes, first: bytes | None) -> Iterator[bytes]:
        match = _FIRST.fullmatch(first or b"")
        if first is None or match is None:
            return
        yield from first.split(b" ")[1:]
        for part in pages(range(1, int(match[1]) + 1), MOST_PAGES):
            fields = [b"%s,%d" % (uid, at) for at in part]
            for page in self._wire.call("HMGET", self._keys.edges, *fields):
                if page is not None and _MORE.fullmatch(page):
                    yield from page.split()


class Waiting:
    """Tasks that wait for others: whether what is kept of that can be read, and whether each of
    their parents will tell them of its end."""

    subjects = frozenset(("waiting",))

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys
        #: By pool.
        self._kept: dict[str, Kept] = {}
        self._pools: dict[str, PoolKeys] = {}

    def walk(self) -> Found:
        k = self._keys
        count = min(affordable(self._wire, k.tasks), affordable(self._wire, k.waiting))
        for page in scan(self._wire, "HSCAN", k.waiting, count):
            ids = page[::2]
            yield len(ids), self._judge(ids)
        for page in scan(self._wire, "ZSCAN", k.held):
            ids = page[::2]
            known = self._wire.calls([("HEXISTS", k.waiting, id) for id in ids]) if ids else []
            yield len(ids), self._judge([
                id for id, there in zip(ids, known, strict=True) if not there
            ])

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge(list(dict.fromkeys(raw(one.uid) for one in found)))

    def untied(self, ids: Sequence[bytes]) -> Iterator[Broken]:
        """The parents, of all that these children wait for, of which they will never hear."""
        return self._broken(self._look(ids))

    # What a child says

    def _judge(self, ids: Sequence[bytes]) -> list[Finding]:
        children = self._look(ids)
        found = [one for child in children for one in self._judge_text(child)]
        wrong: dict[tuple[str, str], Counter[str]] = {}
        for one in self._broken(children):
            wrong.setdefault((one.child.uid, one.kind), Counter())[one.parent] += 1
        same = self._unchanged([one for one in children if any(one.uid == uid for uid, _ in wrong)])
        return found + [
            Finding(kind, self._keys.pool, uid, _why(kind, parents))
            for (uid, kind), parents in wrong.items() if uid in same
        ]

    def _look(self, ids: Sequence[bytes]) -> list[Child]:
        if not ids:
            return []
        k = self._keys
        bodies, texts, claims, held, items, again, *queues = at_once(self._wire, [
            ("HMGET", k.tasks, *ids), ("HMGET", k.waiting, *ids), ("HMGET", k.claims, *ids),
            ("ZMSCORE", k.held, *ids), *_tying(k, ids),
            *(("ZMSCORE", key, *ids) for key in (k.ready, k.delayed, k.suspects, k.parked)),
        ])
        return [
            _read(self._keys.pool, Child(
                name(id), bodies[i], texts[i], held[i] is not None,
                (items[i] or again[i]) is not None,
                claims[i] is not None or any(queue[i] is not None for queue in queues),
            ))
            for i, id in enumerate(ids)
            if bodies[i] is not None and (texts[i] is not None or held[i] is not None)
        ]

    def _judge_text(self, child: Child) -> Iterator[Finding]:
        pool, journal = self._keys.pool, child.journal
        # What can not be read is the business of another round; so is what is in two places.
        if journal is None or child.elsewhere:
            return
        kind = text = ""
        if child.text is None:
            kind = "held-without-waiting"
            text = "listed as waiting for others, and what it waits for is lost"
        elif child.why:
            kind, text = "waiting-unreadable", child.why
        elif is_start(journal) and not child.tying:
            kind = "start-forgotten"
            text = "a workflow whose steps were not all stored, and nobody would remove it"
        if kind:
            again = made_anew(f"{pool}/{child.uid}", journal, child.held)
            yield Finding(kind, pool, child.uid, text, mend_detail(child.text, again))
        if child.text is not None and not child.listed:
            yield Finding("waiting-without-held", pool, child.uid,
                          "it waits for others, and no list of waiting tasks shows it")

    def _unchanged(self, children: Sequence[Child]) -> set[str]:
        """Those that read now as they did."""
        found = set()
        for page in pages(children, PAGE):
            ids = [raw(one.uid) for one in page]
            texts, items, again = at_once(self._wire, [
                ("HMGET", self._keys.waiting, *ids), *_tying(self._keys, ids),
            ])
            found |= {
                one.uid for one, text, *tying in zip(page, texts, items, again, strict=True)
                if text == one.text and tying == [None, None]
            }
        return found

    # What its parents say

    def _broken(self, children: Sequence[Child]) -> Iterator[Broken]:
        tied = self._tied(children)
        for part in pages(((child, *edge) for child in tied for edge in _open_edges(
                self._keys.pool, child)), PAGE):
            yield from self._judge_edges(part)

    def _tied(self, children: Sequence[Child]) -> list[Child]:
        """Those that are to have been tied to their parents by now."""
        settled = [
            one for one in children
            if one.held is not None and not (one.why or one.tying or one.elsewhere)
        ]
        workflows = {
            one.uid: str(one.journal.extras["workflow"]) for one in settled
            if one.journal is not None and one.journal.extras.get("workflow")
            and one.held is not None and one.held.round == 0
        }
        starting = self._bodies(set(workflows.values()))
        return [one for one in settled if workflows.get(one.uid) not in starting]

    def _bodies(self, ids: Iterable[str]) -> set[str]:
        """Those that have not ended."""
        asked = list(ids)
        there = self._wire.calls([
            ("HEXISTS", self._of(pool).tasks, uid) for pool, uid in map(split_id, asked)
        ]) if asked else []
        return {id for id, body in zip(asked, there, strict=True) if body}

    def _judge_edges(
        self, edges: Sequence[tuple[Child, str, Edge, bool]]
    ) -> Iterator[Broken]:
        """Those whose parents will not tell. A parent that went to another pool is looked for
        there."""
        left = [(at, one[1]) for at, one in enumerate(edges)]
        for _ in range(MOST_MOVES):
            if not left:
                return
            by_pool: dict[str, list[tuple[int, str]]] = {}
            for at, parent in left:
                by_pool.setdefault(split_id(parent)[0], []).append((at, parent))
            left = []
            for pool, theirs in by_pool.items():
                for at, state in self._untold(pool, theirs, edges):
                    if state.home is not None:
                        left.append((at, state.home))
                        continue
                    child, first, edge, missing = edges[at]
                    if not missing or state.kind != "parent-unknown":
                        yield Broken(child, state.kind, first, edge, missing)
                    elif not state.named:
                        # It may be submitted yet, and would not find the child.
                        yield Broken(child, "edge-lost", first, edge, missing)

    def _untold(
        self, pool: str, asked: Sequence[tuple[int, str]],
        edges: Sequence[tuple[Child, str, Edge, bool]],
    ) -> Iterator[tuple[int, _State]]:
        """Of edges from parents of one pool those that it takes a second look at."""
        k = self._of(pool)
        uids = list(dict.fromkeys(raw(split_id(parent)[1]) for _, parent in asked))
        living = dict(zip(
            uids, self._wire.calls([("HEXISTS", k.tasks, uid) for uid in uids]), strict=True
        ))
        named = self._kept_of(pool).look(uids)
        doubtful: dict[bytes, list[tuple[int, str]]] = {}
        for at, parent in asked:
            uid = raw(split_id(parent)[1])
            if not (living[uid] and edges[at][2].text(parent).encode() in named[uid]):
                doubtful.setdefault(uid, []).append((at, parent))
        for part in pages(doubtful, JOURNALS):
            answers = at_once(self._wire, [
                command for uid in part for command in (
                    ("HEXISTS", k.tasks, uid), ("HGET", k.records, uid), ("HGET", k.edges, uid),
                    ("ZMSCORE", k.outbox, *(b"%c %s" % (letter, uid) for letter in _TELLING)),
                )
            ])
            for i, uid in enumerate(part):
                body, record, first, told = answers[4 * i:4 * i + 4]
                telling = any(score is not None for score in told)
                texts = self._kept_of(pool).now(uid, first)
                for at, parent in doubtful[uid]:
                    is_named = edges[at][2].text(parent).encode() in texts
                    state = _state_of(body, record, is_named, telling=telling)
                    if state is not None:
                        yield at, state

    def _of(self, pool: str) -> PoolKeys:
        if pool not in self._pools:
            self._pools[pool] = PoolKeys(self._keys.namespace, pool)
        return self._pools[pool]

    def _kept_of(self, pool: str) -> Kept:
        if pool not in self._kept:
            self._kept[pool] = Kept(self._wire, self._of(pool))
        return self._kept[pool]


def _tying(keys: PoolKeys, ids: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """What asks whether children are to be tied, for the first time and again."""
    return [
        ("ZMSCORE", keys.outbox, *(b"%c %s" % (letter, id) for id in ids)) for letter in b"at"
    ]


class _State(NamedTuple):
    kind: str
    #: The parent's id in the pool it went to.
    home: str | None = None
    #: Whether its edges name the child.
    named: bool = False


def _state_of(
    body: int, record: bytes | None, named: bool, *, telling: bool
) -> _State | None:
    """What is wrong with an edge from a parent; None where nothing is. ``named``: its edges name
    the child; ``telling``: its outbox says what became of it."""
    if named and (body or telling):
        return None
    if body:
        return _State("edge-lost")
    if record is None:
        return _State("parent-unknown", named=named)
    return _State("parent-ended", home=message.moved_to(record))


def _read(pool: str, child: Child) -> Child:
    try:
        child.journal = message.read_journal(child.body or b"")
    except PayloadError:
        return child
    child.held = None if child.text is None else Held.read(child.text)
    waits = waits_of(f"{pool}/{child.uid}", child.journal)
    child.why = wrong_with(child.held, waits, child.journal)
    return child


def _open_edges(pool: str, child: Child) -> Iterator[tuple[str, Edge, bool]]:
    """The parents of which nothing is known yet."""
    if child.journal is None or child.held is None:
        return
    waits = waits_of(f"{pool}/{child.uid}", child.journal)
    if waits is not None and waits.parents:
        for at in child.held.open:
            edge = Edge(pool, child.uid, at + 1, child.held.round)
            yield waits.parents[at], edge, waits.missing


def _why(kind: str, parents: Mapping[str, int]) -> str:
    first = next(iter(parents))
    more = f", and for {len(parents) - 1:,} more like that" if len(parents) > 1 else ""
    return {
        "parent-ended": f"it waits for {first}, which has ended{more}: nobody would tell it",
        "edge-lost": f"it waits for {first}, which does not know of it{more}: it would not be told",
        "parent-unknown": f"it waits for {first}, which is gone{more}: it can not run any more, "
                          "and is skipped",
    }[kind]


class Edges:
    """What parents keep of those that wait for them."""

    subjects = frozenset(("edges",))

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys

    def walk(self) -> Found:
        key = self._keys.edges
        for page in scan(self._wire, "HSCAN", key, affordable(self._wire, key)):
            fields = page[::2]
            yield len(fields), self._judge(fields)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge(list(dict.fromkeys(raw(one.uid) for one in found)))

    def _judge(self, fields: Sequence[bytes]) -> list[Finding]:
        if not fields:
            return []
        k = self._keys
        parents = [_parent_of(field) for field in fields]
        texts, firsts, items, *there = at_once(self._wire, [
            ("HMGET", k.edges, *fields), ("HMGET", k.edges, *parents),
            ("ZMSCORE", k.outbox, *(b"p " + one for one in parents)),
            *(("HEXISTS", key, one) for one in parents for key in (k.tasks, k.records)),
        ])
        found = []
        for i, field in enumerate(fields):
            text = texts[i]
            if text is None:
                continue
            if why := _unreadable(field, text, firsts[i]):
                found.append(Finding("edges-unreadable", k.pool, name(field), why, text))
            elif (field == parents[i] and items[i] is None and not any(there[2 * i:2 * i + 2])
                    and not self._wanted(field, text)):
                found.append(Finding(
                    "edges-without-parent", k.pool, name(field), "others are said to wait for it, "
                    "and neither it nor its record is there", text.partition(b" ")[0],
                ))
        return found

    def _wanted(self, parent: bytes, first: bytes) -> bool:
        """Whether a task waits for this one, that may be submitted later."""
        id = f"{self._keys.pool}/{name(parent)}"
        by_pool: dict[str, list[Edge]] = {}
        for text in Kept(self._wire, self._keys).now(parent, first):
            edge = Edge.read(text.decode(), id)
            by_pool.setdefault(edge.pool, []).append(edge)
        return any(
            self._any_wants(pool, part) for pool, theirs in by_pool.items()
            for part in pages(theirs, PAGE)
        )

    def _any_wants(self, pool: str, edges: Sequence[Edge]) -> bool:
        k = PoolKeys(self._keys.namespace, pool)
        texts = self._wire.call("HMGET", k.waiting, *(one.uid for one in edges))
        waiting = [
            edge.uid for edge, text in zip(edges, texts, strict=True)
            if text is not None and (held := Held.read(text)) is not None
            and held.round == edge.round and edge.place - 1 in held.open
        ]
        for uid in waiting:
            try:
                journal = message.read_journal(self._wire.call("HGET", k.tasks, uid) or b"")
            except PayloadError:
                continue
            if "missing" in journal.extras:
                return True
        return False


def _parent_of(field: bytes) -> bytes:
    return field.partition(b",")[0]


def _unreadable(field: bytes, text: bytes, first: bytes | None) -> str:
    """What is wrong with a page of edges: its field, what it holds, the first page of its parent;
    ``""`` for nothing."""
    parts = _FIELD.fullmatch(field)
    page = None if parts is None else parts[2]
    if parts is None or (_FIRST if page is None else _MORE).fullmatch(text) is None:
        return f"who waits for it can not be read: {text[:60]!r}; they are tied to it anew"
    if page is None:
        return ""
    head = _FIRST.fullmatch(first or b"")
    if head is None or int(head[1]) < int(page):
        return "a page of those that wait for a task, which does not know of that page"
    return ""


class Outbox:
    """What is still to be told, or to be tied."""

    subjects = frozenset(("outbox",))

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys
        self._nodes = SpaceKeys(keys.namespace).nodes

    def walk(self) -> Found:
        for page in scan(self._wire, "ZSCAN", self._keys.outbox):
            items = page[::2]
            yield len(items), self._judge(items)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge(list(dict.fromkeys(raw(one.uid) for one in found)))

    def _judge(self, items: Sequence[bytes]) -> list[Finding]:
        if not items:
            return []
        nodes = self._wire.call("HVALS", self._nodes)
        time, scores = at_once(self._wire, [("TIME",), ("ZMSCORE", self._keys.outbox, *items)])
        now_ms = now_of(time)
        served = any(_serves(record, now_ms) for record in nodes)
        return [
            Finding(kind, self._keys.pool, name(item), text, b"%d" % FURTHEST_ITEM_MS)
            for item, score in zip(items, scores, strict=True)
            if score is not None and float(score) < IMPORTED
            for kind, text in _judge_item(item, float(score) - now_ms, served=served)
        ]


def _judge_item(item: bytes, ahead_ms: float, *, served: bool) -> Iterator[tuple[str, str]]:
    found = _ITEM.fullmatch(item)
    if found is None:
        yield "outbox-unreadable", f"nobody can tell what is to be told: {item[:60]!r}"
        return
    asks = item[:1] in b"at"
    what = "what it waits for is not asked" if asks else "what waits for it is not told"
    if ahead_ms > FURTHEST_ITEM_MS:
        yield ("outbox-too-late", f"{what} for another {ahead_ms / 3_600_000:,.0f} hours: was the "
               "server's clock set back?")
    elif served and ahead_ms < -OVERDUE_MS:
        yield ("outbox-overdue", f"{what}, {-ahead_ms / 60_000:,.0f} minutes after its time, "
               "though processes live that would")


def _serves(record: bytes, now_ms: int) -> bool:
    """Whether a node has had processes all the while in which something became overdue."""
    try:
        node = msgpack.unpackb(record)
        silent_ms = now_ms - 1000 * float(node["beat_at"])
        age_ms = now_ms - 1000 * float(node["started_at"])
    except Exception:
        return False  # another round reports it
    return bool(node["children"]) and silent_ms < 1000 * SILENT_S and age_ms > OVERDUE_MS
