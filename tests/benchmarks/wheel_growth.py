"""What a pending entry costs, from a thousand of them to a million: the wheel and spawn_later.

    python tests/benchmarks/wheel_growth.py [--runs 3] [--json FILE] [--no-chart]

Both do the same, side by side in one run, each sample in a fresh process: keep N callbacks pending,
due over a minute; on top of them add a thousand more and cancel those in random order, a hundred
times; and then, for the memory, hold N while tracemalloc counts. The wheel also fires 100,000
entries, as they come due over 5 s and all at once after a stall. Medians of it all are shown.

It prints a table, draws ``wheel_growth.png`` beside itself, and exits with 1 if a limit is broken.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))  # run from a checkout, installed or not

import gevent  # noqa: E402

from skedulr.hub.wheel import Entry, Wheel  # noqa: E402

PENDING = (1_000, 10_000, 100_000, 1_000_000)
SPAN_MS = 60_000
BATCH, ROUNDS = 1_000, 100
FIRED, FIRED_OVER_MS = 100_000, 5_000

#: What must hold (issue 3): microseconds and bytes an entry, and how many times.
ADD_US, CANCEL_US, FIRE_US, ENTRY_BYTES = 2.5, 0.6, 3.0, 250
FLAT, FASTER, SMALLER = 1.6, 6.0, 5.0

Sample = dict[str, float]


def nothing() -> None:
    pass


class OnTheWheel:
    def __init__(self) -> None:
        self.add = Wheel().add
        self.cancel = Entry.cancel

    def delay(self, ms: int) -> int:
        return ms

    def settle(self) -> None:
        pass


class SpawnLater:
    """An hour further off, or some would fire while others are still being added."""

    def __init__(self) -> None:
        self.add = gevent.spawn_later
        self.cancel = partial(gevent.Greenlet.kill, block=False)

    def delay(self, ms: int) -> float:
        return 3_600 + ms / 1000

    def settle(self) -> None:
        gevent.sleep(0)  # kill leaves a part of its work to the hub; it is not counted


CONTENDERS: dict[str, Callable[[], Any]] = {"wheel": OnTheWheel, "spawn_later": SpawnLater}


# One sample, in a process of its own


def sample(name: str, pending: int, seed: int) -> Sample:
    speed = measure_speed(CONTENDERS[name](), pending, random.Random(seed))
    return {**speed, "bytes": measure_bytes(CONTENDERS[name](), pending, random.Random(seed))}


def measure_speed(contender: Any, pending: int, rng: random.Random) -> Sample:
    add, cancel, delay = contender.add, contender.cancel, contender.delay
    kept = [add(delay(rng.randrange(1, SPAN_MS)), nothing) for _ in range(pending)]
    add_s, cancel_s = [], []
    for _ in range(ROUNDS):
        delays = [delay(rng.randrange(1, SPAN_MS)) for _ in range(BATCH)]
        start = perf_counter()
        more = [add(one, nothing) for one in delays]
        add_s.append(perf_counter() - start)
        rng.shuffle(more)
        start = perf_counter()
        for one in more:
            cancel(one)
        cancel_s.append(perf_counter() - start)
        contender.settle()
    for one in kept:
        cancel(one)
    contender.settle()
    return {"add_us": median(add_s) / BATCH * 1e6, "cancel_us": median(cancel_s) / BATCH * 1e6}


def measure_bytes(contender: Any, pending: int, rng: random.Random) -> float:
    """All that an entry costs, its deadline's number too, but neither callback nor our list."""
    add, delay = contender.add, contender.delay
    kept: list[object] = [None] * pending
    gc.collect()
    tracemalloc.start()
    for place in range(pending):
        kept[place] = add(delay(rng.randrange(1, SPAN_MS)), nothing)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / pending


def sample_firing(seed: int) -> Sample:
    steps = measure_firing(random.Random(seed), lambda wheel: wheel.next_due())
    stall = measure_firing(random.Random(seed), lambda wheel: FIRED_OVER_MS + wheel.tick_ms)
    return {"fire_us": steps, "fire_after_stall_us": stall}


def measure_firing(rng: random.Random, go_to: Callable[[Wheel], int | None]) -> float:
    wheel = Wheel()
    kept = [wheel.add(rng.randrange(1, FIRED_OVER_MS), nothing) for _ in range(FIRED)]
    start = perf_counter()
    while wheel.next_due() is not None:
        for entry in wheel.advance(go_to(wheel) or 0):
            callback = entry.take()
            if callback is not None:
                callback()
    return (perf_counter() - start) / len(kept) * 1e6


# All of them


def in_a_process(*what: object) -> Sample:
    command = [sys.executable, str(HERE), "--sample", *map(str, what)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: Sample = json.loads(done.stdout)
    return result


def medians(samples: list[Sample]) -> Sample:
    return {key: median(one[key] for one in samples) for key in samples[0]}


def measure_all(runs: int) -> dict[str, Any]:
    """The contenders take turns, so that a noisy minute hits both."""
    taken: dict[tuple[str, int], list[Sample]] = {}
    for run in range(runs):
        for pending in PENDING:
            for name in CONTENDERS:
                taken.setdefault((name, pending), []).append(in_a_process(name, pending, run))
    results: dict[str, Any] = {
        name: {pending: medians(taken[name, pending]) for pending in PENDING} for name in CONTENDERS
    }
    results["firing"] = medians([in_a_process("firing", FIRED, run) for run in range(runs)])
    return results


# What comes of it


def print_table(results: dict[str, Any]) -> None:
    print(f"{'pending':>9}  {'':11} {'add us':>8} {'cancel us':>10} {'bytes':>7}")
    for pending in PENDING:
        for name in CONTENDERS:
            one = results[name][pending]
            numbers = f"{one['add_us']:8.2f} {one['cancel_us']:10.2f} {one['bytes']:7.0f}"
            print(f"{pending:>9,}  {name:11} {numbers}")
    firing = results["firing"]
    print(
        f"\n{FIRED:,} entries fire, each: {firing['fire_us']:.2f} us as they come due, "
        f"{firing['fire_after_stall_us']:.2f} us all at once"
    )


def broken_limits(results: dict[str, Any]) -> list[str]:
    """What exceeds its limit, in words; empty when all is well."""
    wheel, other = results["wheel"], results["spawn_later"]
    checks = [(f"{key} of firing", us, FIRE_US) for key, us in results["firing"].items()]
    for pending in PENDING:
        mine, theirs = wheel[pending], other[pending]
        at = f"at {pending:,}"
        checks += [
            (f"add_us {at}", mine["add_us"], ADD_US),
            (f"cancel_us {at}", mine["cancel_us"], CANCEL_US),
            (f"bytes {at}", mine["bytes"], ENTRY_BYTES),
            (f"{FASTER:g} x add_us {at}", FASTER * mine["add_us"], theirs["add_us"]),
            (f"{SMALLER:g} x bytes {at}", SMALLER * mine["bytes"], theirs["bytes"]),
        ]
    for key in ("add_us", "cancel_us"):
        few, many = wheel[PENDING[0]][key], wheel[PENDING[-1]][key]
        checks.append((f"growth of {key}", many / few, FLAT))
    return [f"{what}: {is_:.2f}, limit {limit:.2f}" for what, is_, limit in checks if is_ > limit]


def draw(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (speed, memory) = pyplot.subplots(1, 2, figsize=(9, 3.4), dpi=120)
    for axes, key, title in (
        (speed, "add_us", "Adding one entry, microseconds"),
        (memory, "bytes", "Memory of one entry, bytes"),
    ):
        for name, colour in (("spawn_later", "#8a8f98"), ("wheel", "#1f6feb")):
            values = [results[name][pending][key] for pending in PENDING]
            axes.plot(PENDING, values, color=colour, marker="o", markersize=4, linewidth=2)
            label = "gevent.spawn_later" if name == "spawn_later" else "Skedulr's wheel"
            text = f"{label}: {values[-1]:.1f}" if key == "add_us" else f"{label}: {values[-1]:.0f}"
            axes.annotate(
                text,
                (PENDING[-1], values[-1]),
                xytext=(0, 9),
                textcoords="offset points",
                ha="right",
                color=colour,
                fontweight="bold",
                fontsize=9,
            )
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xscale("log")
        axes.set_xticks(PENDING, ["1,000", "10,000", "100,000", "1,000,000"])
        axes.minorticks_off()
        axes.set_xlabel("entries pending", fontsize=9)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", color="#e4e7eb")
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
    figure.tight_layout(w_pad=3)
    figure.savefig(path, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=3, help="processes per number (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write the results there; - is stdout")
    parser.add_argument("--no-chart", action="store_true", help="do not draw the chart")
    parser.add_argument("--sample", nargs=3, metavar=("NAME", "PENDING", "SEED"), help="internal")
    options = parser.parse_args()
    if options.sample:
        name, pending, seed = options.sample[0], int(options.sample[1]), int(options.sample[2])
        one = sample_firing(seed) if name == "firing" else sample(name, pending, seed)
        print(json.dumps(one))
        return 0
    results = measure_all(options.runs)
    broken = broken_limits(results)
    if options.json:
        text = json.dumps({**results, "broken": broken}, indent=2)
        print(text) if options.json == "-" else Path(options.json).write_text(text + "\n")
    if options.json != "-":
        print_table(results)
    if not options.no_chart:
        draw(results, HERE.with_suffix(".png"))
    for line in broken:
        print(f"LIMIT BROKEN: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
