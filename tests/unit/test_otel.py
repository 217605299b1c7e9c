"""What OpenTelemetry collects is what /metrics says."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from servers import Server
from ui_world import NAMESPACE, World, browse

import skedulr
import skedulr.otel
from skedulr.errors import ConfigError

UNITS = {"s": "_seconds", "{task}": "", "{worker}": ""}


class Meter:
    """A provider whose numbers are read at once."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def collected(self) -> list[Any]:
        """The metrics that there is a number of."""
        data = self.reader.get_metrics_data()
        return [] if data is None else [
            metric for resource in data.resource_metrics for scope in resource.scope_metrics
            for metric in scope.metrics
        ]

    def samples(self) -> dict[tuple[str, frozenset], float]:
        """(sample, labels) -> value, called as Prometheus calls them."""
        return {
            (scraped_name(metric), frozenset(point.attributes.items())): point.value
            for metric in self.collected() for point in metric.data.data_points
        }


def scraped_name(metric: Any) -> str:
    name, _, part = metric.name.removeprefix("skedulr.").partition(".")
    if part:
        return f"skedulr_{name}_seconds_{part}"
    return f"skedulr_{name}{UNITS[metric.unit]}" + ("_total" if name == "finished" else "")


@pytest.fixture()
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture()
def app(one_server: Server) -> skedulr.Skedulr:
    return skedulr.Skedulr(url=one_server.url, namespace=NAMESPACE)


def test_it_collects_what_a_scrape_shows(world: World, app: skedulr.Skedulr) -> None:
    for _ in range(6):
        world.submit("work")
    world.succeed(count=3)
    world.die()
    world.start()
    meter = Meter()
    skedulr.otel.install(app, meter.provider)
    collected = meter.samples()
    text = browse(world, metrics_auth=False).get("/metrics").text
    scraped = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
        if not sample.name.endswith("_created")
    }
    moving = "skedulr_oldest_age_seconds"
    for found in (collected, scraped):
        [age] = [found.pop(one) for one in list(found) if one[0] == moving]
        assert 0 <= age < 60
    assert collected == scraped
    assert len(collected) > 40
    ended = ("skedulr_finished_total", frozenset(
        {("pool", "default"), ("name", "work"), ("state", "succeeded")}
    ))
    assert collected[ended] == 3


def test_its_counters_are_sums_that_only_grow_and_its_gauges_are_not(
    world: World, app: skedulr.Skedulr
) -> None:
    world.submit("work")
    world.succeed()
    meter = Meter()
    skedulr.otel.install(app, meter.provider)
    kinds = {one.name: getattr(one.data, "is_monotonic", None) for one in meter.collected()}
    assert kinds.pop("skedulr.finished") is True
    assert {name for name, grows in kinds.items() if grows} == {
        f"skedulr.{what}.{part}" for what in ("duration", "wait")
        for part in ("count", "sum", "bucket")
    }
    assert kinds["skedulr.queued"] is None


def test_installed_twice_it_is_told_once(world: World, app: skedulr.Skedulr) -> None:
    world.submit("work")
    world.succeed()
    meter = Meter()
    for _ in range(2):
        skedulr.otel.install(app, meter.provider)
    [finished] = [one for one in meter.collected() if one.name == "skedulr.finished"]
    assert [point.value for point in finished.data.data_points] == [1]


def test_while_redis_is_away_nothing_is_told_and_nothing_breaks() -> None:
    app = skedulr.Skedulr(url="redis://127.0.0.1:1/0", submit_timeout=0.2)
    meter = Meter()
    skedulr.otel.install(app, meter.provider)
    assert meter.samples() == {}


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'skedulr\[otel\]'"):
        skedulr.otel.install(skedulr.Skedulr())
