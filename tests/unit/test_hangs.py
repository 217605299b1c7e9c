"""The hang watch, driven by hand: who is renewed for, who is killed, and when nobody is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from skedulr.config import PoolSpec
from skedulr.pools.board import Board
from skedulr.pools.children import Process, Slot
from skedulr.pools.hangs import HangWatch


class Watched:
    """A child that is only a board, and what was done to it."""

    def __init__(self, ready: bool = True) -> None:
        self.sent: list[int] = []
        self.renewed: list[float] = []
        self.now = 1000.0
        self.process: Any = Process(
            Slot(0, PoolSpec("default", 4, 4), 4), "n.0.1", Board(4), dump=-1, started_at=self.now
        )
        # A process of nobody's: signals are only written down.
        self.process = _Recording(self.process, self.sent)
        board = self.process.board
        board.ready, board.hub_beat, board.heart_beat = float(ready), self.now, self.now
        self.watch = HangWatch(
            timeout_s=10, lease_s=6, now=self.now,
            renew=lambda process: self.renewed.append(self.now),
        )

    def pass_time(self, seconds: float, *, hub: bool = True, heart: bool = True) -> None:
        """Half a second after the other; those that live beat."""
        for _ in range(round(seconds * 2)):
            self.now += 0.5
            if hub:
                self.process.board.hub_beat = self.now
            if heart:
                self.process.board.heart_beat = self.now
            self.watch.look([self.process], self.now)


class _Recording:
    def __init__(self, process: Process, sent: list[int]) -> None:
        object.__setattr__(self, "_process", process)
        object.__setattr__(self, "_sent", sent)

    def send(self, number: int) -> None:
        self._sent.append(number)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_process"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._process, name, value)


@pytest.fixture
def child() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.process.board.close()


def test_a_child_that_beats_is_left_alone(child: Watched) -> None:
    child.pass_time(60)
    assert (child.sent, child.renewed) == ([], [])


def test_a_hub_that_is_silent_for_longer_than_the_limit_gets_abort_then_kill(
    child: Watched,
) -> None:
    child.pass_time(10, hub=False)
    assert child.sent == []
    child.pass_time(0.5, hub=False)
    assert child.sent == [signal.SIGABRT]
    child.pass_time(2, hub=False)
    assert child.sent == [signal.SIGABRT]
    child.pass_time(0.5, hub=False)
    assert child.sent == [signal.SIGABRT, signal.SIGKILL]


def test_a_child_told_to_abort_is_killed_though_its_hub_comes_back(child: Watched) -> None:
    child.pass_time(10.5, hub=False)
    child.pass_time(3)
    assert child.sent[0] == signal.SIGABRT and child.sent[-1] == signal.SIGKILL


def test_a_hub_that_comes_back_in_time_starts_anew(child: Watched) -> None:
    child.pass_time(9.5, hub=False)
    child.pass_time(1)
    child.pass_time(9.5, hub=False)
    assert child.sent == []


def test_a_silent_heart_is_renewed_for_three_times_a_lease(child: Watched) -> None:
    child.pass_time(1, heart=False)
    assert child.renewed == []
    child.pass_time(6, heart=False)
    assert len(child.renewed) == 3
    child.pass_time(5)
    assert len(child.renewed) == 3
    assert child.sent == []


def test_a_child_that_boots_is_neither_killed_nor_renewed_for(caplog: Any) -> None:
    child = Watched(ready=False)
    child.pass_time(100, hub=False, heart=False)
    assert (child.sent, child.renewed) == ([], [])
    assert caplog.text.count("is not ready after 30 s") == 1
    child.process.board.close()


def test_after_a_pause_of_the_master_itself_children_get_time_to_beat(child: Watched) -> None:
    child.now += 3600
    child.pass_time(3, hub=False, heart=False)
    assert child.sent == []
    child.pass_time(0.5, hub=False, heart=False)
    assert child.sent == [signal.SIGABRT], "but no more than that"


def test_under_a_short_limit_a_shorter_pause_of_the_master_counts(child: Watched) -> None:
    """A machine that has too much to do holds up the children as well as their master."""
    child.watch = HangWatch(timeout_s=1, lease_s=6, now=child.now, renew=lambda process: None)
    child.now += 1.2
    child.pass_time(1, hub=False)
    assert child.sent == []
    child.pass_time(0.5, hub=False)
    assert child.sent == [signal.SIGABRT]
