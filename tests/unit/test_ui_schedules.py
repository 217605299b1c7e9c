"""Schedules on the page and in the interface: listed, steered, previewed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Server
from ui_world import NAMESPACE, Browser, World, browse

import skedulr
from skedulr.keys import PoolKeys
from skedulr.store import Store
from skedulr.ui.api import SCHEDULE


@pytest.fixture
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture
def ui(world: World) -> Iterator[Browser]:
    app = skedulr.Skedulr(url=world.client.config.url, namespace=NAMESPACE)
    app.schedule_recurring(app.remote("poll").bind("a"), 3600, name="poll")
    app.schedule_cron(app.remote("digest", pool="mail").bind(), "0 9 * * mon-fri", name="digest",
                      tz="Europe/Paris")
    yield browse(world)
    app.close()


def test_schedules_are_listed_by_name_in_the_contracts_form(ui: Browser) -> None:
    items = ui.get("/api/schedules").json["items"]
    assert [tuple(item) for item in items] == [SCHEDULE, SCHEDULE]
    assert [(one["name"], one["kind"], one["spec"], one["tz"]) for one in items] == [
        ("digest", "cron", "0 9 * * mon-fri", "Europe/Paris"), ("poll", "recurring", "3600", None),
    ]
    first = ui.get("/api/schedules?limit=1").json
    rest = ui.get(f"/api/schedules?cursor={first['cursor']}").json
    assert [one["name"] for one in (*first["items"], *rest["items"])] == ["digest", "poll"]
    assert rest["cursor"] is None


def test_a_schedule_is_paused_resumed_run_and_removed(world: World, ui: Browser) -> None:
    assert ui.post("/api/schedules/poll/pause").json["paused"] is True
    assert ui.post("/api/schedules/poll/resume").json["paused"] is False
    run = ui.post("/api/schedules/poll/run")
    assert run.json["name"] == "poll"
    task = ui.get(run.header("Location") or "").json
    assert (task["name"], task["args"], task["state"]) == ("poll", ["a"], "queued")
    assert ui.post("/api/schedules/poll/remove").json["name"] == "poll"
    gone = ui.post("/api/schedules/poll/run")
    assert (gone.status, gone.code) == (404, "schedule_not_found")
    assert "pause schedule" in ui.page("/changes").text


def test_the_page_shows_schedules_with_their_runs(world: World, ui: Browser) -> None:
    ui.post("/api/schedules/poll/run")
    world.succeed()
    text = ui.page("/schedules").text
    assert 'id="schedule-poll"' in text
    assert 'class="run succeeded"' in text
    assert "0 9 * * mon-fri" in text
    assert ui.send("/do/schedules/poll/pause", back="/schedules").status == 303
    assert "paused</span>" in ui.page("/schedules").text


def test_a_cron_line_is_previewed_or_refused_with_the_reason(ui: Browser) -> None:
    shown = ui.page("/schedules?line=0+9+*+*+mon&tz=Europe/Paris").text
    assert shown.count("Mon ") == 5
    assert "09:00:00 CE" in shown
    refused = ("line=61+*+*+*+*", "line=*", "line=*+*+*+*+*&tz=Mars/Base", "line=%3Cb%3E")
    for query in refused:
        answer = ui.page(f"/schedules?{query}")
        assert answer.status == 200, query
        assert '<p class="bad">' in answer.text
        assert "<b>\n" not in answer.text


def test_an_empty_namespace_teaches_how_to_schedule(one_server: Server) -> None:
    text = browse(World(one_server.url)).page("/schedules").text
    assert "@skedulr.cron(" in text


def test_a_run_with_a_priority_in_a_pool_that_runs_in_order_is_refused(
    world: World, ui: Browser
) -> None:
    app = skedulr.Skedulr(url=world.client.config.url, namespace=NAMESPACE)
    app.schedule_recurring(app.remote("poll", priority=5), 3600, name="high")
    keys = PoolKeys(NAMESPACE, "default")
    assert app.client.ask(lambda wire: Store(keys, "streams").settle(wire, 15_000)) is None
    refused = ui.post("/api/schedules/high/run")
    assert refused.status == 400
    assert "pool 'default' has no priorities and no limits" in refused.json["error"]["message"]
    app.close()
