"""The alarm: one entry for the next due time, whatever it is set to meanwhile."""

from __future__ import annotations

import gevent
import pytest

from skedulr.hub.alarm import Alarm
from skedulr.hub.driver import Driver


class World:
    """A driver on a clock that the test moves, and an alarm that notes when it rang."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.rang: list[int] = []
        self.driver = Driver(monotonic_ms=lambda: self.now_ms)
        self.driver.start()
        self.alarm = Alarm(self.driver, lambda: self.rang.append(self.now_ms), inline=True)

    def advance_to(self, now_ms: int) -> None:
        """To that time; back when the driver has fired what is due and sleeps again."""
        self.now_ms = now_ms
        seen = self.driver.wakeups
        self.driver.wake()
        while self.driver.wakeups == seen:
            gevent.sleep(0)
        gevent.idle()


@pytest.fixture
def world():
    made = World()
    yield made
    made.driver.stop()


def test_rings_once_at_the_earliest_time_it_was_set_to(world):
    world.alarm.set(3_000)
    world.alarm.set(2_000)
    world.alarm.set(2_500)
    assert world.driver.pending == 1
    world.advance_to(1_990)
    assert world.rang == []
    world.advance_to(2_020)
    world.advance_to(4_000)
    assert world.rang == [2_020]


def test_can_be_set_again_after_it_rang_and_while_it_rings(world):
    again = Alarm(world.driver, lambda: again.set_in(1) or world.rang.append(world.now_ms),
                  inline=True)
    again.set_in(1)
    world.advance_to(2_010)
    world.advance_to(3_030)
    assert world.rang == [2_010, 3_030]


def test_a_time_beyond_the_horizon_is_rung_for_early(world):
    world.alarm.set(10_000_000)
    world.advance_to(61_100)
    assert world.rang == [61_100]


def test_a_cancelled_alarm_is_silent_and_may_be_cancelled_twice(world):
    world.alarm.set(2_000)
    world.alarm.cancel()
    world.alarm.cancel()
    world.advance_to(5_000)
    assert world.rang == []
    assert world.driver.pending == 0
