"""When the heart asks the hub for a sign of life, and when it takes it for silent."""

from types import SimpleNamespace
from typing import Any

import pytest

from skedulr.pools.board import Board
from skedulr.pools.heart import Heart
from skedulr.pools.holdings import Holdings


class Body:
    """A heart without its thread, on a clock that is moved by hand."""

    def __init__(self, lease_s: float = 15.0, hang_timeout_s: float = 60.0) -> None:
        self.board, self.holdings = Board(1), Holdings(lease_s)
        self.asked = 0
        nothing: Any = None
        executor: Any = SimpleNamespace(holdings=self.holdings)
        wire: Any = SimpleNamespace(timeout_s=5.0)
        self.heart = Heart(
            store=nothing, wire=wire, owner="node.1.1",
            executor=executor, board=self.board, lease_s=lease_s, hang_timeout_s=hang_timeout_s,
            on_word=nothing, on_gone=nothing, log=nothing,
        )
        self.heart._async = SimpleNamespace(send=self._ask)

    def _ask(self) -> None:
        self.asked += 1

    def look(self, now: float) -> tuple[bool, int]:
        """Whether the hub is silent, and how often it was asked by now."""
        return self.heart._is_silent(now), self.asked

    def pause_s(self) -> float:
        """Until the next look."""
        return 0.25 if self.heart._is_needed() else self.heart._idle_s


@pytest.fixture
def body() -> Body:
    return Body()


def test_hub_that_gives_signs_by_itself_is_not_woken(body: Body) -> None:
    for second in range(100, 160):
        body.board.hub_beat = second + 0.01
        assert body.look(second + 1.0) == (False, 0)
        assert body.pause_s() == 1.0


def test_hub_that_gave_none_for_over_a_second_is_asked_first(body: Body) -> None:
    body.board.hub_beat = 100.0
    assert body.look(101.2) == (False, 0)
    assert body.look(102.2) == (False, 1)
    assert body.pause_s() == 0.25
    assert body.look(102.45) == (True, 2)
    body.board.hub_beat = 102.5
    assert body.look(102.7) == (False, 2)
    assert body.pause_s() == 1.0


def test_while_something_is_held_the_hub_is_asked_at_each_look(body: Body) -> None:
    body.holdings.held[b"a"] = b"node.1.1:1"
    body.board.hub_beat = 100.0
    for n in range(5):
        assert body.look(100.25 + n / 4) == (n == 4, n + 1)
        assert body.pause_s() == 0.25


def test_silence_counts_from_when_a_task_was_taken_in_not_from_the_beat_before(body: Body) -> None:
    body.board.hub_beat = 100.0
    body.holdings.held[b"a"] = b"node.1.1:1"
    body.board.hub_beat = 100.9
    assert [body.look(now)[0] for now in (101.0, 101.25, 101.5, 101.75, 102.0)] == [
        False, False, False, False, True,
    ]


@pytest.mark.parametrize("lease_s, hang_timeout_s, pause_s", [
    (15, 60, 1.0), (6, 60, 0.5), (1, 60, 0.25), (15, 4, 0.5), (15, 1, 0.25),
])
def test_short_leases_and_limits_are_looked_after_more_often(
    lease_s: float, hang_timeout_s: float, pause_s: float
) -> None:
    assert Body(lease_s, hang_timeout_s).pause_s() == pause_s
