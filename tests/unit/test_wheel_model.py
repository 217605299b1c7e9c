"""The wheel against a model that can not be wrong: a heap of deadlines, and random histories.

What holds for every history, checked after each step:

- nothing fires early; nothing fires more than a tick plus one advance late
- each entry fires once or is cancelled, never both, and never after ``cancel`` said True
- the order is by deadline, across buckets, levels and ticks
- the count is right, and ``next_due`` is neither later than the first entry nor in the past
- an entry moves down at most once per level below its first
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedulr.hub.wheel import Entry, Wheel

YEAR_MS = 365 * 86_400_000
SHAPES = [(10, 512), (10, 8), (7, 3), (1, 2)]


class Checked:
    """A wheel and its model, moved together. Entries are known by number."""

    def __init__(self, tick_ms: int, size: int, start_ms: int = 0) -> None:
        self.tick_ms = tick_ms
        self.now_ms = start_ms
        self.wheel = Wheel(tick_ms, size, start_ms)
        self.entries: list[Entry] = []
        self.pending: dict[int, int] = {}  # number -> deadline: in the wheel
        self.due: set[int] = set()  # handed out by advance, not yet taken
        self.overdue: set[int] = set()  # had passed when they were added
        self.heap: list[tuple[int, int]] = []
        self.ended: Counter[int] = Counter()  # fired or cancelled: once each
        self.moves: Counter[int] = Counter()
        self.buckets: dict[int, object] = {}

    def add(self, delay_ms: int, then: Action = ()) -> int:
        number = len(self.entries)
        deadline_ms = self.now_ms + delay_ms
        entry = self.wheel.add(deadline_ms, lambda: self.fire(number, then))
        assert entry.deadline_ms == deadline_ms
        self.entries.append(entry)
        self.pending[number] = deadline_ms
        heapq.heappush(self.heap, (deadline_ms, number))
        if delay_ms <= 0:
            self.overdue.add(number)
        self.buckets[number] = entry._bucket
        return number

    def cancel(self, number: int) -> None:
        waits = number in self.pending or number in self.due
        assert self.entries[number].cancel() is waits
        if waits:
            self.ended[number] += 1
            self.pending.pop(number, None)
            self.due.discard(number)

    def fire(self, number: int, then: Action) -> None:
        assert number in self.due, "fired, but was cancelled, or fired before"
        self.due.remove(number)
        self.ended[number] += 1
        assert not self.entries[number].cancel(), "it runs: too late to cancel it"
        if then:
            self.act(*then)

    def act(self, what: str, amount: int) -> None:
        """What a callback does: add another, or cancel one that was added around the same time."""
        if what == "add":
            self.add(amount)
        else:
            self.cancel(amount % len(self.entries))

    def advance(self, step_ms: int) -> None:
        self.now_ms += step_ms
        handed_out = self.wheel.advance(self.now_ms)
        self.check_due(handed_out)
        self.check_moves()
        for entry in handed_out:
            callback = entry.take()
            if callback is not None:
                callback()
        assert not self.due

    def check_due(self, handed_out: list[Entry]) -> None:
        deadlines = [entry.deadline_ms for entry in handed_out]
        assert deadlines == sorted(deadlines)
        assert all(deadline_ms <= self.now_ms for deadline_ms in deadlines), "early"
        numbers = {id(entry): number for number, entry in enumerate(self.entries)}
        self.due = {numbers[id(entry)] for entry in handed_out}
        assert len(self.due) == len(handed_out), "handed out twice"
        assert self.due <= self.pending.keys(), "handed out again, or after its cancel"
        for number in self.due:
            del self.pending[number]
        assert not self.overdue & self.pending.keys(), "overdue, and left behind"
        for number, deadline_ms in self.first_pending():
            assert deadline_ms + self.tick_ms > self.now_ms, f"{number} is more than a tick late"

    def first_pending(self) -> Iterator[tuple[int, int]]:
        while self.heap and self.heap[0][1] not in self.pending:
            heapq.heappop(self.heap)
        if self.heap:
            deadline_ms, number = self.heap[0]
            yield number, deadline_ms

    def check_moves(self) -> None:
        for number in self.pending:
            bucket = self.entries[number]._bucket
            if bucket is not self.buckets[number]:
                self.buckets[number] = bucket
                self.moves[number] += 1
                assert self.moves[number] <= self.wheel.levels - 1

    def check_rest(self) -> None:
        assert len(self.wheel) == len(self.pending)
        assert all(times == 1 for times in self.ended.values())
        next_due_ms = self.wheel.next_due()
        if not self.pending:
            assert next_due_ms is None
        else:
            ((_, first_ms),) = self.first_pending()
            assert next_due_ms is not None
            assert next_due_ms < max(first_ms, self.now_ms) + self.tick_ms
            assert next_due_ms >= self.now_ms


Action = tuple[()] | tuple[str, int]


def steps_ms(tick_ms: int, size: int) -> st.SearchStrategy[int]:
    """Advances and delays that matter: none, a moment, around each level's borders, years."""
    borders = [tick_ms * size**level + off for level in range(4) for off in (-1, 0, 1)]
    return st.one_of(
        st.sampled_from([0, 1, tick_ms - 1, tick_ms, *borders]),
        st.integers(0, 50 * tick_ms),
        st.integers(0, tick_ms * size**2),
        st.sampled_from([YEAR_MS, 10 * YEAR_MS]),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[Checked, list[tuple]]:
    tick_ms, size = draw(st.sampled_from(SHAPES))
    step = steps_ms(tick_ms, size)
    then = st.one_of(
        st.just(()),
        st.tuples(st.just("add"), step | st.integers(-100, 0)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
    )
    operation = st.one_of(
        st.tuples(st.just("add"), step | st.integers(-100, 0), then),
        st.tuples(st.just("add"), step, then),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("advance"), step),
    )
    start_ms = draw(st.sampled_from([0, 5, 1_234_567]))
    return Checked(tick_ms, size, start_ms), draw(st.lists(operation, max_size=60))


@settings(max_examples=500, deadline=None)
@given(histories())
def test_wheel_agrees_with_a_heap_whatever_happens(history: tuple[Checked, list[tuple]]) -> None:
    checked, operations = history
    for name, *arguments in operations:
        if name == "cancel":
            if checked.entries:
                checked.cancel(arguments[0] % len(checked.entries))
        else:
            getattr(checked, name)(*arguments)
        checked.check_rest()
    # A callback that adds an overdue entry makes one more advance necessary; none makes two.
    for _ in range(2):
        checked.advance(20 * YEAR_MS)
    assert not checked.pending
    assert checked.wheel.next_due() is None
    assert sorted(checked.ended) == list(range(len(checked.entries)))


@settings(max_examples=200, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    delays_ms=st.lists(st.integers(1, 200_000), min_size=1, max_size=30),
)
def test_a_driver_that_wakes_at_next_due_fires_each_within_its_tick(
    shape: tuple[int, int], delays_ms: list[int]
) -> None:
    tick_ms, size = shape
    wheel = Wheel(tick_ms, size)
    for delay_ms in delays_ms:
        wheel.add(delay_ms, lambda: None)
    fired_ms, wakeups = [], 0
    while (due_ms := wheel.next_due()) is not None:
        wakeups += 1
        for entry in wheel.advance(due_ms):
            assert 0 <= due_ms - entry.deadline_ms < tick_ms
            fired_ms.append(entry.deadline_ms)
    assert fired_ms == sorted(delays_ms)
    assert wakeups <= len(delays_ms) * wheel.levels


@settings(max_examples=200, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    moves=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 2_000)), max_size=40),
)
def test_clock_that_goes_back_and_forth_is_harmless(
    shape: tuple[int, int], moves: list[tuple[int, int]]
) -> None:
    """Never early by the present clock; all there is has fired when the clock gets there.

    A deadline that had passed when it was added stays passed.
    """
    wheel, pending, overdue = Wheel(*shape, start_ms=1_000), {}, set()
    for now_ms, delay_ms in [*moves, (10_000, 1), (20_000, 1)]:
        for entry in wheel.advance(now_ms):
            assert entry.take() is not None
            assert pending.pop(entry) <= now_ms or entry in overdue
        assert all(deadline_ms + shape[0] > now_ms for deadline_ms in pending.values())
        entry = wheel.add(now_ms + delay_ms, lambda: None)
        pending[entry] = now_ms + delay_ms
        if delay_ms == 0:
            overdue.add(entry)
        assert len(wheel) == len(pending)


@pytest.mark.parametrize("tick_ms, size", SHAPES)
def test_long_random_history_agrees_with_a_heap(tick_ms: int, size: int) -> None:
    """Hypothesis keeps histories short. This one is long, so that old buckets meet new ones."""
    rng = random.Random(f"{tick_ms} {size}")
    wheel, heap, live, now_ms = Wheel(tick_ms, size), [], {}, 0
    for number in range(25_000):
        dice = rng.random()
        if dice < 0.55:
            deadline_ms = now_ms + int(rng.expovariate(1 / (tick_ms * size)))
            live[number] = wheel.add(deadline_ms, lambda number=number: number)
            heapq.heappush(heap, (deadline_ms, number))
        elif dice < 0.75 and live:
            assert live.pop(rng.choice(list(live)[:20])).cancel()
        else:
            now_ms += int(rng.expovariate(1 / (2 * tick_ms)))
            fired = [entry.take()() for entry in wheel.advance(now_ms)]
            assert all(live.pop(one).deadline_ms <= now_ms for one in fired)
            while heap and (heap[0][1] not in live or heap[0][0] + tick_ms <= now_ms):
                assert heapq.heappop(heap)[1] not in live
    assert len(wheel) == len(live)
