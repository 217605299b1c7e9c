"""The suite judged: each guarantee is taken out once, and must be missed.

Each scenario aims at one guarantee. Run on Skedulr as it is, the history checker finds nothing;
run on the variant without that guarantee, it finds the violation named here. Nothing is left to
luck: the proxy, the signals and the gates put every step where it has to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import pytest
from history import History
from servers import wait_until
from variants import broken
from world import World

from skedulr.hub.driver import Driver
from skedulr.pools import poison
from skedulr.pools.sweeper import Keep, Sweeper
from skedulr.store import Store
from skedulr.wire import Wire

pytestmark = pytest.mark.server


def a_frozen_process_wakes_up_and_finishes(world: World, variant: str | None) -> History:
    """Its task runs elsewhere by then; its outcome must not be taken."""
    sleeper = world.node("sleeper", variant=variant)
    uid = world.submit("gate", "open")
    [first] = world.effect("began", uid)
    heir = world.node("heir", variant=variant)
    with world.frozen(sleeper.pid, first.pid):
        world.effect("began", uid, count=2)
        (sleeper.folder / "open").touch()
    # Its handler ends, or is interrupted because the claim is lost; then all was said.
    wait_until(
        lambda: [one for one in world.effects(uid) if one.phase != "began"],
        what="the first run is over",
    )
    wait_until(
        lambda: world.ended(uid) or "claim" in sleeper.log or "taken for dead" in sleeper.log,
        what="its outcome was taken or refused",
    )
    (heir.folder / "open").touch()
    world.effect("ended", uid)
    return world.settle()


def a_task_runs_longer_than_its_lease(world: World, variant: str | None) -> History:
    """With others idle beside it that sweep."""
    node = world.node("node", variant=variant, pools="default=2x2")
    uid = world.submit("gate", "open")
    world.effect("began", uid)
    # Time is what this is about: two leases and two sweeps.
    end = time.monotonic() + 2.5 * world.lease_s + 0.5
    while time.monotonic() < end and len(world.effects(uid, "began")) < 2:
        time.sleep(0.02)
    (node.folder / "open").touch()
    return world.settle()


def the_reply_of_a_claim_is_lost(world: World, variant: str | None) -> History:
    """The repeated call must give the same tasks again: nobody else knows of them."""
    node = world.node("node", variant=variant, proxied=True)
    world.sampling()
    with broken(variant):
        # Not one of the claims that find nothing: there is work once it comes by.
        submitted: list[str] = []
        trap = world.trap(
            node, "claim", "drop_reply", act=lambda: submitted.append(world.submit("hold", 0.1))
        )
    wait_until(lambda: trap.sprung, what="a claim went through")
    try:
        world.effect("began", submitted[0], timeout=WAIT_S + 2)
    except AssertionError:
        return world.look()  # the samples tell how it waits
    return world.settle()


def redis_is_away_for_longer_than_the_lease(world: World, variant: str | None) -> History:
    """And when it is back, a sweep comes before the owner can renew."""
    node = world.node("node", variant=variant, proxied=True)
    uid = world.submit("gate", "open")
    world.effect("began", uid)
    with broken(variant), world.fault("outage"):
        _sweep_as_another_node(world)
        world.proxy(node).refuse()
        world.server.freeze()
        time.sleep(1.5 * world.lease_s)
        world.server.thaw()
        _sweep_as_another_node(world)
        world.proxy(node).start()
    wait_until(
        lambda: len(world.effects(uid, "began")) > 1 or "renewed again" in node.log,
        what="the owner renews, or another takes the task",
    )
    (node.folder / "open").touch()
    return world.settle()


def several_processes_promote_at_once(world: World, variant: str | None) -> History:
    """All of their wheels ring at the same due time."""
    world.node("node", variant=variant, pools="default=4x2")
    # The due time is far enough away for both to have heard of it.
    at = time.time() + 3
    for _ in range(6):
        world.submit("hold", 0.5, at=at)
    world.effect("ended", count=6)
    return world.settle()


SCENARIOS: dict[str, tuple[Callable[[World, str | None], History], str]] = {
    "token_unchecked": (a_frozen_process_wakes_up_and_finishes, "stale"),
    "lease_not_renewed": (a_task_runs_longer_than_its_lease, "doubled"),
    "numbers_ignored": (the_reply_of_a_claim_is_lost, "held"),
    "no_grace": (redis_is_away_for_longer_than_the_lease, "doubled"),
    "promote_not_atomic": (several_processes_promote_at_once, "doubled"),
}


#: What a stream does by steps of its own. The numbers of calls are the same for both, and a task
#: that is in a stream twice is passed over by the second claim.
OF_STREAMS = ("token_unchecked", "lease_not_renewed", "no_grace")


@pytest.mark.parametrize(("variant", "kept"), [
    *((variant, "zset") for variant in SCENARIOS),
    *((variant, "streams") for variant in OF_STREAMS),
])
def test_a_variant_without_the_guarantee_is_caught(
    world: Callable[..., World], variant: str, kept: str
) -> None:
    scenario, rule = SCENARIOS[variant]
    found = scenario(world(lease_s=LEASES[variant], idle_s=WAIT_S, kept=kept), variant).verdict()
    assert rule in {one.rule for one in found}, found


@pytest.mark.parametrize("variant", SCENARIOS)
def test_nothing_is_found_where_the_guarantee_is_in_place(
    world: Callable[..., World], variant: str
) -> None:
    scenario, _ = SCENARIOS[variant]
    with world(lease_s=LEASES[variant], idle_s=WAIT_S) as whole:
        history = scenario(whole, None)
    assert [str(one) for one in history.verdict()] == []


#: A lost reply is found by its task waiting where it should not, seconds; so the lease is longer.
WAIT_S = 3.0
LEASES = dict.fromkeys(SCENARIOS, 1.5) | {"numbers_ignored": 20.0}


def _sweep_as_another_node(world: World) -> None:
    wire = Wire(world.server.url, name="sweep")
    # Its wheel is not needed to call it once.
    Sweeper(
        store=Store(world.keys), wire=wire, driver=cast("Driver", None), lease_s=world.lease_s,
        keep=Keep(86400, 1000, 1000), judgement=poison.judge_host(),
    ).recover()
    wire.close()
