"""A server that answers, and refuses: READONLY, LOADING, BUSY, OOM; and one that forgets all.

Each lasts longer than a lease, with tasks that run through it and end in the middle of it. None of
it is a task's failure: no attempt is burned, nothing runs twice, no process ends, and nobody has to
help afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis
from servers import Server
from world import World

pytestmark = pytest.mark.server

LEASE_S = 1.5


@contextmanager
def read_only(server: Server) -> Iterator[None]:
    """As after a failover: the primary is a replica now, and its primary is not there."""
    server.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    yield
    server.client.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def full(server: Server) -> Iterator[None]:
    server.fill()
    yield
    server.client.config_set("maxmemory", "0")


@contextmanager
def busy(server: Server) -> Iterator[None]:
    """A script of somebody else that does not end."""
    server.client.config_set("busy-reply-threshold", "100")
    spinning = redis.Redis.from_url(server.url)

    def spin() -> None:
        with pytest.raises(redis.RedisError):
            spinning.eval("while true do end", 0)

    thread = threading.Thread(target=spin)
    thread.start()
    yield
    server.client.execute_command("SCRIPT", "KILL")
    thread.join()
    spinning.close()


@contextmanager
def loading(server: Server) -> Iterator[None]:
    """It is restarted, and reads its file slowly."""
    server.client.save()
    keys = server.client.dbsize()
    server.options["key-load-delay"] = str(round(1.5 * LEASE_S / keys * 1_000_000))
    server.options["loading-process-events-interval-bytes"] = "1024"
    server.kill()
    yield
    # Returns when all is read. (Not from a thread: a server ends with the thread that made it.)
    server.start()


@pytest.mark.parametrize("refuses", [read_only, full, busy, loading])
def test_a_server_that_refuses_for_longer_than_a_lease_costs_nothing(
    world: Callable[..., World], fresh_server: Callable[..., Server],
    refuses: Callable[[Server], Iterator[None]],
) -> None:
    server = fresh_server("redis", enable_debug_command="yes")
    with world(server=server, lease_s=LEASE_S) as whole:
        node = whole.node("node", pools="default=3")
        child = node.child()
        for _ in range(2):
            whole.submit("gate", "open")
        whole.effect("began", count=2)
        whole.submit("flaky", 1)
        waiting = [whole.submit("hold", 0.5) for _ in range(3)]
        whole.effect("began", waiting[0])
        with whole.fault("outage"), refuses(server):
            # The one thing waited for by the clock: it has to last longer than the lease.
            time.sleep(0.5 * LEASE_S)
            (node.folder / "open").touch()
            time.sleep(LEASE_S)
        history = whole.settle()
        attempts = {
            one.uid: whole.app().get(f"default/{one.uid}").info()["attempt"]
            for one in history.submitted
        }
        assert node.child() == child
    assert [str(one) for one in history.verdict()] == []
    assert {uid for uid, attempt in attempts.items() if attempt != 1} == {"flaky-3"}


def test_after_a_flush_nodes_go_on_with_what_is_submitted_then(
    world: Callable[..., World], one_server: Server
) -> None:
    """What Redis lost is lost; a run without its claim is interrupted."""
    with world(lease_s=LEASE_S) as whole:
        node = whole.node("node")
        child = node.child()
        forgotten = whole.submit("gate", "open")
        whole.submit("plain", delay=60)
        whole.effect("began", forgotten)
        one_server.client.flushall()
        whole.history.submitted.clear()
        whole.submit("flaky", 1)
        whole.submit("plain", delay=0.5)
        whole.effect("interrupted", forgotten)
        history = whole.settle()
        assert not whole.ended(forgotten)
        assert node.child() == child
    assert [str(one) for one in history.verdict() if one.uid != forgotten] == []


def test_a_failover_that_loses_writes_repeats_or_loses_those_and_no_others(
    world: Callable[..., World], fresh_server: Callable[..., Server]
) -> None:
    """The server comes back with what it had a while ago: claims and outcomes since are unknown to
    it. Numbered calls go on, and what it had runs to an end."""
    server = fresh_server("redis")
    with world(server=server, lease_s=LEASE_S) as whole:
        node = whole.node("node", pools="default=2")
        first = [whole.submit("plain") for _ in range(10)]
        whole.effect("ended", count=10)
        held = [whole.submit("gate", "open") for _ in range(2)]
        queued = [whole.submit("plain") for _ in range(5)]
        whole.effect("began", count=12)
        server.client.save()
        (node.folder / "open").touch()
        whole.effect("ended", queued[-1])
        lost = whole.submit("plain")
        whole.effect("ended", lost)
        server.kill()
        server.start()
        for _ in range(3):
            whole.submit("flaky", 1)
        history = whole.settle()
    rules = {one.uid: one.rule for one in history.verdict()}
    assert set(rules.values()) <= {"lost", "doubled"}
    assert {uid for uid, rule in rules.items() if rule == "lost"} <= {lost}
    assert not {uid for uid, rule in rules.items() if rule == "doubled"} - {*held, *queued}
    assert not set(rules) & set(first)
