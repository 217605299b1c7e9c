"""A Cluster in trouble, under load: a slot that moves, a master that dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from clusters import Cluster
from failovers import load, report
from servers import wait_until
from world import World

pytestmark = pytest.mark.server

#: How the pool's ready work is kept: the moved keys, and what a replica has, are others.
both_transports = pytest.mark.parametrize("kept", ["zset", "streams"])


@both_transports
def test_a_pool_rides_out_the_move_of_its_slot(
    world: Callable[..., World], cluster: Cluster, kept: str
) -> None:
    with world(server=cluster, lease_s=3.0, idle_s=5.0, kept=kept) as whole:
        whole.node("a", pools="default=8")
        source = cluster.master_of(whole.keys.ready)
        target = cluster.others(source)[0]
        with load(whole, lambda: whole.submit("hold", 0.02)) as loads:
            whole.effect("ended", count=40)
            with whole.fault("outage"):
                began = time.monotonic()
                cluster.move_slot(whole.keys.ready, target, hold_s=0.5)
            assert cluster.master_of(whole.keys.ready) is target
            whole.effect("ended", count=len(whole.effects(phase="ended")) + 60, timeout=30)
        found = report(whole.settle(40), loads, began)
        cluster.move_slot(whole.keys.ready, source)
    print(found)
    assert found.violations == []
    assert found.excused == {}, "a move loses nothing"
    assert found.refused == found.maybe == 0


@both_transports
def test_a_master_that_dies_under_load_is_replaced_by_its_replica(
    world: Callable[..., World], cluster: Cluster, kept: str
) -> None:
    with world(server=cluster, lease_s=3.0, idle_s=5.0, kept=kept) as whole:
        whole.node("a", pools="default=8")
        master = cluster.master_of(whole.keys.ready)
        with load(whole, lambda: whole.submit("hold", 0.02)) as loads:
            whole.effect("ended", count=40)
            with whole.fault("outage"):
                died_at = time.monotonic()
                master.kill()
                wait_until(
                    lambda: cluster.master_of(whole.keys.ready) is not master, 20,
                    "the replica is promoted",
                )
            whole.effect("ended", count=len(whole.effects(phase="ended")) + 60, timeout=30)
        found = report(whole.settle(40), loads, died_at)
    print(found)
    assert found.violations == []
    assert found.refused == 0
    assert found.pause_s < 10


@pytest.mark.parametrize("wait_replicas", [0, 1])
def test_with_a_replica_that_lags_only_what_waited_for_it_survives_for_sure(
    world: Callable[..., World], cluster: Cluster, wait_replicas: int
) -> None:
    with world(server=cluster, lease_s=3.0, idle_s=5.0) as whole:
        whole.node("a", pools="default=8")
        master = cluster.master_of(whole.keys.ready)
        replica = cluster.replica_of(master)
        app: Any = whole.app(wait_replicas=wait_replicas, submit_timeout=8)
        with load(whole, lambda: whole.submit("hold", 0.02, app=app), threads=4) as loads:
            whole.effect("ended", count=30)
            with whole.fault("outage"):
                replica.freeze()
                # What is written from now on is not even in its socket.
                master.client.client_kill_filter(_type="replica")
                # Less than what makes the others take it for dead.
                time.sleep(0.4)
                died_at = time.monotonic()
                master.kill()
                replica.thaw()
                wait_until(
                    lambda: cluster.master_of(whole.keys.ready) is not master, 20,
                    "the replica is promoted",
                )
                # Back as the replica of the new one: those who wait for one get it.
                master.start()
            whole.effect("ended", count=len(whole.effects(phase="ended")) + 40, timeout=30)
        found = report(whole.settle(40), loads, died_at)
        app.close()
    print(found)
    assert found.violations == []
    assert found.refused == 0
    assert ("lost" in found.excused) == (not wait_replicas)
