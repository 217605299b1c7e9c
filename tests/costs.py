"""What a task costs, counted and not timed: calls of Python functions, script calls, bytes.

    python tests/costs.py URL

Prints one JSON document. It runs in a process of its own, so that nothing of a test's is counted:
1,000 no-op tasks with 100 bytes of arguments are submitted one by one, then in bulk, and run by the
parts of a child process, on the server at URL. The same work gives the same figures, but for how
many outcomes gather in one call.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import gevent
import redis

import skedulr
from skedulr import Skedulr
from skedulr.clock import Clock
from skedulr.hub.driver import Driver
from skedulr.keys import PoolKeys
from skedulr.pools.board import Board
from skedulr.pools.executor import Executor, Limits
from skedulr.pools.recorder import Recorder
from skedulr.redis_scripts import script
from skedulr.store import BATCH, Lane, Store
from skedulr.wire import Wire

TASKS = 1_000
OURS = str(Path(skedulr.__file__).parent)


def main(url: str) -> dict[str, float]:
    """All figures."""
    server = redis.Redis.from_url(url)
    server.flushall()
    app = Skedulr(url=url)
    noop = app.task(name="noop")(_noop)
    text = "x" * 100
    figures: dict[str, float] = {}
    noop.submit(text)  # connects, and loads what is loaded at first use
    for name in ("claim", "finish"):
        script(name)

    def measure(name: str, work: Callable[[], object]) -> None:
        before = _spent(server)
        with calls_counted() as counted:
            work()
        scripts, size = (now - then for now, then in zip(_spent(server), before, strict=True))
        figures[f"{name}_calls"] = counted[0] / TASKS
        figures[f"{name}_scripts"] = scripts
        figures[f"{name}_bytes"] = size / TASKS

    def one_by_one() -> None:
        for _ in range(TASKS):
            noop.submit(text)

    measure("submit", one_by_one)
    server.flushall()
    noop.submit(text)
    measure("bulk", lambda: app.submit_many(noop.bind(text) for _ in range(TASKS - 1)))
    keys = PoolKeys("skedulr", "default")
    figures["waiting_bytes"] = _memory(server, keys.tasks, keys.ready) / TASKS
    child = Worker(url, app)
    measure("run", child.run)
    figures["finished_bytes"] = _memory(server, keys.records, keys.done) / TASKS
    figures["left"] = server.hlen(keys.tasks) + server.hlen(keys.claims)
    return figures


class Worker:
    """The parts of a child that a task goes through, without those that look after it."""

    def __init__(self, url: str, app: Skedulr) -> None:
        self.store = Store(PoolKeys("skedulr", "default"))
        self.lane = Lane(Wire(url, name="claim"), "node.1.1")
        self.recorder = Recorder(
            store=self.store, lane=Lane(Wire(url, name="finish"), "node.1.1"),
            on_gone=_nothing,
        )
        driver, board = Driver(), Board(100)
        self.executor = Executor(
            pool="default", owner="node.1.1", app=app, recorder=self.recorder, driver=driver,
            clock=Clock(), board=board, limits=Limits(100, 15.0),
        )
        self.recorder.on_recorded = self.executor.holdings.forget_all
        self.recorder.started = self.executor.holdings.started
        driver.start()
        self.recorder.start()
        self.executor.start()

    def run(self) -> None:
        """Claim and run until nothing is left."""
        while (claims := self.store.claim(self.lane, BATCH, 100, 15_000)).rows:
            self.executor._clock.anchor(claims.now_ms)
            self.executor.accept(claims, 100)
            while self.executor.holdings.held:
                gevent.sleep(0.001)


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """How often functions of the package are called in the block, in every greenlet of it."""
    counted = [0]

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            counted[0] += 1

    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(None)


def _noop(text: str) -> None:
    """Do nothing."""


def _spent(server: redis.Redis) -> tuple[int, int]:
    """Calls of scripts, and bytes both ways, so far."""
    stats = server.info("commandstats")
    calls = sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
    info = server.info("stats")
    return calls, info["total_net_input_bytes"] + info["total_net_output_bytes"]


def _memory(server: redis.Redis, *keys: str) -> int:
    return sum(server.memory_usage(key, samples=0) or 0 for key in keys)


def _nothing() -> None:
    """Nobody releases this owner."""


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
