"""A child whose hub stands still: nothing is doubled while it computes, and it goes in the end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import psutil
import pytest
from harness import WORK, Node, gone, now, wait_until
from servers import Server

from skedulr.keys import SpaceKeys

pytestmark = pytest.mark.server

Start = Callable[..., Node]

HOLDING = WORK + '''

import ctypes

from skedulr import LinearRetry

# Functions called through PyDLL keep the GIL: not even another thread runs meanwhile.
c = ctypes.PyDLL(None)


@task(name="hold_gil", max_retries=0)
def hold_gil(seconds):
    note("began")
    c.usleep(int(seconds * 1e6))
    note("ended")


@task(name="lock", max_retries=1)
def lock():
    """A lock of the system that nobody opens: the hub waits for ever."""
    note("began")
    from gevent import monkey

    held = monkey.get_original("_thread", "allocate_lock")()
    held.acquire()
    held.acquire()


@task(name="patient", max_retries=1, retry=LinearRetry(1234))
def patient():
    note("began")
    c.usleep(60_000_000)
'''


def test_a_child_that_computes_too_long_is_killed_and_the_task_has_timed_out(
    start: Start,
) -> None:
    node = start("--hang-timeout", "1.5", pools="default=2")
    first = node.child()
    neighbour = node.submit("gate", "open")
    node.effects.wait("began", neighbour)
    uid = node.submit("burn", 60)
    node.effects.wait("began", uid)
    dead = node.wait_state(uid, "dead")
    assert gone(first)
    assert dead["error"]["type"].endswith("TaskTimeout")
    assert "in burn" in dead["error"]["traceback"], "the stack at which it hung"
    assert (dead["crashes"], dead["attempt"]) == (0, 1)
    assert "--hang-timeout" in node.log and f"default/{uid}" in node.log
    assert 'File "' in node.log and "in burn" in node.log
    # Its neighbour is charged nothing and runs again.
    node.effects.wait("began", neighbour, count=2)
    (node.folder / "open").touch()
    task = node.wait_state(neighbour, "succeeded")
    assert (task["attempt"], task["crashes"]) == (1, 0)


def test_a_hung_task_with_attempts_left_is_tried_again_as_after_any_time_out(
    start: Start,
) -> None:
    node = start("--hang-timeout", "1", pools="default=2", work=HOLDING)
    uid = node.submit("lock")
    node.effects.wait("began", uid)
    node.effects.wait("began", uid, count=2)
    assert [one.attempt for one in node.effects.all(uid)] == [1, 2]
    assert node.wait_state(uid, "dead")["attempt"] == 2


def test_a_hung_task_waits_as_its_own_strategy_says(start: Start, one_server: Server) -> None:
    node = start("--hang-timeout", "1", pools="default=2", work=HOLDING)
    # The master knows it from what children publish, which is after they say that they are ready.
    published = SpaceKeys("skedulr").names
    wait_until(lambda: one_server.client.hexists(published, "patient"), "its name is published")
    uid = node.submit("patient")
    node.effects.wait("began", uid)
    line = f"default/{uid} hung on attempt 1; again in 1.23e+03 s"
    wait_until(lambda: line in node.log, "the delay of the task's own strategy")


@pytest.mark.parametrize("task", ["burn", "hold_gil"])
def test_a_burst_longer_than_the_lease_runs_once(start: Start, task: str) -> None:
    """Also where C code keeps the GIL, so that the heart is silent: then the master renews."""
    # Not too short: a busy machine holds up heart and master for a second, which is no fault.
    node = start("--lease", "4", "--log-level", "debug", work=HOLDING)
    other = start("--lease", "4", folder="other", work=HOLDING)
    uids = [node.submit(task, 6)]
    wait_until(lambda: node.effects.all(uids[0]) or other.effects.all(uids[0]), "it began")
    node.wait_state(uids[0], "succeeded")
    assert len(node.effects.all(uids[0]) + other.effects.all(uids[0])) == 2
    if task == "hold_gil":
        assert "whose heart is silent" in node.log + other.log


def test_a_stopped_child_keeps_its_tasks_until_it_counts_as_hung(start: Start) -> None:
    node = start("--lease", "1", "--hang-timeout", "3")
    uid = node.submit("gate", "open")
    [began] = node.effects.wait("began", uid)
    os.kill(began.pid, signal.SIGSTOP)
    stopped_at = now()
    node.wait_log("has not yielded")
    again = node.effects.wait("began", uid, count=2)[1]
    # Not by what is there when we come to look: the next child may have been faster.
    assert again.at > stopped_at + 2, "until then, twice the lease, nobody else ran it"
    assert gone(began.pid)
    (node.folder / "open").touch()
    node.wait_state(uid, "succeeded")


def test_what_a_stopped_child_claims_in_its_sleep_is_run_by_another_and_not_by_it(
    start: Start,
) -> None:
    """The server runs its claim for it when a wake token comes, whether or not it can read it."""
    node = start("--lease", "3", pools="default=1x2", ready=2)
    asleep = node.children()[0]
    os.kill(asleep, signal.SIGSTOP)
    uids = [node.submit("quick") for _ in range(8)]
    for uid in uids:
        node.wait_state(uid, "succeeded")
    assert stopped(asleep), "all that time"
    os.kill(asleep, signal.SIGCONT)
    # Both run by now, and neither runs any of these again.
    for _ in range(8):
        node.wait_state(node.submit("quick"), "succeeded")
    effects = [one for uid in uids for one in node.effects.all(uid)]
    assert len(effects) == len(uids)
    assert {one.pid for one in effects}.isdisjoint({asleep})


def test_a_master_that_was_stopped_itself_kills_nobody(start: Start) -> None:
    node = start("--hang-timeout", "1")
    uid = node.submit("gate", "open")
    [began] = node.effects.wait("began", uid)
    node.signal_group(signal.SIGSTOP)
    wait_until(lambda: stopped(node.pid), "it is stopped")
    # Longer than the limit; there is nothing to wait for but the time itself.
    time.sleep(3.5)
    node.signal_group(signal.SIGCONT)
    (node.folder / "open").touch()
    node.wait_state(uid, "succeeded")
    assert node.effects.all(uid, "began") == [began]
    assert "has not yielded" not in node.log


def stopped(pid: int) -> bool:
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
