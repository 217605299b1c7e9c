"""Dependencies on real masters: over pools, over kills, at once and without polling."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from harness import Node, wait_until

import skedulr

pytestmark = pytest.mark.server

Start = Callable[..., Node]

WORK = """
import os
import time
import skedulr
from skedulr import task

@task(name="add")
def add(*numbers):
    return sum(numbers)

@task(name="total")
def total():
    return sum(skedulr.current_task().inputs())

@task(name="span")
def span(count):
    return list(range(count))

@task(name="die", max_retries=0)
def die():
    raise ValueError("no")

@task(name="fall")
def fall(file):
    if not os.path.exists(file):
        open(file, "w").close()
        os._exit(1)
    return 5
"""


def app_of(node: Node) -> Any:
    assert node.app is not None
    return node.app


def test_a_workflow_over_two_pools_feeds_results_and_takes_the_failure_branch(
    start: Start,
) -> None:
    node = start(pools="default=2,other=2", work=WORK, ready=2)
    app = app_of(node)
    add, total, die = (app.remote(name) for name in ("add", "total", "die"))
    with app.workflow("sums") as w:
        a = w.add(add.using(pool="default").bind(1, 2), name="a")
        b = w.add(add.using(pool="other").bind(a, 10), name="b")
        c = w.add(total.using(pool="default").bind(), depends_on=[a, b], name="c")
        bad = w.add(die.using(pool="other").bind(), depends_on=c, name="bad")
        w.add(add.using(pool="default").bind(0), on_success=bad, name="never")
        w.add(add.using(pool="default").bind(c, 100), on_failure=bad, name="branch")
    assert w.wait(timeout=15)
    view = w.info()
    states = {one["name"]: one["state"] for one in view["steps"]}
    assert states == {"a": "succeeded", "b": "succeeded", "c": "succeeded", "bad": "dead",
                      "never": "skipped", "branch": "succeeded"}
    assert view["state"] == "failed"
    assert c.handle.result(0) == 16
    assert app.get(view["steps"][-1]["id"]).result(0) == 116


def test_a_parent_whose_process_dies_and_one_that_is_cancelled_resolve_their_children(
    start: Start,
) -> None:
    node = start(pools="default=2,other=2", work=WORK, ready=2)
    app = app_of(node)
    fall, add = app.remote("fall"), app.remote("add")
    parent = fall.using(pool="default").submit("fallen")
    child = add.using(pool="other", depends_on=parent).submit(1)
    assert child.result(timeout=15) == 1
    later = add.using(pool="default", delay=60).submit(1)
    skipped = add.using(pool="other", depends_on=later).submit(2)
    cleanup = add.using(pool="other", after=[later, skipped]).submit(3)
    assert later.cancel()
    assert cleanup.result(timeout=15) == 3
    assert skipped.state == "skipped"


def test_killed_children_lose_no_edge(start: Start) -> None:
    node = start(pools="default=4,other=4", work=WORK, ready=2)
    app = app_of(node)
    add, total = app.remote("add"), app.remote("total")
    with app.workflow("wide") as w:
        parts = [w.add(add.using(pool="default").bind(n)) for n in range(500)]
        more = [w.add(add.using(pool="other").bind(one, 1)) for one in parts]
        last = w.add(total.using(pool="other").bind(), depends_on=more)
    for _ in range(3):
        for pid in node.children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        before = w.info()["ended"]
        wait_until(lambda seen=before: w.info()["ended"] > seen or w.state == "succeeded",
                   "it goes on")
    assert last.handle.result(timeout=40) == sum(n + 1 for n in range(500))
    assert w.wait(timeout=20)
    assert w.state == "succeeded"


def test_a_map_over_two_pools_survives_kills_and_joins_all_items_once(start: Start) -> None:
    node = start(pools="default=4,other=4", work=WORK, ready=2)
    app = app_of(node)
    add, span = app.remote("add"), app.remote("span")
    with app.workflow("map") as w:
        items = w.add(span.using(pool="other").bind(2500))
        more = w.map(add.using(pool="default").bind(skedulr.previous, 1), items)
        with w.workflow("part") as part:
            part.add(add.using(pool="other").bind(0), depends_on=more)
    for _ in range(2):
        before = w.info()["ended"]
        wait_until(lambda seen=before: w.info()["ended"] > seen or w.state == "succeeded",
                   "it goes on")
        for pid in node.children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    assert more.handle.result(timeout=40) == [n + 1 for n in range(2500)]
    assert w.wait(timeout=20)
    assert (w.state, w.info()["total"]) == ("succeeded", 2504)
