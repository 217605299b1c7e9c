"""Imported tasks run: queued, delayed, unique, retried and in workflows over two pools, on a real
master, which is at work while they come in."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Node, wait_until
from servers import Server

import skedulr
from skedulr.cli import run
from skedulr.doctor import Doctor
from skedulr.wire import Wire

pytestmark = pytest.mark.server

WORK = """
import skedulr
from skedulr import task

@task(name="add")
def add(*numbers):
    return sum(numbers)

@task(name="span")
def span(count):
    return list(range(count))

@task(name="die", max_retries=0)
def die():
    raise ValueError("no")

@task(name="when")
def when():
    run = skedulr.current_task()
    return [run.attempt, run.due_at]
"""


def test_what_was_exported_runs_where_it_is_imported(
    nodes: Callable[..., Node], one_server: Server, tmp_path: Path
) -> None:
    old = skedulr.Skedulr(url=one_server.url, namespace="old")

    def put(name: str, uid: str, *args: Any, **options: Any) -> Any:
        return old.submit_call(old.remote(name, id=uid, **options).bind(*args))

    # Half of a workflow has run before it is moved: its results come along.
    first = nodes(one_server.url, work=WORK, namespace="old", folder="old").start()
    done = put("add", "done", 1, 2)
    assert done.result(10) == 3
    first.close()
    with old.workflow("sums") as w:
        a = w.add(old.remote("add").bind(1, 2), name="a")
        b = w.add(old.remote("add", pool="other").bind(a, 10), name="b")
        w.add(old.remote("die").bind(), depends_on=b, name="bad")
        c = w.add(old.remote("add").bind(b, 100), on_failure="bad", name="branch")
        m = w.map(old.remote("add").bind(skedulr.previous, 1),
                  w.add(old.remote("span").bind(3), name="list"), name="mapped")
    put("add", "after", 5, depends_on=[done])
    due = time.time() + 1
    put("when", "later", at=due)
    put("add", "only", 6, unique="until_done")
    file = tmp_path / "moved.msgpack"
    flags = ["--redis", one_server.url, "--namespace"]
    assert run(["export", str(file), *flags, "old"]) == 0

    node = nodes(
        one_server.url, pools="default=2,other=2", work=WORK, namespace="new", folder="new"
    ).start(2)
    assert run(["import", str(file), *flags, "new"]) == 0
    app = skedulr.Skedulr(url=one_server.url, namespace="new")
    listed = app.client.workflows()["items"]
    assert [one["id"] for one in listed] == [w.id]
    assert app.get("default/after").result(15) == 5
    assert app.get("default/only").result(15) == 6
    attempt, due_at = app.get("default/later").result(15)
    assert attempt == 1 and abs(due_at - due) < 0.01
    wait_until(lambda: app.client.workflow(w.id)["state"] == "failed", "it has run", 20)
    assert app.get(b.id).result(0) == 13
    assert app.get(c.id).result(0) == 113
    assert app.get(m.id).result(0) == [1, 2, 3]
    # The key that came along was let go at the end.
    assert app.remote("add").using(unique="until_done").submit(6).result(10) == 6
    wire = Wire(one_server.url, name="doctor")
    doctor = Doctor(wire, "new", moment_s=0.1)
    assert [one for pool in doctor.pools() for one in doctor.examine(pool)] == []
    wire.close()
    node.close()
    old.close()
    app.close()
