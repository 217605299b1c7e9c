"""Limits in figures, with what they must keep.

    python tests/benchmarks/limits.py [--runs 3] [--tasks 50000] [--scale 1] [PART ...]

On a private redis-server without persistence, a master with one child of 100 workers unless a part
says so. Where two ways are compared they alternate, and the ratio is that of their medians.
--scale makes the large parts smaller: wait has 100,000 tasks of 10,000 keys parked, growth up to
100,000. Ends with status 1 where a goal is missed.

  drain    a full queue without limits; under one limit that never blocks; the same of 1,000 keys
           each; and (no goal) of a limit as large as the pool, where nothing waits in memory
  idle     1,000 keys with parked tasks beside an empty pool: commands, CPU of master and server
  rate     1,000 a second on two children: starts of 30 s, and the fullest window of one second; a
           start is seen up to 50 ms after its token was taken, so the window of the tokens, by the
           server's time, is measured as well: with claims by the scripts alone
  wait     submit to start of tasks without limits while others are parked, beside an empty pool;
           and (no goal) while 100 of the parked ones a second are let out
  growth   the server's time to park a task, and to let it out and run it, by how many are parked
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import rig
from rig import HERE, Figures, Rig, cpu_s, quantile

sys.path.insert(0, str(HERE.parent / "scripts"))

from script_driver import RealRunner, Scripts, limited, task

from skedulr import Limit
from skedulr.bench import meter
from skedulr.keys import PoolKeys

RATE, RATE_BURST, RATE_S = 1000, 50, 30
#: Between a token and the start that it is for, seconds.
LATE_S = 0.05
LIMITS: rig.Limits = {
    "drain: one key / unlimited": (0.7, "at least"),
    "drain: 1,000 keys / unlimited": (0.7, "at least"),
    "idle: more commands/s": (0.2, "at most"),
    "idle: more CPU of master, % of a core": (0.1, "at most"),
    "idle: more CPU of server, % of a core": (0.1, "at most"),
    "rate: starts / allowed": (1.02, "at most"),
    "rate: least starts / allowed": (0.98, "at least"),
    "rate: fullest second, starts": (RATE * (1 + LATE_S) + RATE_BURST, "at most"),
    "rate: fullest second, tokens": (RATE + RATE_BURST, "at most"),
    "wait: p99 parked / empty": (1.5, "at most"),
    "growth: parking, most / least": (2, "at most"),
    "growth: letting out, most / least": (2, "at most"),
}
KEYS = PoolKeys("skedulr", "default")


class Bench:
    """A server, what the command line says, and the figures so far."""

    def __init__(self, server: Rig, asked: Any) -> None:
        self.rig, self.asked, self.figures = server, asked, Figures()
        self.client = server.server.client

    def scaled(self, count: int) -> int:
        """A large number, made smaller by --scale."""
        return max(100, round(count * self.asked.scale))

    def call(self, code: str) -> Any:
        """Run code that knows ``skedulr`` and the tasks as ``app``."""
        return self.rig.call("import skedulr, limited_app as app\n" + code)

    def master(self, pools: str = "default=100") -> Any:
        """A worker for the length of a block, once it has run a task."""
        self.rig.fresh()
        return self.rig.running(self.rig.master(pools, "limited_app"))

    def warm_up(self, processes: int = 1) -> None:
        """Until the child has run tasks; the meter is empty then."""
        self.call("skedulr.submit_many(app.plain.bind() for _ in range(200))")
        self.rig.must_start(200)
        self.wait_settled()
        time.sleep(0.5)
        meter.reset(self.rig.meter)

    def wait_settled(self) -> None:
        """Until nothing is ready or claimed; what is parked may be."""
        for _ in range(6000):
            if not self.client.zcard(KEYS.ready) and not self.client.hlen(KEYS.claims):
                return
            time.sleep(0.01)
        raise SystemExit("tasks do not end")

    def server_cpu_s(self) -> float:
        """CPU seconds of the server so far, to the nanosecond where the kernel says so."""
        return cpu_s(psutil.Process(self.rig.server.pid))

    def parked(self) -> int:
        count: int = self.client.zcard(KEYS.parked)
        return count


def drain(bench: Bench) -> None:
    for name, which in (("unlimited", "plain"), ("one key", "wide"), ("1,000 keys", "keyed"),
                       ("as many as workers", "exact")):
        drained(bench, name, which)


def drained(bench: Bench, name: str, which: str) -> None:
    """Tasks a second from the first start to the last, out of a full queue; what each costs."""
    count = bench.asked.tasks
    with bench.master() as master:
        bench.warm_up()
        bench.call(f"app.fill({which!r}, {count})")
        began, servers = cpu_s(master), bench.server_cpu_s()
        bench.call("skedulr.resume('default')")
        bench.rig.must_start(count)
        bench.wait_settled()
        servers, masters = bench.server_cpu_s() - servers, cpu_s(master) - began
    bench.figures.note(f"drain: {name}, tasks/s", meter.rate(bench.rig.meter))
    bench.figures.note(f"drain: {name}, us of server", 1e6 * servers / count)
    bench.figures.note(f"drain: {name}, us of master", 1e6 * masters / count)


def idle(bench: Bench, seconds: float = 15) -> None:
    for name, keys in (("empty", 0), ("1,000 keys parked", 1000)):
        with bench.master() as master:
            bench.warm_up()
            if keys:
                bench.call(f"app.throttle(app.throttled, {keys}, {3 * keys})")
                bench.rig.must_start(keys)
                bench.wait_settled()
                assert bench.parked() == 2 * keys
            time.sleep(3)
            began, servers = cpu_s(master), bench.server_cpu_s()
            time.sleep(seconds)
            spent = {"master": cpu_s(master) - began, "server": bench.server_cpu_s() - servers}
            for who, used in spent.items():
                bench.figures.note(f"idle: {name}, CPU of {who}, %", 100 * used / seconds)
            commands = rig.commands_sent(bench.rig.server.url, seconds) / seconds
            bench.figures.note(f"idle: {name}, commands/s", commands)


def rate(bench: Bench) -> None:
    with bench.master("default=50x2"):
        bench.warm_up()
        # Filled ahead, so that there is never too little to start.
        count = RATE * (RATE_S + 2) + RATE_BURST
        bench.call(f"app.fill('paced', {count})\nskedulr.resume('default')")
        bench.rig.must_start(RATE * (RATE_S + 1))
    starts = [started for _, started in meter.read(bench.rig.meter)]
    # The burst at the beginning is over after a second.
    begin = starts[0] + 1
    counted = sum(begin <= one < begin + RATE_S - 1 for one in starts)
    bench.figures.note("rate: starts / allowed", counted / (RATE * (RATE_S - 1)))
    bench.figures.note("rate: least starts / allowed", counted / (RATE * (RATE_S - 1)))
    bench.figures.note("rate: fullest second, starts", fullest(starts, 1.0))
    bench.figures.note("rate: fullest second, tokens", fullest(tokens(bench), 1000))


def tokens(bench: Bench, seconds: float = 4) -> list[float]:
    """When tokens were given, ms of the server, to owners that ask as fast as they can."""
    bench.rig.fresh()
    runner = RealRunner(bench.rig.server)
    pool, limit, taken = Scripts(runner), limited(Limit(rate=RATE)), []
    for at in range(0, int(RATE * (seconds + 2)), 500):
        pool.submit(*(task(f"t{at + n}", limits=limit) for n in range(500)))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for owner in ("one", "two"):
            claims = pool.claim(owner, want=100)
            taken += [float(claims.now)] * len(claims.uids)
            pool.finish(*((uid, claims.token, "s", b"") for uid in claims.uids), owner=owner)
    runner.close()
    return taken


def fullest(times: Sequence[float], window_s: float) -> int:
    """The most of these sorted times within any window."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def wait(bench: Bench) -> None:
    keys, parked = bench.scaled(10_000), bench.scaled(100_000)
    for name, which in (("empty", ""), ("parked", "throttled"), ("let out", "trickle")):
        with bench.master():
            bench.warm_up()
            if which:
                bench.call(f"app.throttle(app.{which}, {keys}, {keys + parked})")
                bench.wait_settled()
                meter.reset(bench.rig.meter)
                assert bench.parked() > 0.8 * parked, bench.parked()
            before = meter.count(bench.rig.meter)
            bench.call(
                "for _ in range(1500):\n    app.plain.submit(time.time())\n    time.sleep(0.004)"
            )
            bench.rig.must_start(before + 1500)
            waits = meter.waits_ms(bench.rig.meter)
            bench.figures.note(f"wait: {name}, p50 ms", quantile(waits[100:], 0.5))
            bench.figures.note(f"wait: {name}, p99 ms", quantile(waits[100:], 0.99))


def growth(bench: Bench) -> None:
    for count in (1_000, 10_000, 100_000):
        count = bench.scaled(count)
        with bench.master():
            bench.warm_up()
            (bench.rig.folder / "go").unlink(missing_ok=True)
            bench.call("app.blocker.submit()")
            bench.rig.must_start(1)
            bench.call("skedulr.set_limit('wide', concurrency=1)")
            began = bench.server_cpu_s()
            # A batch is refused at a claim, what follows is parked as it is submitted.
            bench.call(f"skedulr.submit_many(app.wide.bind() for _ in range({count}))")
            while bench.parked() < count:
                time.sleep(0.01)
            parked_at = bench.server_cpu_s()
            bench.figures.note(f"growth: {count:,}, us to park", 1e6 * (parked_at - began) / count)
            bench.call("skedulr.reset_limit('wide')")
            bench.rig.must_start(count + 1)
            (bench.rig.folder / "go").touch()
            bench.wait_settled()
            bench.figures.note(f"growth: {count:,}, us to let out and run",
                               1e6 * (bench.server_cpu_s() - parked_at) / count)


PARTS = {one.__name__: one for one in (drain, idle, rate, wait, growth)}


def derived(medians: dict[str, float], values: dict[str, list[float]]) -> dict[str, float]:
    """What is compared: ratios and differences of medians."""
    found = dict(medians)
    if "drain: unlimited, tasks/s" in found:
        for name in ("one key", "1,000 keys", "as many as workers"):
            found[f"drain: {name} / unlimited"] = (
                found[f"drain: {name}, tasks/s"] / found["drain: unlimited, tasks/s"]
            )
    if "idle: empty, commands/s" in found:
        for what, name in (("commands/s", "commands/s"),
                           ("CPU of master, %", "CPU of master, % of a core"),
                           ("CPU of server, %", "CPU of server, % of a core")):
            found[f"idle: more {name}"] = (
                found[f"idle: 1,000 keys parked, {what}"] - found[f"idle: empty, {what}"]
            )
    if "wait: empty, p99 ms" in found:
        for name in ("parked", "let out"):
            found[f"wait: p99 {name} / empty"] = (
                found[f"wait: {name}, p99 ms"] / found["wait: empty, p99 ms"]
            )
    if "rate: starts / allowed" in found:
        # One above it is one too many.
        for name in ("rate: fullest second, starts", "rate: fullest second, tokens"):
            found[name] = max(values[name])
        found["rate: starts / allowed"] = max(values["rate: starts / allowed"])
        found["rate: least starts / allowed"] = min(values["rate: least starts / allowed"])
    for what, name in (("park", "parking"), ("let out and run", "letting out")):
        sizes = [value for key, value in found.items() if key.endswith(f"us to {what}")]
        if sizes:
            found[f"growth: {name}, most / least"] = sizes[-1] / sizes[0]
    return found


def main() -> int:
    parser = rig.arguments(__doc__, list(PARTS))
    parser.add_argument("--tasks", type=int, default=50_000, help="of a drain (50,000)")
    parser.add_argument("--scale", type=float, default=1.0, help="of wait and growth (1)")
    asked = parser.parse_args()
    names = rig.chosen(asked.parts, PARTS)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Rig(Path(folder)), asked)
        try:
            rig.repeat(PARTS, names, asked.runs, bench)
        finally:
            bench.rig.close()
    medians = derived(bench.figures.medians(), bench.figures.values)
    return rig.report(medians, LIMITS, asked.json)


if __name__ == "__main__":
    sys.exit(main())
