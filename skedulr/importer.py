"""Writing exported pools in, a batch after the other: the lines are transfer.py's.

What is there already stays as it is, so an import that was broken off is run again and goes on.
Tasks that wait for others are put back first, and tied to them when everything is in: until then
nothing becomes of them, whatever their parents do (see delivery.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple
from zlib import crc32

from .errors import ConfigError, nearest
from .findings import raw
from .keys import PoolKeys, SpaceKeys
from .redis_scripts import script
from .rounds import now_of, pages
from .schedule_store import Directory
from .storage import NO_PRIORITY
from .store import ALREADY, BATCH, MISSING, PRIORITY, STORED, TAKEN, Store
from .transfer import END, Damaged, Line
from .wire import Wire

#: A call of a script takes about so many bytes, or one task.
_CALL_BYTES = 2_097_152
#: What waits to be tied has this score in its outbox, or one a little above: later than any time.
_LATER = 2**52
_IMPORTS = 2**20

_WHY = {
    TAKEN: "its unique key is held by another task",
    PRIORITY: f"it has a limit, and the pool can have none: {NO_PRIORITY}",
    "n": "its state can not be read",
    "i": "its id is not usable",
}
#: Wider than what a submit takes: ids are made by Skedulr as well, of names and of numbers.
_ID = re.compile(r"[^\s/,]{1,1000}")
#: What is counted of each kind of line.
_COUNTED = {"task": "tasks", "record": "records", "schedule": "schedules", "limit": "limits"}


class LeftOut(NamedTuple):
    """What could not be put back, and why."""

    id: str
    why: str


class Importer:
    """Writes into a namespace through ``wire``, which it has to itself meanwhile.

    ``pool``: only this one of the file. ``into``: under this name. ``dry``: look, and change
    nothing. ``on_left_out`` is told what could not be put back.

    ``counts`` is what was put back (or would be), by kind, and what was ``already`` there.
    """

    def __init__(
        self, wire: Wire, namespace: str, *, pool: str | None = None, into: str | None = None,
        dry: bool = False, on_left_out: Callable[[LeftOut], object] = lambda one: None,
    ) -> None:
        self._wire, self._namespace, self._space = wire, namespace, SpaceKeys(namespace)
        self._pool, self._into, self._dry = pool, into, dry
        self._on_left_out = on_left_out
        self._directory = Directory(self._space)
        self._tie_at = _LATER
        self.counts = dict.fromkeys((*_COUNTED.values(), "already", "left_out"), 0)
        #: Pools that were paused by it, as they were where the file was made.
        self.paused: list[str] = []
        #: Pools with tasks that are still to be tied.
        self._tying: set[str] = set()

    def begin(self, head: Line) -> None:
        """Look at the head of a file. ConfigError where what was asked for can not be had of it."""
        pools = head["pools"]
        if self._pool is not None and self._pool not in pools:
            raise ConfigError(f"pool {self._pool!r} is not in it{nearest(self._pool, pools)}")
        if self._into is not None:
            meant = [self._pool] if self._pool is not None else list(pools)
            if len(meant) != 1:
                raise ConfigError(f"--into takes one pool, and {len(meant)} are in it: give --pool")
            if waiting := pools[meant[0]].get("waiting", 0):
                raise ConfigError(
                    f"{waiting:,} tasks of pool {meant[0]!r} wait for others, which they know by "
                    "the pool's name: they can not go into another"
                )
        # The same file again gets the same.
        self._tie_at = _LATER + crc32(raw(head["id"])) % _IMPORTS

    def run(self, lines: Iterable[Line]) -> Iterator[int]:
        """Put back what the lines behind a head say, up to the end; how many lines were done, again
        and again. Damaged where there is no end; what came before it is put back then, and what
        waits for other tasks is not tied. Raises the errors of a wire."""
        for batch in _batches(self._meant(lines)):
            if batch[0]["kind"] == END:
                self.tie()
                return
            self._put(batch)
            yield len(batch)
        raise Damaged("the file was cut: its end is missing")

    def tie(self) -> None:
        """All is in that there will be: tie what waits to its parents, and let it go."""
        for pool in sorted(self._tying):
            outbox = PoolKeys(self._namespace, pool).outbox
            while items := self._wire.call(
                "ZRANGEBYSCORE", outbox, self._tie_at, self._tie_at, "LIMIT", 0, BATCH
            ):
                now_ms = now_of(self._wire.call("TIME"))
                # XX: what was cancelled meanwhile does not come back.
                self._wire.call("ZADD", outbox, "XX", *(
                    part for item in items for part in (now_ms, item)
                ))
            self._wire.call("PUBLISH", self._space.control, f"outbox {pool}/")

    def _meant(self, lines: Iterable[Line]) -> Iterator[Line]:
        for line in lines:
            if line["kind"] == END or self._pool in (None, line.get("pool")):
                yield line if self._into is None else {**line, "pool": self._into}

    # By kind

    def _put(self, batch: Sequence[Line]) -> None:
        keys = PoolKeys(self._namespace, batch[0]["pool"])
        put = {
            "pool": self._put_pool, "limit": self._put_limits, "lock": self._put_items,
            "schedule": self._put_schedules, "edges": self._put_edges,
            "task": self._put_items, "record": self._put_items,
        }.get(batch[0]["kind"])
        if put is not None:
            put(keys, batch)

    def _put_pool(self, keys: PoolKeys, batch: Sequence[Line]) -> None:
        if self._dry:
            return
        now_ms = now_of(self._wire.call("TIME"))
        self._wire.call("HSETNX", self._space.pools, keys.pool, now_ms)
        # One that is at work here is not stopped for what was done elsewhere.
        empty = not self._wire.call("EXISTS", keys.tasks, keys.records)
        if batch[-1]["paused"] and empty:
            Store(keys).pause(self._wire, True)
            self.paused.append(keys.pool)

    def _put_limits(self, keys: PoolKeys, batch: Sequence[Line]) -> None:
        """A limit that is known here stays; what was set in its place is taken over, where nothing
        is here."""
        for line in batch:
            known = self._wire.call("HGET", keys.limits, line["id"])
            given = line["text"].split(" ")[1:2]
            if known is None:
                if not self._dry:
                    self._wire.call("HSETNX", keys.limits, line["id"], line["text"])
            elif known.split(b" ")[1:2] == [b"-"] and given not in ([], ["-"]):
                if not self._dry:
                    Store(keys).set_limit(self._wire, line["id"], given[0])
            else:
                self.counts["already"] += 1
                continue
            self.counts["limits"] += 1

    def _put_schedules(self, keys: PoolKeys, batch: Sequence[Line]) -> None:
        """By names that no pool has."""
        free = []
        for line in batch:
            if self._directory.pools_of(self._wire, line["name"]) in ([], [keys.pool]):
                free.append(line)
            else:
                self.counts["already"] += 1
        args: list[Any] = [self._mode, self._space.control, f"schedules {keys.pool}"]
        for line in free:
            fires = line.get("fires")
            args += [line["name"], line["definition"], line["state"], line.get("why") or "",
                     "" if fires is None else fires]
        verdicts = self._run(keys, "restore_schedule", args) if free else ""
        self._count(keys, free, verdicts, [line["name"] for line in free])
        stored = [line["name"] for line, verdict in zip(free, verdicts, strict=True)
                  if verdict == STORED]
        if stored and not self._dry:
            self._wire.call(*self._directory.addition(keys.pool, stored))

    def _put_edges(self, keys: PoolKeys, batch: Sequence[Line]) -> None:
        """They lead to tasks by the pool's name, and are of no use under another."""
        if self._dry or self._into is not None:
            return
        edges = [(line["uid"], edge, MISSING) for line in batch for edge in line["edges"]]
        for page in pages(edges, BATCH):
            Store(keys).attach(self._wire, page)

    def _put_items(self, keys: PoolKeys, batch: Sequence[Line]) -> None:
        args: list[Any] = [self._mode, self._tie_at]
        # Somebody's hand made the others: nothing that is made of words would hold them.
        usable = ["uid" not in line or bool(_ID.fullmatch(line["uid"])) for line in batch]
        for line in compress(batch, usable):
            args += _item(line)
        stored = iter(self._run(keys, "restore", args))
        verdicts = "".join(next(stored) if one else "i" for one in usable)
        if batch[0]["kind"] != "lock":
            self._count(keys, batch, verdicts, [line["uid"] for line in batch])
        if not self._dry and any(line.get("state") == "waiting" for line in batch):
            # Also of tasks that are there already: the import before may not have come so far.
            self._tying.add(keys.pool)

    @property
    def _mode(self) -> str:
        return "look" if self._dry else "store"

    def _run(self, keys: PoolKeys, called: str, args: list[Any]) -> str:
        found = script(called)
        sent = [raw(one) if isinstance(one, str) else one for one in args]
        verdicts: bytes = self._wire.run(found, keys.of(found.keys), sent)[1]
        return verdicts.decode()

    def _count(
        self, keys: PoolKeys, batch: Sequence[Line], verdicts: str, names: Sequence[str]
    ) -> None:
        for line, verdict, name in zip(batch, verdicts, names, strict=True):
            if verdict == STORED:
                self.counts[_COUNTED[line["kind"]]] += 1
            elif verdict == ALREADY:
                self.counts["already"] += 1
            else:
                self.counts["left_out"] += 1
                id = name if line["kind"] == "schedule" else f"{keys.pool}/{name}"
                self._on_left_out(LeftOut(id, _WHY.get(verdict, verdict)))


def _item(line: Line) -> list[Any]:
    """What restore.lua takes for a task, a record or a lock."""
    kind = line["kind"]
    if kind == "lock":
        return [line["digest"], f"k {line['until']} - {line['holder']}", b"", ""]
    if kind == "record":
        place = f"{'x' if line['dead'] else 'e'} {line['ended']}"
        return [line["uid"], f"{place} {'b' if line.get('workflow') else '-'}", line["body"], ""]
    letters = ("l" if line.get("locked") else "") + ("c" if line.get("cancelled") else "") or "-"
    place = f"q 0 {letters}"
    if line["state"] == "scheduled":
        place = f"d {line['due']} {letters}"
    elif line["state"] == "waiting":
        place = f"w {line['since']} {letters} {line['waits']}"
    return [line["uid"], place, line["body"], line.get("header") or ""]


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines of one kind and pool that one call can take."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        more = len(line.get("body") or b"") + len(line.get("waits") or "")
        if batch and (
            len(batch) == BATCH or size + more > _CALL_BYTES
            or (line["kind"], line.get("pool")) != (batch[0]["kind"], batch[0].get("pool"))
        ):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += more
    if batch:
        yield batch
