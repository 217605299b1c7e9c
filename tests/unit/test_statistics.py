"""The arithmetic of statistics: buckets, quantiles, rates, the predicted wait."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from skedulr import figures
from skedulr.errors import ConfigError
from skedulr.figures import Plan
from skedulr.statistics import (
    BOUNDS_MS,
    Load,
    Tally,
    Times,
    capacity,
    predicted_wait,
    read_failures,
    sliding_rate,
    utilisation,
)

SIMULATION = Path(__file__).parents[1] / "benchmarks" / "predicted_wait.py"


def times_of(*ms: int) -> Times:
    times = Times()
    for one in ms:
        times.add_ms(one)
    return times


def test_nothing_has_no_mean_and_no_quantile() -> None:
    assert (Times().count, Times().mean_ms, Times().quantile(0.5)) == (0, None, None)


def test_means_are_exact_and_quantiles_right_to_a_bucket() -> None:
    dice = random.Random(1)
    drawn = sorted(int(dice.lognormvariate(5, 1.2)) for _ in range(5000))
    times = times_of(*drawn)
    assert times.mean_ms == pytest.approx(sum(drawn) / len(drawn))
    for share in (0.5, 0.95, 0.99):
        exact = drawn[int(share * len(drawn))]
        assert times.quantile(share) == pytest.approx(exact, rel=0.12)


def test_no_quantile_is_longer_than_the_longest() -> None:
    assert times_of(51, 52).quantile(0.99) <= 52
    assert times_of(50_000_000).quantile(0.99) <= 50_000_000
    assert times_of(0, 0).quantile(0.5) <= 1


def test_times_on_a_bound_belong_above_it() -> None:
    times = times_of(*BOUNDS_MS)
    assert times.buckets == [0] + [1] * len(BOUNDS_MS)


def test_a_tally_reads_what_the_scripts_write_and_adds_up() -> None:
    one = Tally.read(b"7 3 1 1 0 2 1 9|240 80 3:4 5:2|1200 500 7:6")
    assert (one.runs, one.succeeded, one.failed, one.crashed, one.submitted) == (7, 3, 3, 1, 9)
    assert (one.waited.count, one.ran.sum_ms, one.ran.buckets[6]) == (6, 1200, 6)
    total = Tally.sum([one, one, Tally.read(b"rubbish"), Tally.read(None), Tally.read(b"")])
    assert (total.runs, total.ran.count, total.ran.longest_ms) == (14, 12, 500)


def test_while_a_worker_is_free_nothing_waits() -> None:
    assert predicted_wait(Load(ahead=0, claimed=9, workers=10, service_s=3.0)) == 0.0
    assert predicted_wait(Load(ahead=0, claimed=0, workers=10)) == 0.0


def test_what_can_not_be_known_is_none() -> None:
    assert predicted_wait(Load(ahead=0, claimed=0, workers=0)) is None
    assert predicted_wait(Load(ahead=5, claimed=1, workers=1)) is None
    assert utilisation(5.0, 0, 60) is None
    assert sliding_rate([], 5) is None


def test_the_wait_is_what_is_ahead_by_what_the_pool_gets_through() -> None:
    load = Load(ahead=19, claimed=10, workers=10, service_s=2.0)
    assert capacity(load) == 5.0
    assert predicted_wait(load) == 4.0


def test_after_a_backlog_what_was_got_through_counts_more_than_what_ought_to_be() -> None:
    load = Load(ahead=100, claimed=10, workers=10, service_s=0.01, backlog_s=12.0, ended_10s=500)
    assert capacity(load) == 50.0
    assert capacity(load._replace(backlog_s=5.0)) == 1000.0
    assert capacity(load._replace(ended_10s=3)) == 1000.0, "three are too few to tell"


def test_work_that_takes_no_time_is_bounded_by_what_a_process_does() -> None:
    assert capacity(Load(ahead=0, claimed=0, workers=10, processes=2, service_s=0.0)) == 40_000


@pytest.mark.parametrize(
    ("period", "step", "kind", "points"),
    [(3600, None, "m", 60), (8 * 3600, 300, "m", 96), (86_400, None, "t", 144),
     (3 * 86_400, 3600, "t", 72), (30 * 86_400, None, "d", 30)],
)
def test_a_period_is_shown_in_what_is_kept_of_it(
    period: int, step: int | None, kind: str, points: int
) -> None:
    how = figures.plan(period, step)
    assert (how.kind, how.points) == (kind, points)
    assert isinstance(how, Plan)


@pytest.mark.parametrize(
    ("period", "step"), [(0, None), (1e9, None), (3600, 90), (86_400, 60), (True, None), ("1h", 60)]
)
def test_a_period_or_step_that_is_not_kept_is_refused(period: object, step: object) -> None:
    with pytest.raises(ConfigError):
        figures.plan(period, step)  # type: ignore[arg-type]


@pytest.mark.parametrize("service", ["fixed", "exponential", "lognormal"])
def test_the_predicted_wait_is_what_then_happens(service: str) -> None:
    spec = importlib.util.spec_from_file_location("predicted_wait_simulation", SIMULATION)
    assert spec is not None
    assert spec.loader is not None
    simulation = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulation)
    assert simulation.steady(7, service, 10, 0.98, 8000) < simulation.LIMIT


def test_runs_and_failures_are_read_without_the_rest() -> None:
    text = b"9 5 2 0 0 2 0 4|10 10 1:9|20 20 2:9"
    tally = Tally.read(text)
    assert read_failures(text) == (tally.runs, tally.failed) == (9, 4)
    for nothing in (None, b"", b"torn", b"1 2|", b"a b c d e f g h|"):
        assert read_failures(nothing) == (0, 0)
