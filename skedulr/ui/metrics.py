"""Metrics: what Prometheus scrapes at ``/metrics``, from the counts that Redis keeps.

A scrape of any node tells of the whole namespace; with ``?node=1`` of this node's own processes
alone. Which numbers there are is said in ``skedulr/metrics.py``; here they get Prometheus' form.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

import bottle

from .. import metrics
from ..client import Client
from ..counts import Overview
from ..metrics import COUNTER, HISTOGRAM, HUB_LAG, METRICS, WORKERS, Metric, Points, Reading
from ..statistics import Times
from .problems import Problem
from .requests import only


class Metrics:
    """The route ``/metrics``."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._read = metrics.reader(client)

    def install(self, app: bottle.Bottle) -> None:
        """Add the route."""
        app.route("/metrics", "GET", self.scrape)

    def scrape(self) -> bottle.HTTPResponse:
        """Everything, as text in Prometheus' form; 503 where the extra is not installed."""
        query = bottle.request.query
        only(query, ("node",), "this page")
        prometheus = _prometheus()
        reading = self._read.get()
        families = (
            node_families(prometheus.core, reading.view) if query.get("node") in ("1", "true")
            else all_families(prometheus.core, reading)
        )
        registry = prometheus.CollectorRegistry()
        registry.register(_Collector(families))
        text = prometheus.generate_latest(registry)
        return bottle.HTTPResponse(text, 200, {"Content-Type": prometheus.CONTENT_TYPE_LATEST})


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


def name_of(metric: Metric) -> str:
    """What a metric is called here: with its unit, where that is one of time."""
    return metric.name + "_seconds" if metric.unit == "seconds" else metric.name


def all_families(core: Any, reading: Reading) -> Iterable[Any]:
    """Gauges of each pool; counters and histograms of each task."""
    return (_family(core, metric, metric.points(reading)) for metric in METRICS)


def node_families(core: Any, view: Overview) -> Iterable[Any]:
    """Workers and hub lag of the node whose master this process is; 404 where it is none."""
    mine = [
        node for node in view.nodes
        if node.get("pid") == os.getpid() and node.get("host") == socket.gethostname()
    ]
    if not mine:
        raise Problem(404, "not_found", "this process is no master: leave ?node=1 out")
    counts: dict[str, int] = {}
    for child in mine[-1]["children"]:
        counts[child["pool"]] = counts.get(child["pool"], 0) + int(child.get("workers") or 0)
    workers = WORKERS._replace(text="Workers of this node.")
    yield _family(core, workers, [((pool,), count) for pool, count in sorted(counts.items())])
    yield _family(core, HUB_LAG, metrics.hub_lags(mine[-1:]))


def _family(core: Any, metric: Metric, points: Points) -> Any:
    kinds = {COUNTER: core.CounterMetricFamily, HISTOGRAM: core.HistogramMetricFamily}
    family = kinds.get(metric.kind, core.GaugeMetricFamily)(
        name_of(metric), metric.text, labels=list(metric.labels)
    )
    for labels, value in points:
        if isinstance(value, Times):
            family.add_metric(list(labels), metrics.buckets_of(value), value.sum_ms / 1000)
        else:
            family.add_metric(list(labels), value)
    return family
