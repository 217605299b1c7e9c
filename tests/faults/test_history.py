"""The history checker itself: histories made by hand, and the violation that each contains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flow_rules import End, Flow, Step
from history import Effect, Fault, Final, History, Sample, Submitted, read_effects

DONE = frozenset(("records", "done"))
DEAD = frozenset(("records", "dead"))
PID, OTHER = 100, 200


def run(
    uid: str, token: str, began: float, over: float | None, *, attempt: int = 1, pid: int = PID,
    phase: str = "ended",
) -> list[Effect]:
    lines = [Effect(uid, attempt, token, "began", pid, began)]
    if over is not None:
        lines.append(Effect(uid, attempt, token, phase, pid, over))
    return lines


def one_good_task() -> History:
    """Submitted, run once, recorded."""
    return History(
        lease_s=3, submitted=[Submitted("a", "stored")], effects=run("a", "o:1", 10, 11),
        finals={"a": Final(DONE, "succeeded", "o:1")}, totals={"succeeded": 1, "failed": 0},
    )


def rules(history: History) -> list[str]:
    return [one.rule for one in history.verdict()]


def test_a_clean_history_has_no_violations() -> None:
    assert rules(one_good_task()) == []


def test_an_acknowledged_task_that_is_nowhere_is_lost() -> None:
    history = History(lease_s=3, submitted=[Submitted("a", "stored")])
    assert rules(history) == ["lost"]


def test_a_task_that_may_have_been_stored_may_be_nowhere() -> None:
    history = History(lease_s=3, submitted=[Submitted("a", "maybe")])
    assert rules(history) == []


@pytest.mark.parametrize("effects", [[], run("a", "o:1", 10, 11)])
def test_a_refused_submit_that_was_stored_all_the_same_is_found(effects: list[Effect]) -> None:
    history = replace(one_good_task(), submitted=[Submitted("a", "refused")], effects=effects)
    assert rules(history)[:1] == ["refused"]


@pytest.mark.parametrize("places", [
    ("ready", "tasks"), ("claims", "leases", "tasks"), ("tasks",), ("delayed", "tasks", "info"),
])
def test_a_task_without_an_end_is_unfinished(places: tuple[str, ...]) -> None:
    history = replace(one_good_task(), finals={"a": Final(frozenset(places))}, totals={})
    assert rules(history) == ["unfinished"]


@pytest.mark.parametrize("places", [
    ("records",), ("records", "done", "dead"), ("records", "done", "ready"),
    ("records", "done", "claims", "leases"), ("records", "done", "tasks"),
    ("records", "dead", "info"), ("records", "done", "cancels"), ("records", "done", "delayed"),
])
def test_an_ended_task_that_is_elsewhere_as_well_is_found(places: tuple[str, ...]) -> None:
    history = replace(
        one_good_task(), finals={"a": Final(frozenset(places), "succeeded", "o:1")}
    )
    assert rules(history) == ["places"]


def test_an_end_of_the_wrong_kind_is_found() -> None:
    history = replace(one_good_task(), finals={"a": Final(DEAD, "dead", None, 1)}, totals={})
    assert rules(history) == ["end"]
    history.submitted = [Submitted("a", "stored", ("dead",))]
    assert rules(history) == []


def test_a_task_is_dead_of_crashes_only_after_three_of_them() -> None:
    history = replace(one_good_task(), totals={}, effects=[], finals={
        "a": Final(DEAD, "dead", None, 1, crashed=True)
    })
    for crash in range(3):
        assert rules(history) == ["end"]
        history.effects += run("a", f"o:{crash}", 10 * crash, 10 * crash + 1, phase="dying")
    assert rules(history) == []


# Doubled runs


def twice(*faults: Fault, over: float | None = 11, pid: int = OTHER) -> History:
    """A second run 5 s after the first began; the record is the second's."""
    return replace(
        one_good_task(), faults=list(faults),
        effects=run("a", "o:1", 10, over) + run("a", "p:1", 15, 16, pid=pid),
        finals={"a": Final(DONE, "succeeded", "p:1")},
    )


def test_a_second_run_without_any_fault_is_doubled() -> None:
    assert rules(twice()) == ["doubled"]
    assert rules(twice(over=None)) == ["doubled"]
    assert rules(twice(over=20)) == ["doubled"]


def test_a_run_whose_process_was_killed_may_be_followed_by_another() -> None:
    assert rules(twice(Fault("killed", 10.5, 10.5, frozenset((PID,))), over=None)) == []


def test_a_run_that_ended_just_before_the_kill_may_not_have_been_recorded() -> None:
    assert rules(twice(Fault("killed", 11.3, 11.3, frozenset((PID,))))) == []


def test_a_kill_long_after_the_end_of_a_run_excuses_nothing() -> None:
    assert rules(twice(Fault("killed", 14, 14, frozenset((PID,))))) == ["doubled"]


def test_an_outcome_that_waited_for_redis_when_its_process_was_killed_may_be_gone() -> None:
    kill = Fault("killed", 14, 14, frozenset((PID,)))
    assert rules(twice(Fault("outage", 10, 13), kill)) == []


def test_a_kill_of_another_process_excuses_nothing() -> None:
    assert rules(twice(Fault("killed", 10.5, 10.5, frozenset((OTHER,))), over=None)) == ["doubled"]


def test_an_outage_alone_excuses_nothing() -> None:
    assert rules(twice(Fault("outage", 10, 14.5), over=20)) == ["doubled"]


@pytest.mark.parametrize("kind", ["frozen", "cut off"])
def test_a_process_away_for_longer_than_its_lease_may_lose_its_run(kind: str) -> None:
    assert rules(twice(Fault(kind, 10.2, 14.9, frozenset((PID,))), over=20)) == []


@pytest.mark.parametrize("kind", ["frozen", "cut off"])
def test_a_process_away_for_less_than_its_lease_keeps_its_run(kind: str) -> None:
    assert rules(twice(Fault(kind, 10.2, 11.2, frozenset((PID,))), over=20)) == ["doubled"]


def test_a_task_that_kills_its_own_process_touches_its_neighbours() -> None:
    history = twice(over=None)
    history.effects += run("b", "o:2", 9, 12, phase="dying")
    assert rules(history) == []


def test_each_run_but_the_last_needs_its_own_crash() -> None:
    history = twice(Fault("killed", 10.5, 10.5, frozenset((PID,))), over=None)
    history.effects += run("a", "q:1", 18, 19, pid=300)
    history.finals = {"a": Final(DONE, "succeeded", "q:1")}
    assert rules(history) == ["doubled"]


# Attempts


def failed_once(second: int) -> History:
    return replace(
        one_good_task(), totals={"succeeded": 1, "failed": 1},
        effects=run("a", "o:1", 10, 11, phase="failed")
        + run("a", "o:2", 12, 13, attempt=second),
        finals={"a": Final(DONE, "succeeded", "o:2", 1)},
    )


def test_a_failure_is_followed_by_the_next_attempt() -> None:
    assert rules(failed_once(2)) == []


def test_a_failure_whose_attempt_was_not_counted_is_doubled() -> None:
    assert rules(failed_once(1)) == ["doubled"]


def test_two_attempts_counted_for_one_failure_are_found() -> None:
    assert "attempt" in rules(failed_once(3))


def test_a_crash_or_a_drain_counts_no_attempt() -> None:
    for kind, phase in (("killed", None), ("stopped", "interrupted")):
        history = twice(Fault(kind, 10.5, 11, frozenset((PID,))))
        history.effects = run("a", "o:1", 10, 11 if phase else None, phase=phase or "") + run(
            "a", "p:1", 15, 16, attempt=2, pid=OTHER
        )
        assert rules(history) == ["attempt"]


# Fencing


def test_an_outcome_under_a_stale_token_is_found() -> None:
    history = twice(Fault("frozen", 10.2, 14.9, frozenset((PID,))), over=15.5)
    history.finals = {"a": Final(DONE, "succeeded", "o:1")}
    assert rules(history) == ["stale"]


def test_a_success_of_a_run_that_never_ended_is_found() -> None:
    history = replace(one_good_task(), effects=run("a", "o:1", 10, 11, phase="interrupted"))
    assert rules(history) == ["stale"]


def test_totals_that_count_an_end_twice_are_found() -> None:
    assert rules(replace(one_good_task(), totals={"succeeded": 2, "failed": 0})) == ["counts"]
    assert rules(replace(one_good_task(), totals={"succeeded": 1, "failed": 1})) == ["counts"]


# Waiting


def sampled(ready: int, claimed: int, *, workers: int = 2, faults: tuple[Fault, ...] = (),
            seconds: int = 30) -> History:
    """A queue that stays like this for a while, with one task running all the time."""
    return History(
        lease_s=3, faults=list(faults), effects=run("a", "o:1", 0, None),
        samples=[Sample(10 + n / 2, ready, claimed, workers) for n in range(2 * seconds)],
    )


def test_a_ready_task_beside_an_idle_worker_for_over_2_s_is_found() -> None:
    assert "idle" in rules(sampled(1, 1))


def test_a_ready_task_waits_in_order_while_all_workers_are_busy() -> None:
    assert rules(sampled(5, 1, workers=1)) == []


def test_a_wait_of_less_than_2_s_is_in_order() -> None:
    assert rules(sampled(1, 1, seconds=2)) == []


def test_a_wait_is_excused_while_redis_is_away_and_not_much_longer() -> None:
    away = Fault("outage", 9, 26)
    assert rules(sampled(1, 1, faults=(away,), seconds=20)) == []
    assert "idle" in rules(sampled(1, 1, faults=(away,), seconds=40))


def test_a_claimed_task_that_nobody_starts_is_found() -> None:
    assert "held" in rules(sampled(0, 2))


def test_what_a_dead_process_held_waits_for_its_lease() -> None:
    killed = Fault("killed", 9, 9, frozenset((OTHER,)))
    assert rules(sampled(0, 2, faults=(killed,), seconds=10)) == []
    assert "held" in rules(sampled(0, 2, faults=(killed,), seconds=30))
    # The same where a task took its process with it.
    history = sampled(0, 2, seconds=10)
    history.effects += run("b", "o:2", 8, 9, pid=OTHER, phase="dying")
    assert rules(history) == []


# Workflows: ``b`` goes over the list of ``a``, ``c`` is given both. ``f`` fails, is put back, and
# succeeds; ``g`` depends on it. ``d`` is after ``c``, in the branch for when ``f`` fails; ``e`` is
# in that for when ``c`` does.


def step_run(uid: str, at: float, given: str = "", *, token: str = "", **more: Any) -> list[Effect]:
    """A run of a second; wall clock and monotonic clock are the same here."""
    found = run(uid, token or f"o:{uid}", at, at + 1, **more)
    return [one._replace(epoch=one.at, given=given if one.phase == "began" else "")
            for one in found]


def ended(*ends: tuple[str, float], value: Any = None, opened: tuple[float, ...] = (),
          **more: Any) -> Final:
    """By what it ended, and when, s."""
    state = ends[-1][0]
    token = value[0] if isinstance(value, list) else value
    return Final(
        DEAD if state == "dead" else DONE, state, token, value=value,
        ends=tuple(End(one, at * 1000) for one, at in ends),
        opened=tuple(at * 1000 for at in opened), **more,
    )


def one_good_flow() -> History:
    both = '[["o:a","x"],["o:b.0","o:b.1"]]'
    return History(
        lease_s=3,
        flows=[Flow("w", "stored", [
            Step("a"),
            Step("b", (("S", "a"),), kind="map", source="a"),
            Step("c", (("S", "a"), ("S", "b")), args=("b",)),
            Step("d", (("F", "f"), ("A", "c"))),
            Step("e", (("F", "c"),)),
            Step("f", ends=("succeeded", "dead")),
            Step("g", (("S", "f"),)),
        ])],
        effects=[
            *step_run("f", 1, phase="failed"), *step_run("f", 5, token="o:f2"),
            *step_run("g", 8, '[["o:f2"],[]]'), *step_run("a", 5),
            *step_run("b.0", 10, '[[],["o:a"]]'), *step_run("b.1", 10, '[[],["x"]]'),
            *step_run("c", 20, f'[{both},[["o:b.0","o:b.1"]]]'),
            *step_run("d", 30, '[["o:f2","o:c"],[]]'),
        ],
        finals={
            "w": Final(DONE, "begun"),
            "a": ended(("succeeded", 6), value=["o:a", "x"]),
            "b.0": ended(("succeeded", 11), value="o:b.0"),
            "b.1": ended(("succeeded", 11), value="o:b.1"),
            "b": ended(("succeeded", 12), value=["o:b.0", "o:b.1"]),
            "c": ended(("succeeded", 21), value="o:c"),
            "d": ended(("succeeded", 31), value="o:d"),
            "e": ended(("skipped", 22)),
            "f": ended(("dead", 2), ("succeeded", 6), value="o:f2", opened=(4,)),
            "g": ended(("skipped", 3), ("succeeded", 9), value="o:g", opened=(4,)),
        },
    )


def without(history: History, *uids: str) -> History:
    return replace(
        history, effects=[one for one in history.effects if one.uid not in uids],
        finals={uid: one for uid, one in history.finals.items() if uid not in uids},
    )


def changed(uid: str, final: Final, *effects: Effect) -> History:
    """The good one, but with this end of a step and, if any are given, these effects of it."""
    history = one_good_flow()
    kept = [one for one in history.effects if one.uid != uid or not effects]
    return replace(
        history, effects=[*kept, *effects], finals={**history.finals, uid: final}
    )


def test_a_clean_workflow_has_no_violations() -> None:
    assert rules(one_good_flow()) == []


def test_a_workflow_is_there_as_a_whole_or_not_at_all() -> None:
    whole = one_good_flow()
    steps = [one.uid for one in whole.flows[0].steps]
    nothing = without(whole, "w", "b.0", "b.1", *steps)
    assert rules(nothing) == ["half"]
    for answer in ("maybe", "refused"):
        whole.flows[0].answer = answer
        assert rules(whole) == (["half"] if answer == "refused" else [])
        assert rules(nothing) == []
        assert rules(without(whole, "b")) == ["half"]


@pytest.mark.parametrize("places", [("ready", "tasks"), ("waiting", "held", "tasks")])
def test_a_step_without_an_end_is_unfinished_and_waits_in_vain_if_it_waits(
    places: tuple[str, ...]
) -> None:
    history = without(one_good_flow(), "d")
    history.finals["d"] = Final(frozenset(places))
    vain = ["waiting"] if "waiting" in places else []
    assert rules(history) == ["unfinished", *vain]
    # As long as what it waits for has not ended, it does so rightly.
    history.finals["c"] = Final(frozenset(("ready", "tasks")))
    assert "waiting" not in rules(history)


def test_a_step_that_began_before_what_it_depends_on_had_succeeded_is_found() -> None:
    assert rules(changed("c", ended(("succeeded", 12), value="o:c"), *step_run("c", 11.5))) == (
        ["early"]
    )
    # ``f`` had ended then, and not well.
    history = changed("g", ended(("succeeded", 4), value="o:g"), *step_run("g", 3))
    assert rules(history) == ["early"]
    assert rules(changed("b.0", one_good_flow().finals["b.0"], *step_run("b.0", 5.5))) == ["early"]


def test_a_step_that_began_before_what_it_is_after_had_ended_is_found() -> None:
    assert rules(changed("d", ended(("succeeded", 21), value="o:d"), *step_run("d", 20.5))) == (
        ["early"]
    )


def test_a_failure_branch_that_began_before_any_failure_is_found() -> None:
    history = without(one_good_flow(), "g")
    history.finals["g"] = ended(("skipped", 26))
    history.finals["f"] = ended(("dead", 25))
    history.effects = [
        *(one for one in history.effects if one.uid not in ("f", "d")),
        *step_run("f", 24, phase="failed"), *step_run("d", 22),
    ]
    assert rules(history) == ["branch"]


def test_a_step_that_was_skipped_and_ran_is_found() -> None:
    history = changed("e", ended(("skipped", 22)), *step_run("e", 21.5, phase="failed"))
    assert rules(history) == ["branch", "skipped"]


def test_a_step_that_was_skipped_for_nothing_is_found() -> None:
    history = without(one_good_flow(), "c", "d", "e")
    history.finals["c"] = ended(("skipped", 13))
    history.flows[0].steps = [
        one for one in history.flows[0].steps if one.uid not in ("d", "e")
    ]
    assert rules(history) == ["skipped"]


def test_a_step_that_was_never_opened_again_is_found() -> None:
    history = without(one_good_flow(), "g")
    history.finals["g"] = ended(("skipped", 3))
    assert rules(history) == ["skipped"]


def test_a_step_that_ran_though_its_trigger_could_not_happen_is_found() -> None:
    history = changed("e", ended(("succeeded", 24), value="o:e"), *step_run("e", 23))
    assert rules(history) == ["skipped", "branch"]


def test_an_end_of_a_step_that_nothing_asked_for_is_found() -> None:
    assert rules(changed("d", ended(("dead", 31)))) == ["step"]
    assert rules(changed("d", ended(("cancelled", 31)))) == ["step"]


def test_a_join_that_is_started_twice_is_doubled_unless_a_crash_is_the_reason() -> None:
    again = step_run("c", 18, token="o:c0")
    history = one_good_flow()
    history.effects = [*history.effects, *again]
    assert rules(history) == ["doubled"]
    history.faults = [Fault("killed", 18.5, 18.5, frozenset((PID,)))]
    assert rules(history) == []


def test_a_step_that_ran_twice_in_one_opening_is_doubled() -> None:
    history = one_good_flow()
    # ``f`` was put back at 4, and ran after that at 4.5 and at 5.
    history.effects += step_run("f", 4.5, token="o:f1")
    assert rules(history) == ["doubled"]


def test_a_step_that_begins_after_a_cancel_was_answered_is_found() -> None:
    history = one_good_flow()
    history.flows[0].cancel, history.flows[0].cancelled_at = True, 25
    assert rules(history) == ["cancelled"]
    history.flows[0].cancelled_at = 29.5  # it was claimed by then, and the message on its way
    assert rules(history) == []
    history.flows[0].cancelled_at = 7.5
    assert rules(history) == ["cancelled"] * 4
    history.faults = [Fault("frozen", 6, 8, frozenset((PID,)))]
    assert rules(history) == ["cancelled"] * 2
    history.faults = [Fault("frozen", 6, 40, frozenset((PID,)))]
    assert rules(history) == []


@pytest.mark.parametrize("given", [
    '[["!dead","o:other"],[]]', '[["o:f2","!skipped"],[]]', '[["o:f2"],[]]',
    '[["o:f1","o:c"],[]]', '[["o:f2","o:c"],["o:c"]]',
])
def test_results_that_are_not_the_parents_are_found(given: str) -> None:
    history = changed("d", one_good_flow().finals["d"], *step_run("d", 30, given))
    assert rules(history) == ["given"]


def test_a_map_whose_result_is_not_that_of_its_tasks_is_found() -> None:
    history = one_good_flow()
    history.finals["b"] = history.finals["b"]._replace(value=["o:b.1", "o:b.0"])
    assert "mapped" in rules(history)
    history = without(one_good_flow(), "b.1")
    assert "mapped" in rules(history)
    history = changed("b.1", one_good_flow().finals["b.1"], *step_run("b.1", 10, '[[],["y"]]'))
    assert rules(history) == ["mapped"]


def test_the_end_of_a_part_says_whether_a_step_of_it_failed() -> None:
    history = History(
        lease_s=3, flows=[Flow("w", "stored", [
            Step("a", ends=("dead",)), Step("p", (("A", "a"),), kind="part", parts=("a",)),
        ])],
        finals={"a": ended(("dead", 2)), "p": ended(("skipped", 3))},
    )
    assert rules(history) == []
    history.finals["p"] = ended(("succeeded", 3))
    assert rules(history) == ["step"]
    history.finals["a"] = ended(("succeeded", 2))
    history.flows[0].steps[0] = Step("a")
    assert rules(history) == []
    history.finals["p"] = ended(("skipped", 3))
    assert rules(history) == ["skipped"]


# Reading


def test_a_line_half_written_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "effects"
    assert read_effects(log) == []
    log.write_text("a 1 o:1 began 7 1.5 99.0\nb 2 o:2 en")
    assert read_effects(log) == [Effect("a", 1, "o:1", "began", 7, 1.5, 99.0)]
