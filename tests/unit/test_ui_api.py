"""The HTTP interface: its forms, its errors, and that nothing a task carries breaks an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack
import pytest
from servers import Server, wait_until
from ui_world import Browser, World, browse

from skedulr.client import Client, ClientConfig
from skedulr.errors import StorageUnavailable
from skedulr.tasks import Call, NoApp, Task
from skedulr.ui.app import make_app

TASK = {
    "id", "uid", "pool", "name", "state", "priority", "attempt", "max_retries", "crashes",
    "progress", "note", "submitted_at", "due_at", "started_at", "finished_at", "result", "error",
    "key", "tags", "worker", "workflow", "depends_on", "args", "kwargs",
}
POOL = {
    "name", "workers", "min", "max", "manual", "processes", "queued", "scheduled", "running",
    "waiting", "dead", "oldest_age", "paused", "unserved", "predicted_wait", "throughput",
    "succeeded", "failed",
}
STATS = {
    "queued", "scheduled", "running", "waiting", "dead", "succeeded", "failed", "throughput",
    "predicted_wait", "leader", "pools", "names",
}


@pytest.fixture
def world(one_server: Server) -> World:
    return World(one_server.url)


@pytest.fixture
def ui(world: World) -> Browser:
    return browse(world)


# Looking


def test_a_submit_answers_201_with_the_task_and_where_it_is(world: World, ui: Browser) -> None:
    made = ui.post("/api/tasks", {"name": "mail", "args": [1], "kwargs": {"to": "a"},
                                  "options": {"pool": "post", "priority": 5, "tags": ["eu"]}})
    assert made.status == 201
    assert set(made.json) == TASK
    assert (made.json["pool"], made.json["state"], made.json["priority"]) == ("post", "queued", 5)
    assert made.header("Location") == f"/api/tasks/{made.json['id']}"
    assert ui.get(f"/api/tasks/{made.json['id']}").json == made.json


def test_a_task_shows_how_it_ended(world: World, ui: Browser) -> None:
    good, bad = world.submit("work", 1), world.submit("work", 2)
    world.succeed({"rows": 3})
    world.die("ValueError", "card declined")
    one, other = ui.get(f"/api/tasks/{good}").json, ui.get(f"/api/tasks/{bad}").json
    assert (one["state"], one["result"], one["error"]) == ("succeeded", {"rows": 3}, None)
    assert (other["state"], other["error"]["type"]) == ("dead", "ValueError")
    assert one["finished_at"] >= one["started_at"] > one["submitted_at"] - 1


def test_stats_pools_and_nodes_have_the_contracts_fields(world: World, ui: Browser) -> None:
    for _ in range(3):
        world.submit()
    world.submit("late", delay=60)
    world.succeed()
    world.start()
    stats = ui.get("/api/stats").json
    assert set(stats) == STATS
    assert [set(pool) for pool in stats["pools"]] == [POOL]
    assert {k: stats[k] for k in ("queued", "scheduled", "running", "dead", "succeeded")} == {
        "queued": 1, "scheduled": 1, "running": 1, "dead": 0, "succeeded": 1,
    }
    assert stats["names"][0]["name"] == "work"
    assert ui.get("/api/pools").json["cursor"] is None
    assert ui.get("/api/pools").json["items"][0]["oldest_age"] >= 0
    assert ui.get("/api/nodes").json == {"items": [], "cursor": None}


def test_rates_of_nothing_are_null_and_never_nan(ui: Browser, world: World) -> None:
    world.submit()
    pool = ui.get("/api/pools").json["items"][0]
    assert (pool["throughput"], pool["predicted_wait"], pool["unserved"]) == (0, None, True)


def test_a_list_is_newest_first_and_goes_on_at_its_cursor(world: World, ui: Browser) -> None:
    ids = [world.submit("work", i, pool=pool) for i in range(6) for pool in ("a", "b")]
    seen, cursor = [], ""
    while True:
        page = ui.get(f"/api/tasks?state=queued&limit=5&cursor={cursor}").json
        seen += [task["id"] for task in page["items"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert sorted(seen) == sorted(ids)
    assert [id for id in seen if id.startswith("a/")] == [i for i in ids[::-1] if i[0] == "a"]


def test_a_list_without_a_state_shows_every_state(world: World, ui: Browser) -> None:
    for _ in range(4):
        world.submit()
    world.submit("late", delay=60)
    world.succeed()
    world.die()
    world.start()
    states = [task["state"] for task in ui.get("/api/tasks").json["items"]]
    assert sorted(states) == ["dead", "queued", "running", "scheduled", "succeeded"]


@pytest.mark.parametrize(("query", "found"), [
    ("name=mail", ["m"]), ("query=Order-77", ["o"]), ("query=tag:EU", ["t"]),
    ("query=key:u1", ["k"]), ("query=error:ValueError", ["d"]), ("query=declined", ["d"]),
    ("query=tag:eu%20nothing", []), ("query=worker:n.1", ["d"]), ("state=dead", ["d"]),
    ("state=dead&pool=other", []), ("name=mai", []), ("query=name:mai", ["m"]),
])
def test_a_list_is_narrowed_by_name_text_and_facets(
    world: World, ui: Browser, query: str, found: list[str]
) -> None:
    world.submit("work", id="d")
    world.die("ValueError", "card declined")
    world.submit("mail", id="m")
    world.submit("work", {"order": "order-77"}, id="o")
    world.submit("work", id="t", tags=["eu"])
    world.submit("work", id="k", key="u1")
    assert [task["uid"] for task in ui.get(f"/api/tasks?{query}").json["items"]] == found


def test_a_page_reads_a_bounded_number_of_bytes_and_goes_on(world: World, ui: Browser) -> None:
    for _ in range(12):
        world.submit("work", "x" * 1_000_000)
    first = ui.get("/api/tasks?limit=50").json
    assert 1 <= len(first["items"]) < 12
    rest = ui.get(f"/api/tasks?limit=50&cursor={first['cursor']}").json
    assert len(first["items"]) + len(rest["items"]) == 12


def test_what_json_has_no_form_for_is_shown_as_text(world: World, ui: Browser) -> None:
    odd = [float("inf"), b"\xff\x00", datetime(2026, 1, 2, tzinfo=UTC), timedelta(seconds=90),
           Decimal("1.10"), {"b", "a"}, "\x00</script>", {"deep": [float("-inf")]}]
    task: Task[..., Any] = Task(app=NoApp(), name="odd", function=None, defaults={})
    handle = world.client.submit(Call(task, tuple(odd), {}))
    answer = ui.get(f"/api/tasks/{handle.id}")
    shown = json.loads(answer.body, parse_constant=lambda name: pytest.fail(name))["args"]
    assert shown == ["Infinity", "b'\\xff\\x00'", "2026-01-02T00:00:00+00:00", "0:01:30", "1.10",
                     ["a", "b"], "\x00</script>", {"deep": ["-Infinity"]}]
    assert ui.get("/api/tasks").status == ui.page("/tasks").status == 200


# Refusals


@pytest.mark.parametrize(("path", "status", "code"), [
    ("/api/tasks/default/nobody", 404, "task_not_found"), ("/api/nothing", 404, "not_found"),
    ("/api/tasks?state=sleeping", 400, "config_error"),
    ("/api/tasks?limit=0", 400, "bad_parameter"),
    ("/api/tasks?limit=501", 400, "bad_parameter"), ("/api/tasks?cursor=zz", 400, "config_error"),
    ("/api/tasks?stat=dead", 400, "unknown_parameter"), ("/api/tasks/de%20/x", 400, "config_error"),
    ("/api/tasks?pool=a%2Fb", 400, "config_error"), ("/api/history?span=1y", 400, "config_error"),
    ("/api/operations/nobody", 404, "task_not_found"),
    ("/api/tasks/default/x/cancel", 405, "method_not_allowed"),
    ("/api/tasks/cancel", 405, "method_not_allowed"), ("/api/pause", 405, "method_not_allowed"),
    ("/api/pools/default/purge", 405, "method_not_allowed"),
])
def test_refusals_have_their_status_and_code(
    ui: Browser, path: str, status: int, code: str
) -> None:
    answer = ui.get(path)
    assert (answer.status, answer.code) == (status, code)
    assert answer.json["error"]["message"]


@pytest.mark.parametrize(("value", "status"), [
    ({}, 400), ({"name": 7}, 400), ({"name": "x", "args": {}}, 400), ([], 400),
    ({"name": "x", "kwargs": []}, 400), ({"name": "x", "options": {"prioritty": 1}}, 400),
    ({"name": "x", "options": {"priority": 101}}, 400), ({"name": "x", "extra": 1}, 400),
    ({"name": "x", "args": ["\ud800"]}, 400), ({"name": "x", "args": [2**70]}, 400),
    ({"name": "x", "args": ["y" * 1_048_600]}, 413), ({"name": "x" * 201}, 400),
])
def test_a_submit_that_can_not_be_is_refused_in_one_line(
    ui: Browser, value: Any, status: int
) -> None:
    answer = ui.post("/api/tasks", value)
    assert answer.status == status
    assert "\n" not in answer.json["error"]["message"]


@pytest.mark.parametrize("body", [
    b"{", b'{"a":NaN}', b'{"name":"x","name":"y"}', b"[" * 100_000, b"\xff", b'"text"',
])
def test_a_body_that_is_no_json_object_is_refused(ui: Browser, body: bytes) -> None:
    answer = ui.ask("POST", "/api/tasks", body, CONTENT_TYPE="application/json")
    assert (answer.status, answer.code) == (400, "bad_json")


def test_a_body_over_the_limit_is_refused_before_it_is_read(ui: Browser) -> None:
    answer = ui.post("/api/tasks", {"name": "x"}, CONTENT_LENGTH=str(10**9))
    assert (answer.status, answer.code) == (413, "too_large")


def test_a_body_without_a_length_is_read_up_to_the_limit(ui: Browser) -> None:
    class Endless:
        given = 0

        def read(self, size: int) -> bytes:
            self.given += size
            return b" " * size

    source = Endless()
    answer = ui.ask("POST", "/api/tasks", CONTENT_TYPE="application/json",
                    **{"wsgi.input": source, "wsgi.input_terminated": True})
    assert (answer.status, answer.code) == (413, "too_large")
    assert source.given < 2_000_000


def test_a_second_task_under_one_id_is_a_conflict(ui: Browser) -> None:
    assert ui.post("/api/tasks", {"name": "a", "options": {"id": "one"}}).status == 201
    again = ui.post("/api/tasks", {"name": "b", "options": {"id": "one"}})
    assert (again.status, again.code) == (409, "duplicate_task")


def test_without_redis_everything_answers_503_and_livez_lives() -> None:
    client = Client(ClientConfig(url="redis://127.0.0.1:1/0", submit_timeout_s=0.2))
    ui = Browser(make_app(client))
    for path in ("/api/stats", "/api/tasks", "/api/nodes", "/readyz", "/healthz"):
        assert (ui.get(path).status, ui.get(path).code) == (503, "storage_unavailable"), path
    assert ui.post("/api/tasks", {"name": "x"}).status == 503
    assert ui.get("/livez").status == 200
    for path in ("/", "/tasks", "/dead", "/nodes", "/redis", "/changes", "/submit"):
        assert ui.page(path).status == 200, path
        assert "Skedulr" in ui.page(path).text


def test_a_page_waits_for_a_silent_redis_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask(look: Any) -> Any:
        asked.append(look)
        raise StorageUnavailable("no answer in 5 s")

    monkeypatch.setattr(world.client, "ask", ask)
    monkeypatch.setattr(world.client, "overview", lambda: ask(None))
    answer = browse(world).page("/")
    assert answer.status == 200
    assert "no answer in 5 s" in answer.text
    # For what the page shows, and for the key that signs its forms.
    assert len(asked) <= 2


def test_a_pool_is_listed_as_soon_as_it_is_used(world: World, ui: Browser) -> None:
    assert ui.get("/api/tasks").json["items"] == []
    for pool in ("a", "b"):
        id = ui.post("/api/tasks", {"name": "x", "options": {"pool": pool}}).json["id"]
        assert id in [task["id"] for task in ui.get("/api/tasks").json["items"]]
        assert ui.get("/api/pools").json["items"][-1]["name"] == pool


# Changing


def test_an_action_answers_with_the_task(world: World, ui: Browser) -> None:
    id = world.submit()
    assert ui.post(f"/api/tasks/{id}/cancel").json["state"] == "cancelled"
    assert ui.post(f"/api/tasks/{id}/resubmit").json["state"] == "queued"
    world.die()
    assert ui.post(f"/api/tasks/{id}/remove").json["state"] == "dead"
    assert ui.get(f"/api/tasks/{id}").status == 404


def test_an_action_that_does_not_fit_the_state_is_a_conflict(world: World, ui: Browser) -> None:
    id = world.submit()
    assert ui.post(f"/api/tasks/{id}/resubmit").status == 409
    world.succeed()
    assert ui.post(f"/api/tasks/{id}/cancel").code == "wrong_state"
    assert ui.post("/api/tasks/default/nobody/cancel").status == 404


def test_an_operation_on_a_selection_works_through_it(world: World, ui: Browser) -> None:
    for i in range(520):
        world.submit("mail" if i % 2 else "work", id=f"t{i}")
    started = ui.post("/api/tasks/cancel", {"state": "queued", "name": "mail"})
    assert started.status == 202
    assert started.json["total"] == 520
    done = _ended(ui, started.json["id"])
    assert (done["state"], done["changed"], done["done"]) == ("finished", 260, 520)
    assert ui.get("/api/stats").json["queued"] == 260
    assert ui.get("/api/operations").json["items"][0]["id"] == done["id"]


def test_a_resubmit_of_a_selection_means_the_dead_unless_it_says_otherwise(
    world: World, ui: Browser
) -> None:
    for _ in range(3):
        world.submit()
    world.succeed()
    world.die(count=2)
    done = _ended(ui, ui.post("/api/tasks/resubmit", {"pool": "default"}).json["id"])
    assert done["changed"] == 2
    assert ui.get("/api/stats").json["queued"] == 2


@pytest.mark.parametrize(("action", "given"), [
    ("cancel", {}), ("remove", {"pool": "default"}), ("cancel", {"state": "sleeping"}),
    ("cancel", {"stat": "queued"}), ("cancel", {"state": 1}), ("resubmit", {"pool": "nobody"}),
])
def test_a_selection_that_is_too_wide_or_wrong_changes_nothing(
    world: World, ui: Browser, action: str, given: dict[str, Any]
) -> None:
    world.submit()
    assert ui.post(f"/api/tasks/{action}", given).status in (400, 404)
    assert ui.get("/api/stats").json["queued"] == 1
    assert ui.get("/api/operations").json["items"] == []


def test_an_operation_that_its_process_left_behind_is_taken_up(world: World, ui: Browser) -> None:
    for _ in range(3):
        world.submit()
    started = ui.post("/api/tasks/cancel", {"state": "queued"}).json
    _ended(ui, started["id"])
    world.submit()
    _as_if_its_process_had_died(world, started["id"])
    other = browse(World(world.client.config.url))
    done = wait_until(lambda: [
        one for one in other.get("/api/operations").json["items"] if one["state"] == "finished"
    ], what="another process ends the operation")
    assert done[0]["changed"] == 1


def test_a_paused_pool_is_shown_and_goes_on_when_resumed(world: World, ui: Browser) -> None:
    world.submit()
    assert ui.post("/api/pools/default/pause").json["paused"] is True
    assert world.start() == []
    assert ui.post("/api/resume").json["items"][0]["paused"] is False
    assert len(world.start()) == 1
    assert ui.post("/api/pools/nobody/pause").code == "unknown_pool"


def test_a_purge_removes_what_has_not_started_and_answers_with_the_pool(
    world: World, ui: Browser
) -> None:
    for _ in range(4):
        world.submit()
    world.submit("late", delay=60)
    world.die()
    world.start()
    pool = ui.post("/api/pools/default/purge").json
    assert (pool["queued"], pool["scheduled"], pool["running"], pool["dead"]) == (0, 0, 1, 1)
    assert ui.post("/api/pools/default/purge", {"state": "dead"}).json["dead"] == 0
    assert ui.post("/api/pools/default/purge", {"state": "running"}).status == 400


@pytest.mark.parametrize(("given", "status"), [
    ({"workers": -1}, 400), ({"workers": 1.5}, 400), ({"workers": True}, 400), ({}, 400),
    ({"workers": 10_001}, 400), ({"workers": 3}, 404),
])
def test_scaling_refuses_what_is_no_size_and_pools_nobody_serves(
    world: World, ui: Browser, given: dict[str, Any], status: int
) -> None:
    world.submit()
    assert ui.post("/api/pools/default/scale", given).status == status


def test_changes_are_noted_with_who_and_whence(world: World, ui: Browser) -> None:
    id = world.submit()
    ui.post(f"/api/tasks/{id}/cancel")
    ui.post("/api/pools/default/pause")
    page = ui.page("/changes").text
    assert f"<b>cancel</b><td class=\"wrap\">{id}" in page
    assert "<b>pause</b>" in page
    assert "127.0.0.1" in page


# Charts and events


def test_history_counts_each_minute_and_leaves_gaps_where_nothing_is_known(
    world: World, ui: Browser
) -> None:
    for _ in range(3):
        world.submit()
    world.succeed(count=2)
    world.die()
    found = ui.get("/api/history?span=60m").json
    lines = ("t", "submitted", "succeeded", "dead", "failed", "wait_p50_ms", "run_p50_ms")
    assert {len(found[name]) for name in lines} == {60}
    # A minute may have begun in between.
    ended = [(n or 0, m or 0) for n, m in zip(found["succeeded"], found["dead"], strict=True)]
    assert sum(n for n, _ in ended) == pytest.approx(2 * sum(m for _, m in ended))
    assert found["succeeded"][0] is None
    assert 100 <= max(filter(None, found["run_p50_ms"])) <= 200
    assert 15 <= max(filter(None, found["wait_p95_ms"])) <= 30
    assert set(found["now"]) == {"default"}
    assert len(ui.get("/api/history?span=24h&pool=default").json["t"]) == 144
    one = ui.get("/api/history?period=7200&step=300&name=work").json
    assert (len(one["t"]), one["step"], one["submitted"][-1]) == (24, 300, 0)
    assert ui.get("/api/history?pool=nowhere").status == 404
    assert ui.get("/api/history?period=86400&step=60").status == 400


def test_the_stream_begins_with_the_counts_and_follows_changes(world: World) -> None:
    with _events(world) as events:
        assert next(events).startswith(b"retry:")
        first = next(events)
        assert b"event: stats\ndata: {" in first
        world.submit()
        changed = next(event for event in events if b"event: stats" in event)
        assert json.loads(changed.split(b"data: ")[1])["queued"] == 1


@contextmanager
def _events(world: World) -> Iterator[Iterator[bytes]]:
    app = make_app(world.client)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/api/events", "HTTP_HOST": "localhost"}
    headers: dict[str, str] = {}
    stream = app(environ, lambda status, pairs, *more: headers.update(pairs))
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["X-Accel-Buffering"] == "no"
    yield iter(stream)
    stream.close()  # type: ignore[attr-defined]


def _ended(ui: Browser, id: str) -> dict[str, Any]:
    ended: dict[str, Any] = wait_until(
        lambda: (one := ui.get(f"/api/operations/{id}").json)["state"] != "running" and one,
        what="the operation ends",
    )
    return ended


def _as_if_its_process_had_died(world: World, id: str) -> None:
    place = world.client.space.operations
    record = msgpack.unpackb(world.call("HGET", place, id))
    record.update(state="running", states=["queued"], cursor=None, changed=0, done=0)
    world.call("HSET", place, id, msgpack.packb(record))
    world.call("DEL", world.client.space.operation_lock(id))
