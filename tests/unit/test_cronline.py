"""The dialect of cron lines: what is taken, what it means, what is refused and with which words."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from croniter import croniter

from skedulr.cronline import CronLine, check_zone
from skedulr.errors import ConfigError


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def ticks(
    text: str, count: int, after: str, zone: str = "UTC", seconds: str | None = None
) -> list[str]:
    line, instant, found = CronLine.parse(text, seconds), at(after), []
    for _ in range(count):
        instant = line.next_after(instant, zone)
        found.append(datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S"))
    return found


MONDAY = "2026-11-30 00:00:00+00:00"


@pytest.mark.parametrize(("text", "first", "second"), [
    ("*/15 * * * *", "2026-11-30 00:15:00", "2026-11-30 00:30:00"),
    ("5/15 * * * *", "2026-11-30 00:05:00", "2026-11-30 00:20:00"),
    ("5-5 * * * *", "2026-11-30 00:05:00", "2026-11-30 01:05:00"),
    ("0 9-17/4,23 * * *", "2026-11-30 09:00:00", "2026-11-30 13:00:00"),
    ("30 4 * * SUN", "2026-12-06 04:30:00", "2026-12-13 04:30:00"),
    ("30 4 * * 0", "2026-12-06 04:30:00", "2026-12-13 04:30:00"),
    ("30 4 * * 7", "2026-12-06 04:30:00", "2026-12-13 04:30:00"),
    ("0 0 * * sat-sun", "2026-12-05 00:00:00", "2026-12-06 00:00:00"),
    ("0 0 * * 5-7", "2026-12-04 00:00:00", "2026-12-05 00:00:00"),
    ("0 0 * * mon-fri/2", "2026-12-02 00:00:00", "2026-12-04 00:00:00"),
    ("0 0 * JAN-mar *", "2027-01-01 00:00:00", "2027-01-02 00:00:00"),
    ("0 0 L * *", "2026-12-31 00:00:00", "2027-01-31 00:00:00"),
    ("0 0 15,L 2 *", "2027-02-15 00:00:00", "2027-02-28 00:00:00"),
    ("0 0 * * L5", "2026-12-25 00:00:00", "2027-01-29 00:00:00"),
    ("0 0 * * friL", "2026-12-25 00:00:00", "2027-01-29 00:00:00"),
    ("0 0 * * fri#L", "2026-12-25 00:00:00", "2027-01-29 00:00:00"),
    ("0 0 * * fri#2,mon#1", "2026-12-07 00:00:00", "2026-12-11 00:00:00"),
    ("0 0 29 2 *", "2028-02-29 00:00:00", "2032-02-29 00:00:00"),
    ("0 0 * feb fri#5", "2036-02-29 00:00:00", "2064-02-29 00:00:00"),
    ("0 0 13 * fri", "2026-12-04 00:00:00", "2026-12-11 00:00:00"),
    ("0 0 ? * mon", "2026-12-07 00:00:00", "2026-12-14 00:00:00"),
    ("0 0 31 2 0", "2027-02-07 00:00:00", "2027-02-14 00:00:00"),
    ("@Daily", "2026-12-01 00:00:00", "2026-12-02 00:00:00"),
    ("@midnight", "2026-12-01 00:00:00", "2026-12-02 00:00:00"),
    ("@hourly", "2026-11-30 01:00:00", "2026-11-30 02:00:00"),
    ("@weekly", "2026-12-06 00:00:00", "2026-12-13 00:00:00"),
    ("@monthly", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
    ("@yearly", "2027-01-01 00:00:00", "2028-01-01 00:00:00"),
    ("@annually", "2027-01-01 00:00:00", "2028-01-01 00:00:00"),
    ("  0   9\t* * * ", "2026-11-30 09:00:00", "2026-12-01 09:00:00"),
])
def test_a_line_ticks_when_it_says(text: str, first: str, second: str) -> None:
    assert ticks(text, 2, MONDAY) == [first, second]


def test_seconds_stand_where_the_user_says() -> None:
    assert ticks("*/30 * * * * *", 2, MONDAY, seconds="first") == [
        "2026-11-30 00:00:30", "2026-11-30 00:01:00"
    ]
    assert ticks("5 * * * * */30", 2, MONDAY, seconds="last") == [
        "2026-11-30 00:05:00", "2026-11-30 00:05:30"
    ]


@pytest.mark.parametrize(("text", "said"), [
    ("*/10 * * * * *", "six fields: say where the one for seconds stands"),
    ("* * * * * * *", "has 7 fields.*years can not be given"),
    ("* * * *", "has 4 fields"),
    ("", "has 0 fields"),
    ("0 0 30 2 *", "never fires: no Feb has such a day"),
    ("0 0 31 apr,jun *", "never fires: no Apr or Jun"),
    ("R 3 * * *", "differ from process to process"),
    ("h(0-5) 3 * * *", "differ from process to process"),
    ("5-1 * * * *", r"runs backwards: write two ranges, 5-59,0-1"),
    ("0 22-6 * * *", r"runs backwards"),
    ("0 0 * * fri-mon", "runs backwards"),
    ("60 * * * *", "60 is not from 0 to 59"),
    ("0 24 * * *", "24 is not from 0 to 23"),
    ("0 0 0 * *", "0 is not from 1 to 31"),
    ("0 0 * 13 *", "13 is not from 1 to 12"),
    ("0 0 * * 8", "8 is not from 0 to 7"),
    ("*/60 * * * *", "never comes to a second value"),
    ("5-10/20 * * * *", "never comes to a second value"),
    ("59/15 * * * *", "never comes to a second value"),
    ("*/0 * * * *", "a step is a whole number from 1"),
    ("*/1.5 * * * *", "a step is a whole number from 1"),
    ("0 16 */2 * SAT", "ambiguous"),
    ("0 16 1 * */2", "ambiguous"),
    ("0 0 15W * *", "nearest workday, is not supported"),
    ("0 0 L-3 * *", "is not known"),
    ("0 0 * * L", "the last weekday of the month is 'L5' or 'friL'"),
    ("0 0 * * fri#6", "'#' takes 1 to 5"),
    ("0 0 * * mon,fri#2", "not both"),
    ("0 0 * * frx", r"did you mean 'fri'\?"),
    ("1,,2 * * * *", "empty"),
    ("-1 * * * *", "empty"),
    ("? * * * *", "day of month or a weekday only"),
    ("@reboot", "child_start"),
    ("@dayly", "did you mean '@daily'"),
    ("\u0663 * * * *", "is not known"),
])
def test_a_line_that_would_surprise_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        CronLine.parse(text)
    assert text in str(caught.value) or text == ""


@pytest.mark.parametrize("zone", ["Europe/Pariss", "", None, "../etc/passwd", 5])
def test_a_zone_nobody_knows_is_refused(zone: object) -> None:
    with pytest.raises(ConfigError):
        check_zone(zone)


def test_a_mistyped_zone_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'Europe/Paris'"):
        check_zone("Europe/Pariss")


def test_utc_agrees_with_croniter_on_random_lines() -> None:
    dice = random.Random(7)
    for _ in range(150):
        text = " ".join((
            dice.choice(["*", "*/7", "0", "3,17,59", "10-50/13", "41"]),
            dice.choice(["*", "0", "*/5", "9-17", "23", "1,13"]),
            dice.choice(["*", "1", "31", "l", "10-20", "30"]),
            dice.choice(["*", "2,3", "jan", "*/4", "12"]),
            "*",
        ))
        if dice.random() < 0.5:
            parts = text.split()
            text = " ".join((*parts[:2], "*", parts[3], dice.choice(
                ["*", "mon", "1-5", "sat-sun", "fri#1", "l3", "0", "7", "1/3"]
            )))
        instant = dice.randrange(at("2024-01-01T00:00+00:00"), at("2035-01-01T00:00+00:00"))
        line = CronLine.parse(text)
        theirs = croniter(text, datetime.fromtimestamp(instant, UTC))
        for _ in range(6):
            expected = int(theirs.get_next(datetime).timestamp())
            instant = line.next_after(instant, "UTC")
            assert instant == expected, (text, instant, expected)
