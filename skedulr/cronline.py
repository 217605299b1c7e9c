"""A cron line in a time zone: which lines are taken, and at which instants one ticks.

croniter reads the fields, behind a fence: whatever it would take and mean otherwise than a cron
daemon does is refused here, with what to write instead. The arithmetic is ours, since croniter's
own stands still, skips or repeats around clock changes. It is pure: instants are whole seconds
since the epoch, and nothing asks what time it is.

A zone is a row of regimes, each with one offset from UTC. A line whose hour field is every hour
(``*/10 * * * *``, ``30 * * * *``) keeps its real pace: it ticks whenever the local clock shows a
matching time. Any other line names times of day: one that a clock change skips ticks once, at the
first instant after the gap, and one that comes twice ticks the first time.

In Europe/Paris on 2026-03-29, when 02:00 became 03:00::

    30 2 * * *      ticks at 03:00 (01:00 UTC)      */30 * * * *    01:30, 03:00, 03:30, ...

and on 2026-10-25, when 03:00 became 02:00::

    30 2 * * *      ticks at the first 02:30        */30 * * * *    02:00, 02:30, 02:00, 02:30
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from .errors import ConfigError, nearest

DAY_S = 86_400
#: 29 February on a given weekday comes every 28 years, around 2100 after 40.
SEARCH_YEARS = 45
#: Clock changes nearer to each other than this may be overlooked, seconds. There are none.
_PROBE_S = 6 * 3600
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)
_ALIASES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Field(NamedTuple):
    """One field: what it is called, its bounds, its names, and its place for croniter."""

    title: str
    low: int
    high: int
    names: tuple[str, ...]
    column: int

    def number(self, text: str) -> int | None:
        if text in self.names:
            return self.names.index(text) + (1 if self.column == 3 else 0)
        return int(text) if re.fullmatch(r"\d{1,3}", text, re.ASCII) else None


_MINUTE = _Field("minute", 0, 59, (), 0)
_HOUR = _Field("hour", 0, 23, (), 1)
_DAY = _Field("day of month", 1, 31, (), 2)
_MONTH = _Field("month", 1, 12, _MONTHS, 3)
_WEEKDAY = _Field("day of week", 0, 7, _WEEKDAYS, 4)
_SECOND = _Field("second", 0, 59, (), 5)
_FIVE = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


@dataclass(frozen=True, slots=True)
class _Days:
    """Which days of a month match."""

    months: tuple[int, ...]
    days: frozenset[int]
    last_day: bool
    any_day: bool
    weekdays: frozenset[int]
    #: Weekday (0 is Sunday) -> which of the month: 1 to 5, "l" for the last one.
    places: tuple[tuple[int, tuple[int | str, ...]], ...]
    any_weekday: bool

    def of(self, year: int, month: int) -> list[int]:
        """The matching days of a month, in order. Where both a day and a weekday are given, either
        is enough, as cron has it."""
        length = monthrange(year, month)[1]
        every = range(1, length + 1)
        if self.any_day and self.any_weekday:
            return list(every)
        by_day = {d for d in every if d in self.days} | ({length} if self.last_day else set())
        first = (date(year, month, 1).weekday() + 1) % 7
        by_weekday = {d for d in every if self._weekday_matches(d, (first + d - 1) % 7, length)}
        if self.any_day:
            return sorted(by_weekday)
        return sorted(by_day if self.any_weekday else by_day | by_weekday)

    def _weekday_matches(self, day: int, weekday: int, length: int) -> bool:
        for one, places in self.places:
            if one == weekday:
                return (day + 6) // 7 in places or ("l" in places and day + 7 > length)
        return weekday in self.weekdays


class CronLine:
    """A cron line that was checked; ``CronLine.parse`` makes one.

    >>> line = CronLine.parse("30 2 * * *")
    >>> at = line.next_after(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp(), "Europe/Paris")
    >>> datetime.fromtimestamp(at, UTC).isoformat()
    '2026-03-29T01:00:00+00:00'
    """

    __slots__ = ("_days", "_hours", "_minutes", "_seconds", "keeps_pace", "seconds", "text")

    def __init__(
        self, text: str, seconds: str | None, times: tuple[tuple[int, ...], ...], days: _Days
    ) -> None:
        self.text, self.seconds = text, seconds
        self._hours, self._minutes, self._seconds = times
        self._days = days
        #: Whether it ticks by the clock's face alone, whatever the clock was set to.
        self.keeps_pace = len(self._hours) == 24

    def __repr__(self) -> str:
        return f"<CronLine {self.text!r}>"

    @staticmethod
    def parse(text: str, seconds: str | None = None) -> CronLine:
        """Check a line. ``seconds`` says where the sixth field of a line with seconds stands:
        "first" or "last". Raises ConfigError with what is wrong and what would do."""
        return _parse(text, seconds)

    def next_after(self, instant_s: float, zone: str) -> int | None:
        """The first tick after an instant, epoch seconds; None if none comes within 45 years."""
        after = int(instant_s // 1)
        for start, end, offset, before in _regimes(zone, after + 1):
            wall = max(start, after + 1) + offset
            if not self.keeps_pace:
                if before < offset and start > after:
                    skipped = self.next_wall(start + before)
                    if skipped is not None and skipped < start + offset:
                        return start
                # What the clock shows for the second time has ticked.
                wall = max(wall, start + before)
            found = self.next_wall(wall)
            if found is None:
                return None
            if found - offset < end:
                return found - offset
        return None

    def matches(self, instant_s: int, zone: str) -> bool:
        """Whether an instant is a tick."""
        return self.next_after(instant_s - 1, zone) == instant_s

    def next_wall(self, wall_s: int) -> int | None:
        """The first matching time on the clock's face at or after one, both in seconds as if the
        face showed UTC; None if none comes within 45 years."""
        day, second = divmod(wall_s, DAY_S)
        today = date.fromordinal(day + _EPOCH_DAY)
        for year, month in _months_from(today.year, today.month):
            if month not in self._days.months:
                continue
            same_month = (year, month) == (today.year, today.month)
            for number in self._days.of(year, month):
                if same_month and number < today.day:
                    continue
                is_today = same_month and number == today.day
                at = self._time(second if is_today else 0)
                if at is not None:
                    return (date(year, month, number).toordinal() - _EPOCH_DAY) * DAY_S + at
        return None

    def _time(self, second_of_day: int) -> int | None:
        """The first matching time of a day at or after one, seconds since midnight."""
        minute_of_day, second = divmod(second_of_day, 60)
        hour, minute = divmod(minute_of_day, 60)
        for h in self._hours[bisect_left(self._hours, hour):]:
            minutes = self._minutes
            if h == hour:
                minutes = minutes[bisect_left(minutes, minute):]
            for m in minutes:
                seconds = self._seconds
                if h == hour and m == minute:
                    seconds = seconds[bisect_left(seconds, second):]
                if seconds:
                    return h * 3600 + m * 60 + seconds[0]
        return None


def check_zone(zone: object) -> str:
    """The name of a time zone; ConfigError for anything else."""
    if isinstance(zone, ZoneInfo):
        zone = zone.key
    if zone is UTC:
        return "UTC"
    if not isinstance(zone, str) or not zone:
        raise ConfigError(f"tz={zone!r} is not usable: a name such as 'Europe/Paris', or 'UTC'")
    try:
        zone_info(zone)
    except (KeyError, ValueError, OSError):
        from zoneinfo import available_timezones

        raise ConfigError(
            f"no time zone is called {zone!r} here{nearest(zone, available_timezones())}"
        ) from None
    return zone


def zone_info(zone: str) -> tzinfo:
    """The zone of that name; "UTC" also where no zone is known."""
    return UTC if zone == "UTC" else ZoneInfo(zone)


# Zones


def _regimes(zone: str, since_s: int) -> Iterator[tuple[int, int, int, int]]:
    """From the one that holds ``since_s`` on: start, end, offset, and the offset before it. Each
    ends with its year at the latest, and goes on in the next one."""
    year = _utc(since_s).year
    for number in range(year, min(year + SEARCH_YEARS, 9998)):
        for start, end, offset, before in _regimes_of(zone, number):
            if end > since_s:
                yield start, end, offset, before


@lru_cache(maxsize=4096)
def _regimes_of(zone: str, year: int) -> tuple[tuple[int, int, int, int], ...]:
    info = zone_info(zone)
    # A change in the last days of the year before: its fold may reach into this one.
    first, last = _new_year(year) - 2 * DAY_S, _new_year(year + 1)
    changes = _changes(info, first, last)
    starts = [first, *changes, last]
    return tuple(
        (start, end, _offset(info, start), _offset(info, start - 1) if start in changes
         else _offset(info, start))
        for start, end in pairwise(starts)
    )


def _changes(info: tzinfo, first: int, last: int) -> list[int]:
    """The instants after ``first`` and before ``last`` at which the offset changes."""
    found = []
    offset = _offset(info, first)
    for low, high in pairwise((*range(first, last, _PROBE_S), last - 1)):
        after = _offset(info, high)
        if after != offset:
            found.append(_change(info, low, high))
            offset = after
    return found


def _change(info: tzinfo, low: int, high: int) -> int:
    """The instant after ``low`` up to ``high`` from which on the offset is that of ``high``."""
    after = _offset(info, high)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(info, middle) == after:
            high = middle
        else:
            low = middle
    return high


def _offset(info: tzinfo, instant_s: int) -> int:
    offset = _utc(instant_s).astimezone(info).utcoffset()
    assert offset is not None
    return offset.days * DAY_S + offset.seconds


def _utc(instant_s: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant_s)


def _new_year(year: int) -> int:
    return (date(year, 1, 1).toordinal() - _EPOCH_DAY) * DAY_S


def _months_from(year: int, month: int) -> Iterator[tuple[int, int]]:
    for count in range(month - 1, month - 1 + 12 * SEARCH_YEARS):
        if year + count // 12 > 9998:
            return
        yield year + count // 12, count % 12 + 1


# Reading a line


@lru_cache(maxsize=1024)
def _parse(text: str, seconds: str | None) -> CronLine:
    if not isinstance(text, str):
        raise ConfigError(f"a cron line is a text, not {text!r}")
    if seconds not in (None, "first", "last"):
        raise ConfigError(f"seconds={seconds!r} is not usable: 'first' or 'last'")
    fields = _split(text, seconds)
    minutes, hours, days, months, weekdays, second = (
        _read_field(text, field, part)
        for field, part in zip((*_FIVE, _SECOND), fields, strict=True)
    )
    _refuse_ambiguous_days(text, fields[2], fields[4])
    line = CronLine(
        " ".join(text.split()), seconds,
        (hours.numbers, minutes.numbers, second.numbers),
        _Days(
            months.numbers, frozenset(days.numbers), days.last, fields[2] in ("*", "?", "*/1"),
            frozenset() if weekdays.places else frozenset(weekdays.numbers),
            weekdays.places, fields[4] in ("*", "?", "*/1"),
        ),
    )
    if line.next_wall((date(2000, 1, 1).toordinal() - _EPOCH_DAY) * DAY_S) is None:
        raise ConfigError(
            f"cron line {text!r} never fires: no {_month_names(months.numbers)} has such a day"
        )
    return line


def _split(text: str, seconds: str | None) -> list[str]:
    """The fields in the order minute, hour, day, month, weekday, second."""
    lower = text.strip().lower()
    if lower.startswith("@"):
        if lower == "@reboot":
            raise ConfigError(
                "cron line '@reboot' is no time: use @skedulr.on('child_start') instead"
            )
        if lower not in _ALIASES:
            raise ConfigError(f"cron line {text!r} is not known{nearest(lower, _ALIASES)}")
        return [*_ALIASES[lower].split(), "0"]
    fields = lower.split()
    if len(fields) == 5 and seconds is None:
        return [*fields, "0"]
    if len(fields) == 6 and seconds is not None:
        return [*fields[1:], fields[0]] if seconds == "first" else fields
    if len(fields) == 6:
        raise ConfigError(
            f"cron line {text!r} has six fields: say where the one for seconds stands, with "
            "seconds='first' or seconds='last'"
        )
    if len(fields) == 5:
        raise ConfigError(
            f"cron line {text!r} has five fields, and seconds={seconds!r} asks for six"
        )
    years = "; years can not be given, use start= and end=" if len(fields) == 7 else ""
    raise ConfigError(
        f"cron line {text!r} has {len(fields)} field{'s' * (len(fields) != 1)}; it takes five "
        f"(minute hour day month weekday), or six with seconds='first' or 'last'{years}"
    )


class _Read(NamedTuple):
    numbers: tuple[int, ...]
    last: bool = False
    places: tuple[tuple[int, tuple[int | str, ...]], ...] = ()


@lru_cache(maxsize=1024)
def _checked(field: _Field, part: str) -> _Read:
    items = [_fence(field, item) for item in part.split(",")]
    if field is _WEEKDAY and any("#" in item or item.startswith("l") for item in items):
        if not all("#" in item or item.startswith("l") for item in items):
            raise _Wrong("a list holds either plain weekdays or ones with '#' and 'L', not both")
        return _places(items)
    last = field is _DAY and "l" in items
    plain = [item for item in items if item != "l"]
    numbers: set[int] = set()
    if plain:
        numbers = _by_croniter(field, ",".join(plain))
    return _Read(tuple(sorted(numbers)), last)


def _read_field(text: str, field: _Field, part: str) -> _Read:
    try:
        return _checked(field, part)
    except _Wrong as wrong:
        raise ConfigError(
            f"cron line {text!r}: {part!r} is no {field.title} ({wrong})"
        ) from None


class _Wrong(Exception):
    """What is wrong with an item of a field."""


def _fence(field: _Field, item: str) -> str:
    """An item that means in croniter what it means in cron, or ``_Wrong``."""
    if item in ("*", "*/1"):
        return item
    if item == "?":
        if field in (_DAY, _WEEKDAY):
            return "*"
        raise _Wrong("'?' stands for a day of month or a weekday only")
    if field is _DAY and item == "l":
        return item
    if field is _WEEKDAY and ("#" in item or "l" in item):
        return _fence_place(item)
    if re.match(r"[hr]\b", item):
        raise _Wrong(
            "'H' and 'R' differ from process to process; give a number, and jitter= to spread"
        )
    if field is _DAY and "w" in item:
        raise _Wrong("'W', the nearest workday, is not supported")
    body, slash, step_text = item.partition("/")
    low_text, dash, high_text = body.partition("-")
    if low_text == "*" and not dash:
        low, high = field.low, 6 if field is _WEEKDAY else field.high
    else:
        low = _number(field, low_text)
        high = _number(field, high_text) if dash else (
            (6 if field is _WEEKDAY else field.high) if slash else low
        )
    if field is _WEEKDAY and dash and high == 0 and low > 0:
        high = 7  # sat-sun, fri-0
    if low > high:
        raise _Wrong(
            f"{low_text}-{high_text} runs backwards: write two ranges, {low_text}-{field.high},"
            f"{field.low}-{high_text}"
        )
    if not slash:
        # croniter takes 5-5 for the whole field.
        return str(low) if dash and low == high else item
    step = int(step_text) if re.fullmatch(r"\d{1,6}", step_text, re.ASCII) else 0
    if step == 0:
        raise _Wrong(f"a step is a whole number from 1, not {step_text!r}")
    if low + step > high:
        raise _Wrong(f"a step of {step} never comes to a second value from {low} to {high}")
    return item


def _fence_place(item: str) -> str:
    """``fri#2``, ``5#2``: the second Friday; ``L5``, ``friL``: the last one."""
    weekday, mark, place = item.partition("#")
    if mark:
        number = _number(_WEEKDAY, weekday)
        if place == "l":
            return f"l{number % 7}"
        if place not in ("1", "2", "3", "4", "5"):
            raise _Wrong(f"'#' takes 1 to 5, not {place!r}")
        return f"{number % 7}#{place}"
    weekday = item.replace("l", "", 1)
    if not weekday or (item[0] != "l" and item[-1] != "l"):
        raise _Wrong("the last weekday of the month is 'L5' or 'friL', with its day")
    return f"l{_number(_WEEKDAY, weekday) % 7}"


def _number(field: _Field, text: str) -> int:
    number = field.number(text)
    if number is None:
        raise _Wrong(f"{text!r} is not known{nearest(text, field.names)}" if text else "empty")
    if not field.low <= number <= field.high:
        raise _Wrong(f"{number} is not from {field.low} to {field.high}")
    return number


def _by_croniter(field: _Field, part: str) -> set[int]:
    """What croniter makes of a field that passed the fence."""
    values, _ = _expand(field, part)
    if values == ["*"]:
        return set(range(field.low, (6 if field is _WEEKDAY else field.high) + 1))
    return {int(value) % 7 if field is _WEEKDAY else int(value) for value in values}


def _places(items: list[str]) -> _Read:
    values, places = _expand(_WEEKDAY, ",".join(items))
    return _Read(
        tuple(int(value) % 7 for value in values),
        places=tuple((weekday, tuple(places[weekday])) for weekday in sorted(places)),
    )


def _expand(field: _Field, part: str) -> tuple[list[int | str], dict[int, set[int | str]]]:
    # Not above: it takes 20 ms to load, and programs that use no cron line need not wait for it.
    from croniter import CroniterError, croniter

    fields = ["*"] * 6
    fields[field.column] = part
    try:
        expanded, places = croniter.expand(" ".join(fields))
    except (CroniterError, ValueError) as error:
        raise _Wrong(str(error)) from None
    return expanded[field.column], places


def _refuse_ambiguous_days(text: str, day: str, weekday: str) -> None:
    starred = [part for part in (day, weekday) if part.startswith("*/") and part != "*/1"]
    if starred and not {day, weekday} & {"*", "?", "*/1"}:
        raise ConfigError(
            f"cron line {text!r} is ambiguous: with {starred[0]!r} some cron daemons want both the "
            "day and the weekday to match, others either; write the range out "
            "(1-31/2, 0-6/2) for either, or make two schedules"
        )


def _month_names(months: tuple[int, ...]) -> str:
    return "month" if len(months) == 12 else " or ".join(
        _MONTHS[month - 1].capitalize() for month in months
    )
