"""Every storage of ours passes the suite that others are given."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from servers import Server

from skedulr.keys import PoolKeys
from skedulr.store import Store
from skedulr.testing.conformance import LEASE_MS, Bench, StorageContract
from skedulr.testing.fake import FakeWire
from skedulr.testing.standing import Clock
from skedulr.wire import Wire

KEYS = PoolKeys("conformance", "default")


def on_fakeredis(transport: str) -> Bench:
    """A store on a fake server whose clock the tests move."""
    clock = Clock()
    wire = FakeWire(clock)
    store = Store(KEYS, transport)
    assert store.settle(wire, LEASE_MS) is None

    def pass_ms(ms: int) -> None:
        clock.forward(ms / 1000)
        # How long an entry of a stream has been pending it measures by the real clock.
        if transport == "streams":
            time.sleep(ms / 1000)

    return Bench(store, pass_ms, wire)


def on_server(server: Server, transport: str) -> Iterator[Bench]:
    """A store on a real one, empty."""
    server.flush()
    wire = Wire(server.url, name="conformance")
    store = Store(KEYS, transport)
    assert store.settle(wire, LEASE_MS) is None
    # What passes here is time itself: these tests are about what becomes of a task in it.
    yield Bench(store, lambda ms: time.sleep(ms / 1000), wire)
    wire.close()


class TestSortedSetsOnRedis(StorageContract):
    @pytest.fixture
    def bench(self, server: Server) -> Iterator[Bench]:
        yield from on_server(server, "zset")


class TestStreamsOnRedis(StorageContract):
    @pytest.fixture
    def bench(self, server: Server) -> Iterator[Bench]:
        yield from on_server(server, "streams")


class TestSortedSetsOnFakeredis(StorageContract):
    @pytest.fixture
    def bench(self) -> Bench:
        return on_fakeredis("zset")


class TestStreamsOnFakeredis(StorageContract):
    @pytest.fixture
    def bench(self) -> Bench:
        return on_fakeredis("streams")
