"""The interface keeps to its own description: every route is in it, every answer has its form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import bottle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from servers import Server
from ui_world import Answer, Browser, World, browse

from skedulr.ui.api import Api
from skedulr.ui.site import Site
from skedulr.ui.static import FOLDER

DOCUMENT = json.loads((FOLDER / "openapi.json").read_text("utf-8"))
OPERATIONS = [
    (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods
    if path != "/api/events"
]
STATES = DOCUMENT["components"]["schemas"]["Task"]["properties"]["state"]["enum"]


@pytest.fixture(scope="module")
def ui(_running: Any) -> Iterator[Browser]:
    server: Server = _running("redis")
    server.flush()
    world = World(server.url)
    for i in range(6):
        world.submit("work", i, id=f"t{i}", tags=["eu"], key=f"k{i}")
    world.submit("late", id="late", delay=3600)
    world.succeed({"rows": [1, 2.5, None]})
    world.die()
    world.fail_once()
    world.start()
    yield browse(world)


def test_every_route_is_described_and_every_description_is_a_route(ui: Browser) -> None:
    app = bottle.Bottle()
    Api(Site(lambda: pytest.fail("nothing is asked"))).install(app)
    routes = {(re.sub(r"<(\w+)>", r"{\1}", r.rule), r.method.lower()) for r in app.routes}
    described = {(path, one) for path, methods in DOCUMENT["paths"].items() for one in methods}
    assert routes == described


def test_the_description_is_served(ui: Browser) -> None:
    answer = ui.get("/api/openapi.json")
    assert answer.header("Content-Type") == "application/json; charset=utf-8"
    assert answer.json == DOCUMENT


def test_every_reference_leads_somewhere() -> None:
    found = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT))
    assert set(found) == set(DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_a_plain_call_is_answered_in_the_described_form(
    ui: Browser, path: str, method: str
) -> None:
    place = path.format(pool="default", uid="t4", id="nothing", name="poll", node="n1")
    answer = ui.get(place) if method == "get" else ui.post(place, {"state": "expired"})
    check(path, method, answer)


names = st.sampled_from(["default", "other", "t0", "t3", "late", "work", "nobody"]) | st.text(
    st.characters(exclude_characters="/?#%", exclude_categories=["Cs"]), min_size=1, max_size=20
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
bodies = values | st.fixed_dictionaries({}, optional={
    "name": st.sampled_from(["work", "x"]) | values, "args": st.lists(values, max_size=2) | values,
    "kwargs": st.dictionaries(st.text(max_size=4), values, max_size=2) | values,
    "options": st.dictionaries(
        st.sampled_from(["priority", "delay", "tags", "id"]), values, max_size=2
    ),
    "state": st.sampled_from([*STATES, None]) | values, "pool": names, "query": st.text(max_size=8),
    "workers": st.integers(-5, 20_000) | values,
})
queries = st.dictionaries(
    st.sampled_from(["state", "pool", "name", "query", "limit", "cursor", "span", "x"]),
    st.sampled_from([*STATES, "default", "60m", "24h", "5", "0", "-1"]) | st.text(max_size=8),
    max_size=3,
)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(pool=names, uid=names, query=queries, body=bodies)
def test_whatever_comes_is_answered_in_a_described_form(
    ui: Browser, path: str, method: str, pool: str, uid: str, query: dict[str, str], body: Any
) -> None:
    place = path.format(pool=pool, uid=uid, id=uid, name=uid, node=uid).encode().decode("latin-1")
    answer = ui.get(f"{place}?{urlencode(query)}") if method == "get" else ui.post(place, body)
    check(path, method, answer)


def check(path: str, method: str, answer: Answer) -> None:
    """The status is a described one (or the path was none of ours), and the body has its form."""
    described = DOCUMENT["paths"][path][method]["responses"]
    if str(answer.status) not in described:
        # A name that is no name ends in another route, or in none.
        assert answer.status in (404, 405, 415), (answer.status, answer.body[:300])
        return
    schema = described[str(answer.status)]["content"]["application/json"]["schema"]
    problems = list(Draft202012Validator(
        {**schema, "components": DOCUMENT["components"]}
    ).iter_errors(answer.json))
    assert not problems, problems[0].message
