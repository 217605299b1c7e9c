"""The wheel, one behaviour at a time. ``test_wheel_model.py`` has the properties."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import pytest

from skedulr.hub import wheel as wheel_module
from skedulr.hub.wheel import Entry, Wheel

TEN_YEARS_MS = 10 * 365 * 86_400_000


def nothing() -> None:
    pass


def fired(entries: list[Entry]) -> list[object]:
    """What the callbacks of due entries return, those cancelled in the meantime left out."""
    return [callback() for callback in (entry.take() for entry in entries) if callback is not None]


def test_new_wheel_is_empty_and_wants_nothing() -> None:
    wheel = Wheel()
    assert len(wheel) == 0
    assert wheel.next_due() is None
    assert wheel.advance(TEN_YEARS_MS) == []


def test_entry_fires_at_the_end_of_its_tick_and_not_before() -> None:
    wheel = Wheel()
    wheel.add(1_234, lambda: "tea")
    assert wheel.next_due() == 1_240
    assert wheel.advance(1_239) == []
    assert fired(wheel.advance(1_240)) == ["tea"]
    assert wheel.next_due() is None


def test_deadline_on_a_tick_fires_on_that_millisecond() -> None:
    wheel = Wheel()
    wheel.add(1_240, lambda: "tea")
    assert fired(wheel.advance(1_240)) == ["tea"]


def test_entries_fire_by_deadline_within_a_tick_too() -> None:
    wheel = Wheel()
    for deadline_ms in (19, 12, 500_000, 11, 30, 15):
        wheel.add(deadline_ms, lambda ms=deadline_ms: ms)
    assert fired(wheel.advance(500_000)) == [11, 12, 15, 19, 30, 500_000]


@pytest.mark.parametrize("deadline_ms", [1_005, 1_000, 3, -7])
def test_overdue_entry_fires_at_the_next_advance_even_to_the_same_time(deadline_ms: int) -> None:
    wheel = Wheel(start_ms=1_005)
    wheel.add(deadline_ms, lambda: "late")
    assert wheel.next_due() == 1_005
    assert len(wheel) == 1
    assert fired(wheel.advance(1_005)) == ["late"]


def test_cancelled_entry_never_fires_and_lets_go_of_its_callback() -> None:
    class Callback:
        def __call__(self) -> None:
            raise AssertionError("fired")

    wheel, callback = Wheel(), Callback()
    gone = weakref.ref(callback)
    entry = wheel.add(60_000, callback)
    del callback
    assert entry.cancel() is True
    assert gone() is None
    assert entry.callback is None
    assert len(wheel) == 0
    assert wheel.advance(100_000) == []


def test_second_cancel_and_cancel_after_firing_are_false() -> None:
    wheel = Wheel()
    cancelled, run = wheel.add(10, nothing), wheel.add(20, nothing)
    assert (cancelled.cancel(), cancelled.cancel()) == (True, False)
    fired(wheel.advance(20))
    assert run.cancel() is False


def test_cancel_wins_over_an_advance_that_handed_the_entry_out() -> None:
    wheel = Wheel()
    entry = wheel.add(10, nothing)
    (due,) = wheel.advance(10)
    assert due is entry
    assert entry.cancel() is True
    assert due.take() is None


def test_taken_entry_can_not_be_taken_again() -> None:
    wheel = Wheel()
    wheel.add(10, nothing)
    (due,) = wheel.advance(10)
    assert due.take() is nothing
    assert due.take() is None


@pytest.mark.parametrize("victim", range(5))
def test_cancel_from_any_place_of_a_bucket_leaves_the_others(victim: int) -> None:
    wheel = Wheel()
    entries = [wheel.add(11 + place, lambda place=place: place) for place in range(5)]
    entries[victim].cancel()
    assert len(wheel) == 4
    for entry in (entries[(victim + 1) % 5], entries[(victim + 3) % 5]):
        assert entry.cancel() is True
    left = sorted({0, 1, 2, 3, 4} - {victim, (victim + 1) % 5, (victim + 3) % 5})
    assert fired(wheel.advance(20)) == left


def test_wheel_whose_entries_were_all_cancelled_wants_nothing() -> None:
    wheel = Wheel()
    entries = [wheel.add(ms, nothing) for ms in (15, 700, 60_000, TEN_YEARS_MS)]
    for entry in entries:
        entry.cancel()
    assert wheel.next_due() is None


def test_bucket_emptied_by_cancels_can_be_used_again() -> None:
    wheel = Wheel()
    for _ in range(3):
        wheel.add(15, nothing).cancel()
    wheel.add(15, lambda: "again")
    assert wheel.next_due() == 20
    assert fired(wheel.advance(20)) == ["again"]


def test_worked_example_of_the_design_note_is_true() -> None:
    day_ms = 86_400_000
    tuesday_ms = 5 * day_ms
    wheel = Wheel()
    wheel.add(tuesday_ms + 1_234, lambda: "tuesday")
    stops = []
    while (due_ms := wheel.next_due()) is not None:
        stops.append(due_ms)
        entries = wheel.advance(due_ms)
    hour_ms, minute_ms = 3_600_000, 60_000
    assert stops == [
        4 * day_ms + 23 * hour_ms + 25 * minute_ms + 16_160,
        tuesday_ms,
        tuesday_ms + 1_240,
    ]
    assert fired(entries) == ["tuesday"]
    assert wheel.levels == 3


def test_levels_are_made_on_first_need() -> None:
    wheel = Wheel(tick_ms=10, size=512)
    deadlines = {5_110: 1, 5_130: 2, 512 * 5_120 + 10: 3, TEN_YEARS_MS: 4}
    for deadline_ms, levels in deadlines.items():
        wheel.add(deadline_ms, nothing)
        assert wheel.levels == levels


def test_ten_year_deadline_costs_a_few_levels_and_not_its_ticks() -> None:
    tracemalloc.start()
    try:
        wheel = Wheel()
        before, _ = tracemalloc.get_traced_memory()
        wheel.add(TEN_YEARS_MS, nothing)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert wheel.levels == 4
    assert after - before < 4_000


def test_jump_over_years_fires_everything_in_order_at_once() -> None:
    wheel = Wheel()
    deadlines = [7, 5_119, 5_120, 5_121, 2_621_440, 90_000_000, TEN_YEARS_MS]
    for deadline_ms in reversed(deadlines):
        wheel.add(deadline_ms, lambda ms=deadline_ms: ms)
    assert fired(wheel.advance(TEN_YEARS_MS)) == deadlines


def test_clock_set_back_neither_loses_nor_repeats_nor_hurries() -> None:
    wheel = Wheel()
    wheel.add(1_000, lambda: "first")
    wheel.add(9_000, lambda: "third")
    assert fired(wheel.advance(2_000)) == ["first"]
    assert wheel.advance(500) == []
    wheel.add(1_500, lambda: "second")
    assert wheel.advance(1_499) == []
    assert fired(wheel.advance(1_500)) == ["second"]
    assert fired(wheel.advance(9_000)) == ["third"]


def test_callback_may_add_and_cancel_itself_and_others() -> None:
    wheel = Wheel()
    log: list[object] = []

    def busy() -> None:
        log.append(mine.cancel())
        log.append(other.cancel())
        log.append(later.cancel())
        wheel.add(10, lambda: log.append("overdue"))
        wheel.add(30, lambda: log.append("next tick"))

    mine = wheel.add(11, busy)
    other = wheel.add(12, lambda: log.append("other"))
    later = wheel.add(50_000, lambda: log.append("later"))
    fired(wheel.advance(20))
    assert log == [False, True, True]
    fired(wheel.advance(20))
    assert log[3:] == ["overdue"]
    fired(wheel.advance(60_000))
    assert log[4:] == ["next tick"]


def test_memory_of_added_and_cancelled_entries_comes_back() -> None:
    wheel = Wheel()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for round_ms in (3_600_000, 700, 60_000):
            entries = [wheel.add(round_ms + ms, nothing) for ms in range(30_000)]
            held, _ = tracemalloc.get_traced_memory()
            for entry in entries:
                entry.cancel()
            del entry, entries
        assert wheel.next_due() is None
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held - before > 3_000_000
    assert after - before < 200_000  # tables of the levels, whatever the number of entries


def test_fired_entries_are_freed_without_the_garbage_collector() -> None:
    wheel = Wheel()
    for deadline_ms in range(10_000):
        wheel.add(deadline_ms, nothing)
    gc.collect()
    gc.disable()
    try:
        alive = sum(type(one) is Entry for one in gc.get_objects())
        fired(wheel.advance(5_000))
        fired(wheel.advance(10_000))
        left = sum(type(one) is Entry for one in gc.get_objects())
    finally:
        gc.enable()
    assert (alive - left, len(wheel)) == (10_000, 0)


def test_add_and_cancel_of_hour_timers_leaves_one_bucket_at_most() -> None:
    wheel = Wheel()
    for now_ms in range(0, 1_000_000, 10):
        wheel.advance(now_ms)
        wheel.add(now_ms + 3_600_000, nothing).cancel()
    (level,) = [level for level in wheel._levels if level.buckets]
    assert len(level.buckets) <= 2
    assert wheel.next_due() is None


def test_wheel_refuses_a_shape_that_can_not_turn() -> None:
    with pytest.raises(ValueError, match="tick_ms >= 1 and size >= 2, not 10 and 1"):
        Wheel(size=1)
    with pytest.raises(ValueError, match="not 0 and 512"):
        Wheel(tick_ms=0)


def test_wheel_knows_no_clock_and_no_gevent() -> None:
    names = set(vars(wheel_module))
    assert not names & {"time", "gevent", "datetime", "Clock", "threading"}
