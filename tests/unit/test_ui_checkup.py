"""The doctor from the Redis page and over HTTP: in the background, one at a time, seen by all."""

from __future__ import annotations

import re
from typing import Any

import msgpack
import pytest
from servers import Server, wait_until
from ui_world import NAMESPACE, Browser, World, browse

from skedulr.keys import PoolKeys


@pytest.fixture
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture
def ui(world: World) -> Browser:
    return browse(world)


def ended(ui: Browser) -> dict[str, Any]:
    def look() -> Any:
        one = ui.get("/api/doctor").json["checkup"]
        return one["state"] != "running" and one

    found: dict[str, Any] = wait_until(look, what="it ended")
    return found


def break_something(world: World) -> None:
    """A task in the queue that is stored nowhere."""
    world.submit("work")
    world.call("ZADD", PoolKeys(NAMESPACE, "default").ready, 1, "ghost")


def test_before_the_first_one_there_is_none(ui: Browser) -> None:
    assert ui.get("/api/doctor").json == {"checkup": None}
    assert "Examine" in ui.page("/redis").text


def test_a_sound_namespace_has_nothing_broken(world: World, ui: Browser) -> None:
    world.submit("work")
    begun = ui.post("/api/doctor", {})
    assert begun.status == 202 and begun.json["checkup"]["by"] == "anybody"
    found = ended(ui)
    assert (found["state"], found["count"], found["findings"]) == ("finished", 0, [])
    assert found["done"] > 0 and "Nothing is broken" in ui.page("/redis").text


def test_what_is_broken_is_shown_and_mended_where_asked(world: World, ui: Browser) -> None:
    break_something(world)
    ui.post("/api/doctor", {})
    found = ended(ui)
    assert [one["uid"] for one in found["findings"]] == ["ghost"]
    assert re.search(r"queued-without-body.*ghost", ui.page("/redis").text, re.S)
    ui.post("/api/doctor", {"fix": True})
    found = ended(ui)
    assert (found["mended"], found["count"]) == (1, 0)
    assert world.call("ZSCORE", PoolKeys(NAMESPACE, "default").ready, "ghost") is None


def test_a_second_one_joins_the_first(world: World, ui: Browser) -> None:
    break_something(world)   # so that it has to look twice
    first = ui.post("/api/doctor", {}).json["checkup"]
    second = ui.post("/api/doctor", {"fix": True}).json["checkup"]
    assert second["started_at"] == first["started_at"] and second["fix"] is False
    ended(ui)


def test_one_whose_master_ended_is_told_as_lost(world: World, ui: Browser) -> None:
    ui.post("/api/doctor", {})
    left = {**ended(ui), "state": "running", "finished_at": None}
    world.call("HSET", world.client.space.ui, "checkup", msgpack.packb(left))
    assert ended(ui)["state"] == "lost"
    assert "cut short" in ui.page("/redis").text
    assert ui.post("/api/doctor", {}).json["checkup"]["state"] in ("running", "finished")
    assert ended(ui)["state"] == "finished"


def test_it_is_a_change_and_is_noted(ui: Browser) -> None:
    ui.post("/api/doctor", {"fix": True})
    assert "doctor, with repair" in ui.page("/changes").text
    assert ui.post("/api/doctor", {"fix": "yes"}).status == 400
    ended(ui)
