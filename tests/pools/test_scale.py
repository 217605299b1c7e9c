"""Live sizes: followed within a second by every node, kept over restarts; running tasks stay."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from harness import Node, now, wait_until
from servers import Server

import skedulr
from skedulr.errors import ConfigError, UnknownPool

pytestmark = pytest.mark.server

Start = Callable[..., Node]


def app_of(node: Node) -> Any:
    assert node.app is not None
    return node.app


def known(node: Node, *names: str) -> Node:
    """Wait until the node's record says that it serves these pools."""
    def served() -> bool:
        pools = app_of(node).stats()["pools"]
        return set(names) <= {one["name"] for one in pools if not one["unserved"]}

    wait_until(served, f"{names} are served")
    return node


def pool(node: Node, name: str = "default") -> dict[str, Any]:
    found: list[dict[str, Any]] = [
        one for one in app_of(node).stats()["pools"] if one["name"] == name
    ]
    return found[0]


def began(node: Node) -> int:
    return len(node.effects.all(phase="began"))


def test_a_pool_grows_in_its_running_child_and_shrinks_without_touching_tasks(
    start: Start, record_property: Callable[[str, object], None]
) -> None:
    node = known(start(pools="default=2"), "default")
    pid = node.child()
    uids = [node.submit("gate", "open") for _ in range(10)]
    node.effects.wait("began", count=2)
    asked_at = now()
    app_of(node).scale_pool("default", 6)
    grown = node.effects.wait("began", count=6)
    record_property("scaled_after_s", max(one.at for one in grown) - asked_at)
    assert node.children() == [pid]
    wait_until(lambda: pool(node)["workers"] == 6, "it is shown")
    assert pool(node)["manual"] is True

    app_of(node).scale_pool("default", 1)
    node.wait_log("1 workers instead of 6")
    assert began(node) == 6, "none was interrupted, none began"
    assert not node.effects.all(phase="interrupted")
    (node.folder / "open").touch()
    for uid in uids:
        node.wait_state(uid, "succeeded")
    assert node.children() == [pid]


def test_every_node_and_every_process_of_a_pool_follows(start: Start) -> None:
    first = known(start(pools="default=1x2", folder="first", ready=2), "default")
    second = start(pools="default=1", folder="second")
    app_of(first).scale_pool("default", 3)
    wait_until(lambda: pool(first)["workers"] == 9, lambda: f"3 x 3: {pool(first)}")
    assert first.log.count("3 workers instead of 1") == 2
    assert second.log.count("3 workers instead of 1") == 1


def test_a_size_survives_a_restart_and_wins_over_the_command_line_until_it_is_reset(
    start: Start,
) -> None:
    node = known(start(pools="default=2"), "default")
    app_of(node).scale_pool("default", 5)
    node.wait_log("5 workers instead of 2")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    node.start()
    wait_until(lambda: pool(node)["workers"] == 5, "it has its size from the start")
    assert "5 workers ready" in node.log
    app_of(node).scale_pool("default", None)
    wait_until(lambda: pool(node)["workers"] == 2, "it is back to --pools")
    assert pool(node)["manual"] is False


def test_a_pool_with_no_worker_claims_nothing(start: Start) -> None:
    node = known(start(pools="default=2,other=1", ready=2), "default")
    app_of(node).scale_pool("default", 0)
    node.wait_log("0 workers instead of 2")
    uid = node.submit("quick")
    other = node.submit("quick", pool="other")
    node.wait_state(other, "succeeded", "other")
    # The claim that slept meanwhile may have been on its way: what it brought is given back.
    node.wait_state(uid, "queued")
    app_of(node).scale_pool("default", 1)
    node.wait_state(uid, "succeeded")


def test_a_pool_that_nobody_serves_is_refused_or_made_on_every_node(start: Start) -> None:
    first = start(folder="first")
    second = start(folder="second")
    waiting = first.submit("quick", pool="reports")
    with pytest.raises(UnknownPool, match="no node serves a pool 'reports'"):
        app_of(first).scale_pool("reports", 2)
    app_of(first).scale_pool("reports", 2, create=True)
    for node in (first, second):
        node.wait_log("pool reports: 2 workers ready")
    first.wait_state(waiting, "succeeded", "reports")
    # After a restart it is served again; after its reset no more.
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    first.start(ready=2)
    assert first.log.count("pool reports: 2 workers ready") == 2
    app_of(first).scale_pool("reports", None)
    for node in (first, second):
        node.wait_log("pool reports: served no more")
        wait_until(lambda node=node: len(node.children()) == 1, "its child has gone")
    assert "died" not in first.log + second.log


def test_a_size_is_followed_after_redis_was_away(
    nodes: Callable[..., Node], fresh_server: Callable[..., Any]
) -> None:
    server = fresh_server(appendonly="yes", appendfsync="always")
    node = nodes(server.url, pools="default=1").start()
    server.kill()
    server.start()
    known(node, "default")
    app_of(node).scale_pool("default", 3)
    node.wait_log("3 workers instead of 1")


@pytest.mark.parametrize("workers", [-1, 10_001, 1.5, True, "4"])
def test_a_size_that_is_no_number_of_workers_is_refused(
    one_server: Server, workers: Any
) -> None:
    app = skedulr.Skedulr(url=one_server.url)
    app.submit("anything")
    with pytest.raises(ConfigError, match="a whole number from 0 to 10,000"):
        app.scale_pool("default", workers)


def test_ttin_and_ttou_change_this_node_by_one_worker(start: Start) -> None:
    node = start(pools="default=2")
    node.signal(signal.SIGTTIN)
    node.wait_log("3 workers instead of 2")
    node.signal_group(signal.SIGTTOU)
    node.wait_log("2 workers instead of 3")
    for left in (1, 0):
        node.signal(signal.SIGTTOU)
        node.wait_log(f"{left} workers instead of {left + 1}")
    node.signal(signal.SIGTTOU)
    wait_until(lambda: node.log.count("SIGTTOU: ") == 4, "there are none to take away")
    node.signal(signal.SIGTTIN)
    node.wait_log("1 workers instead of 0")


def test_a_size_set_many_times_at_once_ends_at_the_last_one(start: Start) -> None:
    node = known(start(pools="default=1"), "default")
    for workers in [*range(2, 40), 7]:
        app_of(node).scale_pool("default", workers)
    wait_until(lambda: pool(node)["workers"] == 7, lambda: f"the last: {pool(node)}")
    uids = [node.submit("gate", "open") for _ in range(9)]
    node.effects.wait("began", count=7)
    (node.folder / "open").touch()
    for uid in uids:
        node.wait_state(uid, "succeeded")


def test_a_drained_node_claims_nothing_and_others_go_on(start: Start) -> None:
    first = known(start(pools="default=2"), "default")
    (node,) = app_of(first).client.overview().nodes
    held = first.submit("gate", "open")
    first.effects.wait("began", count=1)
    assert app_of(first).client.drain_node(node["id"], True) is True
    assert app_of(first).client.drain_node(node["id"], True) is False
    wait_until(lambda: pool(first)["workers"] == 0, "its pool has no workers")
    wait_until(lambda: app_of(first).client.overview().nodes[0]["drained"], "it is shown")
    # What is shown is what is wanted: the child follows a moment later.
    first.wait_log("0 workers instead of 2")
    first.submit("quick", pool="default")
    second = start(pools="default=1", folder="second")
    second.effects.wait("ran", count=1)
    (first.folder / "open").touch()
    first.wait_state(held, "succeeded")
    app_of(first).client.drain_node(node["id"], False)
    wait_until(lambda: pool(first)["workers"] == 3, "it claims again")
    with pytest.raises(ConfigError, match="there is no node"):
        app_of(first).client.drain_node("nobody", True)
