"""Sentinel: clients, children, hearts and masters find the new master, under load."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from clusters import Sentinels
from failovers import Load, load, report
from redis.exceptions import ResponseError
from servers import selected, wait_until
from world import World

from skedulr.addresses import read_address
from skedulr.pools.plainwire import PlainWire
from skedulr.wire import NotAnswered, Refused, Wire, WireError

pytestmark = pytest.mark.server

log = logging.getLogger("tests")


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    made = Sentinels(selected()[0])
    try:
        yield made.start()
    finally:
        made.close()


@pytest.mark.parametrize("kind", [Wire, PlainWire])
def test_a_replica_is_not_taken_for_the_master_that_a_sentinel_says_it_is(
    kind: type[Wire] | type[PlainWire], sentinels: Sentinels
) -> None:
    replica = next(one for one in sentinels.servers if one is not sentinels.master())
    wire = kind(f"redis+sentinel://127.0.0.1:{sentinels.ports[0]}/main", name="test:role")
    assert wire.call("SET", "k", "v") == b"OK"
    wire.close()
    # A sentinel that knows nothing of the failover: ours, which was told to watch the replica.
    with pytest.raises(WireError, match="READONLY it is a slave"):
        kind(_stuck_at(sentinels, replica.port), name="test:role").call("SET", "k", "v")


def _stuck_at(sentinels: Sentinels, port: int) -> str:
    wire = Wire(f"redis://127.0.0.1:{sentinels.ports[2]}", name="test:stuck")
    try:
        wire.call("SENTINEL", "REMOVE", "stuck")
    except ResponseError:
        pass  # it is not there yet
    wire.call("SENTINEL", "MONITOR", "stuck", "127.0.0.1", str(port), "9")
    # It would follow the replica to its master sooner or later; it is asked before that.
    wire.close()
    return f"redis+sentinel://127.0.0.1:{sentinels.ports[2]}/stuck"


@pytest.mark.parametrize("kind", [Wire, PlainWire])
def test_sentinels_that_do_not_answer_or_know_nothing_are_named(
    kind: type[Wire] | type[PlainWire], sentinels: Sentinels
) -> None:
    good = sentinels.ports[1]
    wire = kind(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{good}/main/0", name="test:second")
    assert wire.call("PING") == b"PONG"
    wire.close()
    began = time.monotonic()
    with pytest.raises(NotAnswered) as caught:
        kind(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{good}/other/0", name="x").call("PING")
    assert "sentinel 127.0.0.1:1: " in str(caught.value)
    assert f"sentinel 127.0.0.1:{good}: it knows no service 'other'" in str(caught.value)
    assert not caught.value.sent
    assert time.monotonic() - began < 10


def test_a_connection_to_a_master_that_was_demoted_is_dropped_at_its_first_write(
    sentinels: Sentinels,
) -> None:
    first = sentinels.master()
    second = next(one for one in sentinels.servers if one is not first)
    wire = Wire(sentinels.url, name="test:demoted", timeout_s=2)
    wire.call("SET", "k", "v")
    # By hand, so that no sentinel closes the connections of clients.
    first.client.execute_command("REPLICAOF", "127.0.0.1", second.port)
    with pytest.raises(Refused, match="READONLY"):
        wire.call("SET", "k", "v")
    assert not wire.connected
    first.client.execute_command("REPLICAOF", "NO", "ONE")


def test_addresses_of_sentinels_are_read_with_what_is_for_them_alone() -> None:
    address = read_address(
        "rediss+sentinel://ann:p%40w@a,[::1]:5000/main/3"
        "?ssl_cert_reqs=none&sentinel_password=s%26t"
    )
    assert [str(node) for node in address.nodes] == ["a:26379", "[::1]:5000"]
    assert address.service == "main"
    options = address.at(address.nodes[0])
    assert (options["username"], options["password"], options["db"]) == ("ann", "p@w", 3)
    own = address.at_sentinel(address.nodes[1])
    assert (own["host"], own["port"], own["password"]) == ("::1", 5000, "s&t")
    assert "username" not in own
    assert "db" not in own
    assert own["ssl_cert_reqs"] == options["ssl_cert_reqs"] == "none"


def test_a_failover_under_load_costs_a_pause_and_what_redis_lost(
    sentinels: Sentinels, tmp_path: Path
) -> None:
    """Whichever way the pool's ready work is kept: both live through the same failover."""
    with ExitStack() as stack:
        worlds = []
        for kept in ("zset", "streams"):
            (tmp_path / kept).mkdir()
            whole = stack.enter_context(World(
                sentinels, tmp_path / kept, lease_s=3.0, idle_s=5.0, namespace=kept, kept=kept,
                pools="default=8x2",
            ))
            worlds.append(whole)
            whole.node("a")
        first = sentinels.master()
        with ExitStack() as loaded:
            loads = [loaded.enter_context(_load(whole)) for whole in worlds]
            for whole in worlds:
                whole.effect("ended", count=50)
            with ExitStack() as faults:
                for whole in worlds:
                    faults.enter_context(whole.fault("outage"))
                died_at = time.monotonic()
                first.kill()
                wait_until(lambda: sentinels.named() != first.port, 15, "another is the master")
            # The old one comes back, and takes itself for a master until a sentinel has seen it.
            first.start()
            for whole in worlds:
                before = len(whole.effects(phase="ended"))
                whole.effect("ended", count=before + 100, timeout=30)
        for whole, loading in zip(worlds, loads, strict=True):
            found = report(whole.settle(45), loading, died_at)
            print(f"{whole.keys.namespace}: {found}")
            assert found.violations == []
            assert found.refused == 0
            assert found.pause_s < 10


def _load(whole: World) -> AbstractContextManager[list[Load]]:
    return load(whole, lambda: whole.submit("hold", 0.03))
