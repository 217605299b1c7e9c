"""Sparks: how many tasks ended in each step of the last hour, for the small lines beside a pool."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..keys import PoolKeys
from ..wire import Wire


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
