"""Limits where people see and change them: the command line, HTTP, the page."""

from __future__ import annotations

import pytest
from cli_driver import Cli
from servers import Server
from ui_world import World, browse

import skedulr
from skedulr import Limit, SkedulrError, names
from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.store import Store
from skedulr.wire import Wire


@pytest.fixture
def cli(
    one_server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    app = skedulr.Skedulr(url=one_server.url)

    @app.task(name="sync", limit=Limit(concurrency=3, key="{customer}"))
    def sync(customer: str) -> None: ...

    sync.submit("ann")
    app.close()
    return Cli(capsys)


def test_a_limit_is_listed_set_and_reset_by_commands(cli: Cli) -> None:
    (one,) = cli.ok("limits", "list", "--json").json["items"]
    assert (one["name"], one["pool"], one["concurrency"]) == ("sync", "default", 3)
    cli.ok("limits", "set", "sync", "--concurrency", "1")
    assert cli.ok("limits", "list", "--json").json["items"][0]["concurrency"] == 1
    cli.ok("limits", "reset", "sync")
    assert cli.ok("limits", "list", "--json").json["items"][0]["concurrency"] == 3
    assert "sync" in cli.ok("limits", "list").out


def test_a_limit_that_nobody_knows_is_refused(cli: Cli) -> None:
    assert "snyc" in cli.refused("limits", "set", "snyc", "--concurrency", "1", status=2)


def test_a_limit_in_a_pool_that_runs_in_order_is_refused_wherever_it_is_submitted(
    cli: Cli, one_server: Server
) -> None:
    keys = PoolKeys("skedulr", "events")
    wire = Wire(one_server.url, name="test:limits")
    assert Store(keys, "streams").settle(wire, 15_000) is None
    app = skedulr.Skedulr(url=one_server.url)

    @app.task(name="event", pool="events", limit=Limit(concurrency=3))
    def event() -> None: ...

    said = (
        "pool 'events' has no priorities and no limits: its transport runs tasks in the order in "
        "which they become ready"
    )
    for way in (event.submit, lambda: app.submit_many([event.bind()] * 2),
                lambda: app.schedule_recurring(event, 10, name="event"),
                lambda: app.schedule_cron(event, "* * * * *", name="event")):
        with pytest.raises(SkedulrError) as error:
            way()
        assert said in str(error.value)
    assert event.using(limit=None).submit().state == "queued"
    # The command knows of the limit from the directory, as children publish it.
    known = names.pack(names.published(app.tasks.require("event")))
    wire.call("HSET", SpaceKeys("skedulr").names, "event", known)
    assert said in cli.refused("submit", "event", status=2)
    app.close()
    wire.close()


def test_a_limit_is_shown_and_changed_over_http_and_on_its_page(one_server: Server) -> None:
    world = World(one_server.url)
    ui = browse(world)
    app = skedulr.Skedulr(url=one_server.url, namespace="ui")

    @app.task(name="sync", limit=Limit(rate=10, per=60))
    def sync() -> None: ...

    sync.submit()
    (one,) = ui.get("/api/limits").json["items"]
    assert (one["name"], one["rate"], one["per"]) == ("sync", 10, 60)
    assert ui.post("/api/limits/sync/set", {"rate": 5, "per": 1}).json["items"][0]["rate"] == 5
    assert "sync" in ui.page("/limits").text
    assert ui.post("/api/limits/sync/reset", {}).json["items"][0]["rate"] == 10
    app.close()
