"""Metrics: what Prometheus scrapes at ``/metrics``, from the counts that Redis keeps.

A scrape of any node tells of the whole namespace; with ``?node=1`` of this node's own processes
alone. Counters and histograms are since ever and of all nodes, so they go on over restarts, and
never down. Names are bounded (some ninety a pool), so the labels are.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import bottle

from .. import figures
from ..client import Client
from ..counts import Overview
from ..figures import Totals
from ..keys import PoolKeys
from ..statistics import BOUNDS_MS, OTHERS, Times
from ..wire import Wire
from .problems import Problem
from .requests import only
from .samples import Kept

#: Bounds that a scrape shows, ms: each is one of BOUNDS_MS.
SHOWN_MS = (
    5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000,
    1_800_000, 3_600_000, 43_200_000,
)
#: Ends that are counted by name; what else ended so (cancelled before it was started, skipped)
#: goes under OTHERS.
BY_NAME = ("succeeded", "dead", "cancelled", "expired")
STATES = (*BY_NAME, "skipped")
#: name -> (field of a pool, what it is).
GAUGES = {
    "skedulr_queued": ("queued", "Tasks that wait for a worker."),
    "skedulr_scheduled": ("scheduled", "Tasks that are due later, and retries."),
    "skedulr_running": ("running", "Tasks that are claimed by a process."),
    "skedulr_dead": ("dead", "Tasks in the dead-letter queue."),
    "skedulr_oldest_age_seconds": ("oldest_age", "How long the first queued task has waited."),
    "skedulr_workers": ("workers", "Workers, of all processes."),
}
#: A scrape is made anew after this long, seconds.
_KEPT_S = 1.0


class Metrics:
    """The route ``/metrics``."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._read = Kept(self._read_all, _KEPT_S)

    def install(self, app: bottle.Bottle) -> None:
        """Add the route."""
        app.route("/metrics", "GET", self.scrape)

    def scrape(self) -> bottle.HTTPResponse:
        """Everything, as text in Prometheus' form; 503 where the extra is not installed."""
        query = bottle.request.query
        only(query, ("node",), "this page")
        prometheus = _prometheus()
        view, totals = self._read.get()
        families = (
            node_families(prometheus.core, view) if query.get("node") in ("1", "true")
            else all_families(prometheus.core, view, totals)
        )
        registry = prometheus.CollectorRegistry()
        registry.register(_Collector(families))
        text = prometheus.generate_latest(registry)
        return bottle.HTTPResponse(text, 200, {"Content-Type": prometheus.CONTENT_TYPE_LATEST})

    def _read_all(self) -> tuple[Overview, dict[str, Totals]]:
        client = self._client()
        view = client.overview()

        def read(wire: Wire) -> dict[str, Totals]:
            return {
                pool["name"]: figures.totals(wire, PoolKeys(client.config.namespace, pool["name"]))
                for pool in view.pools
            }

        return view, client.ask(read)


class _Collector:
    """Gives ready families to a registry."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Any]:
        """The families."""
        return self._families


def _prometheus() -> Any:
    try:
        importlib.import_module("prometheus_client.core")
        return importlib.import_module("prometheus_client")
    except ImportError:
        raise Problem(
            503, "not_installed",
            "prometheus_client is not installed in the master's environment: "
            "pip install 'skedulr[metrics]'",
        ) from None


def all_families(core: Any, view: Overview, totals: Mapping[str, Totals]) -> Iterable[Any]:
    """Gauges of each pool; counters and histograms of each task."""
    for name, (column, text) in GAUGES.items():
        gauge = core.GaugeMetricFamily(name, text, labels=["pool"])
        for pool in view.pools:
            gauge.add_metric([pool["name"]], pool[column] or 0)
        yield gauge
    yield _hub_lag(core, view.nodes)
    finished = core.CounterMetricFamily(
        "skedulr_finished", "Tasks that ended, by how.", labels=["pool", "name", "state"]
    )
    for where, counted in totals.items():
        for (name, state), count in sorted(finished_of(counted).items()):
            finished.add_metric([where, name, state], count)
    yield finished
    for metric, of, text in (
        ("skedulr_duration_seconds", "ran", "How long attempts ran."),
        ("skedulr_wait_seconds", "waited", "How long tasks waited for a worker, once due."),
    ):
        histogram = core.HistogramMetricFamily(metric, text, labels=["pool", "name"])
        for where, counted in totals.items():
            for task, tally in sorted(counted.names.items()):
                times: Times = getattr(tally, of)
                histogram.add_metric([where, task], buckets_of(times), times.sum_ms / 1000)
        yield histogram


def node_families(core: Any, view: Overview) -> Iterable[Any]:
    """Workers and hub lag of the node whose master this process is; 404 where it is none."""
    mine = [
        node for node in view.nodes
        if node.get("pid") == os.getpid() and node.get("host") == socket.gethostname()
    ]
    if not mine:
        raise Problem(404, "not_found", "this process is no master: leave ?node=1 out")
    workers = core.GaugeMetricFamily("skedulr_workers", "Workers of this node.", labels=["pool"])
    counts: dict[str, int] = {}
    for child in mine[-1]["children"]:
        counts[child["pool"]] = counts.get(child["pool"], 0) + int(child.get("workers") or 0)
    for pool, count in sorted(counts.items()):
        workers.add_metric([pool], count)
    yield workers
    yield _hub_lag(core, mine[-1:])


def _hub_lag(core: Any, nodes: Sequence[Mapping[str, Any]]) -> Any:
    gauge = core.GaugeMetricFamily(
        "skedulr_hub_lag_seconds", "How late the slowest process of a pool is.", labels=["pool"]
    )
    lags: dict[str, float] = {}
    for node in nodes:
        for child in () if node.get("silent") else node["children"]:
            lag_s = float(child.get("lag_ms") or 0) / 1000
            lags[child["pool"]] = max(lag_s, lags.get(child["pool"], 0.0))
    for pool, lag_s in sorted(lags.items()):
        gauge.add_metric([pool], lag_s)
    return gauge


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
    """Cumulative counts below each of SHOWN_MS, as Prometheus wants them."""
    found, passed, at = [], 0, 0
    for bound_ms in SHOWN_MS:
        upto = BOUNDS_MS.index(bound_ms) + 1
        passed += sum(times.buckets[at:upto])
        at = upto
        found.append((str(bound_ms / 1000), float(passed)))
    return [*found, ("+Inf", float(times.count))]
