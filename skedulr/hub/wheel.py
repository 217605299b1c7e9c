"""The timing wheel: everything in a process that fires later, in O(1) to add and to cancel.

Its duties: hold entries by deadline, hand out those that are due in order, say when it wants to be
asked again. Time is an argument; no clock, no gevent and no thread is in here (``driver.py`` has
them), which is why every property of it can be tested with invented time.

**The idea.** Time is cut into ticks of 10 ms. Level 0 has one bucket a tick for the next 512 ticks.
What lies beyond goes to the level above, whose buckets are 512 ticks wide, and so on: each level's
bucket is as wide as the whole level below. A level is made when a deadline first needs it, and
there may be any number:

    level   a bucket covers   the level covers
      0         10 ms               5.12 s
      1          5.12 s            43 min 41 s
      2         43 min 41 s        15.5 days
      3         15.5 days          21.8 years

A bucket is a plain list, and each entry knows its bucket and its place in it. So adding is one
append, and cancelling moves the bucket's last entry into the place that becomes free: the entry
and its callback are let go of at once, and the list shrinks. Only buckets in use exist, and only
buckets are in the heap that knows what is due next, so the heap's cost is paid once a bucket, not
once an entry, and empty time costs nothing: whoever drives the wheel sleeps straight through it.

When a level 0 bucket comes due its entries fire. When a bucket of another level comes due its
entries move down: what is left of their time fits a lower level by then, so an entry moves at most
once for every level below the one it began in.

**An entry for next Tuesday.** The wheel starts on a Thursday at 09:00, tick 0. An entry is added
for Tuesday 09:00:01.234, 432,001,234 ms away. Rounded up to a tick (never early) that is tick
43,200,124. Level 0 ends at tick 512 and level 1 at 262,144; level 2 reaches to 134,217,728. So:

    level 2, bucket of tick 42,991,616 (164 x 262,144); it comes due on Tuesday at 08:25:16.16
    level 1, bucket of tick 43,200,000 (84,375 x 512); it comes due at 09:00:00.00
    level 0, bucket of tick 43,200,124; the entry fires at 09:00:01.24, 6 ms after its deadline

Three buckets and two moves in five days. Had it been cancelled on Monday, none.

**Costs.** ``add`` and ``cancel``: O(1), about half a microsecond and a tenth of one, the same at a
thousand entries and at a million. The first entry of a bucket pays a heap push over the buckets in
use, 512 a level at most. ``advance``: the entries that fire or move, and sorting those that fire.
Memory: about 130 bytes an entry, its callback not counted. ``wheel_growth.py`` in
``tests/benchmarks`` measures all of this. Buckets were dicts at first, keyed by entry: as fast at a
thousand, but at a million the hash tables had outgrown the processor's caches and an ``add`` took
1.7 times as long. Appending to a list touches one place in memory, at its end.

**What is not promised.** An entry fires up to one tick late, and as late as ``advance`` is called.
Entries of the same deadline fire in no particular order. ``next_due`` may name a time at which
entries only move down, and nothing fires. Nothing is locked: one thread owns a wheel.

**Sources.** G. Varghese and T. Lauck, "Hashed and hierarchical timing wheels", SOSP 1987: the wheel
and its levels. The overflow wheel made on demand and the queue of buckets instead of a ticking
hand are known from Kafka's request purgatory. Buckets found by their absolute tick, in place
of a ring of slots, are ours: nothing wraps around, so a clock set back is merely an earlier now.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter

Callback = Callable[[], object]
Bucket = list["Entry"]

_by_deadline = attrgetter("deadline_ms")


class Entry:
    """One thing that fires later: what ``Wheel.add`` returns.

    ``deadline_ms`` is when, ``callback`` what; ``callback`` is None once the entry was taken to be
    run or was cancelled.
    """

    __slots__ = ("_bucket", "_place", "callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callback, bucket: Bucket) -> None:
        self.deadline_ms = deadline_ms
        self.callback: Callback | None = callback
        self._bucket: Bucket | None = bucket
        self._place = len(bucket)
        bucket.append(self)

    def cancel(self) -> bool:
        """True: it will never fire. False: it fired already, or was cancelled before.

        True also for an entry that ``advance`` has handed out and nobody took yet: ``take`` will
        then find nothing to run.
        """
        if self.callback is None:
            return False
        self.callback = None
        bucket = self._bucket
        if bucket is not None:
            self._bucket = None
            last = bucket.pop()
            if last is not self:
                place = self._place
                bucket[place] = last
                last._place = place
        return True

    def take(self) -> Callback | None:
        """The callback, for the caller to run now; None if the entry was cancelled or taken.

        Whoever runs an entry takes it first, at the last moment: this is where firing and
        cancelling are decided, once, for one of the two.
        """
        callback, self.callback = self.callback, None
        return callback


class _Level:
    """The buckets of one width, all of it in ticks.

    A level reaches ``span`` ticks from now; ``end`` is where that is at present.
    """

    __slots__ = ("buckets", "end", "span", "width")

    def __init__(self, width: int, span: int, tick: int) -> None:
        self.width = width
        self.span = span
        self.end = tick + span
        self.buckets: dict[int, Bucket] = {}  # by the bucket's first tick


class Wheel:
    """Entries by deadline, in milliseconds of any clock that the caller keeps to.

    ``tick_ms`` is the precision, ``size`` the buckets a level has, ``start_ms`` the present.

    >>> wheel = Wheel()
    >>> entry = wheel.add(1_234, lambda: "tea")
    >>> wheel.next_due(), wheel.advance(1_239)
    (1240, [])
    >>> [due.take()() for due in wheel.advance(1_240)]
    ['tea']
    """

    def __init__(self, tick_ms: int = 10, size: int = 512, start_ms: int = 0) -> None:
        if tick_ms < 1 or size < 2:
            raise ValueError(f"a wheel needs tick_ms >= 1 and size >= 2, not {tick_ms} and {size}")
        self.tick_ms = tick_ms
        self.size = size
        self._now_ms = start_ms
        self._tick = start_ms // tick_ms
        self._levels = [_Level(1, size, self._tick)]
        self._heap: list[tuple[int, int, _Level]] = []  # (first tick, width, level) of each bucket
        self._overdue: Bucket = []

    def __len__(self) -> int:
        """Entries that wait. Counted, not kept: O(buckets), and it can not be wrong."""
        return len(self._overdue) + sum(
            len(bucket) for level in self._levels for bucket in level.buckets.values()
        )

    @property
    def levels(self) -> int:
        """How many levels have been needed so far."""
        return len(self._levels)

    def add(self, deadline_ms: int, callback: Callback) -> Entry:
        """Have ``callback`` fire at ``deadline_ms`` or up to one tick later.

        A deadline that has passed by the time of the last ``advance`` fires at the next one.
        """
        if deadline_ms <= self._now_ms:
            bucket = self._overdue
        else:
            bucket = self._bucket_of(-(-deadline_ms // self.tick_ms))
        return Entry(deadline_ms, callback, bucket)

    def next_due(self) -> int | None:
        """When to call ``advance`` next, in ms; None when nothing waits.

        Never later than the earliest entry's own tick. It may be earlier, for entries to move down.
        """
        if self._overdue:
            return self._now_ms
        heap = self._heap
        while heap:
            start, _, level = heap[0]
            if level.buckets[start]:
                return start * self.tick_ms
            # All its entries were cancelled: forget it here, so that nobody wakes up for it.
            heappop(heap)
            del level.buckets[start]
        return None

    def advance(self, now_ms: int) -> list[Entry]:
        """Move to ``now_ms`` and return the entries that are due, earliest deadline first.

        Nothing is called here. The caller runs each with ``take``, so a ``cancel`` between the two
        still counts. A ``now_ms`` before the last one is fine: nothing fires twice or too early.
        """
        self._set_now(now_ms)
        due: list[Entry] = []
        if self._overdue:
            due.extend(_flush(self._overdue))
            self._overdue = []
        heap, tick = self._heap, self._tick
        while heap and heap[0][0] <= tick:
            start, width, level = heappop(heap)
            bucket = level.buckets.pop(start)
            if width == 1:
                due.extend(_flush(bucket))
            else:
                self._move_down(bucket, due)
        due.sort(key=_by_deadline)
        return due

    def _set_now(self, now_ms: int) -> None:
        self._now_ms = now_ms
        tick = now_ms // self.tick_ms
        if tick != self._tick:
            self._tick = tick
            for level in self._levels:
                level.end = tick + level.span

    def _bucket_of(self, tick: int) -> Bucket:
        """The bucket for an entry to fire at ``tick``, in the lowest level that reaches so far."""
        for level in self._levels:
            if tick < level.end:
                break
        else:
            level = self._grow(tick)
        start = tick - tick % level.width
        bucket = level.buckets.get(start)
        if bucket is None:
            bucket = level.buckets[start] = []
            heappush(self._heap, (start, level.width, level))
        return bucket

    def _grow(self, tick: int) -> _Level:
        level = self._levels[-1]
        while tick >= level.end:
            level = _Level(level.span, level.span * self.size, self._tick)
            self._levels.append(level)
        return level

    def _move_down(self, bucket: Bucket, due: list[Entry]) -> None:
        """Spread a bucket of an upper level over the levels below, or into ``due``.

        The bucket has begun, so what is left of each entry's time is less than the bucket's
        width: it fits below, always.
        """
        now_tick, tick_ms = self._tick, self.tick_ms
        for entry in bucket:
            tick = -(-entry.deadline_ms // tick_ms)
            if tick <= now_tick:
                entry._bucket = None
                due.append(entry)
            else:
                entry._bucket = lower = self._bucket_of(tick)
                entry._place = len(lower)
                lower.append(entry)


def _flush(bucket: Bucket) -> Bucket:
    """The entries of a bucket that is due, out of the wheel but not yet taken or cancelled.

    They forget their bucket: the two would keep each other alive until a garbage collection.
    """
    for entry in bucket:
        entry._bucket = None
    return bucket
