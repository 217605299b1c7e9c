"""History: how many tasks ended and how long they took, over an hour or a day, for the charts.

Counted from the times at which kept records ended, so it reaches back as far as records are kept;
before that there are gaps (None), not zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..keys import PoolKeys
from ..wire import Wire
from .samples import rank, read_ended

#: Span to (width of a bucket in seconds, buckets).
SPANS = {"60m": (60, 60), "24h": (900, 96)}
#: Records read of each bucket and pool for the durations.
_SAMPLED = 6


def series(
    wire: Wire, namespace: str, pools: Sequence[str], span: str, now_s: float
) -> dict[str, Any]:
    """``{"t", "succeeded", "dead", "p50_ms", "p95_ms"}``: a list each, rates in tasks/s.

    ``t`` is each bucket's end, epoch seconds; the last one is now.
    """
    width_s, count = SPANS[span]
    end_ms = round(now_s * 1000)
    edges = [end_ms - (count - i) * width_s * 1000 for i in range(count + 1)]
    ended, died = [0] * count, [0] * count
    times: list[list[float]] = [[] for _ in range(count)]
    oldest = end_ms
    for keys in (PoolKeys(namespace, pool) for pool in pools):
        oldest = min(oldest, _add_counts(wire, keys, edges, ended, died))
        _add_times(wire, keys, edges, times)
    known = [edge > oldest - width_s * 1000 for edge in edges[:-1]]
    return {
        "t": [edge // 1000 for edge in edges[1:]], "width_s": width_s,
        "succeeded": _rates(ended, known, width_s), "dead": _rates(died, known, width_s),
        "p50_ms": [rank(sorted(one), 0.5) for one in times],
        "p95_ms": [rank(sorted(one), 0.95) for one in times],
    }


def _rates(counts: list[int], known: list[bool], width_s: int) -> list[float | None]:
    return [n / width_s if sure else None for n, sure in zip(counts, known, strict=True)]


def _add_counts(
    wire: Wire, keys: PoolKeys, edges: list[int], ended: list[int], died: list[int]
) -> int:
    """Add one pool's counts; the time of its oldest record, ms."""
    spans = _spans(edges)
    asked: list[tuple[Any, ...]] = [
        ("ZCOUNT", key, *span) for key in (keys.done, keys.dead) for span in spans
    ]
    asked += [("ZRANGE", key, 0, 0, "WITHSCORES") for key in (keys.done, keys.dead)]
    *counts, first_done, first_dead = wire.calls(asked)
    for i in range(len(spans)):
        ended[i] += counts[i]
        died[i] += counts[len(spans) + i]
    return min([int(float(first[1])) for first in (first_done, first_dead) if first] or [edges[-1]])


def _add_times(wire: Wire, keys: PoolKeys, edges: list[int], times: list[list[float]]) -> None:
    sampled = wire.calls([
        ("ZREVRANGEBYSCORE", keys.done, high, low, "LIMIT", 0, _SAMPLED)
        for low, high in _spans(edges)
    ])
    for one in read_ended(wire, keys, [uid for uids in sampled for uid in uids]):
        at = int((one.finished_s * 1000 - edges[0]) // (edges[1] - edges[0]))
        if one.ran_ms is not None and at >= 0:
            times[min(at, len(times) - 1)].append(one.ran_ms)


def _spans(edges: list[int]) -> list[tuple[int, str]]:
    """From each edge up to the next; the last one is open, since now is a moment ago by now."""
    spans = [(low, f"({high}") for low, high in pairwise(edges)]
    return [*spans[:-1], (edges[-2], "+inf")]


def sparks(
    wire: Wire, namespace: str, pools: Sequence[str], now_s: float, steps: int = 30
) -> dict[str, list[int]]:
    """How many tasks of each pool ended in each of the ``steps`` of the last hour."""
    end_ms, step_ms = round(now_s * 1000), 3_600_000 // steps
    edges = [end_ms - (steps - i) * step_ms for i in range(steps + 1)]
    asked = [
        ("ZCOUNT", key, *span)
        for keys in (PoolKeys(namespace, pool) for pool in pools)
        for span in _spans(edges) for key in (keys.done, keys.dead)
    ]
    counts = wire.calls(asked) if asked else []
    summed = [one + other for one, other in zip(counts[::2], counts[1::2], strict=True)]
    return {pool: summed[i * steps:(i + 1) * steps] for i, pool in enumerate(pools)}
