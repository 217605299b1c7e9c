"""Limits where people see and change them: the command line, HTTP, the page."""

from __future__ import annotations

import pytest
from cli_driver import Cli
from servers import Server
from ui_world import World, browse

import skedulr
from skedulr import Limit


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
