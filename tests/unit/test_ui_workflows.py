"""Workflows over HTTP and as pages: graph and table, state and actions; and the drawing itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Server
from ui_world import NAMESPACE, Browser, World, browse

from skedulr import Skedulr, previous
from skedulr.ui.drawing import HEIGHT, MOST_DRAWN, WIDTH, draw


@pytest.fixture(scope="module")
def shop(_running: Any) -> Iterator[Skedulr]:
    server: Server = _running("redis")
    server.flush()
    app = Skedulr(url=server.url, namespace=NAMESPACE)
    yield app
    app.close()


@pytest.fixture(scope="module")
def ui(shop: Skedulr) -> Browser:
    return browse(World(str(shop.settings["redis"])))


def made(app: Skedulr) -> Any:
    load, use = app.remote("load", pool="default"), app.remote("<use>", pool="default")
    with app.workflow("im<port>") as w:
        a = w.add(load.bind("f"), name="first & only")
        w.map(use.bind(previous), a, name="each")
        w.add(use.bind(), after="each")
    return w


def test_the_page_draws_each_step_and_has_a_table_without_javascript(
    shop: Skedulr, ui: Browser
) -> None:
    w = made(shop)
    page = ui.get(f"/workflows/{w.id}")
    assert page.status == 200
    text = page.text
    assert "im&lt;port&gt;" in text
    assert "<use>" not in text
    assert len(re.findall(r"<rect ", text.partition('id="graph"')[2])) == 3
    assert text.count("<path d=") >= 2
    assert "first &amp; only" in text
    assert text.count(f"/tasks/{w.id}.0") >= 2
    assert 'data-every="1"' in text
    assert " style=" not in text
    assert "Resubmit what failed" not in text


def test_a_task_leads_to_its_workflow_and_an_unknown_one_is_not_found(
    shop: Skedulr, ui: Browser
) -> None:
    w = made(shop)
    assert f"/workflows/{w.id}" in ui.get(f"/tasks/{w.id}.0").text
    assert ui.get("/workflows/default/nothing").status == 404
    assert ui.get("/api/workflows/default/nothing").status == 404
    assert ui.get(f"/workflows/{w.id.partition('/')[2]}").status == 200


def test_it_is_cancelled_and_resubmitted_over_http_and_by_the_buttons(
    shop: Skedulr, ui: Browser
) -> None:
    w = made(shop)
    answer = ui.post(f"/api/workflows/{w.id}/cancel", {})
    assert (answer.status, answer.json["state"]) == (200, "cancelled")
    assert answer.json["steps"][1]["kind"] == "map"
    answer = ui.post(f"/api/workflows/{w.id}/resubmit", {})
    assert answer.json["counts"] == {"queued": 1, "waiting": 2}
    page = ui.get(f"/workflows/{w.id}")
    assert 'value="cancel"' in page.text
    done = ui.send(f"/do/workflows/{w.id}", action="cancel", back=f"/workflows/{w.id}")
    assert done.status == 303
    assert w.state == "cancelled"
    assert "Resubmit what failed" in ui.get(f"/workflows/{w.id}").text
    assert ui.send(f"/do/workflows/{w.id}", action="explode").status == 404
    assert ui.get(f"/api/workflows/{w.id}/cancel").status == 405


graphs = st.lists(st.lists(st.integers(1, 12), max_size=4, unique=True), min_size=1, max_size=60)


@given(graphs)
@settings(max_examples=60, deadline=None)
def test_every_step_stands_below_what_it_waits_for_and_no_two_overlap(
    backs: list[list[int]],
) -> None:
    steps = [
        {"id": f"p/w.{at}", "name": None, "state": "waiting",
         "depends_on": [f"p/w.{at - one}" for one in back if at >= one]}
        for at, back in enumerate(backs)
    ]
    drawing = draw(steps)
    assert drawing is not None
    places = {box.step["id"]: (box.x, box.y) for box in drawing.boxes}
    assert len(set(places.values())) == len(steps)
    for one in steps:
        x, y = places[str(one["id"])]
        assert 0 <= x <= drawing.width - WIDTH
        assert 0 <= y <= drawing.height - HEIGHT
        assert all(places[parent][1] < y for parent in one["depends_on"])
    rows: dict[int, list[int]] = {}
    for x, y in places.values():
        rows.setdefault(y, []).append(x)
    for row in rows.values():
        row.sort()
        assert all(b - a >= WIDTH for a, b in pairwise(row))


def test_a_large_workflow_is_not_drawn_and_a_long_chain_needs_no_recursion() -> None:
    chain = [{"id": f"p/w.{at}", "state": "queued", "depends_on": [f"p/w.{at - 1}"] if at else []}
             for at in range(MOST_DRAWN)]
    assert draw(chain) is not None
    assert draw([*chain, {"id": "p/w.x", "state": "queued"}]) is None
    assert draw([]) is None
