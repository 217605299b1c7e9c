"""Stopping: by TERM or Ctrl-C, to the master or to everybody, once or twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from harness import Node, gone, wait_until
from servers import Server

pytestmark = pytest.mark.server

Start = Callable[..., Node]


def to_master(node: Node, number: int) -> None:
    node.signal(number)


def to_group(node: Node, number: int) -> None:
    node.signal_group(number)


def to_children_first(node: Node, number: int) -> None:
    for pid in node.children():
        os.kill(pid, number)
    node.signal(number)


def to_children_last(node: Node, number: int) -> None:
    children = node.children()
    node.signal(number)
    for pid in children:
        if not gone(pid):
            os.kill(pid, number)


@pytest.mark.parametrize(
    ("send", "number"),
    [
        (to_master, signal.SIGTERM), (to_group, signal.SIGINT),
        (to_children_first, signal.SIGTERM), (to_children_last, signal.SIGTERM),
    ],
)
def test_running_tasks_end_first_and_waiting_ones_stay_whoever_gets_the_signal(
    start: Start, send: Callable[[Node, int], None], number: int
) -> None:
    node = start(pools="default=2")
    running = [node.submit("gate", "open") for _ in range(2)]
    node.effects.wait("began", count=2)
    waiting = node.submit("quick")
    send(node, number)
    node.wait_log("pool default: draining")
    (node.folder / "open").touch()
    assert node.wait() == 0
    assert [node.task(uid)["state"] for uid in running] == ["succeeded"] * 2
    assert node.task(waiting)["state"] == "queued"
    assert len(node.effects.all(phase="began")) == 2


def test_what_runs_beyond_the_grace_time_goes_back_without_an_attempt(start: Start) -> None:
    node = start("--grace", "0.3")
    uid = node.submit("hold", 60)
    node.effects.wait("began", uid)
    node.signal_group(signal.SIGTERM)
    assert node.wait(10) == 0
    assert node.effects.all(uid, "interrupted"), "its finally blocks ran"
    task = node.task(uid)
    assert (task["state"], task["attempt"], task["crashes"]) == ("queued", 0, 0)
    node.start()
    assert node.effects.wait("began", uid, count=2)[1].attempt == 1


def test_a_task_that_computes_through_the_grace_time_is_killed_and_goes_back_uncharged(
    start: Start,
) -> None:
    node = start("--grace", "0.2")
    uid = node.submit("burn", 60)
    node.effects.wait("began", uid)
    node.signal(signal.SIGTERM)
    assert node.wait(10) == 0
    task = node.task(uid)
    assert (task["state"], task["attempt"], task["crashes"]) == ("queued", 0, 0)


def test_a_second_signal_stops_at_once_and_nothing_is_lost(start: Start) -> None:
    number = signal.SIGINT
    node = start()
    uid = node.submit("hold", 60)
    node.effects.wait("began", uid)
    node.signal_group(number)
    node.wait_log("draining")
    # A terminal may deliver one Ctrl-C twice; a second one is taken as such a moment later.
    wait_until(lambda: node.signal_group(number) or "stopping at once" in node.log, "it hurries")
    assert node.wait(5) == 0
    task = node.task(uid)
    assert (task["state"], task["attempt"], task["crashes"]) == ("queued", 0, 0)


def test_nothing_is_claimed_once_it_drains(start: Start) -> None:
    node = start(pools="default=1")
    first = node.submit("gate", "open")
    node.effects.wait("began", first)
    later = [node.submit("quick") for _ in range(20)]
    node.signal(signal.SIGTERM)
    node.wait_log("pool default: draining")
    (node.folder / "open").touch()
    assert node.wait() == 0
    assert [node.task(uid)["state"] for uid in later] == ["queued"] * 20


def test_what_still_runs_is_printed_during_a_drain(start: Start) -> None:
    node = start()
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    node.signal(signal.SIGTERM)
    node.wait_log(f"default/{uid} gate")
    (node.folder / "open").touch()
    assert node.wait() == 0


def test_a_child_that_gets_term_by_itself_drains_and_is_replaced(start: Start) -> None:
    node = start()
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    first = node.child()
    os.kill(first, signal.SIGTERM)
    node.wait_log("pool default: draining")
    assert node.task(uid)["state"] == "running"
    (node.folder / "open").touch()
    node.wait_ready(2)
    assert node.child() != first
    assert node.wait_state(uid, "succeeded")["attempt"] == 1
    assert "died" not in node.log


def test_signals_that_are_the_masters_do_nothing_to_a_child(start: Start) -> None:
    node = start()
    pid = node.child()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU):
        os.kill(pid, number)
    uid = node.submit("quick")
    node.wait_state(uid, "succeeded")
    assert node.child() == pid


def test_usr1_prints_the_stacks_of_every_child(start: Start) -> None:
    node = start()
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    node.signal(signal.SIGUSR1)
    node.wait_log("in gate")
    assert node.process is not None and node.process.poll() is None


def test_a_stop_while_redis_is_away_warns_of_nothing_where_nothing_was_held(
    nodes: Callable[..., Node], fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server()
    node = nodes(server.url).start()
    server.stop()
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert "wait for their leases" not in node.log
