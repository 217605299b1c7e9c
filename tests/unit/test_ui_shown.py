"""Numbers, times and values as people read them; strict JSON of whatever a task carries."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skedulr.kept import Kept
from skedulr.ui import samples, shown
from skedulr.ui.plain import dump, parse, plain, pretty
from skedulr.ui.samples import Ended


@pytest.mark.parametrize(("seconds", "text"), [
    (None, "—"), (0, "0 s"), (0.000012, "12 µs"), (0.0123, "12 ms"), (0.999, "999 ms"),
    (1, "1.0 s"), (9.94, "9.9 s"), (59.6, "1 min"), (90, "1 min 30 s"), (4000, "1 h 6 min"),
    (200_000, "2 d 7 h"), (math.inf, "—"), (math.nan, "—"), (0.001, "1 ms"), (60, "1 min"),
])
def test_durations(seconds: float | None, text: str) -> None:
    assert shown.duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [
    (None, "—"), (0, "0"), (0.016, "0.02"), (1.25, "1.2"), (99.96, "100.0"), (1234.5, "1,234"),
])
def test_rates(value: float | None, text: str) -> None:
    assert shown.rate(value) == text


@pytest.mark.parametrize(("number", "text"), [
    (None, "—"), (0, "0 B"), (999, "999 B"), (1200, "1.2 kB"), (42_500_000, "42.5 MB"),
    (7e12, "7.0 TB"),
])
def test_sizes(number: float | None, text: str) -> None:
    assert shown.size(number) == text


def test_moments_are_relative_with_the_exact_time_beside() -> None:
    tag = shown.moment(1_767_323_045.5, 1_767_323_145.5)
    assert ">1 min ago<" in tag
    assert 'title="2026-01-02 03:04:05.500 UTC"' in tag
    assert ">in 2 h<" in shown.moment(1_767_323_045.5 + 7300, 1_767_323_045.5)
    for odd in (None, 0, -5.0, math.nan, math.inf, 1e18):
        assert shown.moment(odd, 0) == "—"


def test_a_long_value_is_cut_and_says_by_how_much() -> None:
    text, cut = shown.value("x" * 30_000)
    assert (len(text), cut) == (20_000, 10_002)
    assert shown.value({"a": 1}) == ('{\n  "a": 1\n}', 0)


def test_a_call_is_one_short_line() -> None:
    task = {"args": ["a\nb", 7, ["x"] * 100], "kwargs": {"to": "ann"}}
    assert shown.call(task) == r"'a\nb', 7, [100], to='ann'"
    assert len(shown.call({"args": ["x" * 10_000] * 50})) == shown.SHORT


def test_where_there_is_little_room_the_largest_unit_is_enough() -> None:
    assert [shown.about(one) for one in (None, 0, 0.25, 125, 4000)] == [
        "—", "0 s", "250 ms", "2 min", "1 h"
    ]


def test_links_escape_what_they_are_made_of() -> None:
    link = shown.link("/jobs", "/tasks", query='"<a>&b=c', pool="", state=None)
    assert link == "/jobs/tasks?query=%22%3Ca%3E%26b%3Dc"
    assert shown.link("", "/tasks/p/a:b@c=+") == "/tasks/p/a:b@c=+"


def test_a_sparkline_of_nothing_and_of_zeros_is_empty() -> None:
    assert "rect" not in shown.sparkline([])
    assert "rect" not in shown.sparkline([0, 0])
    assert shown.sparkline([0, 1, 2]).count("<rect") == 2


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.datetimes() | st.dates() | st.timedeltas() | st.decimals() | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.frozensets(
        st.integers() | st.text()
    ),
    max_leaves=20,
)


@given(anything)
def test_any_value_becomes_strict_json_in_ascii(value: Any) -> None:
    text = dump(value)
    assert text.isascii()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == plain(value)
    pretty(value).encode()


def test_foreign_types_are_text() -> None:
    assert plain([
        math.nan, math.inf, -math.inf, b"\xff", date(2026, 1, 2), timedelta(hours=1),
        Decimal("1.50"), UUID(int=5), {2, 1}, datetime(2026, 1, 2, tzinfo=UTC), "\ud800",
    ]) == [
        "NaN", "Infinity", "-Infinity", "b'\\xff'", "2026-01-02", "1:00:00", "1.50",
        "00000000-0000-0000-0000-000000000005", [1, 2], "2026-01-02T00:00:00+00:00", "\ud800",
    ]


def test_values_nested_too_deep_are_cut() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert "..." in dump(deep)


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'{"a":1,"a":2}', b"\xff", b"", b"{"])
def test_what_is_no_strict_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse(text)


# Samples


def ended(name: str, state: str = "dead", at: float = 1000.0, error: str = "E") -> Ended:
    return Ended("default", "u", name, state, at - 0.1, at, error, "text")


def test_dead_tasks_are_grouped_by_name_and_error_over_a_day() -> None:
    now = 100_000.0
    groups = samples.dead_groups(
        [ended("a", at=now - 60), ended("a", at=now - 7200), ended("a", at=now - 90_000),
         ended("a", error="F", at=now)], now,
    )
    assert [(one.name, one.error, one.count) for one in groups] == [("a", "E", 3), ("a", "F", 1)]
    assert groups[0].hours[23] == groups[0].hours[21] == 1
    assert sum(groups[0].hours) == 2


def test_a_kept_value_is_made_once_and_again_when_it_is_old() -> None:
    now, made = [0.0], []
    kept = Kept(lambda: made.append(now[0]) or len(made), 5, lambda: now[0])
    assert (kept.get(), kept.get()) == (1, 1)
    now[0] = 5.0
    assert kept.get() == 2
