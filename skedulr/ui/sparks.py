"""Sparks: the last hour in small: of each pool how much ended and how long it waited, and which
tasks failed in it. From what the scripts counted, so it costs the same however much ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import figures
from ..figures import Asker
from ..statistics import Tally

#: Points of a small chart, and seconds of each.
STEPS, STEP_S = 30, 120
#: Tasks' names that are looked at for failures: those that failed most often since ever.
MOST_NAMES = 40


class Spark(NamedTuple):
    """A pool's last hour in STEPS points, the oldest first: tasks that ended, those of them that
    are dead, and the time that 95 % waited less than, ms (0 where nothing ran)."""

    ended: list[int]
    dead: list[int]
    wait_ms: list[float]


class Failing(NamedTuple):
    """A task's failed attempts in the last hour: how many, of how many runs, and by point."""

    pool: str
    name: str
    failed: int
    runs: int
    points: list[int]
    #: Since ever.
    total: int


def sparks(
    wire: Asker, namespace: str, pools: Iterable[str], now_s: float
) -> dict[str, Spark]:
    """Of each pool."""
    found = {}
    for pool in pools:
        points = _hour(wire, namespace, pool, now_s)
        found[pool] = Spark(
            [one.ended for one in points], [one.dead for one in points],
            [one.waited.quantile(0.95) or 0.0 for one in points],
        )
    return found


def failing(
    wire: Asker, namespace: str, names: Sequence[Mapping[str, Any]], now_s: float
) -> list[Failing]:
    """Those of the statistics' ``names`` that failed in the last hour, the most frequent first."""
    often = sorted((one for one in names if one["failed"]), key=lambda one: -one["failed"])
    found = []
    for row in often[:MOST_NAMES]:
        points = _hour(wire, namespace, row["pool"], now_s, row["name"])
        failed = [one.failed for one in points]
        found.append(Failing(
            row["pool"], row["name"], sum(failed), sum(one.runs for one in points), failed,
            row["failed"],
        ))
    return sorted((one for one in found if one.failed), key=lambda one: (-one.failed, one.name))


def _hour(
    wire: Asker, namespace: str, pool: str, now_s: float, name: str | None = None
) -> list[Tally]:
    how = figures.plan(STEPS * STEP_S, STEP_S)
    points = figures.series(wire, namespace, [pool], how, now_s, name)
    return [one or Tally() for one in points]
