"""The ways to submit that are measured, each a job of a producer process.

A job gives its figures; one that only stores says how many tasks it stored a second. The process is
patched by gevent before this is loaded: see ``producer.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gevent

import skedulr

#: Load is made in bulk calls about this far apart, seconds.
LOAD_EVERY_S = 0.002


class Producer:
    """An app on the server that is measured; ``payload`` is how many bytes of arguments a task
    has."""

    def __init__(self, url: str, namespace: str, payload: int) -> None:
        self.app = skedulr.Skedulr(url=url, namespace=namespace)
        self.text = "x" * payload
        self.task = self.app.task(name="bench.noop", max_retries=0)(_noop)

    def submit(self, asked_at: float | None = None) -> None:
        """One task."""
        self.task.submit(asked_at, self.text)

    def calls(self, count: int) -> Iterator[Any]:
        """That many calls that nobody times."""
        return (self.task.bind(None, self.text) for _ in range(count))


def _noop(asked_at: float | None = None, payload: str = "") -> None:
    """The workers have their own."""


def alone(producer: Producer, job: dict[str, Any]) -> dict[str, float]:
    """One greenlet, one call after the other."""
    producer.submit()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(job["count"]):
        producer.submit()
    return _rates(job["count"], began, cpu)


def crowd(producer: Producer, job: dict[str, Any]) -> dict[str, float]:
    """A hundred greenlets at once."""
    producer.submit()
    share = job["count"] // job["greenlets"]

    def some() -> None:
        for _ in range(share):
            producer.submit()

    began, cpu = time.perf_counter(), time.process_time()
    gevent.joinall([gevent.spawn(some) for _ in range(job["greenlets"])], raise_error=True)
    return _rates(share * job["greenlets"], began, cpu)


def bulk(producer: Producer, job: dict[str, Any]) -> dict[str, float]:
    """One call for all of them, 500 a round trip."""
    producer.submit()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in producer.app.submit_iter(producer.calls(job["count"])):
        pass
    return _rates(job["count"], began, cpu)


def paced(producer: Producer, job: dict[str, Any]) -> dict[str, float]:
    """Single submits, ``gap_s`` apart, each of which says when it was asked for."""
    for _ in range(job["count"]):
        producer.submit(time.time())
        gevent.sleep(job["gap_s"])
    return {}


def load(producer: Producer, job: dict[str, Any]) -> dict[str, float]:
    """Tasks at a steady rate, ``per_s``, for a number of seconds."""
    began, stored = time.monotonic(), 0
    while (passed := time.monotonic() - began) < job["seconds"]:
        wanted = int((passed + LOAD_EVERY_S) * job["per_s"])
        producer.app.submit_many(producer.calls(wanted - stored))
        stored = wanted
        gevent.sleep(LOAD_EVERY_S)
    return {"per_s": stored / passed}


def delayed(producer: Producer, job: dict[str, Any]) -> dict[str, float]:
    """Tasks due evenly over ``over_s`` seconds, beginning ``ahead_s`` from now. They are due by the
    server's clock, which is ``clock_ms`` ahead of this one."""
    first, step = time.time() + job["ahead_s"], job["over_s"] / job["count"]
    dues = [first + n * step for n in range(job["count"])]
    offset_s = job["clock_ms"] / 1000
    producer.app.submit_many(
        producer.task.using(at=due + offset_s).bind(due, producer.text) for due in dues
    )
    return {}


def later(producer: Producer, job: dict[str, Any]) -> dict[str, float]:
    """Tasks that are due tomorrow."""
    due = producer.task.using(delay=86_400)
    for _ in producer.app.submit_iter(due.bind(None, producer.text) for _ in range(job["count"])):
        pass
    return {}


def _rates(count: int, began: float, cpu: float) -> dict[str, float]:
    return {
        "per_s": count / (time.perf_counter() - began),
        "cpu_us": 1e6 * (time.process_time() - cpu) / count,
    }


JOBS: dict[str, Callable[[Producer, dict[str, Any]], dict[str, float]]] = {
    "alone": alone, "crowd": crowd, "bulk": bulk, "paced": paced, "load": load,
    "delayed": delayed, "later": later,
}
