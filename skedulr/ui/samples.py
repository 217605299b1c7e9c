"""Samples: what the newest ended tasks tell: names, errors, texts.

Bounded: so many records of each pool, none that is large. What is read is kept for a few seconds,
since many pages ask for the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .. import message
from ..errors import PayloadError
from ..keys import PoolKeys
from ..wire import Wire

#: Ended tasks looked at, of each pool.
RECORDS = 300
#: Dead tasks looked at, of each pool.
DEAD_RECORDS = 1_000
#: A record larger than this is left out, bytes.
LARGE = 65_536
#: So many of each kind are offered while somebody types a search.
_TERMS = {"error": 20, "tag": 20, "name": 30, "worker": 10}


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended task, as much of it as statistics need; times are epoch seconds."""

    pool: str
    uid: str
    name: str
    state: str
    started_s: float
    finished_s: float
    error: str
    message: str
    tags: tuple[str, ...] = ()
    worker: str = ""

    @property
    def ran_ms(self) -> float | None:
        """How long its last attempt took; None if there was none."""
        return (self.finished_s - self.started_s) * 1000 if self.started_s else None


@dataclass
class Group:
    """Dead tasks of one name and error."""

    name: str
    error: str
    pools: set[str] = field(default_factory=set)
    count: int = 0
    newest_s: float = 0.0
    oldest_s: float = float("inf")
    message: str = ""
    hours: list[int] = field(default_factory=lambda: [0] * 24)


def newest(
    wire: Wire, namespace: str, pools: Iterable[str], kinds: Sequence[str], count: int
) -> list[Ended]:
    """The newest ended tasks of each pool, from its sorted sets ``kinds`` (done, dead).

    Where one set is cut, what the others hold from before that time is left out: else the share of
    tasks that died would be that of the lists, not that of the runs.
    """
    found: list[Ended] = []
    for keys in (PoolKeys(namespace, pool) for pool in pools):
        listed = wire.calls([
            ("ZREVRANGE", getattr(keys, kind), 0, count - 1, "WITHSCORES") for kind in kinds
        ])
        since = max((float(flat[-1]) for flat in listed if len(flat) == 2 * count), default=0.0)
        for flat in listed:
            pairs = zip(flat[::2], flat[1::2], strict=True)
            found += read_ended(wire, keys, [uid for uid, at in pairs if float(at) >= since])
    return found


def read_ended(wire: Wire, keys: PoolKeys, uids: list[bytes]) -> list[Ended]:
    """Those of the tasks whose records are there and not large."""
    if not uids:
        return []
    sizes = wire.calls([("HSTRLEN", keys.records, uid) for uid in uids])
    small = [uid for uid, size in zip(uids, sizes, strict=True) if size <= LARGE]
    records = wire.call("HMGET", keys.records, *small) if small else []
    ended = (
        _ended(keys.pool, uid.decode(), record)
        for uid, record in zip(small, records, strict=True) if record
    )
    return [one for one in ended if one is not None]


def _ended(pool: str, uid: str, record: bytes) -> Ended | None:
    try:
        journal = message.read_journal(record)
    except PayloadError:
        return None
    if not journal.entries:
        return None
    last = journal.entries[-1]
    parts = last.value if isinstance(last.value, list) and last.kind != message.SUCCEEDED else []
    error, text = (str(parts[0]), str(parts[1])) if len(parts) >= 2 else ("", str(last.value or ""))
    if last.kind == message.SUCCEEDED:
        text = ""
    return Ended(
        pool, uid, journal.name, journal.end_state or "dead", last.started_ms / 1000,
        last.at_ms / 1000, error, text, tuple(map(str, journal.extras.get("tags") or ())),
        last.worker or "",
    )


def dead_groups(dead: Iterable[Ended], now_s: float) -> list[Group]:
    """Dead tasks by name and error, the most frequent first, each with its last 24 hours."""
    groups: dict[tuple[str, str], Group] = {}
    for one in dead:
        group = groups.setdefault((one.name, one.error), Group(one.name, one.error))
        group.count += 1
        group.pools.add(one.pool)
        group.oldest_s = min(group.oldest_s, one.finished_s)
        if one.finished_s >= group.newest_s:
            group.newest_s, group.message = one.finished_s, one.message
        hour = int((now_s - one.finished_s) // 3600)
        if 0 <= hour < 24:
            group.hours[23 - hour] += 1
    return sorted(groups.values(), key=lambda group: (-group.count, group.name, group.error))


def terms(ended: Iterable[Ended]) -> list[str]:
    """Facets of a search that find some of these tasks, the most frequent of each kind first."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in _TERMS}
    for one in ended:
        counts["error"].update([one.error] if one.error else [])
        counts["tag"].update(one.tags)
        counts["name"][one.name] += 1
        counts["worker"].update([one.worker] if one.worker else [])
    return [
        f'{kind}:"{text}"' if " " in text else f"{kind}:{text}"
        for kind, most in _TERMS.items() for text, _ in counts[kind].most_common(most)
        if '"' not in text and len(text) <= 100
    ]


def names_of(ended: Iterable[Ended]) -> list[str]:
    """The tasks' names, the most frequent first."""
    return [name for name, _ in Counter(one.name for one in ended).most_common()]
