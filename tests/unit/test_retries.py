"""Delays stay between their floor and their cap; a strategy that fails never stops the retries."""

from __future__ import annotations

import logging
import math
import pickle
from datetime import timedelta
from itertools import product

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedulr.errors import ConfigError
from skedulr.retries import (
    DEFAULT,
    FALLBACK_S,
    LONGEST_S,
    ExponentialBackoff,
    LinearRetry,
    delay_after,
    from_wire,
    to_wire,
)

WEEK_S = 7 * 86_400
BASES = (0, 0.001, 1, 3600)
CAPS = (None, 0, 1, WEEK_S)
FACTORS = (1, 2, 10)
LEAST, HALF, MOST = (lambda: 1.0), (lambda: 0.5), (lambda: 0.0)


def delays(strategy, attempts=range(1, 2001)):
    return [strategy.next_delay(attempt, None) for attempt in attempts]


# --- the arithmetic -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "cap", "factor", "jitter"), list(product(BASES, CAPS, FACTORS, (0.0, 0.3, 1.0)))
)
def test_every_delay_is_finite_and_between_floor_and_cap(base, cap, factor, jitter):
    ceiling = LONGEST_S if cap is None else cap
    floor = min(base, ceiling) * (1 - jitter)
    for random in (LEAST, HALF, MOST):
        strategy = ExponentialBackoff(base, cap, jitter, factor, random=random)
        for delay in delays(strategy, [*range(2001), 10**400]):
            assert type(delay) is float
            assert math.isfinite(delay)
            assert floor <= delay <= ceiling


@given(
    base=st.floats(0, LONGEST_S),
    cap=st.none() | st.floats(0, LONGEST_S),
    factor=st.floats(1, 1_000_000),
    jitter=st.floats(0, 1),
    attempt=st.integers(-5, 10**400),
    drawn=st.floats(0, 1),
)
@settings(max_examples=500, deadline=None)
def test_no_allowed_parameters_leave_the_range(base, cap, factor, jitter, attempt, drawn):
    ceiling = LONGEST_S if cap is None else cap
    backoff = ExponentialBackoff(base, cap, jitter, factor, random=lambda: drawn)
    assert min(base, ceiling) * (1 - jitter) <= backoff.next_delay(attempt) <= ceiling
    assert min(base, ceiling) <= LinearRetry(base, cap=cap).next_delay(attempt) <= ceiling


@pytest.mark.parametrize(("base", "cap"), list(product(BASES, CAPS)))
def test_delays_never_shrink_as_attempts_go_by(base, cap):
    for strategy in (LinearRetry(base, cap=cap), ExponentialBackoff(base, cap, jitter=0)):
        assert delays(strategy) == sorted(delays(strategy))


@pytest.mark.parametrize("factor", [2, 10, 1.001, 1_000_000])
def test_the_cap_is_reached_and_kept_for_ever(factor):
    strategy = ExponentialBackoff(base=1, cap=60, jitter=0, factor=factor)
    assert delays(strategy, [10_000, 10**9, 10**400]) == [60.0, 60.0, 60.0]


def test_the_first_delay_is_the_base():
    assert delays(ExponentialBackoff(0.5, 100, 0), [1, 2, 3, 4]) == [0.5, 1.0, 2.0, 4.0]
    assert delays(ExponentialBackoff(0.5, 100, 0, 3), [1, 2, 3]) == [0.5, 1.5, 4.5]
    assert delays(LinearRetry(5), [1, 2, 3]) == [5.0, 10.0, 15.0]


def test_an_explicit_zero_is_a_zero():
    assert set(delays(ExponentialBackoff(base=0))) == {0.0}
    assert set(delays(ExponentialBackoff(cap=0))) == {0.0}
    assert set(delays(LinearRetry(0))) == {0.0}
    assert set(delays(LinearRetry(5, cap=0))) == {0.0}
    assert delay_after(LinearRetry(0), 1, None, 3) == 0.0
    assert delay_after(LinearRetry(5), 1, None, 0) is None


def test_jitter_spans_its_whole_range_and_no_more():
    def spread(drawn):
        return ExponentialBackoff(10, 1000, 0.4, random=lambda: drawn).next_delay(3, None)

    assert spread(0.0) == 40.0
    assert spread(0.5) == 32.0
    assert spread(1.0) == pytest.approx(24.0)


def test_full_jitter_may_go_down_to_nothing():
    assert ExponentialBackoff(10, jitter=1, random=LEAST).next_delay(1, None) == 0.0


def test_jitter_draws_anew_each_time():
    drawn = iter([0.0, 0.5, 1.0])
    strategy = ExponentialBackoff(10, 10, 0.5, random=lambda: next(drawn))
    assert delays(strategy, [1, 1, 1]) == [10.0, 7.5, 5.0]


def test_without_an_injected_one_the_standard_random_is_used():
    seen = {ExponentialBackoff(10, jitter=0.5).next_delay(1, None) for _ in range(50)}
    assert len(seen) > 10


def test_a_timedelta_is_as_good_as_seconds():
    assert LinearRetry(timedelta(minutes=1), cap=timedelta(hours=1)) == LinearRetry(60, cap=3600)
    assert ExponentialBackoff(timedelta(0), timedelta(days=7)) == ExponentialBackoff(0, WEEK_S)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearRetry(-1), "base=-1 must be a number from 0 to 315,360,000 seconds"),
        (lambda: LinearRetry(math.nan), "base=nan must be"),
        (lambda: LinearRetry(math.inf), "base=inf must be"),
        (lambda: LinearRetry(10**400), "base=1000"),
        (lambda: LinearRetry("5"), "base='5' must be"),
        (lambda: LinearRetry(True), "base=True must be"),
        (lambda: LinearRetry(None), "base=None must be"),
        (lambda: LinearRetry(1, cap=-1), "cap=-1 must be"),
        (lambda: LinearRetry(timedelta(seconds=-1)), r"base=-1\.0 must be"),
        (lambda: LinearRetry(1, max_attempts=-1), "max_attempts=-1 must be a whole number from 0"),
        (lambda: LinearRetry(1, max_attempts=1.5), r"max_attempts=1\.5 must be"),
        (lambda: LinearRetry(1, max_attempts=True), "max_attempts=True must be"),
        (lambda: ExponentialBackoff(jitter=1.1), r"jitter=1\.1 must be a number from 0 to 1$"),
        (lambda: ExponentialBackoff(jitter=-0.1), r"jitter=-0\.1 must be"),
        (lambda: ExponentialBackoff(factor=0.5), r"factor=0\.5 must be a number from 1 to 1,000,0"),
        (lambda: ExponentialBackoff(factor=math.inf), "factor=inf must be"),
        (lambda: ExponentialBackoff(cap=math.nan), "cap=nan must be"),
    ],
)
def test_a_bad_parameter_names_itself_its_value_and_the_range(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


# --- deciding -------------------------------------------------------------------------------------


def starts(strategy, max_retries, give_up=50):
    """How many times a task that always fails is started."""
    for attempt in range(1, give_up):
        if delay_after(strategy, attempt, None, max_retries) is None:
            return attempt
    return math.inf


@pytest.mark.parametrize(
    ("own", "max_retries", "expected"),
    [
        (None, 3, 4),
        (None, 1, 2),
        (None, 0, 1),
        (None, None, math.inf),
        (2, None, 3),
        (2, 5, 3),
        (5, 2, 3),
        (0, 5, 1),
    ],
)
def test_n_retries_are_n_plus_one_starts_and_the_smaller_bound_wins(own, max_retries, expected):
    assert starts(LinearRetry(1, max_attempts=own), max_retries) == expected
    assert starts(ExponentialBackoff(max_attempts=own), max_retries) == expected


class Own:
    """A strategy as a user writes it."""

    def __init__(self, answer, **attributes):
        self.answer = answer
        vars(self).update(attributes)

    def next_delay(self, attempt, error):
        return self.answer(attempt, error) if callable(self.answer) else self.answer


def test_a_strategy_of_ones_own_sees_the_attempt_and_the_error():
    error = ValueError("x")
    seen = []
    strategy = Own(lambda attempt, error: seen.append((attempt, error)) or 7)
    assert delay_after(strategy, 2, error, 3) == 7.0
    assert seen == [(2, error)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(0, 0.0), (2, 2.0), (timedelta(minutes=1), 60.0), (1e300, LONGEST_S), (10**400, LONGEST_S)],
)
def test_a_delay_of_ones_own_is_taken_as_it_is_up_to_the_longest(answer, expected):
    delay = delay_after(Own(answer), 1, None, 3)
    assert delay == expected
    assert type(delay) is float


BAD_ANSWERS = [math.nan, -1, math.inf, -math.inf, None, "5", True, [], timedelta(seconds=-1)]


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=repr)
@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, FALLBACK_S),
        ({"cap": 30}, 30.0),
        ({"cap": 0}, 0.0),
        ({"cap": timedelta(minutes=2)}, 120.0),
        ({"cap": None}, FALLBACK_S),
        ({"cap": "much"}, FALLBACK_S),
        ({"cap": math.inf}, FALLBACK_S),
    ],
)
def test_a_delay_that_is_none_means_the_cap_and_a_log_line(answer, attributes, expected, caplog):
    with caplog.at_level(logging.WARNING, "skedulr.retries"):
        assert delay_after(Own(answer, **attributes), 4, None, None) == expected
    assert "retry strategy Own failed after attempt 4" in caplog.text


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "problem", [OverflowError("too large"), ZeroDivisionError(), Unprintable()]
)
def test_an_error_in_the_strategy_means_the_cap_and_not_the_end(problem, caplog):
    def fail(attempt, error):
        raise problem

    assert delay_after(Own(fail, cap=60), 1, None, 3) == 60.0
    assert type(problem).__name__ in caplog.text


def test_what_is_no_strategy_at_all_still_waits():
    assert delay_after(object(), 1, None, 3) == FALLBACK_S
    assert delay_after(object(), 4, None, 3) is None


@pytest.mark.parametrize("bound", ["3", -1, 2.5, True])
def test_a_bound_of_ones_own_that_is_no_count_is_ignored_and_logged(bound, caplog):
    assert delay_after(Own(1, max_attempts=bound), 9, None, None) == 1.0
    assert "max_attempts" in caplog.text


def test_the_default_waits_a_second_then_longer_and_never_over_ten_minutes():
    assert 0.8 <= DEFAULT.next_delay(1, None) <= 1.0
    assert 480 <= DEFAULT.next_delay(1_000, None) <= 600
    assert starts(DEFAULT, 3) == 4


# --- as values ------------------------------------------------------------------------------------

BUILT_IN = [
    LinearRetry(5),
    LinearRetry(0, cap=0, max_attempts=0),
    LinearRetry(0.5, cap=timedelta(days=1), max_attempts=7),
    ExponentialBackoff(),
    ExponentialBackoff(0.001, None, 0.0, 10, max_attempts=3),
    DEFAULT,
]


@pytest.mark.parametrize("strategy", BUILT_IN, ids=repr)
def test_a_built_in_strategy_travels_as_plain_values(strategy):
    wire = msgpack.unpackb(msgpack.packb(to_wire(strategy), strict_types=True))
    assert from_wire(wire) == strategy
    assert type(from_wire(wire)) is type(strategy)
    assert from_wire(tuple(wire)) == strategy


@pytest.mark.parametrize("strategy", BUILT_IN, ids=repr)
def test_the_repr_makes_the_same_strategy_again(strategy):
    assert eval(repr(strategy)) == strategy


class Stubborn(LinearRetry):
    pass


@pytest.mark.parametrize("strategy", [Own(1), Stubborn(1), object()])
def test_a_strategy_of_ones_own_has_no_form_to_travel_in(strategy):
    assert to_wire(strategy) is None


@pytest.mark.parametrize(
    "wire",
    [None, [], ["linear"], ["spline", 1], ["linear", -1, None, None], "linear", 7, {"linear": 1}],
)
def test_a_form_that_can_not_be_read_is_none_and_no_error(wire):
    assert from_wire(wire) is None


def test_strategies_are_values():
    assert LinearRetry(1) == LinearRetry(1.0)
    assert LinearRetry(1) != LinearRetry(1, cap=5)
    assert ExponentialBackoff(random=LEAST) == ExponentialBackoff()
    assert len({LinearRetry(1), LinearRetry(1), ExponentialBackoff(), ExponentialBackoff()}) == 2
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT
    with pytest.raises(AttributeError):
        DEFAULT.base = 2
