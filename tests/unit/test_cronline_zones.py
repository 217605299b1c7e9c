"""Cron lines across clock changes, judged by an independent walk, minute by minute.

A sample of the changes of every IANA zone in ten years is walked here. All of them:
``TEST_ZONES=all pytest tests/unit/test_cronline_zones.py`` (some minutes).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from skedulr.cronline import CronLine

FIRST, LAST = datetime(2025, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
SAMPLE = None if os.environ.get("TEST_ZONES") == "all" else 60

MINUTE = timedelta(minutes=1)
Matches = Callable[[datetime], bool]
#: A line, when it matches a time on the clock's face, and whether it keeps its real pace.
LINES: list[tuple[str, Matches, bool]] = [
    ("* * * * *", lambda t: True, True),
    ("*/10 * * * *", lambda t: t.minute % 10 == 0, True),
    ("0 * * * *", lambda t: t.minute == 0, True),
    ("45 0-23 * * *", lambda t: t.minute == 45, True),
    ("*/30 * * * sun", lambda t: t.minute % 30 == 0 and t.isoweekday() == 7, True),
    ("30 2 * * *", lambda t: (t.hour, t.minute) == (2, 30), False),
    ("0 0 * * *", lambda t: (t.hour, t.minute) == (0, 0), False),
    ("15 0,1,2,3 * * *", lambda t: t.hour < 4 and t.minute == 15, False),
    ("*/20 1-3 * * *", lambda t: 1 <= t.hour <= 3 and t.minute % 20 == 0, False),
    ("0 */2 * * *", lambda t: t.hour % 2 == 0 and t.minute == 0, False),
    ("59 23 l * *", lambda t: (t + MINUTE).day == 1 and (t.hour, t.minute) == (23, 59), False),
]


def offset(info: ZoneInfo, instant: datetime) -> timedelta:
    return instant.astimezone(info).utcoffset() or timedelta()


def changes(zone: str, first: datetime = FIRST, last: datetime = LAST) -> Iterator[datetime]:
    """The clock changes of a zone, found day by day and then by halving."""
    info, day = ZoneInfo(zone), first
    while day < last:
        low, high = day, day + timedelta(1)
        if offset(info, low) != offset(info, high):
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                middle = middle.replace(microsecond=0)
                if offset(info, middle) == offset(info, low):
                    low = middle
                else:
                    high = middle
            yield high
        day += timedelta(1)


def walk(
    zone: str, matches: Matches, keeps_pace: bool, first: datetime, last: datetime
) -> list[datetime]:
    """The ticks after ``first`` up to ``last``, by looking at each minute."""
    info = ZoneInfo(zone)
    instants, faces = [], []
    instant = first
    while instant <= last:
        instants.append(instant)
        faces.append(instant.astimezone(info).replace(tzinfo=None, fold=0))
        instant += MINUTE
    if keeps_pace:
        return [t for t, face in zip(instants[1:], faces[1:], strict=True) if matches(face)]
    ticks: set[datetime] = set()
    shown: set[datetime] = {faces[0]}
    for at in range(1, len(instants)):
        # The times the clock should have shown since the minute before, and this one if it is new.
        due = []
        face = faces[at - 1] + MINUTE
        while face <= faces[at]:
            due.append(face)
            face += MINUTE
        if any(matches(face) for face in due if face not in shown):
            ticks.add(instants[at])
        shown.update(due)
    return sorted(ticks)


def ours(text: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    line, found = CronLine.parse(text), []
    at = line.next_after(first.timestamp(), zone)
    while at is not None and at <= last.timestamp():
        found.append(datetime.fromtimestamp(at, UTC))
        following = line.next_after(at, zone)
        assert following is None or following > at
        at = following
    return found


def cases() -> list[tuple[str, datetime]]:
    """Clock changes to walk: of every zone one at random, of which a sample; or all of them."""
    zones = sorted(available_timezones() - {"localtime"})
    dice = random.Random(20261130)
    if SAMPLE is None:
        seen, every = set(), []
        for zone in zones:
            key = tuple((c, offset(ZoneInfo(zone), c)) for c in changes(zone))
            if key not in seen:
                seen.add(key)
                every += [(zone, change) for change, _ in key]
        return every
    dice.shuffle(zones)
    found = []
    for zone in zones:
        year = dice.randrange(FIRST.year, LAST.year)
        start = datetime(year, 1, 1, tzinfo=UTC)
        of_zone = list(changes(zone, start, start.replace(year=year + 1)))
        if of_zone:
            found.append((zone, dice.choice(of_zone)))
        if len(found) == SAMPLE:
            break
    return found


def check(zone: str, change: datetime, span: timedelta = timedelta(hours=5)) -> None:
    change = change.replace(second=0, microsecond=0)
    first, last = change - span, change + span
    for text, matches, keeps_pace in LINES:
        expected = walk(zone, matches, keeps_pace, first, last)
        assert ours(text, zone, first, last) == expected, (text, zone, change)
        # From any point in between the series is the same.
        for base in (change - timedelta(seconds=1), change, change + timedelta(minutes=61.5)):
            assert ours(text, zone, base, last) == [t for t in expected if t > base], (text, zone)


def test_every_change_agrees_with_a_walk_minute_by_minute() -> None:
    for zone, change in cases():
        check(zone, change)


@pytest.mark.parametrize(("zone", "day"), [
    ("Australia/Lord_Howe", "2026-10-03"), ("Australia/Lord_Howe", "2027-04-03"),
    ("Africa/Casablanca", "2026-02-15"), ("Africa/Casablanca", "2026-03-22"),
    ("America/Havana", "2026-11-01"), ("America/Havana", "2027-03-14"),
    ("Asia/Beirut", "2026-03-29"), ("Africa/Cairo", "2026-04-24"), ("Africa/Cairo", "2026-10-29"),
    ("America/Sao_Paulo", "2018-11-04"), ("Pacific/Chatham", "2026-09-26"),
    ("America/Santiago", "2026-09-06"), ("Asia/Kathmandu", "1985-12-31"),
    ("Asia/Pyongyang", "2015-08-14"), ("America/Caracas", "2016-05-01"),
    ("America/St_Johns", "1988-04-03"), ("Antarctica/Troll", "2026-03-29"),
    ("Europe/London", "1968-10-27"), ("Asia/Gaza", "2026-03-28"),
])
def test_odd_zones_agree_with_the_walk(zone: str, day: str) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(1)
    for change in changes(zone, start, start + timedelta(3)):
        check(zone, change)


@pytest.mark.parametrize(("zone", "day"), [
    ("Pacific/Apia", "2011-12-30"), ("Pacific/Kwajalein", "1993-08-21"),
])
def test_a_day_that_was_skipped_agrees_with_the_walk(zone: str, day: str) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(1)
    for change in changes(zone, start, start + timedelta(3)):
        check(zone, change, timedelta(hours=30))


def local(text: str, after: str, zone: str, count: int) -> list[str]:
    info, line = ZoneInfo(zone), CronLine.parse(text)
    at: float | None = datetime.fromisoformat(after).timestamp()
    found = []
    for _ in range(count):
        at = line.next_after(at, zone)
        assert at is not None
        found.append(datetime.fromtimestamp(at, info).strftime("%d %H:%M%z"))
    return found


def test_a_time_in_a_gap_ticks_once_at_the_first_instant_after_it() -> None:
    assert local("30 2 * * *", "2026-03-28T12:00+01:00", "Europe/Paris", 2) == [
        "29 03:00+0200", "30 02:30+0200"
    ]
    assert local("*/10 2 * * *", "2026-03-28T12:00+01:00", "Europe/Paris", 2) == [
        "29 03:00+0200", "30 02:00+0200"
    ]
    assert local("0 2,3 * * *", "2026-03-28T12:00+01:00", "Europe/Paris", 2) == [
        "29 03:00+0200", "30 02:00+0200"
    ]


def test_a_time_that_comes_twice_ticks_the_first_time() -> None:
    assert local("30 2 * * *", "2026-10-24T12:00+02:00", "Europe/Paris", 2) == [
        "25 02:30+0200", "26 02:30+0100"
    ]
    # Also when one asks between the two.
    assert local("30 2 * * *", "2026-10-25T02:15+01:00", "Europe/Paris", 1) == ["26 02:30+0100"]


def test_a_line_for_every_hour_keeps_its_real_pace() -> None:
    assert local("*/30 * * * *", "2026-03-29T01:00+01:00", "Europe/Paris", 3) == [
        "29 01:30+0100", "29 03:00+0200", "29 03:30+0200"
    ]
    assert local("0 * * * *", "2026-10-25T01:30+02:00", "Europe/Paris", 3) == [
        "25 02:00+0200", "25 02:00+0100", "25 03:00+0100"
    ]


def test_lord_howe_ticks_every_hour_its_clock_shows() -> None:
    """Half an hour is skipped: 02:00 does not come. The pinned answer is the next full hour."""
    assert local("0 * * * *", "2026-10-04T01:43+10:30", "Australia/Lord_Howe", 2) == [
        "04 03:00+1100", "04 04:00+1100"
    ]
    line = CronLine.parse("0 * * * *")
    half_past = datetime.fromisoformat("2026-10-04T02:30+11:00")
    assert not line.matches(int(half_past.timestamp()), "Australia/Lord_Howe")


def test_a_zone_that_counted_odd_seconds_ticks_on_its_clock() -> None:
    """Before 1972 Monrovia was 44 minutes and 30 seconds behind."""
    at = CronLine.parse("0 12 * * *").next_after(
        datetime(1971, 6, 1, tzinfo=UTC).timestamp(), "Africa/Monrovia"
    )
    assert datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") == "12:44:30"


def test_leap_days_and_year_ends() -> None:
    assert local("0 0 29 2 *", "2026-01-01T00:00+00:00", "Asia/Tokyo", 1) == ["29 00:00+0900"]
    assert local("59 23 31 12 *", "2026-12-31T23:00-05:00", "America/New_York", 1) == [
        "31 23:59-0500"
    ]
    assert local("0 0 1 1 *", "2026-12-31T23:59+14:00", "Pacific/Kiritimati", 1) == [
        "01 00:00+1400"
    ]


def test_a_year_far_away_is_reached_or_given_up() -> None:
    line = CronLine.parse("0 0 * * *")
    far = datetime(9997, 12, 30, 12, tzinfo=UTC).timestamp()
    assert line.next_after(far, "Europe/Paris") is not None
    assert line.next_after(datetime(9999, 6, 1, tzinfo=UTC).timestamp(), "Europe/Paris") is None
