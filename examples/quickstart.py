"""A first look: tasks that greet, fail and are retried, and one that starts itself again.

Start it with the README's first command, or: skedulr-master examples.quickstart
"""

import random
import time

import skedulr


@skedulr.task(name="greet", pool="critical")
def greet(name: str) -> str:
    print(f"[critical] Hello, {name}!", flush=True)
    return f"Hello, {name}!"


@skedulr.task(name="report", retry=skedulr.LinearRetry(base=0.5))
def report(number: int) -> float:
    """Now and then the weather service is away; the second or third attempt gets through."""
    time.sleep(0.2)
    if random.random() < 0.3:
        raise ConnectionError("the weather service did not answer")
    print(f"[default]  report {number} is built", flush=True)
    return round(random.uniform(-5, 30), 1)


@skedulr.task(name="tick")
def tick() -> None:
    """Submits the others once a second, and its own successor.

    The successor's id names the second it is for, so there is one of each however often this runs.
    """
    now = int(time.time())
    greet.submit(random.choice(["Ada", "Grace", "Barbara", "Edsger"]))
    report.submit(now)
    tick.using(id=f"tick-{now + 1}", at=now + 1).submit()


@skedulr.on("child_start")
def start(pool: str) -> None:
    if pool == "default":
        now = int(time.time())
        tick.using(id=f"tick-{now + 1}", at=now + 1).submit()
