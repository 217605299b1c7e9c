"""Tasks under limits that are measured, and the same without: each notes its start, and ends."""

import os
import time

import skedulr
from skedulr import Limit
from skedulr.bench import meter

#: A concurrency that a pool of 100 workers, with what waits in its memory, never comes near.
WIDE = 10_000


@skedulr.task(name="plain", max_retries=0)
def plain(sent=None):
    meter.hit(sent)


@skedulr.task(name="wide", max_retries=0, limit=Limit(concurrency=WIDE))
def wide():
    meter.hit()


@skedulr.task(name="blocker", max_retries=0, limit=Limit(concurrency=WIDE, name="wide"))
def blocker():
    """Holds a slot of ``wide`` until a file is there."""
    meter.hit()
    while not os.path.exists("go"):
        time.sleep(0.02)


@skedulr.task(name="keyed", max_retries=0, limit=Limit(concurrency=WIDE, key="{key}"))
def keyed(key):
    meter.hit()


@skedulr.task(name="exact", max_retries=0, limit=Limit(concurrency=100))
def exact():
    meter.hit()


@skedulr.task(name="paced", max_retries=0, limit=Limit(rate=1000))
def paced():
    meter.hit()


@skedulr.task(name="throttled", max_retries=0, limit=Limit(rate=1, per=86_400, key="{key}"))
def throttled(key):
    meter.hit()


@skedulr.task(name="trickle", max_retries=0, limit=Limit(rate=1, per=100, key="{key}"))
def trickle(key):
    pass


CALLS = {
    "plain": lambda number: plain.bind(), "wide": lambda number: wide.bind(),
    "keyed": lambda number: keyed.bind(number % 1000), "exact": lambda number: exact.bind(),
    "paced": lambda number: paced.bind(),
}


def fill(name, count):
    """That many of a task, while nothing is claimed."""
    skedulr.pause("default")
    skedulr.submit_many(CALLS[name](number) for number in range(count))


def throttle(task, keys, count):
    """That many tasks of so many keys: the first of each starts, the rest is parked."""
    for _ in skedulr.submit_iter(task.bind(number % keys) for number in range(count)):
        pass
