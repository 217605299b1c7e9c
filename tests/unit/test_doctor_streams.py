"""The doctor of a pool whose ready work is a stream: nothing is found where all is well, and what
got lost is found though no stream tells what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from servers import Server, selected

from skedulr import counts
from skedulr.doctor import Doctor
from skedulr.findings import Finding
from skedulr.keys import PoolKeys
from skedulr.store import Store
from skedulr.testing.conformance import Bench
from skedulr.testing.fake import FakeWire
from skedulr.testing.standing import Clock
from skedulr.wire import Wire

KEYS = PoolKeys("skedulr", "default")


def bench_on(wire: Wire) -> Bench:
    wire.call("HSET", "{skedulr}:pools", "default", 1)
    store = Store(KEYS, "streams")
    assert store.settle(wire, 15_000) is None
    return Bench(store, lambda ms: None, wire)


@pytest.fixture(params=["fakeredis", *selected()])
def bench(
    request: pytest.FixtureRequest, _running: Callable[[str], Server]
) -> Iterator[Bench]:
    if request.param == "fakeredis":
        yield bench_on(FakeWire(Clock()))
        return
    server = _running(request.param)
    server.flush()
    wire = Wire(server.url, name="test:doctor")
    yield bench_on(wire)
    wire.close()


def call(bench: Bench, command: str, key: str, *args: object) -> object:
    return bench.wire.call(command, KEYS.prefix + key, *args)


def doctor(bench: Bench) -> Doctor:
    assert isinstance(bench.wire, Wire)
    return Doctor(bench.wire, "skedulr", moment_s=0)


def examine(bench: Bench) -> list[Finding]:
    return doctor(bench).examine("default")


def kinds(found: list[Finding]) -> list[tuple[str, str]]:
    return sorted((one.kind, one.uid) for one in found)


def fill(bench: Bench) -> None:
    """Something in each place."""
    bench.submit("done", "run1", "run2")
    held = bench.claim(3)
    bench.finish(["done"], held.token)
    bench.submit("later", options="0 +60000 -")
    bench.submit("a", "b", "gone", "c")
    bench.cancel("gone")


def test_a_stream_with_claims_waiting_tasks_and_what_was_taken_out_is_healthy(
    bench: Bench,
) -> None:
    fill(bench)
    assert examine(bench) == []


def test_a_released_owner_leaves_a_healthy_stream(bench: Bench) -> None:
    fill(bench)
    bench.storage.release_owner(bench.wire, "o1")
    assert examine(bench) == []
    assert sorted(bench.claim(owner="o2").uids) == ["a", "b", "c", "run1", "run2"]


def test_a_task_whose_entry_is_gone_is_found_and_queued_again(bench: Bench) -> None:
    fill(bench)
    entries = call(bench, "XREVRANGE", "stream", "+", "-", "COUNT", 1)
    assert isinstance(entries, list)
    call(bench, "XDEL", "stream", entries[0][0])
    found = examine(bench)
    assert kinds(found) == [("in-no-place", "c")]
    assert kinds(doctor(bench).mend(found)) == [("in-no-place", "c")]
    assert examine(bench) == []
    assert bench.claim(owner="o2").uids == ["a", "b", "c"]


def test_an_entry_without_a_body_is_shown_and_goes_with_a_claim(bench: Bench) -> None:
    fill(bench)
    call(bench, "HDEL", "tasks", "b")
    found = examine(bench)
    assert [(one.kind, one.uid, one.fixable) for one in found] == [
        ("queued-without-body", "b", False)
    ]
    assert bench.claim(owner="o2").uids == ["a", "c"]
    assert kinds(examine(bench)) == [("set-aside", "b")]


def test_a_claim_whose_entry_is_pending_no_more_gets_a_lease_again(bench: Bench) -> None:
    fill(bench)
    standing = bench.storage.standing(bench.wire, b"run1")
    assert standing is not None
    claim = call(bench, "HGET", "claims", "run1")
    assert isinstance(claim, bytes)
    call(bench, "XACK", "stream", "workers", claim.split()[1] + b"-0")
    found = examine(bench)
    assert kinds(found) == [("running-without-lease", "run1")]
    doctor(bench).mend(found)
    assert examine(bench) == []


def test_what_waits_in_a_stream_is_counted_without_what_was_taken_out(bench: Bench) -> None:
    fill(bench)
    assert isinstance(bench.wire, Wire)
    [pool] = counts.look(bench.wire, "skedulr").pools
    assert (pool["queued"], pool["running"], pool["scheduled"]) == (3, 2, 1)
    assert pool["oldest_age"] is not None
    bench.storage.purge(bench.wire, ["a", "b", "c"], ended=False)
    [pool] = counts.look(bench.wire, "skedulr").pools
    assert (pool["queued"], pool["oldest_age"]) == (0, None)
