"""The clock: monotonic here, Redis time by an anchor, the wall clock nowhere once anchored."""

from __future__ import annotations

import time

import pytest

from skedulr.clock import DRIFT_MS, Clock

REDIS_MS = 1_785_600_000_000


class Hands:
    """A monotonic clock that a test moves."""

    def __init__(self, seconds: float = 100.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def clock(hands: Hands) -> Clock:
    made = Clock(hands)
    made.anchor(REDIS_MS)
    return made


def test_redis_time_goes_on_from_the_anchor(clock: Clock, hands: Hands) -> None:
    hands.seconds += 2.5
    assert clock.redis_ms() == REDIS_MS + 2500


def test_a_redis_time_has_its_monotonic_one(clock: Clock, hands: Hands) -> None:
    hands.seconds += 1
    assert clock.to_monotonic(REDIS_MS + 5000) == 105_000
    assert clock.to_monotonic(clock.redis_ms()) == clock.monotonic_ms()


def test_an_answer_that_travelled_longer_does_not_move_the_anchor(
    clock: Clock, hands: Hands
) -> None:
    hands.seconds += 1
    clock.anchor(REDIS_MS + 1000 - DRIFT_MS)
    assert clock.redis_ms() == REDIS_MS + 1000


def test_an_answer_that_travelled_less_moves_it_forward(clock: Clock, hands: Hands) -> None:
    hands.seconds += 1
    clock.anchor(REDIS_MS + 1010)
    assert clock.redis_ms() == REDIS_MS + 1010


@pytest.mark.parametrize("step_ms", [-3_600_000, -DRIFT_MS - 1, 3_600_000])
def test_a_server_clock_that_was_set_is_followed(
    clock: Clock, hands: Hands, step_ms: int
) -> None:
    hands.seconds += 1
    clock.anchor(REDIS_MS + 1000 + step_ms)
    assert clock.redis_ms() == REDIS_MS + 1000 + step_ms


def test_before_the_first_anchor_it_is_this_machine_s_time(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 12.5)
    assert Clock(hands).redis_ms() == 12_500


def test_once_anchored_setting_the_wall_clock_changes_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock.redis_ms() == REDIS_MS
