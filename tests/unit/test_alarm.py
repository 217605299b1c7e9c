"""The alarm: one entry for the next due time, whatever it is set to meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hand_clock import HandClock, turns

from skedulr.hub.alarm import Alarm
from skedulr.hub.driver import Driver


@pytest.fixture
def clock() -> Iterator[HandClock]:
    """At 5,000 ms, with a driver that is started."""
    clock = HandClock()
    clock.driver = Driver(monotonic_ms=clock)
    clock.driver.start()
    turns()
    yield clock
    clock.driver.stop()


@pytest.fixture
def rang() -> list[int]:
    return []


@pytest.fixture
def alarm(clock: HandClock, rang: list[int]) -> Alarm:
    return Alarm(clock.driver, lambda: rang.append(clock.now_ms), inline=True)


def test_rings_once_at_the_earliest_time_it_was_set_to(clock, alarm, rang):
    for due_ms in (8_000, 7_000, 7_500):
        alarm.set(due_ms)
    assert clock.driver.pending == 1
    clock.move(1_990)
    assert rang == []
    clock.move(20)
    clock.move(5_000)
    assert rang == [7_010]


def test_can_be_set_again_while_it_rings(clock, rang):
    def ring() -> None:
        rang.append(clock.now_ms)
        alarm.set_in(1)

    alarm = Alarm(clock.driver, ring, inline=True)
    alarm.set_in(1)
    clock.move(1_010)
    clock.move(1_020)
    assert rang == [6_010, 7_030]


def test_a_time_beyond_the_horizon_is_rung_for_early(clock, alarm, rang):
    alarm.set(10_000_000)
    clock.move(60_010)
    assert rang == [65_010]


def test_a_cancelled_alarm_is_silent_and_may_be_cancelled_twice(clock, alarm, rang):
    alarm.set(7_000)
    alarm.cancel()
    alarm.cancel()
    clock.move(9_000)
    assert rang == []
    assert clock.driver.pending == 0
