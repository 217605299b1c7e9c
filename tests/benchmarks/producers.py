"""The producer's side in figures: submits alone and shared, bulk, wake-up, memory, import.

    python tests/benchmarks/producers.py [--runs 3] [--json] [--submits 10000] [--memory 1000000]

On a private redis-server without persistence. Each run is two processes, one patched by gevent and
one not; inside a run the bare script (the same call of submit.lua, by the same connection class)
alternates with submits, so that their ratio means something on a busy machine. Medians over the
runs; status 1 where a limit is broken.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: A child patches before it imports anything of ours.
if sys.argv[1:3] == ["--child", "patched"]:
    from gevent import monkey

    monkey.patch_all()

import statistics

import rig

LIMITS: rig.Limits = {
    "patched one caller / bare script": (1.3, "at most"),
    "patched one caller, us of CPU": (150, "at most"),
    "patched 100 callers per s": (25_000, "at least"),
    "patched submit_many per s": (40_000, "at least"),
    "patched wake-up p50 ms": (3, "at most"),
    "patched memory grown by MB": (5, "at most"),
    "unpatched one caller / bare script": (1.3, "at most"),
    "import ms": (60, "at most"),
}


def main() -> int:
    parser = rig.arguments(__doc__)
    parser.add_argument("--submits", type=int, default=10_000)
    parser.add_argument("--memory", type=int, default=1_000_000, help="submits of the memory test")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = rig.Rig(Path(folder))
        try:
            figures = measure(bench.server.url, asked)
        finally:
            bench.close()
    return rig.report(figures.medians(), LIMITS, asked.json)


def measure(url: str, asked: argparse.Namespace) -> rig.Figures:
    figures = rig.Figures()
    for run in range(asked.runs):
        for mode in ("patched", "unpatched"):
            found = child(url, mode, asked.submits, asked.memory if not run else 0)
            for name, value in found.items():
                figures.note(f"{mode} {name}", value)
        figures.note("import ms", import_ms())
    return figures


def child(url: str, mode: str, submits: int, memory: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", mode, url, str(submits), str(memory)],
        stdout=subprocess.PIPE, check=True, text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def import_ms() -> float:
    code = "import time; t = time.perf_counter(); import skedulr; skedulr.task; skedulr.submit\n"
    code += "print(1000 * (time.perf_counter() - t))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


# --- one process ----------------------------------------------------------------------------------


def work(url: str, submits: int, memory: int) -> dict[str, float]:
    """All figures of this process."""
    import redis

    import skedulr

    app = skedulr.Skedulr(url=url)
    server = redis.Redis.from_url(url)
    task = app.task(name="noop")(noop)
    figures = alone(url, task, server, submits)
    figures["20 callers per s"] = shared(task, server, 20, submits)
    figures["100 callers per s"] = shared(task, server, 100, 2 * submits)
    calls = [task.bind(n) for n in range(5 * submits)]
    _, wall_s, _ = timed(lambda: app.submit_many(calls))
    figures["submit_many per s"] = len(calls) / wall_s
    server.flushall()
    figures["wake-up p50 ms"] = wake_up_ms(url, app, task)
    if memory:
        figures["memory grown by MB"] = growth_mb(app, task, server, memory)
    return figures


def noop(n: int) -> None: ...


def timed(call: Any) -> tuple[Any, float, float]:
    """What it gave, wall seconds, this process's CPU seconds."""
    import time

    cpu, wall = time.process_time(), time.perf_counter()
    outcome = call()
    return outcome, time.perf_counter() - wall, time.process_time() - cpu


def alone(url: str, task: Any, server: Any, submits: int) -> dict[str, float]:
    """The bare script and submits of one caller, in turns of a tenth."""
    from skedulr import message
    from skedulr.keys import PoolKeys
    from skedulr.store import Store, Submission
    from skedulr.uids import Uids
    from skedulr.wire import Wire

    wire, store, uids = Wire(url, name="bench"), Store(PoolKeys("skedulr", "default")), Uids()
    body = message.envelope(task.head, (1,), {}, None, 1_000_000)

    def bare() -> None:
        for _ in range(submits // 10):
            store.submit(wire, [Submission(uids.next(), body, "")])

    def submit() -> None:
        for n in range(submits // 10):
            task.submit(n)

    bare()
    submit()
    server.flushall()
    turns = [(timed(bare)[1:], timed(submit)[1:]) for _ in range(10)]
    bare_us, submit_us, bare_cpu, submit_cpu = (
        statistics.median(values) / (submits // 10) * 1e6
        for values in zip(*((b[0], s[0], b[1], s[1]) for b, s in turns), strict=True)
    )
    server.flushall()
    wire.close()
    return {
        "bare script us": bare_us, "one caller us": submit_us,
        "one caller / bare script": statistics.median(s[0] / b[0] for b, s in turns),
        "bare script, us of CPU": bare_cpu, "one caller, us of CPU": submit_cpu,
    }


def shared(task: Any, server: Any, callers: int, submits: int) -> float:
    import threading

    def call() -> None:
        for n in range(submits // callers):
            task.submit(n)

    def run() -> None:
        threads = [threading.Thread(target=call) for _ in range(callers)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    _, wall_s, _ = timed(run)
    server.flushall()
    return submits / wall_s


def wake_up_ms(url: str, app: Any, task: Any, count: int = 300) -> float:
    """From the finish that Redis has acknowledged to the return of ``result``."""
    import threading
    import time

    from stand_in import StandIn

    worker = StandIn(url)
    took = []
    for n in range(count):
        handle = task.submit(n)
        worker.claim(1)
        back: list[float] = []
        waiting = threading.Thread(
            target=lambda h=handle, b=back: b.append(h.result(10) or time.perf_counter())
        )
        waiting.start()
        time.sleep(0.003)
        worker.succeed(handle.uid, 0)
        done = time.perf_counter()
        waiting.join()
        took.append(1000 * (back[0] - done))
    worker.close()
    return statistics.median(took)


def growth_mb(app: Any, task: Any, server: Any, submits: int) -> float:
    """How much larger the process is after so many submits than after the first tenth of them."""
    import psutil

    process = psutil.Process()

    def some(count: int) -> None:
        for n, _ in enumerate(app.submit_iter(task.bind(n) for n in range(count))):
            if n % 50_000 == 0:
                server.flushall(asynchronous=True)

    some(submits // 10)
    before = process.memory_info().rss
    some(submits)
    return (process.memory_info().rss - before) / 2**20


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(work(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
    else:
        sys.exit(main())
