"""Tuning in a simulation: discrete events, seeded, hours in seconds.

    python tests/benchmarks/tuner_sim.py [--charts DIR] [NAME ...]

Each scenario is a stream of tasks, a pool, and the controller of ``skedulr/tuning.py``, which looks
every 5/3 s as the leader does and whose decisions take a second to come into force. Printed is what
the wait was, predicted and in truth, what it cost in worker-seconds, and how often the size turned;
``--charts`` draws one picture each (needs matplotlib).

The goals (issue 11): the wait within the band 95 % of the time after the first adaptation, at most
one turn per three periods at steady load, 30 % fewer worker-seconds on the daily curve than a pool
of the size that its peak needs. "Within the band" is at or under its upper edge: with fewer workers
than work no wait is steady, with more it is near zero, so that a wait under the lower edge is no
fault by itself; that workers are not kept for it is what the worker-seconds show.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from skedulr import tuning
from skedulr.tuning import Decision, Seen, State

LOOK_S, IN_FORCE_S = 5 / 3, 1.0
BAND = (1.0, 5.0)
#: A steady load's turns are counted per so long: a calm time and a step each way.
PERIOD_S = tuning.CALM_S + tuning.DOWN_S


@dataclass(frozen=True)
class Scenario:
    """``rate(t)``: tasks a second; ``run(random)``: how long one runs, seconds; ``deaths``: at
    (second, part of the workers) that go with their node, and come back to others after 15 s."""

    name: str
    seconds: float
    rate: Callable[[float], float]
    run: Callable[[random.Random], float]
    least: int = 2
    most: int = 200
    deaths: tuple[tuple[float, float], ...] = ()
    #: What the load repeats in, seconds; 0: it is steady or does not repeat.
    period_s: float = 0.0
    #: The most tasks a second at any time: those between are thinned out.
    most_rate: float = 50.0


@dataclass
class Trace:
    """What happened: one row a look, and every task's wait."""

    rows: list[tuple[float, float, int, int, float]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    worker_s: float = 0.0

    def adapted_at(self) -> float:
        """When the first adaptation was over: the wait was in the band after a first step."""
        for at, wait, *_ in self.rows:
            if self.decisions and at > self.decisions[0][0] and wait <= BAND[1]:
                return at
        return 0.0

    def held(self) -> float:
        """The part of the looks after that at which the wait was within the band."""
        rows = [wait for at, wait, *_ in self.rows if at >= self.adapted_at()]
        return sum(wait <= BAND[1] for wait in rows) / max(1, len(rows))

    def turns(self) -> int:
        """How often a growing pool began to shrink or the other way round."""
        moves = [one.after > one.before for _, one in self.decisions if one.after != one.before]
        return sum(a != b for a, b in pairwise(moves))

    def sizes(self) -> list[int]:
        return [row[2] for row in self.rows]


class Pool:
    """Workers, a queue, and time."""

    def __init__(self, size: int) -> None:
        self.now, self.size, self.ended = 0.0, size, 0
        self.queue: deque[tuple[float, float]] = deque()
        self.running: list[tuple[float, float, float]] = []

    def advance(self, until: float, arrivals: deque[tuple[float, float]], trace: Trace) -> None:
        """Let tasks come and end up to ``until``."""
        while True:
            comes = arrivals[0][0] if arrivals else math.inf
            ends = self.running[0][0] if self.running else math.inf
            at = min(comes, ends)
            if at > until:
                break
            trace.worker_s += (at - self.now) * max(self.size, len(self.running))
            self.now = at
            if ends <= comes:
                heapq.heappop(self.running)
                self.ended += 1
            else:
                self.queue.append(arrivals.popleft())
            self.start(trace)
        trace.worker_s += (until - self.now) * max(self.size, len(self.running))
        self.now = until
        self.start(trace)

    def start(self, trace: Trace) -> None:
        while self.queue and len(self.running) < self.size:
            came, seconds = self.queue.popleft()
            trace.waits.append(self.now - came)
            heapq.heappush(self.running, (self.now + seconds, came, seconds))

    def lose(self, part: float) -> list[tuple[float, float]]:
        """A node dies: its workers go, and what they ran is to be run anew."""
        gone = round(len(self.running) * part)
        lost = [(came, seconds) for _, came, seconds in self.running[:gone]]
        self.running = self.running[gone:]
        heapq.heapify(self.running)
        self.size -= round(self.size * part)
        return lost


def simulate(scenario: Scenario, seed: int = 1, fixed: int | None = None) -> Trace:
    """Run a scenario, with the controller or with a ``fixed`` number of workers."""
    draw, trace = random.Random(seed), Trace()
    arrivals = deque(_arrivals(scenario, draw))
    pool = Pool(fixed or scenario.least)
    state = State(size=pool.size)
    events: list[tuple[float, int, Callable[[], None]]] = []
    for at, part in scenario.deaths:
        _plan(events, at, lambda part=part: _die(events, pool, part))
    for look in range(1, int(scenario.seconds / LOOK_S)):
        at = look * LOOK_S
        while events and events[0][0] <= at:
            due, _, act = heapq.heappop(events)
            pool.advance(due, arrivals, trace)
            act()
        pool.advance(at, arrivals, trace)
        seen = Seen(at, len(pool.queue), len(pool.running), pool.size, pool.ended,
                    scenario.least, scenario.most, *BAND)
        state, decision = tuning.decide(state, seen)
        wait = tuning.wait_s(state, seen)
        trace.rows.append((at, wait, pool.size, len(pool.running), state.work))
        if decision is not None and fixed is None:
            trace.decisions.append((at, decision))
            after = decision.after
            _plan(events, at + IN_FORCE_S, lambda after=after: setattr(pool, "size", after))
    return trace


def _plan(events: list[tuple[float, int, Callable[[], None]]], at: float,
          act: Callable[[], None]) -> None:
    heapq.heappush(events, (at, len(events) + id(act), act))


def _die(events: list[tuple[float, int, Callable[[], None]]], pool: Pool, part: float) -> None:
    before, lost = pool.size, pool.lose(part)
    # The lease runs out, and the leader gives the dead node's workers to those that live.
    _plan(events, pool.now + 15, lambda: pool.queue.extendleft(reversed(lost)))
    _plan(events, pool.now + 12, lambda: setattr(pool, "size", max(pool.size, before)))


def _arrivals(scenario: Scenario, draw: random.Random) -> Iterator[tuple[float, float]]:
    at = 0.0
    while True:
        at += draw.expovariate(scenario.most_rate)
        if at > scenario.seconds:
            return
        if draw.random() * scenario.most_rate < scenario.rate(at):
            yield at, scenario.run(draw)


# ------------------------------------------------------------------------------------ scenarios


def _about(mean_s: float) -> Callable[[random.Random], float]:
    return lambda draw: draw.uniform(0.5, 1.5) * mean_s


def _exponential(mean_s: float) -> Callable[[random.Random], float]:
    return lambda draw: draw.expovariate(1 / mean_s)


def _heavy(mean_s: float) -> Callable[[random.Random], float]:
    """Pareto with exponent 1.5, no variance to speak of: most are short, some take minutes."""
    return lambda draw: min(300.0, mean_s / 3 * draw.paretovariate(1.5))


def _square(low: float, high: float, half_s: float) -> Callable[[float], float]:
    return lambda t: high if t % (2 * half_s) >= half_s else low


SCENARIOS = {one.name: one for one in (
    Scenario("steady", 3600, lambda t: 10.0, _exponential(2.0), most_rate=10),
    Scenario("square", 3600, _square(2, 20, 300), _exponential(2.0), most_rate=20, period_s=600),
    Scenario("quick square", 1200, _square(0, 20, 10), _exponential(1.0), most_rate=20,
             period_s=20),
    Scenario("ramp", 3600, lambda t: 30 * min(1.0, t / 1800), _exponential(2.0), most_rate=30),
    Scenario("spike", 1800, lambda t: 40 if 600 <= t < 660 else 2, _exponential(1.0),
             most_rate=40),
    Scenario("heavy tail", 7200, lambda t: 5.0, _heavy(2.0), most_rate=5),
    Scenario("node dies", 1800, lambda t: 10.0, _exponential(2.0), deaths=((900, 0.5),),
             most_rate=10),
    Scenario("day", 86_400, lambda t: 5 - 4.5 * math.cos(2 * math.pi * t / 86_400),
             _exponential(4.0), most_rate=9.5),
)}


def peak_size(scenario: Scenario) -> int:
    """The fixed size that holds the band at the peak: work over the part that workers are busy."""
    draw = random.Random(0)
    mean_s = sum(scenario.run(draw) for _ in range(20_000)) / 20_000
    peak = max(scenario.rate(t) for t in range(0, int(scenario.seconds), 10))
    return math.ceil(peak * mean_s / tuning.BUSY)


def report(scenario: Scenario, seed: int) -> str:
    """One line of figures."""
    began = time.perf_counter()
    trace, fixed = simulate(scenario, seed), peak_size(scenario)
    waits = sorted(trace.waits)
    saved = 1 - trace.worker_s / (fixed * scenario.seconds)
    periods = scenario.seconds / (scenario.period_s or PERIOD_S)
    return (
        f"{scenario.name:13} held {trace.held():7.2%}  p50 {waits[len(waits) // 2]:5.2f} s  "
        f"p95 {waits[int(len(waits) * 0.95)]:5.2f} s  most {waits[-1]:6.1f} s  "
        f"turns per 3 periods {3 * trace.turns() / periods:4.2f}  "
        f"steps {len(trace.decisions):3}  size {min(trace.sizes())}..{max(trace.sizes())}  "
        f"against {fixed} fixed {-saved:+6.1%}  {time.perf_counter() - began:.1f} s"
    )


def draw(scenario: Scenario, seed: int, folder: Path) -> Path:
    """A chart: the wait with its band, and below workers, those busy, and the work."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    trace = simulate(scenario, seed)
    hours = scenario.seconds > 10_000
    at = [row[0] / (3600 if hours else 60) for row in trace.rows]
    figure, (top, below) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 5), dpi=80)
    top.axhspan(*BAND, color="#cfe8cf", lw=0)
    top.plot(at, [row[1] for row in trace.rows], lw=0.9, color="#333366")
    top.set_ylabel("predicted wait, s")
    top.set_title(f"{scenario.name}: band held {trace.held():.1%} of the time")
    below.plot(at, [row[3] for row in trace.rows], lw=0.5, color="#bbbbbb", label="busy")
    below.step(at, trace.sizes(), where="post", lw=1.2, color="#aa3333", label="workers")
    below.set_ylabel("workers")
    below.set_xlabel("hours" if hours else "minutes")
    below.legend(loc="upper right", frameon=False)
    figure.tight_layout()
    file = folder / f"tuner_{scenario.name.replace(' ', '_')}.png"
    figure.savefig(file)
    pyplot.close(figure)
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--charts", type=Path, metavar="DIR", help="draw a picture of each there")
    given = parser.parse_args()
    for name in given.names or SCENARIOS:
        print(report(SCENARIOS[name], given.seed), flush=True)
        if given.charts:
            draw(SCENARIOS[name], given.seed, given.charts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
