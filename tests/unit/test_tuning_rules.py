"""The controller: up fast, down slowly, held on missing data, and its goals in the simulation."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from skedulr import tuning
from skedulr.tuning import BOUNDS, GROW, LIMIT, SHRINK, Decision, Seen, State, decide

LOOK_S = 5 / 3


def _simulation() -> Any:
    file = Path(__file__).parent.parent / "benchmarks" / "tuner_sim.py"
    spec = importlib.util.spec_from_file_location("tuner_sim", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tuner_sim"] = module
    spec.loader.exec_module(module)
    return module


sim = _simulation()


class Run:
    """A pool as a test tells it, look by look."""

    def __init__(self, size: int = 10, least: int = 1, most: int = 100) -> None:
        self.state, self.at_s, self.ended = State(size=size), 1000.0, 0
        self.least, self.most = least, most

    def look(
        self, queued: int = 0, busy: int = 0, *, ended: int = 0, workers: int | None = None,
        limit: str = "", after_s: float = LOOK_S,
    ) -> Decision | None:
        self.at_s += after_s
        self.ended += ended
        self.state, decision = decide(self.state, Seen(
            self.at_s, queued, busy, self.state.size if workers is None else workers, self.ended,
            self.least, self.most, 1.0, 5.0, limit,
        ))
        assert self.least <= self.state.size <= self.most
        return decision

    def looks(self, times: int, *given: int, **named: Any) -> list[Decision]:
        found = [self.look(*given, **named) for _ in range(times)]
        return [one for one in found if one is not None]


def test_a_wait_over_the_band_grows_at_the_second_look_to_what_brings_it_down() -> None:
    run = Run(10)
    # Ten workers, runs of two seconds, and a queue that stands for twelve.
    assert run.looks(1, 60, 10, ended=8) == []
    (grown,) = run.looks(1, 60, 10, ended=8)
    assert (grown.kind, grown.before) == (GROW, 10)
    assert 15 <= grown.after <= 40
    assert "the wait is" in grown.why


def test_a_step_up_is_bounded_and_the_next_one_waits_until_it_is_seen() -> None:
    run = Run(2)
    run.look(0, 0)
    (first,) = run.looks(1, 10_000, 2, ended=2)
    assert first.after == 10
    assert run.looks(1, 10_000, 10, ended=10) == []
    (second,) = run.looks(1, 10_000, 10, ended=10)
    assert second.after == 40


def test_within_the_band_nothing_is_done() -> None:
    run = Run(10)
    # 3 s of wait, and as many come as go.
    assert run.looks(60, 15, 10, ended=8) == []


def test_a_wait_that_rises_is_met_before_it_leaves_the_band() -> None:
    run = Run(10)
    run.looks(3, 0, 10, ended=8)
    found = [one for n in range(1, 5) if (one := run.look(n * 12, 10, ended=8))]
    assert found[0].kind == GROW
    assert found[0].wait_s < 5
    assert "and rises" in found[0].why


def test_a_pool_with_less_work_shrinks_by_a_quarter_at_a_time_and_not_before_it_was_calm() -> None:
    run = Run(40)
    quiet = run.looks(int(tuning.CALM_S / LOOK_S), 0, 4, ended=3)
    assert quiet == []
    steps = run.looks(120, 0, 4, ended=3)
    assert {one.kind for one in steps} == {SHRINK}
    assert [one.after for one in steps] == [30, 22, 16, 12, 9, 6, 5]
    assert run.state.size == 5, "four are busy four fifths of the time"


def test_a_peak_within_the_calm_time_keeps_its_workers() -> None:
    run = Run(20)
    for _ in range(30):
        run.looks(2, 0, 16, ended=10)
        run.looks(4, 0, 2, ended=10)
    assert run.state.size >= 14


def test_who_has_to_grow_again_soon_after_shrinking_waits_longer_the_next_time() -> None:
    run = Run(20)
    run.looks(20, 0, 2, ended=2)
    assert run.state.size < 20
    (grown,) = [one for one in run.looks(3, 200, run.state.size, ended=10) if one.kind == GROW][:1]
    assert "so the next time later" in grown.why
    assert run.state.penalty == 2
    run.looks(400, 0, 2, ended=2)
    assert run.state.penalty == 1, "it is forgiven"


def test_nothing_is_decided_on_missing_data() -> None:
    run = Run(10)
    assert run.looks(5, 500, 10, ended=8, after_s=tuning.GAP_S + 1) == []
    run.look(500, 10, after_s=1)
    run.ended = -1_000_000
    assert run.look(5000, 10) is None, "the counters began anew: Redis was flushed"
    assert run.look(5000, 10, after_s=-5) is None, "its clock was set back"
    assert run.look(5000, 10, workers=0) is None


def test_sizes_stay_within_their_bounds_and_the_most_is_said_once() -> None:
    run = Run(10, least=4, most=12)
    said = run.looks(30, 2000, 10, ended=2)
    assert [(one.kind, one.after) for one in said] == [(GROW, 12), (LIMIT, 12)]
    assert "12 workers are the most" in said[1].why
    run.least, run.most = 20, 30
    (bounds,) = run.looks(1)
    assert (bounds.kind, bounds.before, bounds.after) == (BOUNDS, 12, 20)


def test_out_of_cpu_it_says_so_once_and_does_not_grow() -> None:
    run = Run(10)
    said = run.looks(30, 2000, 10, ended=2, limit=tuning.CPU)
    assert [(one.kind, one.after) for one in said] == [(LIMIT, 10)]
    assert "MIN..MAXx2" in said[0].why
    run.looks(3, 0, 1, ended=50)
    assert [one.kind for one in run.looks(10, 4000, 10, ended=2, limit=tuning.CPU)] == [LIMIT]


def test_long_tasks_of_which_none_has_ended_are_seen_as_soon_as_enough_was_worked() -> None:
    run = Run(2)
    found = [one for _ in range(20) if (one := run.look(20, 2))]
    assert found and found[0].kind == GROW


def test_a_successor_goes_on_where_the_leader_before_was() -> None:
    state = State(17, 3.0, 2.0, 4, 1.0)
    assert State.of(state.kept()) == state
    assert math.isinf(State.of(State(1).kept()).grew_at_s)
    with pytest.raises(KeyError):
        State.of({})


# The goals, on the simulation; tests/benchmarks/tuner_sim.py draws them


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", [
    "steady", "square", "quick square", "ramp", "spike", "heavy tail", "node dies",
])
def test_the_band_is_held_nearly_always_after_the_first_adaptation(name: str, seed: int) -> None:
    trace = sim.simulate(sim.SCENARIOS[name], seed)
    assert trace.decisions
    assert trace.held() >= 0.95, sim.report(sim.SCENARIOS[name], seed)


@pytest.mark.parametrize("name", ["steady", "quick square", "heavy tail"])
def test_a_steady_load_turns_the_size_at_most_once_in_three_periods(name: str) -> None:
    scenario = sim.SCENARIOS[name]
    trace = sim.simulate(scenario)
    periods = scenario.seconds / (scenario.period_s or sim.PERIOD_S)
    assert trace.turns() <= periods / 3


def test_a_day_costs_thirty_percent_less_than_a_pool_of_its_peaks_size() -> None:
    # The same curve in two hours: the day itself takes seconds.
    day = sim.SCENARIOS["day"]
    short = sim.Scenario(
        "short day", day.seconds / 12, lambda t: day.rate(t * 12), day.run,
        most_rate=day.most_rate,
    )
    trace = sim.simulate(short)
    assert trace.worker_s <= 0.7 * sim.peak_size(short) * short.seconds
    assert trace.held() >= 0.95
