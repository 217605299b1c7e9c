"""Pausing: nothing starts any more, on any node, until it is resumed; nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from harness import Node, wait_until
from servers import Server

from skedulr.errors import UnknownPool

pytestmark = pytest.mark.server

Start = Callable[..., Node]


def app_of(node: Node) -> Any:
    assert node.app is not None
    return node.app


def known(node: Node, count: int = 1) -> Node:
    """Wait until the namespace has so many pools."""
    wait_until(lambda: len(app_of(node).stats()["pools"]) == count, f"{count} pools are known")
    return node


def commands(server: Server) -> int:
    done: int = server.client.info("stats")["total_commands_processed"]
    return done


def test_a_paused_pool_starts_nothing_and_goes_on_where_it_was(start: Start) -> None:
    node = known(start(pools="default=2,other=1", ready=2), 2)
    running = node.submit("gate", "open")
    node.effects.wait("began", running)
    app_of(node).pause("default")
    uids = [node.submit("quick") for _ in range(5)]
    delayed = node.submit("quick", delay=0.05)
    other = node.submit("quick", pool="other")
    node.wait_state(other, "succeeded", "other")
    (node.folder / "open").touch()
    node.wait_state(running, "succeeded")
    assert not [one for one in node.effects.all(phase="ran") if one.uid != other]
    app_of(node).resume("default")
    for uid in (*uids, delayed):
        node.wait_state(uid, "succeeded")
    assert len(node.effects.all(phase="ran")) == 7


def test_what_was_claimed_ahead_goes_back_when_the_pool_is_paused(start: Start) -> None:
    work = """
import time
import skedulr
from skedulr import task

@task(name="step")
def step():
    time.sleep(0.02)
"""
    node = start(pools="default=2", work=work)
    step = app_of(node).remote("step")
    handles = app_of(node).submit_many([step.bind() for _ in range(400)])
    wait_until(lambda: app_of(node).stats()["succeeded"] > 20, "some are done")
    app_of(node).pause()
    wait_until(lambda: app_of(node).stats()["running"] == 0, "none runs, none is held")
    assert app_of(node).stats()["queued"] > 0
    app_of(node).resume()
    assert app_of(node).wait(handles, timeout=15)


def test_a_pause_survives_restarts_of_everything(start: Start) -> None:
    node = known(start())
    app_of(node).pause("default")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    uid = node.submit("quick")
    node.start()
    later = node.submit("quick", pool="default")
    assert node.task(uid)["state"] == node.task(later)["state"] == "queued"
    assert app_of(node).stats()["pools"][0]["paused"] is True
    app_of(node).resume()
    node.wait_state(uid, "succeeded")


def test_pausing_all_and_resuming_one(start: Start) -> None:
    node = known(start(pools="default=1,other=1", ready=2), 2)
    app_of(node).pause()
    app_of(node).resume("other")
    kept, ran = node.submit("quick"), node.submit("quick", pool="other")
    node.wait_state(ran, "succeeded", "other")
    assert node.task(kept)["state"] == "queued"
    with pytest.raises(UnknownPool):
        app_of(node).pause("nowhere")


def test_two_nodes_are_paused_and_resumed_at_once(start: Start) -> None:
    first, second = known(start(folder="first")), start(folder="second")
    app_of(first).pause("default")
    uids = [first.submit("gate", "open") for _ in range(8)]
    (first.folder / "open").touch()
    (second.folder / "open").touch()
    app_of(first).resume("default")
    for uid in uids:
        first.wait_state(uid, "succeeded")


def test_a_paused_pool_with_work_does_not_spin(
    start: Start, one_server: Server
) -> None:
    node = known(start())
    app_of(node).pause("default")
    for _ in range(20):
        node.submit("quick")
    sleeping = one_server.client.info("clients")
    wait_until(
        lambda: one_server.client.info("clients")["blocked_clients"] == 1,
        lambda: f"its fetcher sleeps: {sleeping}",
    )
    before = commands(one_server)
    # Some seconds of the server's own time: a fetcher that spins does thousands of calls in them.
    looks = 0
    while looks < 20:
        one_server.client.execute_command("BLPOP", "nothing-comes-here", 0.02)
        looks += 1
    assert commands(one_server) - before - looks < 100
