"""What the pages show beside lists: waits and failures of the last hour, the lead, decisions,
completions; and that a part which can not be had takes nothing else with it."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import msgpack
import pytest
from harness import wait_until
from servers import Server
from ui_world import NAMESPACE, Browser, World, browse

from skedulr.lead import LeadStore
from skedulr.ui import samples, sparks
from skedulr.ui.site import Site
from skedulr.wire import Wire


@pytest.fixture
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture
def ui(world: World) -> Browser:
    return browse(world)


def words(text: str, within: str = "<main", until: str = "</main>") -> str:
    """The text of a part of a page, as it is read."""
    part = text.partition(within)[2].partition(until)[0].partition(">")[2]
    return " ".join(html.unescape(re.sub("<[^>]*>", "", part)).split())


# The overview


def test_waits_and_failures_of_the_last_hour_are_drawn(world: World, ui: Browser) -> None:
    for name in ("pay", "mail", "mail"):
        world.submit(name)
    world.succeed(count=1)
    world.die(count=2)
    page = ui.page("/").text
    row = page.partition('id="pool-default"')[2].partition("</tr>")[0]
    ended, waited = re.findall(r'data-chart="default".*?</a>', row, re.DOTALL)
    assert ended.count("<rect") == 2, "a bar of what ended, and in it one of the dead"
    assert waited.count("<rect") == 1
    failing = words(page, '<section id="failing"', "</section>")
    assert "maildefault2100" in failing.replace(" ", "")
    assert "pay" not in failing


def test_where_nothing_failed_that_is_said(world: World, ui: Browser) -> None:
    world.submit("pay")
    world.succeed()
    assert "No attempt failed in the last hour" in ui.page("/").text


def test_the_charts_open_at_what_the_address_says(world: World, ui: Browser) -> None:
    world.submit()
    page = ui.page("/?pool=default&span=24h").text
    assert "<option selected>default</option>" in page
    assert 'data-span="24h" aria-pressed="true"' in page
    assert ui.page("/?pol=default").status == 400


def test_who_leads_since_when_and_why_is_shown(world: World, ui: Browser) -> None:
    for path in ("/", "/nodes"):
        assert "No node leads now" in ui.page(path).text
    assert ui.get("/api/leader").json == {"leader": None}
    store, wire = LeadStore(NAMESPACE), Wire(world.client.config.url, name="lead")
    for node in ("n1", "n2"):
        beat = store.beat(wire, node, willing=True, known_term=0, tuned=False)
        if node == "n1":
            store.resign(wire, node, beat.term)
    shown = {"node": "n2", "term": 2, "why": "node n1 stopped and let go of it"}
    assert shown.items() <= ui.get("/api/leader").json["leader"].items()
    for path in ("/", "/nodes"):
        text = words(ui.page(path).text)
        assert "n2 leads since now (term 2): node n1 stopped and let go of it." in text


def test_what_the_leader_decided_is_shown_with_its_reason(world: World, ui: Browser) -> None:
    assert "It has sized no pool yet" in ui.page("/").text
    for at in range(30):
        world.call("LPUSH", world.client.space.decisions, msgpack.packb({
            "at": world.now_ms() / 1000, "pool": f"p{at}", "kind": "up", "from": at, "to": at + 1,
            "why": "work waits 7.0 s, <b>5.0</b> is the most",
        }))
    for path, count in (("/", 4), ("/nodes", 20), ("/nodes?decisions=200", 30)):
        page = ui.page(path).text
        assert words(page).count("work waits 7.0 s, <b>5.0</b> is the most") == count, path
        assert "29 to 30" in words(page)
    assert ui.page("/nodes?decisions=0").status == 400


PANELS = (
    "overview", "sparks", "failing", "names_measured", "sizes", "names", "page", "dead_sample",
    "schedule_page", "limits", "redis", "frame",
)


@pytest.mark.parametrize("broken", PANELS)
def test_one_part_that_fails_never_fails_a_page(
    world: World, ui: Browser, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    world.submit("pay")
    world.die()

    def fail(*args: object, **given: object) -> None:
        raise RuntimeError("boom: secret")

    monkeypatch.setattr(Site, broken, fail)
    for path in ("/", "/tasks", "/dead", "/workflows", "/schedules", "/limits", "/nodes", "/submit",
                 "/redis", "/changes"):
        answer = ui.page(path)
        assert answer.status == 200, path
        assert "boom" not in answer.text
    front = words(ui.page("/").text)
    assert "Leader and tuning" in front
    assert "Last changes" in front
    assert ("Pools" in front) == (broken != "overview")


# Searching


def test_searches_are_completed_from_what_ended_lately(world: World, ui: Browser) -> None:
    world.submit("pay", tags=["eu", "north sea"])
    world.submit("mail")
    world.die("shop.CardDeclined")
    world.succeed()
    terms = ui.get("/terms").json
    assert set(terms) == {
        "error:shop.CardDeclined", "tag:eu", 'tag:"north sea"', "name:mail", "name:pay",
        "worker:n.1",
    }
    for term in terms:
        found = ui.get(f"/api/tasks?query={quote(term)}").json
        assert found["items"], term


def test_completions_are_bounded_and_leave_out_what_can_not_be_quoted() -> None:
    ended = [
        samples.Ended("p", "u", 'a"b', "dead", 0, 0, f"E{at}", "", ("x" * 200,)) for at in range(50)
    ]
    terms = samples.terms(ended)
    assert len(terms) == 20
    assert all(term.startswith("error:E") for term in terms)


# The dead


def test_everything_dead_is_resubmitted_or_removed_by_its_buttons(
    world: World, ui: Browser
) -> None:
    assert "Resubmit everything" not in ui.page("/dead").text
    for pool in ("default", "other"):
        world.submit("pay", pool=pool)
        world.die(pool=pool)
    ui = browse(world)  # one that has looked keeps what it saw for some seconds
    assert "1 dead in pool other" in words(ui.page("/dead?pool=other").text)
    done = ui.send("/do/tasks", page="/dead", action="remove", all="1", state="dead", pool="other")
    operation = (done.header("Location") or "").rpartition("/")[2]
    wait_until(
        lambda: ui.get(f"/api/operations/{operation}").json["state"] == "finished", "it is removed"
    )
    assert [pool["dead"] for pool in ui.get("/api/pools").json["items"]] == [1, 0]


def test_few_names_are_looked_at_for_failures() -> None:
    class Counting:
        calls_made = 0

        def call(self, *command: object) -> object:
            raise AssertionError(command)

        def calls(self, commands: list[tuple[object, ...]]) -> list[object]:
            self.calls_made += len(commands)
            return [[None] * (len(one) - 2) for one in commands]

    names = [{"pool": "p", "name": f"n{at}", "failed": at} for at in range(500)]
    wire = Counting()
    assert sparks.failing(wire, "ui", names, 1_000_000.0) == []
    assert wire.calls_made == sparks.MOST_NAMES
