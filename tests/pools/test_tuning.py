"""Pools given as NAME=MIN..MAX: sized by the leader over all nodes, or by hand, which wins."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from harness import WORK, Node, wait_until

import skedulr

pytestmark = pytest.mark.server

Start = Callable[..., Node]

#: The children's hubs count as in time. Where other tests leave them no CPU they are late, and a
#: pool that is out of CPU rightly does not grow: that is the last test's part.
IN_TIME = WORK + '''

from skedulr.hub.monitor import Monitor

Monitor.lag_ms = property(lambda self: 0, lambda self, ms: None)
'''


def app_of(node: Node) -> skedulr.Skedulr:
    assert node.app is not None
    return node.app


def pool(node: Node) -> dict[str, Any]:
    return app_of(node).stats()["pools"][0]  # type: ignore[no-any-return]


def decisions(node: Node) -> list[dict[str, Any]]:
    return app_of(node).client.decisions()


def submit(node: Node, count: int, seconds: float) -> None:
    task = app_of(node).remote("hold")
    app_of(node).submit_many(task.bind(seconds) for _ in range(count))


def shown(node: Node) -> str:
    return f"{pool(node)}\n{decisions(node)}\n{node.log}"


def test_a_wave_is_followed_over_two_nodes_and_a_leader_that_is_killed_in_the_middle(
    start: Start,
) -> None:
    flags = ("--target-wait", "0.5..1.5")
    first = start(*flags, pools="default=1..30", folder="first", work=IN_TIME)
    named = wait_until(lambda: app_of(first).stats()["leader"], "the first leads")
    second = start(*flags, pools="default=1..30", folder="second", work=IN_TIME)
    wait_until(lambda: pool(first)["workers"] == 2, lambda: f"both serve it: {shown(first)}")
    assert (pool(first)["min"], pool(first)["max"], pool(first)["manual"]) == (2, 60, False)

    # Up: 40 tasks of half a second each second are work for 20, for as long as it takes.
    ends = time.monotonic() + 40
    while pool(first)["workers"] < 10 and time.monotonic() < ends:
        submit(first, 10, 0.5)
        time.sleep(0.25)
    assert 10 <= pool(first)["workers"] <= 60, shown(first)
    wait_until(
        lambda: all(node.log.count(" workers instead of ") for node in (first, second)),
        lambda: f"both have some: {shown(first)}\n{second.log}",
    )
    before = app_of(second).client.overview()
    own = [child["workers"] for node in before.nodes if node["id"] != named
           for child in node["children"]]

    first.kill_all()
    submit(second, 40, 0.5)
    workers = pool(second)["workers"]
    # Without a leader the pool keeps its size. (A busy machine may look when there is one again.)
    assert workers >= own[0] or second.log.count(" leads, term")
    second.wait_log("leads, term 2")
    # The dead node's workers go to the one that lives, once it is known to be dead.
    wait_until(lambda: any(one["leader"] != named for one in decisions(second)) or
               second.log.count(" workers instead of ") >= 2,
               lambda: f"the second node decides: {shown(second)}", timeout=40)
    wait_until(lambda: pool(second)["queued"] == 0, lambda: f"all is run: {shown(second)}")

    kinds = {one["kind"] for one in decisions(second)}
    assert "grow" in kinds
    for one in decisions(second):
        assert one["why"] and 2 <= one["to"] <= 60, one


def test_a_size_set_by_hand_wins_and_is_shown_until_it_is_given_back(start: Start) -> None:
    node = start("--target-wait", "0.3..0.6", pools="default=1..8", work=IN_TIME)
    wait_until(lambda: app_of(node).stats()["leader"], "it leads")
    wait_until(lambda: app_of(node).stats()["pools"], "it is known")
    app_of(node).scale_pool("default", 2)
    node.wait_log("2 workers instead of 1")
    wait_until(lambda: [one["kind"] for one in decisions(node)] == ["manual"],
               lambda: f"it is noted: {shown(node)}")
    assert pool(node)["manual"] is True
    submit(node, 60, 0.4)
    # Three looks, each of which would have had it grow.
    looked = app_of(node).client.overview().now_s
    wait_until(lambda: app_of(node).client.overview().now_s > looked + 5, "time passes")
    assert pool(node)["workers"] == 2
    app_of(node).scale_pool("default", None)
    wait_until(lambda: pool(node)["workers"] > 2, lambda: f"it grows: {shown(node)}")
    assert pool(node)["manual"] is False
    assert "auto" in {one["kind"] for one in decisions(node)}


def test_a_pool_that_is_out_of_cpu_says_so_and_does_not_grow(start: Start) -> None:
    node = start("--target-wait", "0.3..0.6", pools="default=2..20")
    wait_until(lambda: app_of(node).stats()["leader"], "it leads")
    task = app_of(node).remote("burn")
    app_of(node).submit_many(task.bind(0.2) for _ in range(120))

    def said() -> list[dict[str, Any]]:
        return [one for one in decisions(node) if one["kind"] == "limit"]

    found = wait_until(said, lambda: f"it says so: {shown(node)}")
    assert "default=MIN..MAXx2" in found[0]["why"]
    assert found[0]["from"] == found[0]["to"] < 20
    assert "out of CPU" in node.log
