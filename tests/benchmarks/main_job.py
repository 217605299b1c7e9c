"""The main job in figures, with the limits they must keep.

    python tests/benchmarks/main_job.py [--runs 3] [--tasks 100000] [--scale 0.05] [PART ...]

On a private redis-server without persistence, one child of 100 workers unless a part says so, with
tokens, leases and records. Where two ways are compared they alternate. Medians are reported; it
ends with status 1 where a limit is broken. --scale makes the large parts smaller: backlog has
1,000,000 tasks waiting, far 5,000,000 due tomorrow.

  drain      no-op tasks from a full queue, CPU and memory of one
  children   two children of a pool beside one
  aof        with an append-only file, fsync every second, beside none
  backlog    a drain of a long queue beside short ones
  latency    submit to start, idle and at half load; beside the idle one a bare hop through the
             server between two processes, and how much slower this machine is after a pause
  precision  lateness of delayed tasks, alone and among 200,000 that are due tomorrow
  far        the same among millions: precision and the child's memory stay
  io         2,000 tasks that wait 100 ms on a socket each, 1,000 workers, beside as many bare
             greenlets that do the same
  mixed      what slow tasks, one in a hundred, do to the waits of fast ones
  idle       CPU and commands of a master with two children that have nothing to do, and CPU of a
             bare process that wakes up as often
  start      from the command to the first task run
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import rig
from rig import Figures, Rig, cpu_s, quantile

from skedulr.bench import meter, parts
from skedulr.bench.ground import Ground

LIMITS: rig.Limits = {
    "drain_per_s": (30_000, "at least"),
    "drain_cpu_us": (25, "at most"),
    "drain_server_us": (22, "at most"),
    "waiting_bytes": (420, "at most"),
    "finished_bytes": (280, "at most"),
    "children: two / one": (1.25, "at least"),
    "aof: everysec / none": (0.85, "at least"),
    "backlog: long / short": (0.9, "at least"),
    "latency_idle_p50_ms": (0.8, "at most"),
    "latency_idle_p99_ms": (3, "at most"),
    "latency_loaded_p99_ms": (10, "at most"),
    "early": (0, "at most"),
    "late_p50_ms": (12, "at most"),
    "late_p99_ms": (20, "at most"),
    "late_crowded_p99_ms": (20, "at most"),
    "late_far_p99_ms": (20, "at most"),
    "far: child grown by MB": (5, "at most"),
    "io: part of the ideal": (0.85, "at least"),
    "mixed: p99 / p99 of fast ones alone": (2, "at most"),
    "idle: % of a core per child": (0.5, "at most"),
    "idle: commands/s per child": (3, "at most"),
    "second_start_s": (2, "at most"),
}
#: Tasks of the short queues that a long one is compared with, and of the crowd.
SHORT, CROWD = 10_000, 200_000
SLOW_S = 0.5


class Bench:
    """A server, what the command line says, and the figures so far."""

    def __init__(self, server: Rig, asked: Any) -> None:
        self.rig, self.asked, self.figures = server, asked, Figures()

    def scaled(self, count: int) -> int:
        """A large number, made smaller by --scale."""
        return max(SHORT, round(count * self.asked.scale))

    @contextmanager
    def ground(self, **options: Any) -> Iterator[Ground]:
        """A namespace on the server and a master in it."""
        ground = Ground(self.rig.server.url, **options)
        try:
            yield ground.open()
        finally:
            ground.close()

    def run(self, ground: Ground, *names: str, tasks: int = 0) -> dict[str, float]:
        """Parts of ``skedulr bench``; their figures."""
        amounts = parts.Amounts(tasks=tasks or self.asked.tasks)
        run = parts.Run(ground=ground, amounts=amounts, parts=names, on_tasks=lambda more: None)
        parts.measure(run)
        return {one.name: one.value for one in run.figures}

    def drained(self, tasks: int = 0, **options: Any) -> float:
        """Tasks a second of one drain."""
        with self.ground(**options) as ground:
            return self.run(ground, "drain", tasks=tasks)["drain_per_s"]

    def note_all(self, found: dict[str, float]) -> None:
        for name, value in found.items():
            self.figures.note(name, value)


def drain(bench: Bench) -> None:
    # The limits of memory are for 100 bytes of arguments, those of time for none.
    with bench.ground(payload=0) as ground:
        bench.note_all(bench.run(ground, "drain"))
    with bench.ground(payload=100) as ground:
        found = bench.run(ground, "memory", tasks=min(bench.asked.tasks, 100_000))
        bench.figures.note("waiting_bytes", found["waiting_bytes"])
    with bench.ground(payload=0) as ground:
        found = bench.run(ground, "memory", tasks=min(bench.asked.tasks, 100_000))
        bench.figures.note("finished_bytes", found["finished_bytes"])


def children(bench: Bench) -> None:
    one = bench.drained(payload=0)
    two = bench.drained(payload=0, processes=2)
    bench.figures.note("children: two / one", two / one)


def aof(bench: Bench) -> None:
    def everysec(on: bool) -> None:
        bench.rig.server.client.config_set("appendfsync", "everysec")
        bench.rig.server.client.config_set("appendonly", "yes" if on else "no")

    without = bench.drained(payload=0)
    everysec(True)
    try:
        having = bench.drained(payload=0)
    finally:
        everysec(False)
    bench.figures.note("aof: everysec / none", having / without)


def backlog(bench: Bench) -> None:
    long = bench.drained(bench.scaled(1_000_000), payload=0)
    short = sorted(bench.drained(SHORT, payload=0) for _ in range(5))[2]
    bench.figures.note("backlog: long / short", long / short)


def latency(bench: Bench) -> None:
    with bench.ground(payload=0) as ground:
        bench.note_all(bench.run(ground, "latency"))
    hop = bench.rig.floor("hop", bench.rig.server.url, parts.Amounts().probes, parts.GAP_S)
    bench.figures.note("latency: p50 of a bare hop, ms", hop["p50_ms"])
    bench.figures.note("latency: p99 of a bare hop, ms", hop["p99_ms"])
    slow = bench.rig.floor("slow")
    bench.figures.note("latency: a loop after 20 ms of sleep", slow["after_20_ms"])


def precision(bench: Bench) -> None:
    for others, prefix in ((0, "late"), (CROWD, "late_crowded")):
        with bench.ground(payload=0) as ground:
            lateness(bench, ground, others, prefix)


def far(bench: Bench) -> None:
    with bench.ground(payload=0) as ground:
        ground.start_master()
        before = child_mb(ground)
        lateness(bench, ground, bench.scaled(5_000_000), "late_far")
        bench.figures.note("far: child grown by MB", child_mb(ground) - before)


def lateness(bench: Bench, ground: Ground, others: int, prefix: str) -> None:
    if others:
        ground.produce("later", count=others)
    found = bench.run(ground, "delayed")
    bench.note_all({name.replace("late", prefix): value for name, value in found.items()})


def child_mb(ground: Ground) -> float:
    assert ground._master is not None
    processes = psutil.Process(ground._master.pid).children()
    return float(max(one.memory_info().rss for one in processes) / 2**20)


def io(bench: Bench) -> None:
    tasks, wait_s, workers = 2_000, 0.1, 1_000
    bench.rig.fresh()
    bare = bench.rig.floor("io", wait_s, tasks // workers, workers)["part"]
    bench.figures.note("io: part of the ideal, bare gevent", bare)
    bench.rig.fresh()
    with bench.rig.running(bench.rig.master(f"default={workers}")):
        bench.rig.call("import skedulr_app as app; app.send(time.time())")
        bench.rig.must_start(1)
        for _ in range(2):  # the first makes the workers
            bench.rig.call("import skedulr; skedulr.pause('default')")
            meter.reset(bench.rig.meter)
            bench.rig.call(
                "import skedulr, skedulr_app as app\n"
                f"skedulr.submit_many(app.on_socket.bind({wait_s}) for _ in range({tasks}))\n"
                "skedulr.resume('default')"
            )
            bench.rig.must_start(tasks)  # these note their start when they end
            time.sleep(1)
    seen = meter.read(bench.rig.meter)
    took_s = seen[-1][1] - min(began for began, _ in seen)
    ideal_s = tasks / workers * wait_s
    bench.figures.note("io: part of the ideal", ideal_s / took_s)
    bench.figures.note("io: of bare gevent", ideal_s / took_s / bare)


def mixed(bench: Bench) -> None:
    waits = {}
    for slow in (0, 1):
        bench.rig.fresh()
        with bench.rig.running(bench.rig.master("default=100")):
            bench.rig.call("import skedulr_app as app; app.send(time.time())")
            bench.rig.must_start(1)
            bench.rig.call(
                "import skedulr, skedulr_app as app\n"
                "for turn in range(300):\n"
                "    calls = [app.noop.bind(time.time()) for _ in range(10)]\n"
                f"    if {slow} and turn % 10 == 0: calls.insert(0, app.slow.bind({SLOW_S}))\n"
                "    skedulr.submit_many(calls)\n"
                "    time.sleep(0.02)"
            )
            bench.rig.must_start(3_001)
        waits[slow] = quantile(meter.waits_ms(bench.rig.meter)[200:], 0.99)
        bench.figures.note(f"mixed: p99 ms of fast ones{' among slow' if slow else ''}",
                           waits[slow])
    bench.figures.note("mixed: p99 / p99 of fast ones alone", waits[1] / waits[0])


def idle(bench: Bench, seconds: float = 20) -> None:
    bench.rig.fresh()
    with bench.rig.running(bench.rig.master("critical=4,default=10")) as master:
        time.sleep(4)
        began = cpu_s(master)
        commands = rig.commands_sent(bench.rig.server.url, seconds)
        bench.figures.note("idle: % of a core per child",
                           100 * (cpu_s(master) - began) / seconds / 2)
        bench.figures.note("idle: commands/s per child", commands / seconds / 2)
    # A child wakes up three times a second, and with it half of its master twice.
    bare = bench.rig.floor("idle", 4, seconds)["cpu"]
    bench.figures.note("idle: % of a bare process, 4 wakes/s", bare)


def start(bench: Bench) -> None:
    """Seconds from the command to its first task run, with everything cached."""
    bench.rig.fresh()
    bench.rig.call("import skedulr_app as app; app.send(time.time())")
    began = time.time()
    with bench.rig.running(bench.rig.master("critical=4,default=10")):
        bench.rig.must_start(1)
    bench.figures.note("second_start_s", meter.read(bench.rig.meter)[0][1] - began)


PARTS = {
    one.__name__: one for one in (
        drain, children, aof, backlog, latency, precision, far, io, mixed, idle, start
    )
}


def main() -> int:
    parser = rig.arguments(__doc__, list(PARTS))
    parser.add_argument("--tasks", type=int, default=100_000, help="of a drain (100,000)")
    parser.add_argument("--scale", type=float, default=1.0, help="of backlog and far (1)")
    asked = parser.parse_args()
    names = rig.chosen(asked.parts, PARTS)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Rig(Path(folder)), asked)
        try:
            rig.repeat(PARTS, names, asked.runs, bench)
        finally:
            bench.rig.close()
    medians = bench.figures.medians()
    if "early" in medians:
        medians["early"] = max(bench.figures.values["early"])  # one too early is one too many
    return rig.report(medians, LIMITS, asked.json)


if __name__ == "__main__":
    sys.exit(main())
