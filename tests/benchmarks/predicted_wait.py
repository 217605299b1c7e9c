"""Predicted wait against what then happened: a simulation of discrete events, seeded.

    python tests/benchmarks/predicted_wait.py [--seed 1] [--tasks 20000]

Tasks come to a pool at random (or in a square wave), workers take them first in first out. At each
arrival the wait is predicted from what the pool's figures would say at that moment (what is ahead,
what is claimed, the mean of runs that ended in the last five minutes, how much ended in the last
10 and 60 seconds), and compared with the wait that follows. The relative error is that of waits of
at least half a service time; the median must be under 20 % at steady load.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from skedulr.statistics import Load, predicted_wait

#: Limit of the median relative error at steady load.
LIMIT = 0.20

Draw = Callable[[random.Random], float]

SERVICES: dict[str, Draw] = {
    "fixed": lambda dice: 0.5,
    "exponential": lambda dice: dice.expovariate(2.0),
    "uneven": lambda dice: dice.choice((0.1, 0.1, 0.1, 1.7)),
    "lognormal": lambda dice: dice.lognormvariate(-1.0, 0.8),
}


def arrivals(dice: random.Random, rate: Callable[[float], float], count: int) -> Iterator[float]:
    """Times of a Poisson process whose rate may change."""
    now = 0.0
    for _ in range(count):
        now += dice.expovariate(rate(now))
        yield now


class Pool:
    """Workers and a queue; ``errors`` holds (predicted, actual) of each task."""

    def __init__(self, workers: int, draw: Draw, dice: random.Random) -> None:
        self.workers, self.draw, self.dice = workers, draw, dice
        self.running: list[tuple[float, float]] = []     # (end, service)
        self.queue: deque[tuple[float, float | None]] = deque()
        self.ended: deque[tuple[float, float]] = deque()
        self.lately: dict[int, deque[float]] = {10: deque(), 60: deque()}
        self.service_sum = 0.0
        self.waits: list[tuple[float, float]] = []

    def run(self, times: Iterator[float]) -> list[tuple[float, float]]:
        """All of them; (predicted, actual wait) of each that could be predicted."""
        for now in times:
            self._until(now)
            self.queue.append((now, self._predict(now)))
            self._start(now)
        self._until(float("inf"))
        return self.waits

    def _until(self, now: float) -> None:
        while self.running and self.running[0][0] <= now:
            end, service = heapq.heappop(self.running)
            self.ended.append((end, service))
            self.service_sum += service
            for ends in self.lately.values():
                ends.append(end)
            self._start(end)

    def _start(self, now: float) -> None:
        while self.queue and len(self.running) < self.workers:
            came, predicted = self.queue.popleft()
            if predicted is not None:
                self.waits.append((predicted, now - came))
            service = self.draw(self.dice)
            heapq.heappush(self.running, (now + service, service))

    def _predict(self, now: float) -> float | None:
        while self.ended and self.ended[0][0] < now - 300:
            self.service_sum -= self.ended.popleft()[1]
        for seconds, ends in self.lately.items():
            while ends and ends[0] < now - seconds:
                ends.popleft()
        return predicted_wait(Load(
            ahead=len(self.queue), claimed=len(self.running), workers=self.workers,
            service_s=self.service_sum / len(self.ended) if self.ended else None,
            backlog_s=now - self.queue[0][0] if self.queue else None,
            ended_10s=len(self.lately[10]), ended_60s=len(self.lately[60]),
        ))


def error_of(waits: list[tuple[float, float]], least_s: float) -> float:
    """The median relative error of waits that are at least so long."""
    return statistics.median(
        abs(predicted - actual) / actual for predicted, actual in waits if actual >= least_s
    )


def steady(seed: int, service: str, workers: int, used: float, tasks: int) -> float:
    """The median error at a steady load that uses this share of the workers."""
    dice = random.Random(seed)
    mean = statistics.fmean(SERVICES[service](dice) for _ in range(20_000))
    rate = used * workers / mean
    pool = Pool(workers, SERVICES[service], dice)
    waits = pool.run(arrivals(dice, lambda now: rate, tasks))
    return error_of(waits[tasks // 5:], mean / 2)


def wave(seed: int, tasks: int) -> float:
    """The median error where load comes and goes: 40 s at twice what 10 workers can, 80 s at a
    quarter."""
    dice = random.Random(seed)
    pool = Pool(10, SERVICES["exponential"], dice)
    waits = pool.run(arrivals(dice, lambda now: 40.0 if now % 120 < 40 else 5.0, tasks))
    return error_of(waits[tasks // 5:], 0.25)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=20_000)
    given = parser.parse_args()
    broken = 0
    print(f"{'service':<14}{'workers':>8}{'load':>7}{'median error':>15}")
    for service in SERVICES:
        for workers, used in ((4, 0.97), (10, 0.98), (20, 0.99)):
            error = steady(given.seed, service, workers, used, given.tasks)
            broken += error > LIMIT
            verdict = " BROKEN" if error > LIMIT else ""
            print(f"{service:<14}{workers:>8}{used:>7}{error:>14.1%}{verdict}")
    print(f"{'square wave':<14}{10:>8}{'':>7}{wave(given.seed, given.tasks):>14.1%}  (no limit)")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
