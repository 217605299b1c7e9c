"""Workflows listed: the newest of each pool first, and how far each is.

begin.lua keeps the ids of a pool's newest thousand. A page reads at most so many steps and bytes,
whatever a workflow's size: of a large one the first steps are looked at, and its state is None
where they do not tell it. The tasks of a map step are not counted here, the step is.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from . import flows, message
from .errors import ConfigError, PayloadError, nearest
from .keys import PoolKeys, check_name
from .lists import Entry, Mark, entries
from .queries import MOST_ITEMS, PoolQueries
from .views import Facts
from .wire import Wire

STATES = ("running", "succeeded", "failed", "cancelled")
#: Steps that are looked at: of one workflow, and for one page.
MOST_STEPS, PAGE_STEPS = 250, 2_000
#: Workflows that are looked at for one page, where only those of a state are wanted.
MOST_LOOKED_AT = 500
#: Bytes of records and bodies that are read for one page.
PAGE_BYTES = 8_000_000
#: So many are read together.
_WINDOW = 25


def page(
    wire: Wire, namespace: str, pools: Sequence[str], *, pool: str | None = None,
    state: str | None = None, limit: int = 25, cursor: str | None = None,
) -> tuple[list[dict[str, Any]], str | None]:
    """Workflows, newest first, and where the next page begins (None: nowhere).

    Each is ``{"id", "name", "state", "total", "looked_at", "ended", "counts", "submitted_at",
    "finished_at"}``: ``total`` steps, of which ``looked_at`` are in ``ended`` and ``counts``;
    ``state`` is None where those have ended and there are more. Raises ConfigError for a pool,
    state, limit or cursor that can not be.
    """
    if not 1 <= limit <= MOST_ITEMS:
        raise ConfigError(f"limit={limit!r} is not usable: 1 to {MOST_ITEMS}")
    if state is not None and state not in STATES:
        raise ConfigError(f"no state of a workflow is called {state!r}{nearest(state, STATES)}")
    names = sorted(pools) if pool is None else [check_name("pool", pool)]
    reader = _Reader(wire, namespace)
    listed = heapq.merge(*(
        entries(wire, PoolKeys(namespace, name), "workflows", Mark.read(cursor) if cursor else None)
        for name in names
    ))
    items: list[dict[str, Any]] = []
    while batch := list(islice(listed, min(_WINDOW, limit))):
        looked = reader.look(batch)
        for entry, item in zip(batch, looked, strict=False):
            if item is not None and state in (None, item["state"]):
                items.append(item)
            if len(items) == limit:
                return items, _mark(entry)
        if reader.worn or len(looked) < len(batch):
            return items, _mark(batch[len(looked) - 1])
    return items, None


def _mark(entry: Entry) -> str:
    return Mark(0, abs(entry.order), entry.pool, entry.kind, entry.uid).text()


@dataclass(slots=True)
class _Reader:
    """Looks at workflows while steps and bytes last."""

    wire: Wire
    namespace: str
    looked_at: int = 0
    steps_left: int = field(default_factory=lambda: PAGE_STEPS)
    bytes_left: int = field(default_factory=lambda: PAGE_BYTES)

    @property
    def worn(self) -> bool:
        """Whether the page is to end here, however little it holds."""
        return self.looked_at >= MOST_LOOKED_AT or not self.steps_left or self.bytes_left <= 0

    def look(self, batch: Sequence[Entry]) -> list[dict[str, Any] | None]:
        """What is to be shown of each, None where it was forgotten; of as many, from the first on,
        as steps and bytes last for, and of one at least."""
        journals = self._journals(batch)
        wanted: list[tuple[str, str]] = []
        looked: list[tuple[Entry, message.Journal | None]] = []
        for entry, journal in zip(batch, journals, strict=False):
            part = [] if journal is None else _steps(entry.uid, journal)[:MOST_STEPS]
            if len(part) > self.steps_left and looked:
                self.steps_left = 0
                break
            self.steps_left = max(0, self.steps_left - len(part))
            wanted += part
            looked.append((entry, journal))
        self.looked_at += len(looked)
        facts = self._facts(wanted)
        return [
            None if journal is None else _item(entry, journal, facts) for entry, journal in looked
        ]

    def _journals(self, batch: Sequence[Entry]) -> list[message.Journal | None]:
        places = [(one.keys.records, one.uid) for one in batch]
        sizes = self.wire.calls([("HSTRLEN", *one) for one in places])
        affordable = max(1, self._affordable(sizes))
        records = self.wire.calls([("HGET", *one) for one in places[:affordable]])
        return [_journal(record) for record in records]

    def _facts(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Facts]:
        by_pool: dict[str, list[str]] = {}
        for pool, uid in wanted:
            by_pool.setdefault(pool, []).append(uid)
        found: dict[tuple[str, str], Facts] = {}
        for pool, uids in by_pool.items():
            keys = PoolKeys(self.namespace, pool)
            for at in range(0, len(uids), MOST_ITEMS):
                part = uids[at:at + MOST_ITEMS]
                sizes = self.wire.calls([
                    ("HSTRLEN", key, uid) for uid in part for key in (keys.records, keys.tasks)
                ])
                together = [sum(sizes[n:n + 2]) for n in range(0, len(sizes), 2)]
                part = part[:self._affordable(together)]
                for facts in PoolQueries(keys).look(self.wire, part):
                    found[pool, facts.uid] = facts
        return found

    def _affordable(self, sizes: Sequence[int]) -> int:
        """How many, from the first on, may be read."""
        for count, size in enumerate(sizes):
            if size > self.bytes_left:
                return count
            self.bytes_left -= size
        return len(sizes)


def _journal(record: bytes | None) -> message.Journal | None:
    """Of a workflow; None for what is none, or was forgotten."""
    try:
        journal = message.read_journal(record) if record else None
    except PayloadError:
        return None
    return journal if journal is not None and "steps" in journal.extras else None


def _steps(uid: str, journal: message.Journal) -> list[tuple[str, str]]:
    """Pool and uid of each step."""
    return [(where, f"{uid}.{at}") for at, (_, where, *_) in enumerate(journal.extras["steps"])]


def _item(
    entry: Entry, journal: message.Journal, facts: dict[tuple[str, str], Facts]
) -> dict[str, Any]:
    steps = _steps(entry.uid, journal)
    seen = [facts[one] for one in steps if one in facts]
    counts = Counter(one.state or "unknown" for one in seen)
    ended = sum(counts[one] for one in (*flows.ENDS, "unknown"))
    state: str | None = flows.state_of(True, counts, len(seen))
    if state != "running" and len(seen) < len(steps):
        state = None
    ends_ms = [int.from_bytes(one.record[-8:], "big") for one in seen if one.record]
    return {
        "id": f"{entry.pool}/{entry.uid}", "name": journal.name, "state": state,
        "total": len(steps), "looked_at": len(seen), "ended": ended, "counts": dict(counts),
        "submitted_at": journal.submitted_ms / 1000,
        "finished_at": max(ends_ms, default=0) / 1000 or None
        if state not in (None, "running") else None,
    }
