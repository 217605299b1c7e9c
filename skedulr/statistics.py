"""Statistics: what was counted of runs, and what follows from it. Pure arithmetic, no input.

- ``Tally`` and ``Times`` read what the scripts keep of a task's name, or of a pool, in one span of
  time (see redis_scripts/includes/tally.lua), add such texts up and tell means and quantiles.
- ``predicted_wait``, ``capacity``, ``utilisation`` and ``sliding_rate`` are the formulas behind the
  numbers on the page; examples/docs/statistics.md says the same in words.

What can not be known (a mean of nothing, a rate without time) is None, never 0 and never NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Times are counted below each of these, ms, and once above all; as tally.lua has them.
BOUNDS_MS = (
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000,
    5000, 7000, 10000, 15000, 20000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000,
    10800000, 43200000,
)
#: Under this name goes what is over a pool's most names, and what has a name that nobody knows.
OTHERS, UNKNOWN = "(other)", "(unknown)"

#: Backlogs shorter than this say nothing of what a pool can do, seconds.
STEADY_S = 10.0
#: Nor do fewer ended tasks than this: their rate is too uncertain.
ENOUGH = 30
#: Tasks per second that one process gets through at most, whatever its handlers take.
MOST_PER_PROCESS = 20_000.0

_COUNTS = (
    "runs", "succeeded", "dead", "cancelled", "expired", "retried", "crashed", "submitted",
)
_FORM = re.compile(r"([\d ]+)\|(\d+) (\d+)([\d: ]*)\|(\d+) (\d+)([\d: ]*)")


@dataclass(slots=True)
class Times:
    """How long something took, many times over: sum and longest in ms, and counts by bucket.

    >>> times = Times()
    >>> times.add_ms(40); times.add_ms(60)
    >>> times.count, times.mean_ms, times.quantile(0.5)
    (2, 50.0, 50.0)
    """

    sum_ms: int = 0
    longest_ms: int = 0
    #: By position in BOUNDS_MS; one more at the end for what is longer than all.
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    @property
    def count(self) -> int:
        """How many times."""
        return sum(self.buckets)

    @property
    def mean_ms(self) -> float | None:
        """The mean, exact; None for none."""
        count = self.count
        return self.sum_ms / count if count else None

    def quantile(self, share: float) -> float | None:
        """About the time, ms, that ``share`` (0 to 1) of all stay below; None for none.

        Within a bucket times are taken as evenly spread, so it is right to the width of a bucket:
        a third to a half of the value.
        """
        wanted, passed = share * self.count, 0.0
        for at, count in enumerate(self.buckets):
            if count and passed + count >= wanted:
                low = BOUNDS_MS[at - 1] if at else 0
                # None is longer than the longest, which lies in the last bucket that holds any.
                high = max(low, self.longest_ms)
                if at < len(BOUNDS_MS):
                    high = min(high, BOUNDS_MS[at])
                return low + (high - low) * (wanted - passed) / count
            passed += count
        return None

    def add(self, other: Times) -> None:
        """Add another one up."""
        self.sum_ms += other.sum_ms
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]

    def add_ms(self, ms: int, count: int = 1) -> None:
        """Count one time, or ``count`` equal ones."""
        at = next((i for i, bound in enumerate(BOUNDS_MS) if ms < bound), len(BOUNDS_MS))
        self.buckets[at] += count
        self.sum_ms += ms * count
        self.longest_ms = max(self.longest_ms, ms)


@dataclass(slots=True)
class Tally:
    """What was counted in one span of time, of one task's name or of a whole pool.

    ``runs``: attempts that ended. ``succeeded``, ``dead``, ``cancelled``, ``expired``: tasks that
    ended so. ``retried``: attempts that failed and were planned again; ``crashed``: runs whose
    process died and that were charged for it; ``submitted``: tasks that came into the queue, of a
    pool only. ``waited`` and ``ran`` are of runs.
    """

    runs: int = 0
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    retried: int = 0
    crashed: int = 0
    submitted: int = 0
    waited: Times = field(default_factory=Times)
    ran: Times = field(default_factory=Times)

    @property
    def failed(self) -> int:
        """Attempts that failed, as the pool's total counts them."""
        return self.dead + self.retried

    @property
    def ended(self) -> int:
        """Tasks that came to an end."""
        return self.succeeded + self.dead + self.cancelled + self.expired

    @classmethod
    def read(cls, text: bytes | None) -> Tally:
        """From the text that the scripts keep; empty for none, and for one that can not be read."""
        tally = cls()
        parts = _FORM.fullmatch(text.decode("utf-8", "replace")) if text else None
        if parts is None:
            return tally
        counts, sum_1, longest_1, buckets_1, sum_2, longest_2, buckets_2 = parts.groups()
        for name, count in zip(_COUNTS, counts.split(), strict=False):
            setattr(tally, name, int(count))
        tally.waited = _read_times(sum_1, longest_1, buckets_1)
        tally.ran = _read_times(sum_2, longest_2, buckets_2)
        return tally

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        """All of them in one."""
        total = cls()
        for one in tallies:
            total.add(one)
        return total

    def add(self, other: Tally) -> None:
        """Add another one up."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.waited.add(other.waited)
        self.ran.add(other.ran)


def read_failures(text: bytes | None) -> tuple[int, int]:
    """(runs, failed attempts) of a tally's text, for who needs no more of many of them."""
    counts = (text or b"").partition(b"|")[0].split()
    if len(counts) < len(_COUNTS) or not all(map(bytes.isdigit, counts)):
        return 0, 0
    return int(counts[0]), int(counts[2]) + int(counts[5])


def _read_times(total: str, longest: str, buckets: str) -> Times:
    times = Times(int(total), int(longest))
    for pair in buckets.split():
        at, _, count = pair.partition(":")
        if at and count and 1 <= int(at) <= len(times.buckets):
            times.buckets[int(at) - 1] += int(count)
    return times


class Load(NamedTuple):
    """What the formulas need to know of a pool at one moment.

    ``ahead``: queued tasks that are taken before one submitted now; ``claimed``: tasks that are
    claimed, running or taken ahead; ``workers`` and ``processes``: of all nodes together;
    ``service_s``: mean time of a run over the last minutes, None where nothing ran;
    ``backlog_s``: how long the first task of the queue has waited, None for an empty queue;
    ``ended_10s``, ``ended_60s``: tasks that ended in the last 10 and 60 seconds.
    """

    ahead: int
    claimed: int
    workers: int
    processes: int = 1
    service_s: float | None = None
    backlog_s: float | None = None
    ended_10s: int = 0
    ended_60s: int = 0


def capacity(load: Load) -> float | None:
    """Tasks per second that the pool gets through with all of its workers busy; None if unknown.

    After a backlog of ten seconds, it is what was got through meanwhile. Else it is
    workers / service time, as if they did not hinder one another, and no more than 20,000 a
    process.
    """
    if load.workers <= 0:
        return None
    if load.backlog_s is not None and load.backlog_s >= STEADY_S:
        if load.backlog_s >= 60 and load.ended_60s >= ENOUGH:
            return load.ended_60s / 60
        if load.ended_10s >= ENOUGH:
            return load.ended_10s / 10
    if load.service_s is None:
        return None
    most = MOST_PER_PROCESS * max(1, load.processes)
    return min(most, load.workers / load.service_s) if load.service_s > 0 else most


def predicted_wait(load: Load) -> float | None:
    """Seconds until a task submitted now is started; None where nothing is known of the pool.

    It is 0 while a worker is free and nothing is ahead. Else as many tasks have to end first as
    there are ahead and claimed beyond the workers, and one more::

        (ahead + claimed - workers + 1) / capacity

    Tasks of a higher priority that come later are not foreseen, nor delayed ones that come due.

    >>> predicted_wait(Load(ahead=99, claimed=10, workers=10, service_s=0.5))
    5.0
    """
    if load.workers <= 0:
        return None
    before = load.ahead + load.claimed - load.workers
    if before < 0:
        return 0.0
    rate = capacity(load)
    return (before + 1) / rate if rate else None


def utilisation(busy_s: float, workers: int, seconds: float) -> float | None:
    """The share of its workers' time that a pool spent in runs, 0 to 1; None without workers.

    ``busy_s``: the time of all runs that ended within ``seconds``. A run that is longer than that
    counts whole when it ends, so this is cut at 1.
    """
    return min(1.0, busy_s / (workers * seconds)) if workers > 0 and seconds > 0 else None


def sliding_rate(counts: Sequence[float], elapsed_s: float) -> float | None:
    """Events per second over the last ``len(counts) - 1`` minutes.

    ``counts``: by minute, the one that is under way first; of the last one counts only the part
    that is not older: as if its events were evenly spread. ``elapsed_s``: seconds of the minute
    under way.

    >>> sliding_rate([10, 60], 30)
    0.6666666666666666
    """
    if len(counts) < 2:
        return None
    whole = sum(counts[:-1]) + counts[-1] * (1 - min(60.0, elapsed_s) / 60)
    return whole / (60 * (len(counts) - 1))
