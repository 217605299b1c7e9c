"""Counts: every pool and node in numbers, as the HTTP interface shows them.

Three round trips for all pools together, however many tasks there are: lengths of sorted sets and
hashes, never a scan. What can not be known (a rate of nothing, the age of an empty queue) is None.
Times are epoch seconds by Redis' clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from . import message
from .errors import PayloadError
from .keys import PoolKeys, SpaceKeys
from .lead import holder_of
from .streams import Asker, Group, queued

#: The time over which throughput is counted, seconds.
THROUGHPUT_S = 60
#: A node that has not written its record for this long counts no more, seconds.
SILENT_S = 20.0
#: Places in ready are priority level times this, plus a sequence.
LEVEL = 2**44

#: Where in a pool's answers these stand.
_READY, _META, _STREAM, _REMOVED = 0, 7, 10, 11

TOTALS = ("queued", "scheduled", "running", "waiting", "dead", "succeeded", "failed")


@dataclass(frozen=True, slots=True)
class Overview:
    """One look at a namespace: Redis' time, pools and nodes."""

    now_s: float
    pools: list[dict[str, Any]]
    nodes: list[dict[str, Any]]

    def stats(self) -> dict[str, Any]:
        """The form the HTTP interface calls "stats", without the names."""
        served = [pool["throughput"] for pool in self.pools]
        totals: dict[str, Any] = {
            name: sum(pool[name] for pool in self.pools) for name in TOTALS
        }
        throughput = sum(served)
        leaders = [node["id"] for node in self.nodes if node.get("leader")]
        return {
            **totals, "throughput": throughput,
            "predicted_wait": _predicted(totals["queued"], throughput),
            "leader": leaders[0] if leaders else None, "pools": self.pools,
        }


def look(wire: Asker, namespace: str) -> Overview:
    """Everything there is to count, now."""
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
    served = _served(nodes)
    known = sorted({name.decode() for name in names} | set(served))
    keys = [PoolKeys(namespace, name) for name in known]
    asked = [_questions(k, now_s) for k in keys]
    answers = wire.calls([one for each in asked for one in each]) if keys else []
    size = len(asked[0]) if asked else 0
    rows = [answers[at:at + size] for at in range(0, len(answers), size or 1)]
    _look_into_streams(wire, keys, rows)
    ages = _ages(wire, keys, [row[-1] for row in rows], now_s)
    pools = [
        _pool(k.pool, row, age, served.get(k.pool, []), k.pool in manual)
        for k, row, age in zip(keys, rows, ages, strict=True)
    ]
    return Overview(now_s, pools, nodes)


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


def _served(nodes: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Pool name to the children that serve it, on nodes that are alive."""
    served: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        if not node["silent"]:
            spans = {
                pool["name"]: (pool["min"], pool["max"]) for pool in node.get("pools") or []
            }
            for child in node["children"]:
                workers = int(child.get("workers") or 0)
                span = spans.get(child["pool"], (workers, workers))
                served.setdefault(child["pool"], []).append({**child, "span": span})
    return served


def _questions(k: PoolKeys, now_s: float) -> list[tuple[Any, ...]]:
    since = round((now_s - THROUGHPUT_S) * 1000)
    return [
        ("ZCARD", k.ready), ("ZCARD", k.suspects), ("ZCARD", k.delayed), ("HLEN", k.claims),
        ("HLEN", k.waiting),
        ("ZCARD", k.dead), ("HMGET", k.stats, "succeeded", "failed"),
        ("HMGET", k.meta, "paused", "transport"),
        ("ZCOUNT", k.done, since, "+inf"), ("ZCOUNT", k.dead, since, "+inf"),
        ("XLEN", k.stream), ("HGET", k.removed, ""),
        ("ZRANGE", k.ready, 0, 0, "WITHSCORES"),
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
        row[-1] = [first[0][1][1]] if first else []


def _pool(
    name: str, row: Sequence[Any], age: float | None, children: Sequence[Mapping[str, Any]],
    manual: bool,
) -> dict[str, Any]:
    ready, suspects, delayed, running, waiting, dead, totals, meta, ended, died, *_ = row
    paused = meta[0]
    in_queue = ready + suspects
    throughput = (ended + died) / THROUGHPUT_S
    workers = sum(int(child.get("workers") or 0) for child in children)
    least = sum(int(child["span"][0]) for child in children)
    most = sum(int(child["span"][1]) for child in children)
    return {
        "name": name, "workers": workers, "min": least, "max": most,
        "manual": manual, "processes": len(children),
        "queued": in_queue, "scheduled": delayed, "running": running,
        "waiting": waiting, "dead": dead,
        "oldest_age": age, "paused": paused == b"1", "unserved": not children,
        "predicted_wait": _predicted(in_queue, throughput), "throughput": throughput,
        "succeeded": int(totals[0] or 0), "failed": int(totals[1] or 0),
    }


def _predicted(queued: int, throughput: float) -> float | None:
    """Seconds until a task submitted now is started, at the rate of the last minute."""
    if not queued:
        return 0.0
    return queued / throughput if throughput else None


def _ages(
    wire: Asker, keys: Sequence[PoolKeys], firsts: Sequence[list[bytes]], now_s: float
) -> list[float | None]:
    """How long the first task of each ready set has been waiting; None for an empty one.

    The first of the highest priority: with several priorities another one may be older.
    """
    asked = [
        question
        for k, first in zip(keys, firsts, strict=True) if first
        for question in (("HGET", k.tasks, first[0]), ("HGET", k.info, first[0]))
    ]
    answers = iter(wire.calls(asked) if asked else [])
    return [_age(next(answers), next(answers), now_s) if first else None for first in firsts]


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
