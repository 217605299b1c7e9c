"""A few connections shared by many: turns, bounds, and what comes back broken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from proxy import Proxy
from servers import Server, wait_until

from skedulr.wire import NotAnswered
from skedulr.wires import SharedWire, Wires


@pytest.fixture
def wires(one_server: Server) -> Iterator[Wires]:
    made = Wires(one_server.url, name="test:wires", size=2, timeout_s=2)
    yield made
    made.close()


def connections(server: Server, name: str = "test:wires") -> int:
    return sum(1 for one in server.client.client_list() if one["name"] == name)


def test_making_them_connects_nothing(one_server: Server, wires: Wires) -> None:
    assert connections(one_server) == 0


def test_many_callers_share_the_few_there_are(one_server: Server, wires: Wires) -> None:
    most: list[int] = []

    def use() -> None:
        for _ in range(20):
            with wires.lend() as wire:
                most.append(connections(one_server))
                assert wire.call("ECHO", "x") == b"x"

    threads = [threading.Thread(target=use) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 2


def test_one_after_the_other_use_the_same_connection(one_server: Server, wires: Wires) -> None:
    for _ in range(5):
        with wires.lend() as wire:
            wire.call("PING")
    assert connections(one_server) == 1


def test_when_all_are_busy_the_wait_is_bounded(wires: Wires) -> None:
    with wires.lend(), wires.lend():
        with pytest.raises(NotAnswered, match="are busy") as caught, wires.lend(0.05):
            raise AssertionError("a third one")
        assert caught.value.sent is False
    with wires.lend(0.05) as wire:
        assert wire.call("PING") == b"PONG"


def test_an_error_in_the_block_gives_the_connection_back(wires: Wires) -> None:
    for _ in range(5):
        with pytest.raises(KeyError), wires.lend():
            raise KeyError
    with wires.lend(0.05), wires.lend(0.05):
        pass


def test_a_broken_one_is_made_anew_by_the_next_caller(one_server: Server, wires: Wires) -> None:
    with wires.lend() as wire:
        wire.call("PING")
    one_server.client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(NotAnswered), wires.lend() as wire:
        wire.call("PING")
    with wires.lend() as wire:
        assert wire.call("PING") == b"PONG"


def test_a_bound_holds_for_connecting_and_for_the_answer(one_server: Server) -> None:
    with Proxy(one_server.url) as proxy:
        wires = Wires(proxy.url, name="test", timeout_s=60)
        proxy.set("stall")
        began = time.monotonic()
        with pytest.raises(NotAnswered), wires.lend(0.2):
            raise AssertionError("it connected")
        proxy.set("pass")
        with wires.lend() as wire:
            wire.call("PING")
        proxy.set("stall")
        with pytest.raises(NotAnswered), wires.lend(0.2) as wire:
            wire.call("PING")
        # Not a measurement: it would be a minute otherwise.
        assert time.monotonic() - began < 30
        proxy.set("pass")
        with wires.lend() as wire:
            assert wire.timeout_s == 60


def test_closing_leaves_none_open(one_server: Server, wires: Wires) -> None:
    with wires.lend() as wire:
        wire.call("PING")
    wires.close()
    wires.close()
    wait_until(lambda: connections(one_server) == 0)


def test_a_shared_wire_lets_one_after_the_other_talk(one_server: Server) -> None:
    wire = SharedWire(one_server.url, name="test:shared")
    wrong: list[object] = []

    def talk(text: str) -> None:
        for _ in range(200):
            if wire.call("ECHO", text) != text.encode():
                wrong.append(text)
            if wire.calls([("ECHO", text), ("PING",)]) != [text.encode(), b"PONG"]:
                wrong.append(text)

    threads = [threading.Thread(target=talk, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert connections(one_server, "test:shared") == 1
    wire.close()
