"""/metrics as Prometheus' own parser reads it, and the Grafana file that asks for what is there."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path

import msgpack
import prometheus_client.core
import pytest
from prometheus_client.parser import text_string_to_metric_families
from servers import Server
from ui_world import NAMESPACE, Browser, World, browse

from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.metrics import GAUGE, METRICS, SHOWN_MS
from skedulr.statistics import BOUNDS_MS
from skedulr.store import Store
from skedulr.ui.metrics import name_of
from skedulr.ui.security import User
from skedulr.wire import Wire

GRAFANA = Path(__file__).parents[2] / "examples" / "deploy" / "grafana.json"


@pytest.fixture()
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture()
def ui(world: World) -> Browser:
    return browse(world, metrics_auth=False)


def scraped(ui: Browser, path: str = "/metrics") -> dict[tuple[str, frozenset], float]:
    """(sample, labels) -> value."""
    answer = ui.get(path)
    assert answer.status == 200, answer.text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text) for sample in family.samples
    }


def value(found: dict, sample: str, /, **labels: str) -> float:
    return found[sample, frozenset(labels.items())]


def test_what_is_scraped_is_what_happened(world: World, ui: Browser) -> None:
    for _ in range(6):
        world.submit("work")
    world.succeed(count=3)
    world.die()
    world.start()
    found = scraped(ui)
    assert value(found, "skedulr_queued", pool="default") == 1
    assert value(found, "skedulr_running", pool="default") == 1
    assert value(found, "skedulr_dead", pool="default") == 1
    ended = {"pool": "default", "name": "work"}
    assert value(found, "skedulr_finished_total", state="succeeded", **ended) == 3
    assert value(found, "skedulr_finished_total", state="dead", **ended) == 1
    assert value(found, "skedulr_duration_seconds_count", **ended) == 4
    assert value(found, "skedulr_duration_seconds_sum", **ended) == pytest.approx(0.6)
    assert value(found, "skedulr_duration_seconds_bucket", le="0.1", **ended) == 0
    assert value(found, "skedulr_duration_seconds_bucket", le="0.2", **ended) == 4
    assert value(found, "skedulr_wait_seconds_bucket", le="+Inf", **ended) == 4


def test_what_ended_before_it_was_started_counts_under_other(world: World, ui: Browser) -> None:
    id = world.submit("work")
    ui.post(f"/api/tasks/{id}/cancel")
    assert value(scraped(ui), "skedulr_finished_total", pool="default", name="(other)",
                 state="cancelled") == 1


def test_counters_go_on_when_minutes_are_added_up_and_dropped(
    world: World, ui: Browser, one_server: Server
) -> None:
    world.submit("work")
    world.succeed()
    before = scraped(ui)
    keys = PoolKeys(NAMESPACE, "default")
    text = world.call("HGET", keys.history, "open").decode()
    minute = int(text.split()[1])
    # As if all of it had been long ago.
    for field in (b"m%d work" % minute, b"m%d+" % minute):
        moved = field.replace(b"%d" % minute, b"%d" % (minute - 1000))
        world.call("HSET", keys.history, moved, world.call("HGET", keys.history, field))
        world.call("HDEL", keys.history, field)
    world.call("HSET", keys.history, "open", f"0 {minute - 1000}")
    assert Store(keys).fold(Wire(one_server.url, name="sweep"))
    assert not world.call("HEXISTS", keys.history, b"m%d work" % (minute - 1000))
    again = scraped(browse(world, metrics_auth=False))
    counters = [one for one in before if one[0].endswith(("_total", "_count", "_sum", "_bucket"))]
    assert len(counters) > 40
    assert {one: again[one] for one in counters} == {one: before[one] for one in counters}


def test_the_node_alone_shows_its_own_processes(world: World, ui: Browser) -> None:
    assert ui.get("/metrics?node=1").status == 404
    child = {"pool": "default", "pid": 1, "workers": 7, "busy": 0, "lag_ms": 250, "rss": 1}
    for id, pid in (("mine", os.getpid()), ("other", 1)):
        world.call("HSET", SpaceKeys(NAMESPACE).nodes, id, msgpack.packb({
            "id": id, "host": socket.gethostname(), "pid": pid, "version": "0", "started_at": 1.0,
            "beat_at": world.now_ms() / 1000, "children": [child],
        }))
    ui = browse(world, metrics_auth=False)
    alone = scraped(ui, "/metrics?node=1")
    assert alone == {
        ("skedulr_workers", frozenset({("pool", "default")})): 7,
        ("skedulr_hub_lag_seconds", frozenset({("pool", "default")})): 0.25,
    }
    assert value(scraped(ui), "skedulr_workers", pool="default") == 14


def test_a_scrape_needs_no_credentials_unless_it_is_asked_for(world: World) -> None:
    users = [User("ops", "secret-word")]
    for guarded, status in ((False, 200), (True, 401)):
        ui = browse(world, auth=users, metrics_auth=guarded)
        assert ui.get("/metrics", HTTP_HOST="scraped.by.address:9").status in (status, 421)
        assert ui.get("/metrics").status == status
        assert ui.get("/api/stats").status == 401
    open_ui = browse(world, auth=users, metrics_auth=False)
    assert open_ui.get("/metrics", HTTP_HOST="any.name").status == 200
    assert open_ui.post("/metrics").status == 405
    assert open_ui.get("/metrics?nod=1").status == 400


def test_without_the_extra_it_says_what_to_install(
    ui: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    answer = ui.get("/metrics")
    assert answer.status == 503
    assert "pip install 'skedulr[metrics]'" in answer.text


def test_the_bounds_that_are_shown_are_bounds_that_are_counted() -> None:
    assert set(SHOWN_MS) <= set(BOUNDS_MS)
    assert list(SHOWN_MS) == sorted(SHOWN_MS)


def test_the_grafana_file_asks_for_metrics_that_exist(world: World, ui: Browser) -> None:
    world.submit("work")
    world.succeed()
    gauges = {name_of(one) for one in METRICS if one.kind == GAUGE}
    names = {name for name, _ in scraped(ui)} | gauges
    dashboard = json.loads(GRAFANA.read_text("utf-8"))
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    assert len(asked) >= 8
    for expression in asked:
        for name in re.findall(r"skedulr_\w+", expression):
            assert name in names, expression
    assert {name.removesuffix("_bucket") for one in asked for name in
            re.findall(r"skedulr_\w+", one)} >= gauges - {"skedulr_workers"}
    assert prometheus_client.core.HistogramMetricFamily
