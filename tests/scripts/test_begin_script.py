"""begin.lua: what becomes of the task that stands for a whole workflow."""

from __future__ import annotations

from script_driver import Scripts, body, task


def held(pool: Scripts) -> int:
    now = pool.submit(task("w")._replace(options="0 - - A")).now
    pool.attach(("w", "default/c,1,0", ""))
    return now


def test_a_begun_workflow_frees_its_steps_and_counts_as_no_task(pool: Scripts) -> None:
    stored = held(pool)
    reply = pool.begin("begin", "w")
    assert reply.rest == ["b"]
    after = {
        "records": {"w": body("w", stored, (b"begun", reply.now))}, "done": {"w": reply.now},
        "edges": {"w": "0,1 default/c,1,0"}, "outbox": {"w w": reply.now},
        "workflows": {"w": reply.now},
    }
    assert pool.state() == after
    for what in ("begin", "stop", "drop"):
        assert pool.begin(what, "w").rest == ["e"]
    assert pool.state() == after


def test_only_the_newest_thousand_of_a_pool_are_listed(pool: Scripts) -> None:
    for at in range(1, 1001):
        pool.call("ZADD", pool.keys.workflows, at, f"old{at}")
    held(pool)
    pool.begin("begin", "w")
    listed = pool.state()["workflows"]
    assert len(listed) == 1000
    assert "w" in listed
    assert "old1" not in listed
    assert "old2" in listed


def test_a_stopped_workflow_can_not_begin_and_is_dropped(pool: Scripts) -> None:
    held(pool)
    assert pool.begin("drop", "w").rest == ["n"]
    assert pool.begin("stop", "w").rest == ["b"]
    assert pool.begin("begin", "w").rest == ["n"]
    assert list(pool.state()["outbox"]) == ["a w"]  # until it is dropped, someone is to do it
    assert pool.begin("drop", "w").rest == ["b"]
    assert pool.begin("drop", "w").rest == ["n"]
    assert pool.state() == {}
