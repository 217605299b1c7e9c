"""A Redis Cluster: pools on different nodes, and everything that goes across them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clusters import Cluster
from harness import WORK, Node, wait_until
from servers import Server, free_port

import skedulr
from skedulr.addresses import Node as Place
from skedulr.cluster import Router, SlotMap, slot_for, slot_of
from skedulr.doctor import Doctor
from skedulr.errors import DuplicateTask
from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.wire import Wire
from skedulr.wire_errors import NotAnswered, Redirected, Refused

pytestmark = pytest.mark.server

#: One for each of the three nodes; the namespace's own keys are at one of these as well.
POOLS = ("default", "a", "d")
NAMESPACE = "skedulr"

MORE_WORK = WORK + '''

@task(name="double", pool="a")
def double(number):
    return 2 * number


@task(name="total", pool="d")
def total(*numbers):
    return sum(numbers)


@task(name="flaky", pool="d", max_retries=3, retry=skedulr.LinearRetry(0.1))
def flaky():
    if current_task().attempt < 3:
        raise RuntimeError("not yet")
    return current_task().attempt


@skedulr.every(0.2)
@task(name="tick", pool="a")
def tick():
    note("ticked")
'''


@pytest.fixture
def node(nodes: Callable[..., Node], cluster: Cluster) -> Iterator[Node]:
    """Serving all three pools."""
    made = nodes(
        cluster.url, "--lease", "3", "--ui", f"127.0.0.1:{free_port()}",
        pools=",".join(f"{pool}=4" for pool in POOLS), work=MORE_WORK, namespace=NAMESPACE,
    )
    made.start(3)
    yield made
    made.close()


def place(cluster: Cluster, pool: str) -> Server:
    return cluster.master_of(PoolKeys(NAMESPACE, pool).ready)


# --- the way of tasks -----------------------------------------------------------------------------


def test_tasks_workflows_schedules_bulk_and_the_ui_go_across_nodes(
    cluster: Cluster, node: Node
) -> None:
    # One after the other on one node: each start of it takes as long as all of this.
    app = node.app
    assert app is not None
    assert len({place(cluster, pool).port for pool in POOLS}) == 3, "choose other pools"
    _single_tasks(app, node)
    _workflow(app)
    _schedules(app, node)
    _bulk(app, cluster)
    _steering(app, node)
    _ui(app, node)
    _commands(cluster)
    _doctor(cluster, app)
    assert "Traceback" not in node.log, node.log


def _single_tasks(app: skedulr.Skedulr, node: Node) -> None:
    assert app.submit("double", 21).result(timeout=10) == 42
    assert app.submit("flaky").result(timeout=10) == 3
    delayed = app.remote("double", delay=0.3).submit(4)
    assert delayed.result(timeout=10) == 8
    unique = app.remote("hold", unique="until_done", key="k", pool="default").submit(0.3)
    with pytest.raises(DuplicateTask) as caught:
        app.remote("hold", unique="until_done", key="k", pool="default").submit(0.3)
    assert caught.value.id == unique.id
    # By a name that is at home elsewhere: a child of ``default`` moves it to another node.
    moved = skedulr.Skedulr(url=node.url, namespace=NAMESPACE).remote("double", pool="default")
    assert moved.submit(5).result(timeout=10) == 10
    running = app.remote("hold", pool="default").submit(30)
    node.effects.wait("began", running.id.partition("/")[2])
    began = time.monotonic()
    assert running.cancel()
    wait_until(lambda: running.state == "cancelled", "the cancel reaches the other node")
    assert time.monotonic() - began < 2, "it waited for a renewal of the lease"


def _workflow(app: skedulr.Skedulr) -> None:
    with app.workflow("sums") as flow:
        parts = [flow.add(app.remote("double", pool="a").bind(number)) for number in range(4)]
        end = flow.add(app.remote("total", pool="d").bind(*parts))
        after = flow.add(app.remote("quick", pool="default").bind(), on_success=end)
        never = flow.add(app.remote("quick", pool="a").bind(), on_failure=after)
    assert flow.wait(timeout=20)
    assert app.get(end.id).result(timeout=5) == 12
    assert [app.get(one.id).state for one in (after, never)] == ["succeeded", "skipped"]
    assert flow.state == "succeeded"


def _schedules(app: skedulr.Skedulr, node: Node) -> None:
    node.effects.wait("ticked", count=3)
    made = app.schedule_recurring(app.remote("double", pool="d").bind(1), 3600, name="mine")
    assert [one.name for one in app.schedules()] == ["mine", "tick"]
    assert made.pause().paused
    assert not made.resume().paused
    assert made.run().result(timeout=10) == 2
    # To a pool on another node: it leaves the first one.
    app.schedule_recurring(app.remote("double", pool="a").bind(1), 3600, name="mine")
    assert app.schedules()["mine"].pool == "a"
    assert app.unschedule("mine")


def _bulk(app: skedulr.Skedulr, cluster: Cluster) -> None:
    app.pause("d")
    calls = (app.remote("total", pool=POOLS[n % 3]).bind(n) for n in range(900))
    handles = app.submit_many(calls)
    held = [handle for handle in handles if handle.id.startswith("d/")]
    assert app.wait([one for one in handles if one not in held], timeout=30)
    assert {one.state for one in held} == {"queued"}
    assert place(cluster, "d").client.zcard(PoolKeys(NAMESPACE, "d").ready) == 300
    assert app.purge("d") == 300
    app.resume("d")
    dead = [app.remote("exit_nowhere", pool="a", id=f"x{n}").submit() for n in range(3)]
    assert {one.state for one in dead} <= {"queued", "running", "scheduled"}
    assert app.purge("a") >= 0


def _steering(app: skedulr.Skedulr, node: Node) -> None:
    for pool in POOLS:
        app.scale_pool(pool, 2)
    wait_until(lambda: node.log.count("2 workers instead of 4") == 3, "all follow the new size")
    stats = app.stats()
    assert {pool["name"] for pool in stats["pools"]} >= set(POOLS)
    assert stats["succeeded"] > 600
    wait_until(lambda: app.stats()["leader"], "a leader is elected")


def _ui(app: skedulr.Skedulr, node: Node) -> None:
    shown = app.remote("double", pool="a").submit(7)
    assert shown.result(timeout=10) == 14
    for path in ("/", "/tasks", "/dead", "/schedules", "/nodes", "/submit", "/changes",
                 f"/tasks/{shown.id}", "/tasks?query=double&state=succeeded"):
        assert "<title>" in _ask(node, path), path
    for path in ("/api/stats", "/api/pools", "/api/nodes", "/api/schedules", "/api/history",
                 "/api/tasks?limit=500", "/api/tasks?name=double", f"/api/tasks/{shown.id}"):
        assert json.loads(_ask(node, path)), path
    first = json.loads(_ask(node, "/api/tasks?limit=400"))
    second = json.loads(_ask(node, f"/api/tasks?limit=400&cursor={first['cursor']}"))
    assert {one["pool"] for one in first["items"] + second["items"]} == set(POOLS)
    began = json.loads(_ask(node, "/api/tasks/remove", {"pool": "a", "state": "succeeded"}))
    wait_until(
        lambda: json.loads(_ask(node, f"/api/operations/{began['id']}"))["state"] == "finished",
        "what was asked for is removed",
    )
    assert "3 masters" in _ask(node, "/redis")


def _ask(node: Node, path: str, value: object = None) -> str:
    address = node.command[node.command.index("--ui") + 1]
    asked = urllib.request.Request(
        f"http://{address}{path}", data=None if value is None else json.dumps(value).encode(),
        headers={"Content-Type": "application/json", "Accept": "text/html" if "/api/" not in path
                 else "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _commands(cluster: Cluster) -> None:
    def skedulr_(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "skedulr", *words, "--redis", cluster.url, "--json"],
            capture_output=True, text=True, timeout=30, check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert skedulr_("check")["ok"]
    assert len(skedulr_("list", "--limit", "5")["items"]) == 5
    assert skedulr_("doctor")["items"] == []


def _doctor(cluster: Cluster, app: skedulr.Skedulr) -> None:
    keys = PoolKeys(NAMESPACE, "elsewhere")
    there = cluster.master_of(keys.ready).client
    there.zadd(keys.ready, {"ghost": 1})
    there.set(keys.prefix + "strange", "x")
    wire = Wire(cluster.url, name="test:doctor")
    doctor = Doctor(wire, NAMESPACE, moment_s=0.01)
    assert "elsewhere" in doctor.pools()
    found = doctor.examine("elsewhere")
    assert {one.kind for one in found} == {"queued-without-body", "key-unknown"}
    assert [one.kind for one in doctor.mend(found)] == ["queued-without-body"]
    there.delete(keys.prefix + "strange")
    wire.close()


# --- the slot map and the router ------------------------------------------------------------------


def test_slots_are_those_of_redis(cluster: Cluster) -> None:
    client = cluster.nodes[0].client
    for key in ("foo", "{a:b}:ready", "{}:x", "{a}{b}", "a{b", "{a{b}c}", "}{x}", "ü"):
        assert slot_of(key) == client.execute_command("CLUSTER", "KEYSLOT", key), key


def test_each_command_names_the_slot_it_is_about() -> None:
    key, slot = "{a:b}:ready", slot_of("{a:b}:ready")
    for command in (
        ("ZCARD", key), ("EVALSHA", "sha", 2, key, key, "x"), ("EVAL", "text", 1, key),
        ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", key, ">"),
        ("BLPOP", key, "1"), ("PUBLISH", key, "text"), ("XGROUP", "CREATE", key, "g", "$"),
    ):
        assert slot_for(command) == slot, command
    for command in (("TIME",), ("SCAN", 0), ("EVAL", "text", 0), ("INFO", "server")):
        assert slot_for(command) is None, command


def test_a_pipeline_over_nodes_answers_in_order_and_keeps_transactions_whole(
    cluster: Cluster,
) -> None:
    wire = Wire(cluster.url, name="test:calls")
    keys = [PoolKeys(NAMESPACE, pool).meta for pool in POOLS]
    for number, key in enumerate(keys):
        wire.call("HSET", key, "n", number)
    answers = wire.calls([
        ("TIME",), *(("HGET", key, "n") for key in keys),
        ("MULTI",), ("HGET", keys[1], "n"), ("HLEN", keys[1]), ("EXEC",), ("HGET", keys[0], "n"),
    ])
    assert answers[1:4] == [b"0", b"1", b"2"]
    assert answers[7:] == [[b"1", 1], b"0"]
    wire.close()


def test_a_wire_follows_a_slot_that_moves_and_one_that_is_half_moved(cluster: Cluster) -> None:
    keys = PoolKeys(NAMESPACE, "moving")
    wire, stale = (Wire(cluster.url, name=f"test:{name}") for name in ("move", "stale"))
    for one in (wire, stale):
        one.call("HSET", keys.meta, "n", 1)
    source = cluster.master_of(keys.meta)
    target = cluster.others(source)[0]
    target.client.execute_command(
        "CLUSTER", "SETSLOT", slot_of(keys.meta), "IMPORTING", cluster.id_of(source)
    )
    source.client.execute_command(
        "CLUSTER", "SETSLOT", slot_of(keys.meta), "MIGRATING", cluster.id_of(target)
    )
    # A key that is not here (any more) is asked for there; several at once have to wait.
    wire.call("HSET", keys.stats, "n", 2)
    assert target.client.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot_of(keys.meta)) == 1
    assert wire.calls([("HGET", keys.meta, "n"), ("HGET", keys.stats, "n")]) == [b"1", b"2"]
    assert wire.calls([
        ("MULTI",), ("HGET", keys.meta, "n"), ("HGET", keys.stats, "n"), ("EXEC",),
    ])[-1] == [b"1", b"2"]
    with pytest.raises(Refused, match="TRYAGAIN"):
        wire.call("EXISTS", keys.meta, keys.stats)
    cluster.move_slot(keys.meta, target)
    assert wire.call("EXISTS", keys.meta, keys.stats) == 2
    assert stale.call("HGET", keys.stats, "n") == b"2"
    cluster.move_slot(keys.meta, source)
    assert stale.calls([("HGET", keys.meta, "n"), ("TIME",)])[0] == b"1"
    for one in (wire, stale):
        one.close()


def test_a_node_of_a_cluster_that_is_spoken_to_alone_says_how_to_write_its_address(
    cluster: Cluster,
) -> None:
    keys = PoolKeys(NAMESPACE, "default")
    other = cluster.others(cluster.master_of(keys.meta))[0]
    wire = Wire(other.url, name="test:alone")
    with pytest.raises(Redirected, match=r"redis\+cluster://"):
        wire.call("HGET", keys.meta, "n")
    wire.close()


class Line:
    """A node that answers as it is told to."""

    def __init__(self, answer: Callable[[tuple[Any, ...]], Any]) -> None:
        self.timeout_s, self._answer = 1.0, answer

    def call(self, *command: Any, timeout_s: float | None = None) -> Any:
        return self._answer(command)

    def calls(self, commands: Any) -> list[Any]:
        return [self._answer(command) for command in commands]

    def close(self) -> None:
        pass


def test_nodes_that_send_a_command_to_and_fro_are_given_up_as_not_now() -> None:
    def answer(command: tuple[Any, ...]) -> Any:
        if command[0] == "CLUSTER":
            return [[0, 16383, [b"", 1, b"id"]]]
        raise Redirected(5, "", 1, asking=False)

    router = Router("redis+cluster://nowhere:1", Line(answer), lambda node: Line(answer))
    with pytest.raises(Refused, match="TRYAGAIN"):
        router.call("GET", "k")


def test_a_map_is_asked_for_again_of_those_who_answer() -> None:
    slots = SlotMap([Place("a", 1), Place("b", 1)])
    asked = []

    def ask(node: Place) -> Any:
        asked.append(node.host)
        if node.host == "a":
            raise NotAnswered("away", sent=False)
        return [[0, 16383, [b"b", 1, b"id"]]]

    assert slots.node_of(7, ask) == Place("b", 1)
    assert slots.node_of(8, ask) == Place("b", 1)
    assert asked == ["a", "b"]
    slots.mistrust(Place("b", 1))
    slots.node_of(7, ask)
    assert asked == ["a", "b", "a", "b"]
    with pytest.raises(NotAnswered, match="a:1: away; b:1: no slots"):
        SlotMap([Place("a", 1), Place("b", 1)]).node_of(
            7, lambda node: ask(node) if node.host == "a" else []
        )
    assert SpaceKeys("x").pools.startswith("{x}")
