"""The list of workflows: newest first, how far each is, bounded, over HTTP and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ui_world import Browser

from skedulr import ConfigError, workflow_list
from skedulr.keys import PoolKeys
from skedulr.testing import app
from skedulr.testing.driven import DrivenApp
from skedulr.ui.app import make_app

HOSTILE = "<img src=x onerror=hacked()>\"'{{7*7}}"


@pytest.fixture
def driven() -> Iterator[DrivenApp]:
    with app() as made:
        @made.task(name="say", max_retries=0)
        def say(word: str) -> str:
            if word == "no":
                raise ValueError(word)
            return word

        yield made


@pytest.fixture
def ui(driven: DrivenApp) -> Browser:
    return Browser(make_app(driven.client))


def start(driven: DrivenApp, name: str, *words: str, pool: str = "default") -> Any:
    """A workflow with a step a word, each after the one before."""
    say = driven.remote("say", pool=pool)
    with driven.workflow(name) as w:
        before = None
        for word in words:
            before = w.add(say.bind(word), **({"on_success": before} if before else {}))
    return w


def listed(driven: DrivenApp, **given: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = driven.client.workflows(**given)["items"]
    return items


def test_the_newest_comes_first_and_each_says_how_far_it_is(driven: DrivenApp) -> None:
    start(driven, "good", "a", "b")
    start(driven, "bad", "a", "no", "c")
    driven.drain()
    driven.advance(1)
    start(driven, "open", "a", "b")
    open_, bad, good = listed(driven)
    assert [one["name"] for one in (open_, bad, good)] == ["open", "bad", "good"]
    assert (open_["state"], open_["ended"], open_["finished_at"]) == ("running", 0, None)
    assert (bad["state"], bad["ended"], bad["total"]) == ("failed", 3, 3)
    assert bad["counts"] == {"succeeded": 1, "dead": 1, "skipped": 1}
    assert good["state"] == "succeeded"
    assert good["finished_at"] >= good["submitted_at"]
    assert driven.client.workflow(bad["id"])["state"] == "failed"


def test_it_is_narrowed_by_state_and_pool(driven: DrivenApp) -> None:
    start(driven, "good", "a")
    start(driven, "bad", "no")
    elsewhere = start(driven, "elsewhere", "a", pool="other")
    driven.drain()
    assert [one["name"] for one in listed(driven, state="failed")] == ["bad"]
    assert listed(driven, state="running") == []
    # Where the first step is, the workflow is.
    assert [one["id"] for one in listed(driven, pool="other")] == [elsewhere.id]
    assert listed(driven, pool="nobody") == []
    with pytest.raises(ConfigError, match="did you mean"):
        driven.client.workflows(state="faled")
    for given in ({"limit": 0}, {"cursor": "x"}, {"pool": "a b"}):
        with pytest.raises(ConfigError):
            driven.client.workflows(**given)


def test_pages_go_on_at_their_cursor_while_others_come(driven: DrivenApp) -> None:
    for at in range(7):
        start(driven, f"w{at}", "a", pool=("default", "other")[at % 2])
        driven.advance(1)
    seen: list[str] = []
    cursor = None
    while True:
        page = driven.client.workflows(limit=3, cursor=cursor)
        seen += [one["name"] for one in page["items"]]
        start(driven, "later", "a")
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == [f"w{at}" for at in reversed(range(7))]


def test_a_large_one_is_looked_at_in_part_and_says_so(
    driven: DrivenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_list, "MOST_STEPS", 2)
    start(driven, "long", "a", "b", "c")
    assert [one["state"] for one in listed(driven)] == ["running"]
    driven.drain()
    found = listed(driven)[0]
    assert (found["state"], found["looked_at"], found["total"]) == (None, 2, 3)
    assert found["finished_at"] is None


@pytest.mark.parametrize(("what", "most"), [("PAGE_STEPS", 3), ("MOST_LOOKED_AT", 2)])
def test_a_page_looks_at_so_much_and_goes_on(
    driven: DrivenApp, monkeypatch: pytest.MonkeyPatch, what: str, most: int
) -> None:
    for at in range(5):
        start(driven, f"w{at}", "a", "b")
        driven.advance(1)
    monkeypatch.setattr(workflow_list, what, most)
    monkeypatch.setattr(workflow_list, "_WINDOW", 2)
    page = driven.client.workflows()
    assert 1 <= len(page["items"]) <= 2
    names, cursor = [one["name"] for one in page["items"]], page["cursor"]
    while cursor:
        page = driven.client.workflows(cursor=cursor)
        names, cursor = names + [one["name"] for one in page["items"]], page["cursor"]
    assert names == ["w4", "w3", "w2", "w1", "w0"]


def test_bytes_are_bounded_as_well(driven: DrivenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    start(driven, "heavy", "x" * 50_000, "y" * 50_000)
    monkeypatch.setattr(workflow_list, "PAGE_BYTES", 60_000)
    assert [one["looked_at"] for one in listed(driven)] == [1]


def test_what_was_forgotten_or_is_none_is_passed_over(driven: DrivenApp) -> None:
    start(driven, "kept", "a")
    gone = start(driven, "gone", "a")
    keys = PoolKeys("skedulr", "default")
    driven.wire.call("HDEL", keys.records, gone.id.partition("/")[2])
    driven.wire.call("HSET", keys.records, "torn", b"\xc1")
    driven.wire.call("ZADD", keys.workflows, 9e12, "torn", 9e12, "nothing")
    assert [one["name"] for one in listed(driven)] == ["kept"]


def test_it_is_given_over_http_in_the_described_form(driven: DrivenApp, ui: Browser) -> None:
    w = start(driven, "one", "a")
    answer = ui.get("/api/workflows?state=running&limit=5")
    assert (answer.status, answer.json["cursor"]) == (200, None)
    assert [one["id"] for one in answer.json["items"]] == [w.id]
    assert ui.get("/api/workflows?state=nothing").status == 400
    assert ui.get("/api/workflows?stat=failed").status == 400


def test_the_page_lists_leads_on_and_acts(driven: DrivenApp, ui: Browser) -> None:
    empty = ui.page("/workflows").text
    assert "No workflow yet" in empty
    assert "skedulr.workflow" in empty
    w = start(driven, HOSTILE, "a", "no")
    text = ui.page("/workflows").text
    assert "<img" not in text
    assert "{{7*7}}" in text
    assert f'href="/workflows/{w.id}"' in text
    assert "0 of 2" in text
    assert "Resubmit what failed" not in text
    driven.drain()
    assert "Resubmit what failed" in ui.page("/workflows?state=failed").text
    done = ui.send(f"/do/workflows/{w.id}", page="/workflows", action="resubmit",
                   back="/workflows?state=failed")
    assert (done.status, done.header("Location")) == (303, "/workflows?state=failed")
    assert "No such workflows" in ui.page("/workflows?state=failed").text
    ui.send(f"/do/workflows/{w.id}", page="/workflows", action="cancel", back="/workflows")
    assert [one["state"] for one in listed(driven)] == ["cancelled"]
    assert 'name="action"' not in Browser(make_app(driven.client, read_only=True)).page(
        "/workflows"
    ).text
