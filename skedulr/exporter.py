"""Reading pools out, line by line, while everything runs: the lines are transfer.py's.

What is read of one task is of one moment; the whole is not. Every task that is there all the while
is in it once: those that wait to run come in the order in which they would, and what moved from one
place to another meanwhile is found by a last walk over all of them. Nothing is written to Redis.

An id that was seen is remembered in 16 to 32 bytes: that is all that grows.
"""

from __future__ import annotations

import re
import uuid
from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Any, TypeVar

from . import __version__, streams
from .errors import ConfigError
from .findings import name
from .keys import PoolKeys
from .rounds import now_of, pages, scan
from .transfer import END, FORMAT, HEAD, Line
from .wire import Wire

T = TypeVar("T")

#: Tasks looked at in one step, at most; and about how many bytes they may have together.
PAGE, PAGE_BYTES = 500, 2_097_152
#: A page is about as large as the last ones allow; the first one is small.
_FIRST_PAGE = 50
#: Transports whose pools can be read out.
_OURS = (b"", b"zset", b"streams")
#: A unique key that goes with its task, as a header says it.
_LOCK = re.compile(rb" [ds]:(\S+)")


class Exporter:
    """Reads pools of a namespace through ``wire``, which it has to itself meanwhile.

    ``finished``: also the records of tasks that have ended; without it, only of those that others
    wait (or waited) for.

    >>> for line in Exporter(wire, "skedulr").lines(["default"]):     # doctest: +SKIP
    ...     write(line)
    """

    def __init__(self, wire: Wire, namespace: str, *, finished: bool = True) -> None:
        self.wire, self._namespace, self.finished = wire, namespace, finished
        #: How many tasks are looked at in one step, as things are.
        self.page = _FIRST_PAGE

    def head(self, pools: Sequence[str]) -> Line:
        """The first line. ConfigError for a pool that another program keeps."""
        return {
            "kind": HEAD, "format": FORMAT, "release": __version__, "id": uuid.uuid4().hex,
            "namespace": self._namespace, "at": self.now_ms(),
            "pools": {pool: self._sizes(pool) for pool in pools},
        }

    def lines(self, pools: Sequence[str]) -> Iterator[Line]:
        """All that follows the head, the end with it. Raises the errors of a wire."""
        counts: dict[str, int] = {}
        for pool in pools:
            for line in _Pool(self, PoolKeys(self._namespace, pool)).lines():
                counts[line["kind"]] = counts.get(line["kind"], 0) + 1
                yield line
        yield {"kind": END, "counts": counts, "at": self.now_ms()}

    def _sizes(self, pool: str) -> dict[str, int]:
        k = PoolKeys(self._namespace, pool)
        transport, *sizes = self.wire.calls([
            ("HGET", k.meta, "transport"), ("HLEN", k.tasks), ("HLEN", k.waiting),
            ("HLEN", k.records), ("HLEN", k.schedules), ("HLEN", k.edges),
        ])
        if (transport or b"") not in _OURS:
            raise ConfigError(f"pool {pool!r} is kept by the transport {name(transport)!r}, whose "
                              "tasks are not in Redis as Skedulr keeps them")
        tasks, waiting, records, schedules, edges = sizes
        return {"tasks": tasks - waiting, "waiting": waiting, "edges": edges,
                "records": records if self.finished else 0, "schedules": schedules}

    def now_ms(self) -> int:
        """The server's time."""
        return now_of(self.wire.call("TIME"))

    def adapt(self, read_bytes: int, count: int) -> None:
        """Have the next pages be about PAGE_BYTES, by what the last one took."""
        fit = PAGE_BYTES * count // max(1, read_bytes)
        self.page = max(1, min(PAGE, fit, 4 * self.page))

    def pages(self, items: Iterable[T]) -> Iterator[list[T]]:
        """``items`` in pages that are affordable now."""
        page: list[T] = []
        for one in items:
            page.append(one)
            if len(page) >= self.page:
                yield page
                page = []
        if page:
            yield page


class _Pool:
    """One pool of an export."""

    def __init__(self, exporter: Exporter, keys: PoolKeys) -> None:
        self._exporter, self._wire, self._k = exporter, exporter.wire, keys
        self._seen = Seen()

    def lines(self) -> Iterator[Line]:
        """All of it, in the order in which it can be put back."""
        yield self._head()
        yield from self._limits()
        yield from self._locks()
        yield from self._schedules()
        yield from self._edges()
        for ids in (self._in_order(), self._by_score(self._k.delayed),
                    self._by_score(self._k.held), self._all_live()):
            yield from self._tasks(ids)
        yield from self._records()

    def _line(self, kind: str, **fields: Any) -> Line:
        return {"kind": kind, "pool": self._k.pool, **fields}

    # Beside the tasks

    def _head(self) -> Line:
        paused, transport = self._wire.call("HMGET", self._k.meta, "paused", "transport")
        return self._line("pool", paused=paused == b"1", transport=name(transport or b"zset"))

    def _limits(self) -> Iterator[Line]:
        for page in scan(self._wire, "HSCAN", self._k.limits):
            for id, text in _pairs(page):
                yield self._line("limit", id=name(id), text=name(text))

    def _locks(self) -> Iterator[Line]:
        """Keys that are locked for a time. The others go with their tasks."""
        now_ms = self._exporter.now_ms()
        for page in pages(self._by_score(self._k.windows), PAGE):
            locks = self._wire.call("HMGET", self._k.unique, *page)
            for digest, lock in zip(page, locks, strict=True):
                holder, _, until = (lock or b"").partition(b" ")
                if until.isdigit() and int(until) > now_ms:
                    yield self._line(
                        "lock", digest=name(digest), holder=name(holder), until=int(until)
                    )

    def _schedules(self) -> Iterator[Line]:
        """Those that were made through the API: what code declares comes with the code."""
        k = self._k
        for page in scan(self._wire, "HSCAN", k.schedules):
            if not page:
                continue
            names, definitions = page[::2], page[1::2]
            states, reasons, ticks = self._wire.calls([
                ("HMGET", k.planned, *names), ("HMGET", k.resting, *names),
                ("ZMSCORE", k.ticks, *names),
            ])
            for one, definition, state, why, tick in zip(
                names, definitions, states, reasons, ticks, strict=True
            ):
                if state is not None and state.split(b" ")[1:2] == [b"-"]:
                    yield self._line(
                        "schedule", name=name(one), definition=definition, state=name(state),
                        why=name(why or b""), fires=None if tick is None else int(float(tick)),
                    )

    def _edges(self) -> Iterator[Line]:
        """Who waits for whom: a field a page of up to 500 edges, see attach.lua."""
        for page in scan(self._wire, "HSCAN", self._k.edges, 20):
            for field, text in _pairs(page):
                uid, _, later_page = name(field).partition(",")
                edges = name(text).split(" ")
                # The first page says how many follow.
                edges = [one for one in (edges if later_page else edges[1:]) if one]
                if edges:
                    yield self._line("edges", uid=uid, edges=edges)

    # Which tasks there are

    def _in_order(self) -> Iterator[bytes]:
        """What runs, then what waits to, the first first."""
        k, claimed = self._k, list[tuple[int, bytes]]()
        for page in scan(self._wire, "HSCAN", k.claims):
            claimed += [(_place_in(claim), uid) for uid, claim in _pairs(page)]
        yield from (uid for _, uid in sorted(claimed))
        yield from self._by_score(k.suspects)
        if streams.is_streamed(self._wire, k):
            for ids in streams.oldest_first(self._wire, k, PAGE):
                yield from ids
        yield from (uid for _, uid in merge(self._scored(k.ready), self._scored(k.parked)))

    def _by_score(self, key: str) -> Iterator[bytes]:
        return (uid for _, uid in self._scored(key))

    def _scored(self, key: str, most: str = "+inf") -> Iterator[tuple[float, bytes]]:
        """The members of a sorted set by score. Several may have the same: those that were had of
        the last one are passed over."""
        least, passed = "-inf", 0
        while True:
            page = self._wire.call("ZRANGEBYSCORE", key, least, most, "WITHSCORES", "LIMIT",
                                   passed, PAGE)
            yield from zip(map(float, page[1::2]), page[::2], strict=True)
            if len(page) < 2 * PAGE:
                return
            same = sum(score == page[-1] for score in page[1::2])
            passed = passed + same if page[-1].decode() == least else same
            least = page[-1].decode()

    def _all_live(self) -> Iterator[bytes]:
        """Whatever was missed because it went from one place to another meanwhile."""
        for page in scan(self._wire, "HSCAN", self._k.tasks, self._exporter.page):
            yield from page[::2]

    # Tasks

    def _tasks(self, ids: Iterable[bytes]) -> Iterator[Line]:
        for page in self._exporter.pages(uid for uid in ids if uid not in self._seen):
            for line in self._look(page):
                if self._seen.add(line["uid"].encode("utf-8", "surrogateescape")):
                    yield line

    def _look(self, uids: Sequence[bytes]) -> Iterator[Line]:
        """Those of the tasks that have not ended, as they were at one moment."""
        k = self._k
        bodies, headers, waiting, due, since, cancelled = self._wire.calls([
            ("MULTI",), *(("HMGET", key, *uids) for key in (k.tasks, k.info, k.waiting)),
            *(("ZMSCORE", key, *uids) for key in (k.delayed, k.held)),
            ("SMISMEMBER", k.cancels, *uids), ("EXEC",),
        ])[-1]
        self._exporter.adapt(sum(len(one) for one in bodies if one), len(uids))
        locked = self._locked(uids, headers)
        for uid, body, header, tied, due_ms, since_ms, flag in zip(
            uids, bodies, headers, waiting, due, since, cancelled, strict=True
        ):
            if body is None:
                continue
            line = self._line("task", uid=name(uid), state="queued", body=body)
            if tied is not None:
                line |= {"state": "waiting", "since": _ms(since_ms), "waits": name(tied)}
            elif due_ms is not None:
                line |= {"state": "scheduled", "due": _ms(due_ms)}
            if header is not None:
                line["header"] = name(header)
            if uid in locked:
                line["locked"] = True
            if flag:
                line["cancelled"] = True
            yield line

    def _locked(self, uids: Sequence[bytes], headers: Sequence[bytes | None]) -> set[bytes]:
        """Those that hold the unique key that their headers name."""
        named = {
            found[1]: uid for uid, header in zip(uids, headers, strict=True)
            if header is not None and (found := _LOCK.search(header)) is not None
        }
        if not named:
            return set()
        locks = self._wire.call("HMGET", self._k.unique, *named)
        holders = ((lock or b"").partition(b" ")[0] for lock in locks)
        return {uid for uid, holder in zip(named.values(), holders, strict=True) if uid == holder}

    def _records(self) -> Iterator[Line]:
        """What has ended by now: what ends later was there before."""
        most = str(self._exporter.now_ms())
        for dead, key in ((False, self._k.done), (True, self._k.dead)):
            new = (one for one in self._scored(key, most) if one[1] not in self._seen)
            for page in self._exporter.pages(new):
                yield from self._records_of(page, dead=dead)

    def _records_of(self, page: list[tuple[float, bytes]], *, dead: bool) -> Iterator[Line]:
        if not self._exporter.finished:
            first_pages = self._wire.call("HMGET", self._k.edges, *(uid for _, uid in page))
            page = [one for one, edges in zip(page, first_pages, strict=True) if edges is not None]
            if not page:
                return
        uids = [uid for _, uid in page]
        records, listed = self._wire.calls([
            ("HMGET", self._k.records, *uids), ("ZMSCORE", self._k.workflows, *uids),
        ])
        self._exporter.adapt(sum(len(one) for one in records if one), len(page))
        for (ended_ms, uid), record, at in zip(page, records, listed, strict=True):
            if record is not None and self._seen.add(uid):
                line = self._line("record", uid=name(uid), body=record, ended=int(ended_ms),
                                  dead=dead)
                yield line if at is None else line | {"workflow": True}


class Seen:
    """A set of ids in 16 to 32 bytes each: their hashes, in one array, each at the first free place
    from where it belongs. Two of a million ids have the same hash once in 37 million exports."""

    def __init__(self) -> None:
        self._table, self._count = array("Q", bytes(8 * 1024)), 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, uid: bytes) -> bool:
        return self._table[self._at(_hash_of(uid))] != 0

    def add(self, uid: bytes) -> bool:
        """Whether it is new."""
        found = _hash_of(uid)
        at = self._at(found)
        if self._table[at]:
            return False
        self._table[at] = found
        self._count += 1
        if 2 * self._count > len(self._table):
            self._grow()
        return True

    def _at(self, hashed: int) -> int:
        table, mask = self._table, len(self._table) - 1
        at = hashed & mask
        while table[at] not in (0, hashed):
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        old = self._table
        self._table = array("Q", bytes(2 * 8 * len(old)))
        for hashed in old:
            if hashed:
                self._table[self._at(hashed)] = hashed


def _hash_of(uid: bytes) -> int:
    return hash(uid) & 0xFFFF_FFFF_FFFF_FFFF or 1


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _place_in(claim: bytes) -> int:
    """The place that a claim goes back to: "<token> <place> <started>"."""
    parts = claim.split(b" ")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def _ms(score: bytes | None) -> int:
    return 0 if score is None else int(float(score))
