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
    how = figures.plan(STEPS * STEP_S, STEP_S)
    for pool in pools:
        series = figures.series(wire, namespace, [pool], how, now_s)
        points = [one or Tally() for one in series]
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
    often = often[:MOST_NAMES]
    counted = figures.failures(
        wire, namespace, [(row["pool"], row["name"]) for row in often], now_s,
        STEPS * STEP_S // 60,
    )
    found = []
    for row, minutes in zip(often, counted, strict=True):
        failed = [one for _, one in minutes]
        found.append(Failing(
            row["pool"], row["name"], sum(failed), sum(runs for runs, _ in minutes),
            [sum(failed[at:at + STEP_S // 60]) for at in range(0, len(failed), STEP_S // 60)],
            row["failed"],
        ))
    return sorted((one for one in found if one.failed), key=lambda one: (-one.failed, one.name))
