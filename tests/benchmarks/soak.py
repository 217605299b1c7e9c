"""What a node takes and keeps: boot, memory, live scaling, an idle node, and 200,000 mixed tasks.

Run by hand, on a machine that does nothing else::

    python tests/benchmarks/soak.py [boot] [memory] [scale] [idle] [soak] [--tasks 200000]

Without a name it runs all of them. Each prints one line a figure.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

import psutil
import redis

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import WORK, Node, wait_until
from servers import Server

MB = 2**20

MIXED = WORK + '''

from skedulr import TaskCancelled


@task(name="tiny")
def tiny(number):
    return number


@task(name="failing", max_retries=0)
def failing(number):
    ballast = bytes(1_000_000)  # in the frame of the error
    raise ValueError(f"{number} of {len(ballast)}")


@task(name="retried", max_retries=1, retry=skedulr.LinearRetry(base=0.01))
def retried(number):
    ballast = bytes(1_000_000)
    if current_task().attempt == 1:
        raise ConnectionError(f"{number} of {len(ballast)}")


@task(name="slow", timeout=0.05, max_retries=0)
def slow(number):
    time.sleep(5)


@task(name="cancelled", max_retries=0)
def cancelled(number):
    time.sleep(30)


@task(name="parent")
def parent(number):
    tiny.submit(number)
'''

#: What a process of these libraries takes that does nothing: the floor.
FLOOR = """
from gevent import monkey; monkey.patch_all()
import gevent, redis, msgpack, hiredis
client = redis.Redis(unix_socket_path={path!r}); client.ping()
print("ready", flush=True); gevent.sleep(60)
"""


@contextmanager
def node(*flags: str, pools: str, work: str = WORK, ready: int = 1) -> Iterator[Node]:
    """A master on a Redis of its own."""
    server = Server("redis")
    server.start()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        made = Node(Path(folder), server.url, *flags, pools=pools, work=work)
        try:
            yield made.start(ready)
        finally:
            made.close()
            server.close()


def say(what: str, figure: str) -> None:
    print(f"{what:<58} {figure}", flush=True)


def boot() -> None:
    """From the fork to taking work, with a module that imports nothing but skedulr."""
    with node("--log-level", "debug", pools="default=10") as one:
        for count in range(2, 12):
            one.signal(signal.SIGHUP)
            one.wait_ready(count)
            wait_until(lambda: len(one.children()) == 1, "the old one has gone")
        took = [
            stamp(ready) - stamp(forked)
            for pid in re.findall(r"workers ready, pid (\d+)", one.log)
            for forked in lines(one, f"forked pid {pid} ")
            for ready in lines(one, f"workers ready, pid {pid}")
        ]
    say("child: fork to ready, median of 11", f"{1000 * median(took):.0f} ms")
    say("child: fork to ready, longest", f"{1000 * max(took):.0f} ms")


def lines(one: Node, text: str) -> list[str]:
    return [line for line in one.log.splitlines() if text in line]


def stamp(line: str) -> float:
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()


def memory() -> None:
    """A child with 100 workers, idle and after work, beside the floor of its libraries."""
    with node(pools="default=100") as one:
        assert one.url is not None and one.app is not None
        path = one.url.removeprefix("unix://")
        floor = subprocess.Popen(
            [sys.executable, "-c", FLOOR.format(path=path)], stdout=subprocess.PIPE
        )
        assert floor.stdout is not None
        floor.stdout.readline()
        say("floor: gevent, redis-py, msgpack, one connection", rss(floor.pid))
        floor.kill()
        child = one.child()
        say("child with 100 workers, idle", rss(child))
        quick = one.app.remote("quick")
        handles = one.app.submit_many([quick.bind() for _ in range(20_000)])
        one.app.wait(handles, timeout=120)
        held = [one.submit("hold", 3) for _ in range(100)]
        one.effects.wait("began", count=100)
        say("the same after 20,000 tasks, 100 tasks running", rss(child))
        say("its master", rss(one.pid))
        for uid in held:
            one.wait_state(uid, "succeeded")


def rss(pid: int) -> str:
    info = psutil.Process(pid).memory_full_info()
    return f"{info.rss / MB:.1f} MB RSS ({info.uss / MB:.1f} MB of its own)"


def scale() -> None:
    """From 4 to 400 workers in a running child, until 400 tasks run."""
    with node(pools="default=4") as one:
        assert one.app is not None
        app = one.app
        wait_until(lambda: app.stats()["pools"], "the pool is known")
        took = []
        for round in range(5):
            gate = one.app.remote("gate")
            before = len(one.effects.all(phase="began"))
            handles = one.app.submit_many([gate.bind(f"open-{round}") for _ in range(400)])
            one.effects.wait("began", count=before + 4)
            began = time.monotonic()
            one.app.scale_pool("default", 400)
            last = one.effects.wait("began", count=before + 400)[-1]
            took.append(last.at - began)
            (one.folder / f"open-{round}").touch()
            one.app.wait(handles, timeout=60)
            one.app.scale_pool("default", 4)
            wait_until(partial(shrank, one, round + 1), "it shrank")
    say("4 to 400 workers: until 400 tasks run, median of 5", f"{1000 * median(took):.0f} ms")
    say("the longest", f"{1000 * max(took):.0f} ms")


def shrank(one: Node, times: int) -> bool:
    return one.log.count("4 workers instead of 400") >= times


def idle() -> None:
    """A node with two pools that has nothing to do."""
    seconds = 30
    with node(pools="critical=4,default=10", ready=2) as one:
        assert one.app is not None
        processes = [psutil.Process(pid) for pid in (one.pid, *one.children())]
        before, cpu = commands(one), [sum(p.cpu_times()[:2]) for p in processes]
        time.sleep(seconds)
        used = [sum(p.cpu_times()[:2]) - was for p, was in zip(processes, cpu, strict=True)]
        say("idle: master, of one core", f"{100 * used[0] / seconds:.2f} %")
        say("idle: children together", f"{100 * sum(used[1:]) / seconds:.2f} %")
        say("idle: commands at the server", f"{(commands(one) - before) / seconds:.1f} a second")


def commands(one: Node) -> int:
    """Commands clients have sent (those inside scripts are not counted)."""
    assert one.url is not None
    with redis.Redis.from_url(one.url) as client:
        stats = client.info("commandstats")
        return sum(
            stats.get(f"cmdstat_{name}", {}).get("calls", 0)
            for name in ("evalsha", "eval", "blpop", "exists", "hgetall", "subscribe", "ping")
        )


def soak(tasks: int) -> None:
    """Errors with large frames, retries, time limits, cancels and submits mixed into tiny tasks."""
    with node(pools="default=100", work=MIXED, ready=1) as one:
        assert one.app is not None
        child, early = one.child(), 0
        for done in range(0, tasks, 2_000):
            run(one, done, 2_000)
            if done + 2_000 == tasks // 10:
                early = psutil.Process(child).memory_info().rss
                say(f"soak: child after {done + 2_000:,} tasks", rss(child))
                say("soak: master then", rss(one.pid))
            assert one.child() == child, "the child that began has run it all"
        late = psutil.Process(child).memory_info().rss
        say(f"soak: child after {tasks:,} tasks", rss(child))
        say("soak: master then", rss(one.pid))
        say("soak: growth of the child", f"{100 * (late / early - 1):+.1f} %")


def run(one: Node, first: int, count: int) -> None:
    """5 % fail with a megabyte in the frame, 2 % are retried, 2 % time out, 2 % are cancelled."""
    assert one.app is not None
    app = one.app
    kinds = ["failing"] * 5 + ["retried", "slow", "cancelled"] * 2 + ["parent"] * 4 + ["tiny"] * 85
    calls = (app.remote(kinds[n % 100]).bind(n) for n in range(first, first + count))
    handles = list(app.submit_many(islice(calls, count)))
    for n, handle in zip(range(first, first + count), handles, strict=True):
        if kinds[n % 100] == "cancelled":
            handle.cancel()
    assert app.wait(handles, timeout=300)


PARTS: dict[str, Callable[[], None]] = {
    "boot": boot, "memory": memory, "scale": scale, "idle": idle,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "soak", []], default=[])
    parser.add_argument("--tasks", type=int, default=200_000)
    given = parser.parse_args()
    for name in given.parts or [*PARTS, "soak"]:
        if name == "soak":
            soak(given.tasks)
        else:
            PARTS[name]()


if __name__ == "__main__":
    main()
