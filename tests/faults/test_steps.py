"""Death and lost replies at every step of a task's way: claim, start, finish, retry, promote.

There are no failpoints in production code, and none are needed. A process changes what others see
by scripts alone, and Redis runs a script whole or not at all; whatever a process did in between
dies with it. So the moments at which a death can make a difference are, for each script: the
request has not reached the server, or it was applied and nobody knows. ``Trap`` stops the process
(SIGSTOP) when the request comes by, so that it can not repeat anything, has it dropped or applied,
and then the process is killed. Steps without a script (a handler starts, runs, ends) are moments
at which a task kills its own process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from harness import Node
from servers import Server, wait_until
from world import Trap, World

from skedulr.redis_scripts import script

pytestmark = pytest.mark.server

STEPS = ("claim", "finish", "retry", "promote")


def provoke(world: World, step: str) -> None:
    """Submit what leads to a call of this script."""
    if step == "retry":
        world.submit("flaky", 1)
    elif step == "promote":
        # Claims promote as well; the script of its own is for a node whose workers are all busy
        # when a due time comes that it knew of.
        world.submit("plain", delay=0.5)
        for _ in range(4):
            world.submit("gate", "open")
    else:
        world.submit("hold", 0.05)


def spring(
    world: World, node: Node, step: str, mode: str, act: Callable[[], None] = lambda: None
) -> Trap:
    """Have the trap of a node's proxy meet a call of this script that matters."""
    if step == "claim":
        # It is sent before there is work, and sleeps: work comes as it comes by.
        trap = world.trap(node, step, mode, act=lambda: (provoke(world, step), act()))
    else:
        trap = world.trap(node, step, mode, act=act)
        provoke(world, step)
    wait_until(lambda: trap.sprung, what=f"{step} is called")
    return trap


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _state(pid) == "T", what=f"{pid} is stopped")


@pytest.mark.parametrize("moment", ["before it was applied", "before its answer came"])
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_at_a_script_loses_and_doubles_nothing(
    world: Callable[..., World], step: str, moment: str
) -> None:
    with world(lease_s=5) as whole:
        node = whole.node("node", proxied=True)
        child = node.child()
        mode = "drop_request" if moment == "before it was applied" else "drop_reply"
        trap = spring(whole, node, step, mode, act=lambda: stop(child))
        if mode == "drop_reply":
            wait_until(lambda: trap.lost > 0, what=f"{step} was applied")
        whole.kill(child)
        (node.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


@pytest.mark.parametrize("mode", ["reset", "drop_reply"])
@pytest.mark.parametrize("step", STEPS)
def test_a_request_or_a_reply_that_is_lost_is_repeated_and_runs_nothing_twice(
    world: Callable[..., World], step: str, mode: str
) -> None:
    with world(lease_s=5) as whole:
        node = whole.node("node", proxied=True)
        spring(whole, node, step, mode)
        (node.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


@pytest.mark.parametrize("mode", ["reset", "drop_reply"])
def test_a_release_or_a_renewal_whose_reply_is_lost_does_no_harm(
    world: Callable[..., World], mode: str
) -> None:
    with world(lease_s=2) as whole:
        node = whole.node("node", proxied=True)
        uid = whole.submit("gate", "open")
        whole.effect("began", uid)
        renewal = whole.trap(node, "renew", mode)
        wait_until(lambda: renewal.sprung, what="the lease is renewed")
        release = whole.trap(node, "release", mode)
        whole.kill(node.child())
        wait_until(lambda: release.sprung, what="the dead child's owner is released")
        whole.effect("began", uid, count=2)
        (node.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


@pytest.mark.parametrize("moment", ["start", "middle", "end"])
def test_a_handler_that_kills_its_process_runs_again_and_its_neighbours_too(
    world: Callable[..., World], moment: str
) -> None:
    with world(lease_s=5) as whole:
        node = whole.node("node")
        neighbours = [whole.submit("gate", "open") for _ in range(2)]
        whole.effect("began", count=2)
        deadly = whole.submit("deadly", moment, 2)
        whole.effect("dying", deadly, count=2)
        (node.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []
    crashes = {one.uid: whole.app().get(f"default/{one.uid}").info()["crashes"]
               for one in history.submitted}
    assert crashes == {deadly: 2, **dict.fromkeys(neighbours, 0)}


def test_a_reply_of_a_claim_that_comes_after_its_lease_starts_nothing(
    world: Callable[..., World],
) -> None:
    """The lease counts from when the claim was sent, whenever its answer came: by then another
    process may have the task."""
    with world(lease_s=1) as whole:
        slow = whole.node("slow", proxied=True)
        submitted: list[str] = []
        held = whole.trap(
            slow, "claim", "hold_reply",
            act=lambda: submitted.append(whole.submit("gate", "open")),
        )
        wait_until(lambda: held.sprung, what="the slow node claims")
        heir = whole.node("heir")
        whole.effect("began", submitted[0])
        held.let_go()
        (heir.folder / "open").touch()
        (slow.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


def test_wall_clocks_that_jump_by_days_decide_nothing(world: Callable[..., World]) -> None:
    with world(lease_s=2) as whole:
        node = whole.node("node", variant="jumping_clock", pools="default=2x2")
        submitted_at = time.monotonic()
        late = whole.submit("plain", delay=1.2)
        whole.submit("flaky", 2)
        held = whole.submit("gate", "open")
        [ran] = whole.effect("ended", late)
        # Longer than a lease and a jump or two.
        time.sleep(2.5)
        (node.folder / "open").touch()
        history = whole.settle()
        record = whole.app().get(f"default/{held}").info()
    assert [str(one) for one in history.verdict()] == []
    assert ran.at - submitted_at >= 1.2
    assert abs(record["started_at"] - time.time()) < 3600 > abs(record["finished_at"] - time.time())


def test_a_server_whose_clock_was_set_back_recovers_again_after_a_lease(
    world: Callable[..., World], one_server: Server
) -> None:
    """As it looks afterwards: sweeps in the future, and leases of the dead far ahead."""
    with world(lease_s=1) as whole:
        node = whole.node("node")
        uid = whole.submit("gate", "open")
        whole.effect("began", uid)
        whole.kill_node(node)
        hour_ms = 3_600_000
        one_server.client.hincrby(whole.keys.meta, "swept", hour_ms)
        one_server.client.hset(whole.keys.meta, "recover_after", int(time.time() * 1000) + hour_ms)
        one_server.client.zincrby(whole.keys.leases, hour_ms, uid)
        heir = whole.node("heir")
        whole.effect("began", uid, count=2)
        (heir.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


def test_a_suspect_is_found_by_a_fetcher_whose_wake_token_is_gone(
    world: Callable[..., World], one_server: Server
) -> None:
    """A stopped process had swallowed it; nobody looked among the suspects without one."""
    with world() as whole:
        whole.node("node")
        # Asleep by now, or it would come by in any case.
        wait_until(
            lambda: any("b" in one["flags"] for one in one_server.client.client_list()),
            what="the fetcher sleeps in Redis",
        )
        app = whole.app()
        copied = app.submit_call(app.remote("plain", pool="elsewhere").bind()).uid
        body = one_server.client.hget("{faults:elsewhere}:tasks", copied)
        with one_server.client.pipeline() as step:
            step.hset(whole.keys.tasks, copied, body)
            step.zadd(whole.keys.suspects, {copied: time.time()})
            step.execute()
        whole.effect("ended", copied)


def test_a_node_cut_off_for_longer_than_its_lease_loses_its_task_to_another_once(
    world: Callable[..., World],
) -> None:
    with world(lease_s=1) as whole:
        lonely = whole.node("lonely", proxied=True)
        uid = whole.submit("gate", "open")
        whole.effect("began", uid)
        heir = whole.node("heir")
        with whole.fault("cut off", *lonely.children()):
            whole.proxy(lonely).set("stall")
            whole.effect("began", uid, count=2)
            whole.proxy(lonely).set("pass")
        whole.effect("interrupted", uid)
        (heir.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


def test_a_process_that_claims_its_own_lost_task_again_keeps_the_new_claim(
    world: Callable[..., World],
) -> None:
    """Only its renewals are held up; its own sweep and claim go through."""
    with world(lease_s=1) as whole:
        node = whole.node("node", proxied=True)
        uid = whole.submit("gate", "open")
        whole.effect("began", uid)
        with whole.fault("cut off", node.child()):
            whole.proxy(node).set("drop_request", only=script("renew").sha.encode())
            whole.effect("interrupted", uid)
            # It starts nothing while it can not tell what is its own.
            assert len(whole.effects(uid, "began")) == 1
            whole.proxy(node).set("pass")
        whole.effect("began", uid, count=2)
        # Three leases: the new claim must be renewed, whatever became of the old one.
        time.sleep(3)
        (node.folder / "open").touch()
        history = whole.settle()
        more = [whole.submit("hold", 0.3) for _ in range(8)]
        whole.effect("ended", more[-1])
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []
    assert "Traceback" not in node.log


def test_one_renewal_lost_without_a_trace_costs_no_lease(world: Callable[..., World]) -> None:
    """The connection stays open and silent: it is given up in time for another renewal."""
    with world(lease_s=3) as whole:
        node = whole.node("node", proxied=True)
        uid = whole.submit("gate", "open")
        whole.effect("began", uid)
        whole.node("other")
        lost = whole.trap(node, "renew", "drop_request")
        wait_until(lambda: lost.sprung, what="a renewal is lost")
        node.wait_log("renewed again")
        (node.folder / "open").touch()
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


def test_slow_tasks_claimed_ahead_with_fast_ones_do_not_wait_beside_idle_workers(
    world: Callable[..., World],
) -> None:
    with world(lease_s=15, idle_s=3) as whole:
        whole.node("node", pools="default=2x2")
        whole.sampling()
        whole.submit_many([("plain", ())] * 3000 + [("hold", (1.0,))] * 16)
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


def test_what_a_silent_hub_gives_back_is_not_lost_when_the_release_fails(
    world: Callable[..., World],
) -> None:
    with world(lease_s=30, pools="default=1") as whole:
        node = whole.node("node", proxied=True)
        # Fast tasks, so that it fetches ahead; then one that computes, and others behind it.
        names = [("plain", ())] * 300 + [("burn", (2.5,))] + [("plain", ())] * 30
        release = whole.trap(node, "release", "reset")
        whole.submit_many(names)
        wait_until(lambda: release.sprung, what="the heart gives back what can not start")
        history = whole.settle()
    assert [str(one) for one in history.verdict()] == []


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
