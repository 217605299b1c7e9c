"""One master leads: another one follows when it dies, stops or sleeps; work needs none of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from harness import Node, now, wait_until

import skedulr

pytestmark = pytest.mark.server

Start = Callable[..., Node]


def app_of(node: Node) -> skedulr.Skedulr:
    assert node.app is not None
    return node.app


def leader(node: Node) -> str | None:
    """Who leads, by the statistics, which say the same of the nodes' records."""
    overview = app_of(node).client.overview()
    named: str | None = overview.stats()["leader"]
    assert [one["id"] for one in overview.nodes if one["leader"]] == ([named] if named else [])
    return named


def two(start: Start) -> tuple[Node, Node, str]:
    """The node that leads, another one, and the leader's id."""
    first = start(folder="first")
    named = wait_until(lambda: leader(first), "the only node leads")
    second = start(folder="second")
    wait_until(lambda: len(app_of(first).client.overview().nodes) == 2, "both are known")
    assert f"node {named} leads, term 1" in first.log
    assert leader(first) == named, "who comes later does not take it"
    return first, second, named


def another(node: Node, before: str) -> str:
    def look() -> str | None:
        named = leader(node)
        return named if named != before else None

    return wait_until(look, lambda: f"another one leads:\n{node.log}", timeout=15)


def test_when_a_leader_is_killed_the_other_node_leads(
    start: Start, record_property: Callable[[str, Any], None]
) -> None:
    first, second, before = two(start)
    first.kill_all()
    killed_at = now()
    # Nobody leads in between, and nobody misses it.
    uid = second.submit("quick")
    second.wait_state(uid, "succeeded")
    another(second, before)
    record_property("taken_over_after_s", now() - killed_at)
    # Redis says it first, the node a moment later.
    wait_until(lambda: "leads, term 2" in second.log, "the node says so")


def test_a_leader_that_stops_hands_over_before_it_has_drained(start: Start) -> None:
    first, second, before = two(start)
    held = first.submit("gate", "open")
    wait_until(lambda: first.effects.all(held) or second.effects.all(held), "it runs")
    first.signal(signal.SIGTERM)
    second.wait_log("leads, term 2", timeout=3)
    assert leader(second) != before
    for node in (first, second):
        (node.folder / "open").touch()
    assert first.wait() == 0


def test_a_leader_that_was_frozen_finds_that_another_leads(start: Start) -> None:
    first, second, before = two(start)
    first.signal(signal.SIGSTOP)
    after = another(second, before)
    first.signal(signal.SIGCONT)
    first.wait_log(f"does not lead any more: {after} does, term 2")
    assert leader(first) == after
    assert first.log.count(" leads, term") == 1
