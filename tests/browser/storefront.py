"""A shop: one master with its UI on a server of its own, and the tasks it runs."""

from __future__ import annotations

from typing import Any

from harness import Node, wait_until
from servers import Server

WORK = '''\
import time
import skedulr


@skedulr.task(name="add")
def add(a, b):
    return a + b


@skedulr.task(name="fail", max_retries=0)
def fail(text):
    raise ValueError(text)


@skedulr.task(name="report", max_retries=0)
def report(steps):
    for i in range(steps):
        skedulr.report_progress(100 * i / steps, f"step {i}")
        time.sleep(0.1)


@skedulr.task(name="<img src=x onerror=hacked()>", max_retries=0)
def hostile(text, **more):
    raise type("<svg onload=hacked()>", (Exception,), {})(text)
'''


class Shop:
    """A master with its UI, and the server below it."""

    def __init__(self, node: Node, url: str, server: Server) -> None:
        self.node, self.url, self.server = node, url, server
        assert node.app is not None
        self.app = node.app

    def submit(self, name: str, *args: Any, **options: Any) -> str:
        """Queue a task; its id."""
        id: str = self.app.submit_call(self.app.remote(name, **options).bind(*args)).id
        return id

    def wait(self, id: str, state: str) -> None:
        """Until a task is in a state."""
        wait_until(lambda: self.app.client.state(id) == state, f"{id} is {state}")
