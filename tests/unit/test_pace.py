"""The pace of bulk work, on a clock that its sleeps move."""

from __future__ import annotations

from skedulr.cli.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def paced(rate, items, clock, takes=0.0):
    """(when, part) of everything given out, each part taking ``takes`` seconds."""
    given = []
    for part in Pace(rate, sleep=clock.sleep, monotonic=lambda: clock.now).parts(items):
        given.append((round(clock.now - 100, 3), list(part)))
        clock.now += takes
    return given


def test_without_a_rate_all_is_given_at_once():
    assert paced(None, [1, 2, 3], Clock()) == [(0, [1, 2, 3])]


def test_a_rate_is_held_in_parts_without_bursts():
    given = paced(10, list(range(7)), Clock())
    assert given == [(0, [0, 1]), (0.2, [2, 3]), (0.4, [4, 5]), (0.6, [6])]


def test_a_slow_rate_gives_one_at_a_time():
    assert [at for at, _ in paced(0.5, [1, 2, 3], Clock())] == [0, 2, 4]


def test_time_lost_is_not_made_up_for():
    given = paced(10, list(range(6)), Clock(), takes=1)
    assert [at for at, _ in given] == [0, 1, 2]
