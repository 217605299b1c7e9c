"""What schedules cost: registering many, holding many idle, and how late their ticks are.

    python -m tests.benchmarks.schedules --count 10000

A real server and a real master, both of this machine. Registering is timed as the child does it
(from the code) and as an application does it (one call after the other). Idle is the CPU time of
child and server over a while in which no tick is due, with none, some and all of the schedules:
it must not grow with them. Lateness is a tick's time to the start of its run, on an idle pool.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Run by ``python -m tests.benchmarks.schedules``, as pytest's own rules would have it.
sys.path[:0] = [str(HERE), str(HERE.parent)]

import psutil  # noqa: E402
from harness import Node, wait_until  # noqa: E402
from servers import Server, selected  # noqa: E402

import skedulr  # noqa: E402

MANY = '''\
import skedulr


@skedulr.task(name="work")
def work(number=0):
    """Does nothing."""


for number in range({count}):
    minute, hour, day = number % 60, number // 60 % 24, number // 1440 % 28 + 1
    if number % 2:
        skedulr.cron(f"{{minute}} {{hour}} {{day}} 12 *", name=f"s{{number}}")(work)
    else:
        skedulr.every(86_400 + number, name=f"s{{number}}")(work)
'''
OFTEN = '''\
import skedulr


@skedulr.every(0.1)
@skedulr.task(name="often")
def often():
    """Does nothing."""
'''


def register_from_code(url: str, folder: Path, count: int) -> tuple[Node, float]:
    """A node whose code declares so many, and how long its child took to register them."""
    node = Node(folder / f"many{count}", url, work=MANY.format(count=count)).start()
    node.wait_log(f"{count} schedules of the code: {count} new", 60)
    lines = [
        line for line in node.log.splitlines() if "workers ready" in line or "of the code" in line
    ]
    begin, end = (_clock(line) for line in lines[:2])
    return node, end - begin


def _clock(line: str) -> float:
    found = re.search(r"(\d+):(\d+):(\d+),(\d+)", line)
    assert found, line
    hours, minutes, seconds, ms = map(int, found.groups())
    return hours * 3600 + minutes * 60 + seconds + ms / 1000


def register_one_by_one(app: skedulr.Skedulr, count: int) -> float:
    """Seconds for so many calls of schedule_recurring."""
    work = app.remote("work")
    begin = time.perf_counter()
    for number in range(count):
        app.schedule_recurring(work.bind(number), 86_400 + number, name=f"api{number}")
    return time.perf_counter() - begin


def idle_cost(node: Node, server: Server, seconds: float) -> tuple[float, float]:
    """CPU milliseconds a second of the child and of the server while nothing is due."""
    processes = [psutil.Process(node.child()), psutil.Process(server.pid)]
    before = [_cpu(process) for process in processes]
    time.sleep(seconds)
    child, redis = (
        1000 * (_cpu(process) - was) / seconds
        for process, was in zip(processes, before, strict=True)
    )
    return child, redis


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def lateness(url: str, folder: Path, ticks: int) -> list[float]:
    """How late runs start after their ticks, ms."""
    node = Node(folder / "often", url, work=OFTEN).start()
    late: dict[str, float] = {}
    try:
        assert node.app is not None
        wait_until(lambda: "often" in node.app.schedules(), "it is registered")

        def enough() -> bool:
            for run in node.app.schedules()["often"].runs():
                if run["started_at"]:
                    tick = int(run["uid"].partition("@")[2])
                    late[run["uid"]] = 1000 * run["started_at"] - tick
            return len(late) >= ticks

        wait_until(enough, f"{ticks} ticks ran", 120)
    finally:
        node.close()
    return sorted(late.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds to look at each")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="skt-bench-"))
    server = Server(selected()[0]).start()
    try:
        for count in (1, given.count // 10, given.count):
            server.flush()
            node, took_s = register_from_code(server.url, folder, count)
            time.sleep(2)
            child, redis = idle_cost(node, server, given.idle)
            memory = server.client.info("memory")["used_memory"] / max(1, count)
            print(f"{count:>6} declared: registered in {took_s:.2f} s, idle {child:.2f} ms/s of "
                  f"the child and {redis:.2f} ms/s of the server, {memory:,.0f} bytes each",
                  flush=True)
            node.close()
        server.flush()
        app = skedulr.Skedulr(url=server.url)
        took_s = register_one_by_one(app, given.count)
        print(f"{given.count:>6} made one by one: {took_s:.2f} s", flush=True)
        begin = time.perf_counter()
        assert sum(1 for _ in app.schedules()) == given.count
        took_s = time.perf_counter() - begin
        print(f"{given.count:>6} listed, page by page: {took_s:.2f} s", flush=True)
        server.flush()
        late = lateness(server.url, folder, 200)
        print(f"{len(late)} ticks on an idle pool: late by {statistics.median(late):.1f} ms in the "
              f"middle, {late[int(len(late) * 0.99)]:.1f} ms at the 99th of 100, {late[0]:.1f} at "
              f"least, {late[-1]:.1f} at most")
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
