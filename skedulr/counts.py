"""Counts: every pool and node in numbers, as the HTTP interface shows them.

Three round trips for all pools together, however many tasks there are: lengths of sorted sets and
hashes, and what was counted of runs in the last minutes; never a scan. What can not be known (a
rate of nothing, the age of an empty queue) is None. Times are epoch seconds by Redis' clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from . import message
from .errors import PayloadError
from .figures import Asker, Known, Recent
from .keys import NAME, PoolKeys, SpaceKeys
from .lead import holder_of
from .statistics import Load, capacity, predicted_wait
from .streams import Group, queued

#: The time over which throughput is counted, seconds.
THROUGHPUT_S, NOW_S = 60, 10
#: A node that has not written its record for this long counts no more, seconds.
SILENT_S = 20.0
#: Places in ready are priority level times this, plus a sequence.
LEVEL = 2**44

#: Where in a pool's answers these stand.
_READY, _META, _AHEAD, _STREAM, _REMOVED, _PARKED = 0, 7, 12, 13, 14, 15

TOTALS = ("queued", "scheduled", "running", "waiting", "dead", "succeeded", "failed")


@dataclass(frozen=True, slots=True)
class Overview:
    """One look at a namespace: Redis' time, pools and nodes; and by pool what predictions are made
    of, and its last minutes."""

    now_s: float
    pools: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    loads: dict[str, Load] = field(default_factory=dict)
    recent: dict[str, Recent] = field(default_factory=dict)

    def stats(self) -> dict[str, Any]:
        """The form the HTTP interface calls "stats", without the names."""
        totals: dict[str, Any] = {
            name: sum(pool[name] for pool in self.pools) for name in TOTALS
        }
        waits = [one for pool in self.pools if (one := pool["predicted_wait"]) is not None]
        leaders = [node["id"] for node in self.nodes if node.get("leader")]
        return {
            **totals, "throughput": sum(pool["throughput"] for pool in self.pools),
            # Of the pool where it is longest.
            "predicted_wait": max(waits, default=None),
            "leader": leaders[0] if leaders else None, "pools": self.pools,
        }

    def rates(self, pool: str) -> dict[str, float | None]:
        """How a pool works now: tasks/s that ended over 10 s and 1, 5 and 15 minutes, tasks/s that
        were submitted over 5 minutes, mean seconds of a run and of a wait over 5 minutes, the share
        of the workers' time that was used, what the pool could get through, the predicted wait."""
        load, recent = self.loads[pool], self.recent[pool]
        waited_ms = recent.summed().waited.mean_ms
        return {
            "throughput_10s": load.ended_10s / NOW_S,
            "throughput_1m": load.ended_60s / THROUGHPUT_S,
            "throughput_5m": recent.rate(5), "throughput_15m": recent.rate(15),
            "arrival_rate": recent.rate(5, "submitted"), "service_time": recent.service_s,
            "queue_wait": None if waited_ms is None else waited_ms / 1000,
            "utilisation": recent.utilisation(load.workers), "capacity": capacity(load),
            "predicted_wait": next(
                one["predicted_wait"] for one in self.pools if one["name"] == pool
            ),
        }


def look(wire: Asker, namespace: str, priority: int = 0) -> Overview:
    """Everything there is to count, now. ``priority``: of the task whose wait is predicted."""
    space = SpaceKeys(namespace)
    names, records, time, flat, held = wire.calls([
        ("HKEYS", space.pools), ("HVALS", space.nodes), ("TIME",), ("HKEYS", space.sizes),
        ("HMGET", space.leader, "node", "term", "until"),
    ])
    manual = {name.decode() for name in flat}
    now_s = int(time[0]) + int(time[1]) / 1e6
    nodes = nodes_of(records, now_s)
    leader = holder_of(held, round(now_s * 1000)).node
    for node in nodes:
        # Not what a node wrote of itself: one that died would lead on in its record.
        node["leader"] = node.get("id") == leader
    served = _served(nodes, manual)
    # What a record says is a pool may be anything.
    known = sorted(filter(NAME.fullmatch, {name.decode() for name in names} | set(served)))
    keys = [PoolKeys(namespace, name) for name in known]
    asked = [_questions(k, now_s, priority) for k in keys]
    answers = wire.calls([one for each in asked for one in each]) if keys else []
    size = len(asked[0]) if asked else 0
    rows = [answers[at:at + size] for at in range(0, len(answers), size or 1)]
    _look_into_streams(wire, keys, rows)
    counted = [Known.read(*row[-2:]) for row in rows]
    ages, recents = _ages(wire, keys, [row[-3] for row in rows], counted, now_s)
    view = Overview(now_s, [], nodes)
    for k, row, age, recent in zip(keys, rows, ages, recents, strict=True):
        children = served.get(k.pool, [])
        view.recent[k.pool] = recent
        load = view.loads[k.pool] = _load(row, age, children, recent)
        view.pools.append(_pool(k.pool, row, age, children, k.pool in manual, load))
    return view


def nodes_of(records: Sequence[bytes], now_s: float) -> list[dict[str, Any]]:
    """The nodes' records, oldest node first, ``silent`` set for those that stopped writing."""
    nodes = []
    for record in records:
        try:
            node = msgpack.unpackb(record)
            node["silent"] = now_s - float(node["beat_at"]) > SILENT_S
            node["children"] = list(node["children"])
            nodes.append(node)
        except Exception:
            continue  # another release's record must not hide the others
    return sorted(nodes, key=lambda node: (node.get("started_at") or 0, str(node.get("id"))))


def _served(
    nodes: Sequence[Mapping[str, Any]], manual: set[str]
) -> dict[str, list[Mapping[str, Any]]]:
    """Pool name to the children that serve it, on nodes that are alive; ``span``: the workers each
    may have, which is what an operator set, where one did."""
    served: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        if not node["silent"]:
            spans = {
                pool["name"]: (pool["min"], pool["max"]) for pool in node.get("pools") or []
                if pool["name"] not in manual
            }
            for child in node["children"]:
                workers = int(child.get("workers") or 0)
                span = spans.get(child["pool"], (workers, workers))
                served.setdefault(child["pool"], []).append({**child, "span": span})
    return served


def _questions(k: PoolKeys, now_s: float, priority: int) -> list[tuple[Any, ...]]:
    since, lately = (round((now_s - seconds) * 1000) for seconds in (THROUGHPUT_S, NOW_S))
    # Whatever is of this priority or a higher one is taken before one that comes now.
    behind = f"({(101 - priority) * LEVEL}"
    return [
        ("ZCARD", k.ready), ("ZCARD", k.suspects), ("ZCARD", k.delayed), ("HLEN", k.claims),
        ("HLEN", k.waiting),
        ("ZCARD", k.dead), ("HMGET", k.stats, "succeeded", "failed"),
        ("HMGET", k.meta, "paused", "transport"),
        ("ZCOUNT", k.done, since, "+inf"), ("ZCOUNT", k.dead, since, "+inf"),
        ("ZCOUNT", k.done, lately, "+inf"), ("ZCOUNT", k.dead, lately, "+inf"),
        ("ZCOUNT", k.ready, "-inf", behind), ("XLEN", k.stream), ("HGET", k.removed, ""),
        ("ZCARD", k.parked),
        ("ZRANGE", k.ready, 0, 0, "WITHSCORES"), *Known.questions(k),
    ]


def _look_into_streams(wire: Asker, keys: Sequence[PoolKeys], rows: Sequence[list[Any]]) -> None:
    """Put how many wait in a stream, and the first of them, where they stand for sorted sets."""
    streamed = [
        (k, row) for k, row in zip(keys, rows, strict=True) if row[_META][1] == b"streams"
    ]
    full = [(k, row) for k, row in streamed if row[_STREAM]]
    groups = [
        Group.read(found)
        for found in (wire.calls([("XINFO", "GROUPS", k.stream) for k, _ in full]) if full else [])
    ]
    firsts = wire.calls([
        ("XRANGE", k.stream, f"({group.last_place}-0", "+", "COUNT", 1)
        for (k, _), group in zip(full, groups, strict=True)
    ]) if full else []
    for (_, row), group, first in zip(full, groups, firsts, strict=True):
        row[_READY] = queued(row[_STREAM], group, row[_REMOVED])
        row[_AHEAD] = row[_READY]
        row[-3] = [first[0][1][1]] if first else []


def _load(
    row: Sequence[Any], age: float | None, children: Sequence[Mapping[str, Any]], recent: Recent
) -> Load:
    _, suspects, _, running, _, _, _, _, ended, died, ended_10s, died_10s, ahead, *_ = row
    return Load(
        ahead=ahead + suspects, claimed=running,
        workers=sum(int(child.get("workers") or 0) for child in children),
        processes=len(children), service_s=recent.service_s, backlog_s=age,
        ended_10s=ended_10s + died_10s, ended_60s=ended + died,
    )


def _pool(
    name: str, row: Sequence[Any], age: float | None, children: Sequence[Mapping[str, Any]],
    manual: bool, load: Load,
) -> dict[str, Any]:
    ready, suspects, delayed, running, waiting, dead, totals, meta, ended, died, *_ = row
    paused, parked = meta[0], row[_PARKED]
    in_queue = ready + suspects + parked
    throughput = (ended + died) / THROUGHPUT_S
    least = sum(int(child["span"][0]) for child in children)
    most = sum(int(child["span"][1]) for child in children)
    return {
        "name": name, "workers": load.workers, "min": least, "max": most,
        "manual": manual, "processes": len(children),
        "queued": in_queue, **({"parked": parked} if parked else {}),
        "scheduled": delayed, "running": running,
        "waiting": waiting, "dead": dead,
        "oldest_age": age, "paused": paused == b"1", "unserved": not children,
        "predicted_wait": None if paused == b"1" else predicted_wait(load),
        "throughput": throughput,
        "succeeded": int(totals[0] or 0), "failed": int(totals[1] or 0),
    }


def _ages(
    wire: Asker, keys: Sequence[PoolKeys], firsts: Sequence[list[bytes]], known: Sequence[Known],
    now_s: float,
) -> tuple[list[float | None], list[Recent]]:
    """How long the first task of each ready set has been waiting, None for an empty one; and the
    last minutes of each pool.

    The first of the highest priority: with several priorities another one may be older.
    """
    asked: list[tuple[Any, ...]] = [
        question
        for k, first in zip(keys, firsts, strict=True) if first
        for question in (("HGET", k.tasks, first[0]), ("HGET", k.info, first[0]))
    ]
    asked += [
        ("HMGET", k.history, *Recent.fields(one, now_s)) for k, one in zip(keys, known, strict=True)
    ]
    answers = iter(wire.calls(asked) if asked else [])
    ages = [_age(next(answers), next(answers), now_s) if first else None for first in firsts]
    return ages, [Recent.read(one, next(answers), now_s) for one in known]


def _age(body: bytes | None, header: bytes | None, now_s: float) -> float | None:
    if body is None:
        return None  # taken between two looks
    parts = (header or b"").split(b" ")
    due_ms = int(parts[3]) if len(parts) >= 5 and parts[3].isdigit() else 0
    try:
        submitted_ms = message.read_journal(body).submitted_ms
    except PayloadError:
        return None
    return max(0.0, now_s - max(due_ms, submitted_ms) / 1000)
