"""What the machine itself allows, without Skedulr: to be read beside its figures.

    python tests/benchmarks/floor.py PART ...        one JSON document

  hop URL COUNT GAP_S       two bare gevent processes: from one's LPUSH to the other's waking up in
                            BLPOP, COUNT times GAP_S apart; p50_ms and p99_ms
  idle WAKES SECONDS        a bare gevent process that wakes up so often a second and then does
                            nothing: cpu, % of a core
  io SECONDS TIMES WORKERS  so many bare greenlets that each wait on a socket so often: part,
                            of what they would reach if all but the waiting took no time
  slow                      how many times longer a loop takes right after a sleep of 20 ms and of
                            half a second than without one: after_20_ms, after_500_ms
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from gevent import monkey

monkey.patch_all()

import gevent  # noqa: E402
import psutil  # noqa: E402
import redis  # noqa: E402
from rig import cpu_s, quantile  # noqa: E402


def hop(url: str, count: str, gap_s: str) -> dict[str, float]:
    reader, writer = os.pipe()
    if os.fork() == 0:
        # It ends with its parent's connection, whatever becomes of that.
        line = redis.Redis.from_url(url)
        waits = []
        for _ in range(int(count)):
            _, sent = line.blpop(["hop"], timeout=30)  # type: ignore[misc]
            waits.append(1000 * (time.time() - float(sent)))
        found = {"p50_ms": quantile(waits, 0.5), "p99_ms": quantile(waits, 0.99)}
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    line = redis.Redis.from_url(url)
    for _ in range(int(count)):
        gevent.sleep(float(gap_s))
        line.lpush("hop", repr(time.time()))
    with open(reader) as told:
        found = json.loads(told.read())
    os.wait()
    return found


def idle(wakes: str, seconds: str) -> dict[str, float]:
    process = psutil.Process()
    gap_s, began = 1 / float(wakes), cpu_s(process)
    for _ in range(int(float(wakes) * float(seconds))):
        gevent.sleep(gap_s)
    return {"cpu": 100 * (cpu_s(process) - began) / float(seconds)}


def io(seconds: str, times: str, workers: str) -> dict[str, float]:
    import skedulr_app as app

    def work() -> None:
        for _ in range(int(times)):
            app.wait_on_socket(float(seconds))

    took_s = 0.0
    for _ in range(2):  # the first makes the sockets
        began = time.time()
        gevent.joinall([gevent.spawn(work) for _ in range(int(workers))], raise_error=True)
        took_s = time.time() - began
    return {"part": int(times) * float(seconds) / took_s}


def slow() -> dict[str, float]:
    def loop_us(gap_s: float) -> float:
        took = []
        for _ in range(31):
            if gap_s:
                gevent.sleep(gap_s)
            began = time.perf_counter()
            for _ in range(2_000):
                pass
            took.append(time.perf_counter() - began)
        return quantile(took, 0.5)

    warm = loop_us(0)
    return {"after_20_ms": loop_us(0.02) / warm, "after_500_ms": loop_us(0.5) / warm}


PARTS: dict[str, Any] = {"hop": hop, "idle": idle, "io": io, "slow": slow}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](*sys.argv[2:])))
