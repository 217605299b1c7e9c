"""Metrics: which numbers of a namespace a monitoring system is given, and what they are now.

Whoever gives them out (``ui/metrics.py`` to Prometheus, ``otel.py`` to OpenTelemetry) goes through
``METRICS`` and shows the points of each in its own form, so that both say the same.

Counters and histograms are since ever and of all nodes, so they go on over restarts, and never
down. Names are bounded (some ninety a pool), so the labels are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import figures
from .figures import Totals
from .kept import Kept
from .keys import PoolKeys
from .statistics import BOUNDS_MS, OTHERS, Times

if TYPE_CHECKING:
    from .client import Client
    from .counts import Overview
    from .wire import Wire

#: The value of a point: of a histogram the times, else a number.
Value = float | Times
#: Label values to value, in order.
Points = list[tuple[tuple[str, ...], Value]]

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

#: Bounds that are shown of a histogram, ms: each is one of BOUNDS_MS.
SHOWN_MS = (
    5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000,
    1_800_000, 3_600_000, 43_200_000,
)
#: Ends that are counted by name; what else ended so (cancelled before it was started, skipped)
#: goes under OTHERS.
BY_NAME = ("succeeded", "dead", "cancelled", "expired")
STATES = (*BY_NAME, "skipped")
#: What was read is shown for so long, seconds.
KEPT_S = 1.0


class Metric(NamedTuple):
    """One of the numbers. ``name`` is without its unit: "seconds", "tasks" or "workers"."""

    name: str
    unit: str
    kind: str
    text: str
    labels: tuple[str, ...]
    points: Callable[[Reading], Points]


class Reading(NamedTuple):
    """What Redis says at one moment: of pools and nodes, and what each pool counted since ever."""

    view: Overview
    totals: Mapping[str, Totals]


def reader(client: Callable[[], Client]) -> Kept[Reading]:
    """Reads for whoever asks, at most once a second. ``get`` raises StorageUnavailable."""
    return Kept(lambda: read(client()), KEPT_S)


def read(client: Client) -> Reading:
    """Read all of it now. Raises StorageUnavailable."""
    view = client.overview()

    def counted(wire: Wire) -> dict[str, Totals]:
        return {
            pool["name"]: figures.totals(wire, PoolKeys(client.config.namespace, pool["name"]))
            for pool in view.pools
        }

    return Reading(view, client.ask(counted))


# Points


def _of_pools(field: str) -> Callable[[Reading], Points]:
    def points(reading: Reading) -> Points:
        return [((pool["name"],), pool[field] or 0) for pool in reading.view.pools]

    return points


def hub_lags(nodes: Iterable[Mapping[str, Any]]) -> Points:
    """How late the slowest process of each pool is on these nodes, seconds."""
    lags: dict[str, float] = {}
    for node in nodes:
        for child in () if node.get("silent") else node["children"]:
            lag_s = float(child.get("lag_ms") or 0) / 1000
            lags[child["pool"]] = max(lag_s, lags.get(child["pool"], 0.0))
    return [((pool,), lag_s) for pool, lag_s in sorted(lags.items())]


def _finished(reading: Reading) -> Points:
    return [
        ((pool, name, state), count) for pool, counted in reading.totals.items()
        for (name, state), count in sorted(finished_of(counted).items())
    ]


def _times(field: str) -> Callable[[Reading], Points]:
    def points(reading: Reading) -> Points:
        return [
            ((pool, name), getattr(tally, field)) for pool, counted in reading.totals.items()
            for name, tally in sorted(counted.names.items())
        ]

    return points


def finished_of(counted: Totals) -> dict[tuple[str, str], int]:
    """(task, state) -> how many ended so since ever; all of a state together are the pool's."""
    found = {
        (name, state): getattr(tally, state)
        for name, tally in counted.names.items() for state in BY_NAME
    }
    for state in STATES:
        named = sum(count for (_, of), count in found.items() if of == state)
        rest = counted.states.get(state, 0) - named
        if rest > 0:
            found[OTHERS, state] = found.get((OTHERS, state), 0) + rest
    return {which: count for which, count in found.items() if count}


def buckets_of(times: Times) -> list[tuple[str, float]]:
    """Cumulative counts below each of SHOWN_MS, as Prometheus wants them: bound in seconds, or
    "+Inf", and how many."""
    found, passed, at = [], 0, 0
    for bound_ms in SHOWN_MS:
        upto = BOUNDS_MS.index(bound_ms) + 1
        passed += sum(times.buckets[at:upto])
        at = upto
        found.append((str(bound_ms / 1000), float(passed)))
    return [*found, ("+Inf", float(times.count))]


_POOL, _TASK = ("pool",), ("pool", "name")

HUB_LAG = Metric(
    "skedulr_hub_lag", "seconds", GAUGE, "How late the slowest process of a pool is.", _POOL,
    lambda reading: hub_lags(reading.view.nodes),
)
WORKERS = Metric("skedulr_workers", "workers", GAUGE, "Workers, of all processes.", _POOL,
                 _of_pools("workers"))
#: All there are.
METRICS: Sequence[Metric] = (
    Metric("skedulr_queued", "tasks", GAUGE, "Tasks that wait for a worker.", _POOL,
           _of_pools("queued")),
    Metric("skedulr_scheduled", "tasks", GAUGE, "Tasks that are due later, and retries.", _POOL,
           _of_pools("scheduled")),
    Metric("skedulr_running", "tasks", GAUGE, "Tasks that are claimed by a process.", _POOL,
           _of_pools("running")),
    Metric("skedulr_dead", "tasks", GAUGE, "Tasks in the dead-letter queue.", _POOL,
           _of_pools("dead")),
    Metric("skedulr_oldest_age", "seconds", GAUGE, "How long the first queued task has waited.",
           _POOL, _of_pools("oldest_age")),
    WORKERS,
    HUB_LAG,
    Metric("skedulr_finished", "tasks", COUNTER, "Tasks that ended, by how.", (*_TASK, "state"),
           _finished),
    Metric("skedulr_duration", "seconds", HISTOGRAM, "How long attempts ran.", _TASK,
           _times("ran")),
    Metric("skedulr_wait", "seconds", HISTOGRAM, "How long tasks waited for a worker, once due.",
           _TASK, _times("waited")),
)
