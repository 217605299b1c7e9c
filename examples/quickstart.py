"""A first look: three tasks, and a producer that keeps them busy.

    skedulr-master --pools critical=4,default=10 examples.quickstart
"""

import time

import skedulr


@skedulr.task(name="greet", pool="critical")
def greet(name: str) -> str:
    return f"Hello, {name}!"


@skedulr.task(name="work")
def work(n: int) -> int:
    time.sleep(0.1)
    return n * n
