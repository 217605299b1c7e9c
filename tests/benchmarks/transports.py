"""The transports beside each other: tasks a second, memory of what waits, the server's CPU time.

    python tests/benchmarks/transports.py [--tasks 100000] [--runs 3]

Submit, claim and finish through ``Store`` in batches of 500 and of 1, from one process to a
private redis-server without persistence: what differs between the transports, and nothing of the
workers. The memory is of all that a waiting task takes, with 100 bytes of arguments. Medians; the
runs of the transports alternate. Figures hold for one machine and moment.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from skedulr import message
from skedulr.keys import PoolKeys
from skedulr.storage import BATCH, END_SUCCEEDED, Ending, Lane, Submission
from skedulr.store import Store
from skedulr.wire import Wire
from tests.servers import Server

TRANSPORTS = ("zset", "streams")
DONE = message.entry(message.SUCCEEDED, "bench", 1, 0, None)
LEASE_MS = 600_000


def cpu_s(server: Server) -> float:
    used: dict[str, Any] = server.client.info("cpu")
    return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])


def measure(transport: str, count: int, size: int) -> dict[str, float]:
    """One run: ``count`` tasks, ``size`` a call."""
    server = Server("redis", tcp=True).start()
    wire = Wire(server.url, name="bench", timeout_s=60)
    store = Store(PoolKeys("bench", "default"), transport)
    store.settle(wire, LEASE_MS)
    envelope = message.envelope(message.name_part("work"), ("x" * 100,), {}, None, 1000)
    claims, ends = (Lane(wire, "bench:1") for _ in range(2))
    try:
        before = server.client.info("memory")["used_memory"]
        cpu, began = cpu_s(server), time.perf_counter()
        for at in range(0, count, size):
            store.submit(wire, [
                Submission(f"{i:020}", envelope, "") for i in range(at, min(count, at + size))
            ])
        submitted = time.perf_counter()
        waiting = server.client.info("memory")["used_memory"] - before
        done = 0
        drain_began = time.perf_counter()
        while done < count:
            held = store.claim(claims, size, size, LEASE_MS)
            store.finish(ends, [
                Ending(uid, held.token, END_SUCCEEDED, DONE) for uid in held.rows[::4]
            ])
            done += len(held.rows) // 4
        drained = time.perf_counter()
        return {
            "submits/s": count / (submitted - began),
            "claim+finish/s": count / (drained - drain_began),
            "bytes waiting": waiting / count,
            "server us a task": (cpu_s(server) - cpu) / count * 1e6,
        }
    finally:
        wire.close()
        server.close()


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    for size, count in ((BATCH, given.tasks), (1, min(given.tasks, 10_000))):
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(given.runs):
            for transport in TRANSPORTS:
                for name, value in measure(transport, count, size).items():
                    found[name][transport].append(value)
        print(f"\n{count:,} tasks, {size} a call\n")
        print("| | " + " | ".join(TRANSPORTS) + " |\n|---|" + "---|" * len(TRANSPORTS))
        for name, values in found.items():
            medians = (f"{statistics.median(values[one]):,.1f}" for one in TRANSPORTS)
            print(f"| {name} | " + " | ".join(medians) + " |")


if __name__ == "__main__":
    main()
