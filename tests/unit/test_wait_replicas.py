"""Submits that count once replicas have them: WAIT behind each call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from servers import Server, selected, wait_until

from skedulr.app import Skedulr
from skedulr.errors import StorageUnavailable

pytestmark = pytest.mark.server

BODY = "{skedulr:default}:tasks"


class Pair:
    """A master and its replica."""

    def __init__(self, name: str) -> None:
        self.master, self.replica = (
            Server(name, tcp=True, repl_diskless_sync_delay="0").start() for _ in range(2)
        )
        self.replica.client.execute_command("REPLICAOF", "127.0.0.1", self.master.port)
        wait_until(lambda: self.replica.client.execute_command("ROLE")[3] == b"connected")

    def app(self, **settings: object) -> Skedulr:
        return Skedulr(url=self.master.url, **{"wait_replicas": 1, **settings})

    def close(self) -> None:
        self.replica.thaw()
        self.replica.close()
        self.master.close()


@pytest.fixture(scope="module", params=selected())
def shared(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(request.param)
    yield made
    made.close()


@pytest.fixture
def pair(shared: Pair) -> Iterator[Pair]:
    shared.master.client.flushall()
    yield shared
    shared.replica.thaw()


def test_what_was_submitted_is_at_the_replica(pair: Pair) -> None:
    app = pair.app()
    for number in range(20):
        app.submit("work", number)
        assert pair.replica.client.hlen(BODY) == number + 1
    app.close()


def test_a_replica_that_is_not_reached_in_time_fails_the_submit_which_is_stored(
    pair: Pair,
) -> None:
    app = pair.app(submit_timeout=0.6)
    app.submit("work")
    pair.replica.freeze()
    began = time.monotonic()
    with pytest.raises(StorageUnavailable, match="stored, and at 0 of 1 replicas") as caught:
        app.submit("work")
    assert caught.value.maybe_submitted
    assert time.monotonic() - began < 3
    assert pair.master.client.hlen(BODY) == 2
    app.close()


def test_a_repeated_submit_on_a_new_connection_is_not_taken_for_replicated(pair: Pair) -> None:
    pair.replica.freeze()
    for _ in range(2):
        app = pair.app(submit_timeout=0.5)
        with pytest.raises(StorageUnavailable):
            app.submit(app.remote("work", id="one").bind())
        app.close()
    pair.replica.thaw()
    app = pair.app()
    app.submit(app.remote("work", id="one").bind())
    assert pair.replica.client.hlen(BODY) == 1
    app.close()


def test_a_replica_that_comes_back_in_time_is_waited_for(pair: Pair) -> None:
    app = pair.app(submit_timeout=5)
    pair.replica.freeze()
    threading.Timer(0.3, pair.replica.thaw).start()
    app.submit("work")
    assert pair.replica.client.hlen(BODY) == 1
    app.close()


def test_many_submits_share_the_wait(pair: Pair) -> None:
    app = pair.app()
    waits = _waits(pair.master)
    handles = app.submit_many(app.remote("work").bind(number) for number in range(1200))
    assert len(handles) == pair.replica.client.hlen(BODY) == 1200
    assert _waits(pair.master) - waits <= 5
    app.close()


def test_more_replicas_than_there_are_fail_every_submit(pair: Pair) -> None:
    app = pair.app(wait_replicas=2, submit_timeout=0.3)
    with pytest.raises(StorageUnavailable, match="at 1 of 2 replicas"):
        app.submit("work")
    app.close()


def test_without_the_wish_nobody_waits(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = _waits(pair.master)
    app = Skedulr(url=pair.master.url)
    app.submit("work")
    app.close()
    assert _waits(pair.master) == waits
    monkeypatch.setenv("SKEDULR_WAIT_REPLICAS", "1")
    app = Skedulr(url=pair.master.url)
    app.submit("work")
    app.close()
    assert _waits(pair.master) == waits + 1


def _waits(server: Server) -> int:
    stats: Callable[[str], dict[str, dict[str, int]]] = server.client.info
    return stats("commandstats").get("cmdstat_wait", {"calls": 0})["calls"]
