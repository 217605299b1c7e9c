"""Shares: a pool's workers in the whole cluster, dealt out to its processes on each node.

Pure, so that every master finds the same from what the leader published. Workers are dealt one by
one to the process that has the fewest for its weight. So one worker more moves none that is there,
and the sum is the total, within what the processes may have.

>>> share(7, [Place("a", 1, 1, 8, 3.0), Place("b", 2, 1, 8, 1.0)])
{'a': [5], 'b': [1, 1]}
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A node that serves the pool by so many ``processes``, each with ``least`` to ``most``
    workers. ``weight``: cores that are free for it, less where memory is short."""

    node: str
    processes: int
    least: int
    most: int
    weight: float


def share(total: int, places: Sequence[Place]) -> dict[str, list[int]]:
    """How many workers each process of each node has."""
    shares = {place.node: [place.least] * place.processes for place in places}
    left = total - sum(map(sum, shares.values()))
    heap = [
        ((place.least + 1) / place.weight, place.node, process, place)
        for place in places for process in range(place.processes)
    ]
    heapq.heapify(heap)
    while left > 0 and heap:
        _, node, process, place = heapq.heappop(heap)
        has = shares[node][process]
        if has < place.most:
            shares[node][process] = has = has + 1
            left -= 1
            heapq.heappush(heap, ((has + 1) / place.weight, node, process, place))
    return shares


def pack(total: int, places: Iterable[Place]) -> dict[str, Any]:
    """What is published of a pool."""
    return {"total": total, "places": [list(place) for place in places]}


def shares_of(published: Any) -> dict[str, list[int]] | None:
    """The shares that follow from what was published; None where it can not be read."""
    try:
        places = [
            Place(str(node), int(processes), int(least), int(most), max(0.01, float(weight)))
            for node, processes, least, most, weight in published["places"]
        ]
        return share(int(published["total"]), places)
    except (KeyError, TypeError, ValueError):
        return None
