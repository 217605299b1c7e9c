"""Processes that die by force: what they ran is taken up by others, and soon."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from harness import WORK, Node, gone, now, wait_until
from servers import Server

pytestmark = pytest.mark.server


def test_a_killed_child_is_replaced_and_its_tasks_start_again(
    start: Callable[..., Node], record_property: Callable[[str, object], None]
) -> None:
    node = start()
    running = [node.submit("gate", "open") for _ in range(3)]
    node.effects.wait("began", count=3)
    first = node.child()
    killed_at = now()
    os.kill(first, signal.SIGKILL)
    # Nobody knows which of the three did it, so they run apart from now on.
    (node.folder / "open").touch()
    began = node.effects.wait("began", count=6)[3:]
    assert {one.uid for one in began} == set(running)
    assert {one.pid for one in began} == {node.child()} != {first}
    for uid in running:
        task = node.wait_state(uid, "succeeded")
        assert (task["attempt"], task["crashes"]) == (1, 0)
    back_s = min(one.at for one in began) - killed_at
    record_property("back_after_s", back_s)
    print(f"back after {back_s:.3f} s")
    assert back_s < 5, "a generous bound: the promise is 1 s, reported above"
    assert node.process is not None and node.process.poll() is None


def test_a_child_that_dies_young_again_and_again_is_forked_with_pauses(
    start: Callable[..., Node],
) -> None:
    node = start()
    for _ in range(3):
        pid = node.child()
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda pid=pid: node.children() not in ([], [pid]), "the child is replaced"
        )
    assert node.log.count("killed by SIGKILL") == 3
    uid = node.submit("quick")
    node.wait_state(uid, "succeeded")


def test_a_child_dies_and_the_other_pools_go_on(start: Callable[..., Node]) -> None:
    node = start(pools="default=2,other=2", ready=2)
    held = node.submit("gate", "open", pool="other")
    [began] = node.effects.wait("began", held)
    [victim] = [pid for pid in node.children() if pid != began.pid]
    os.kill(victim, signal.SIGKILL)
    node.wait_ready(3)
    assert node.effects.all(held) == [began]
    assert began.pid in node.children()
    (node.folder / "open").touch()
    node.wait_state(held, "succeeded", "other")


def test_a_crash_is_charged_to_the_task_on_the_cpu_and_at_the_third_it_is_dead(
    start: Callable[..., Node],
) -> None:
    node = start()
    neighbour = node.submit("gate", "open")
    node.effects.wait("began", neighbour)
    bad = node.submit("exit", 7)
    record = node.wait_state(bad, "dead")
    assert len(node.effects.all(bad)) == 3
    assert "crash" in str(record["error"]).lower()
    (node.folder / "open").touch()
    survivor = node.wait_state(neighbour, "succeeded")
    assert survivor["crashes"] == 0


def test_when_master_and_children_are_killed_another_node_takes_the_tasks_after_the_lease(
    start: Callable[..., Node],
) -> None:
    victim = start("--lease", "2", folder="victim")
    running = [victim.submit("gate", "open") for _ in range(3)]
    victim.effects.wait("began", count=3)
    heir = start("--lease", "2", folder="heir")
    killed_at = now()
    victim.kill_all()
    (heir.folder / "open").touch()
    began = heir.effects.wait("began", count=3)
    assert {one.uid for one in began} == set(running)
    for uid in running:
        assert heir.wait_state(uid, "succeeded")["attempt"] == 1
    print(f"taken over after {min(one.at for one in began) - killed_at:.2f} s")


def test_when_the_master_alone_is_killed_its_children_drain_and_go(
    start: Callable[..., Node],
) -> None:
    node = start()
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    child = node.child()
    node.signal(signal.SIGKILL)
    node.wait()
    assert not gone(child), "it has a task to end"
    (node.folder / "open").touch()
    wait_until(lambda: gone(child), "the child is gone")
    assert node.effects.all(uid, "ended")
    node.wait_state(uid, "succeeded")


def test_tasks_of_a_child_that_died_while_redis_was_away_come_back_with_redis(
    nodes: Callable[..., Node], fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server(appendonly="yes", appendfsync="always")
    node = nodes(server.url, "--lease", "5").start()
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    server.kill()
    os.kill(node.child(), signal.SIGKILL)
    node.wait_log("killed by SIGKILL")
    server.start()
    node.effects.wait("began", uid, count=2)
    (node.folder / "open").touch()
    node.wait_state(uid, "succeeded")


#: A task that kills its process by the signal that others send as well.
KILLER = WORK + """

@task(name="kill_self")
def kill_self():
    note("began")
    os.kill(os.getpid(), 9)
"""


def test_kills_from_outside_in_a_row_cost_an_innocent_task_nothing(
    start: Callable[..., Node],
) -> None:
    node = start()
    uid = node.submit("burn", 3600)
    for kills in range(5):
        node.effects.wait("began", uid, count=kills + 1, timeout=30)
        os.kill(node.child(), signal.SIGKILL)
    node.effects.wait("began", uid, count=6, timeout=30)
    task = node.task(uid)
    assert (task["state"], task["crashes"], task["attempt"]) == ("running", 0, 1)


def test_a_task_that_kills_its_own_process_is_dead_at_the_third_time(
    start: Callable[..., Node],
) -> None:
    node = start(work=KILLER)
    uid = node.submit("kill_self")
    record = node.wait_state(uid, "dead", timeout=30)
    assert len(node.effects.all(uid, "began")) == 3 and record["crashes"] == 3


def test_after_a_kill_of_an_idle_process_many_waiting_tasks_do_not_take_turns(
    start: Callable[..., Node],
) -> None:
    node = start(pools="default=20")
    running = [node.submit("gate", "open") for _ in range(20)]
    node.effects.wait("began", count=20)
    os.kill(node.child(), signal.SIGKILL)
    # All of them at once, though none has ended: they were let in as others ran for a while.
    node.effects.wait("began", count=40, timeout=30)
    (node.folder / "open").touch()
    for uid in running:
        assert node.wait_state(uid, "succeeded")["crashes"] == 0
