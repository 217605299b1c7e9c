"""promote.lua: due tasks become ready once, at the end of their level, in the order of due."""

from __future__ import annotations

from script_driver import Scripts, body, place, task


def test_due_tasks_move_to_ready_in_the_order_they_were_due(pool: Scripts) -> None:
    stored = pool.submit(
        task("a"), task("second", when="+2000"), task("first", when="+1000"),
        task("high", 9, "+3000"), task("later", when="+60000"),
    )
    pool.sleep_until_due("second", ago=20)
    pool.sleep_until_due("first", ago=30)
    pool.sleep_until_due("high", ago=10)
    due = pool.state()["delayed"]
    pool.drain_wake()
    moved = pool.promote()
    assert moved.rest == [3, stored.now + 60000]
    assert pool.state() == {
        "tasks": {uid: body(uid, stored.now) for uid in ("a", "first", "second", "high", "later")},
        "delayed": {"later": stored.now + 60000},
        "ready": {"high": place(8, 9), "a": place(1), "first": place(6), "second": place(7)},
        "info": {
            "first": f"0 0 0 {due['first']} -", "second": f"0 0 0 {due['second']} -",
            "high": f"9 0 0 {due['high']} -",
        },
        "meta": {"sequence": "8"},
        "wake": ["1"],
    }


def test_nothing_due_changes_nothing(pool: Scripts) -> None:
    stored = pool.submit(task("a", when="+60000"))
    pool.drain_wake()
    before = pool.state()
    assert pool.promote().rest == [0, stored.now + 60000]
    assert pool.state() == before


def test_an_empty_pool_has_no_next_due_time(pool: Scripts) -> None:
    assert pool.promote().rest == [0, -1]


def test_a_task_becomes_ready_once_however_often_it_is_promoted(pool: Scripts) -> None:
    pool.submit(task("a", when="+1000"))
    pool.sleep_until_due("a")
    assert [pool.promote().rest[0] for _ in range(3)] == [1, 0, 0]
    assert pool.claim().uids == ["a"]
    assert pool.promote().rest[0] == 0


def test_more_due_tasks_than_the_limit_move_page_by_page(pool: Scripts) -> None:
    for page in range(3):
        pool.submit(*(task(f"t{page}-{i}", when="+1000") for i in range(400)))
    for page in range(3):
        pool.sleep_until_due(*(f"t{page}-{i}" for i in range(400)))
    assert [pool.promote(500).rest[0] for _ in range(4)] == [500, 500, 200, 0]
    assert len(pool.state()["ready"]) == 1200


def test_a_paused_pool_promotes_and_wakes_nobody(pool: Scripts) -> None:
    pool.submit(task("a", when="+1000"))
    pool.sleep_until_due("a")
    pool.pause()
    pool.drain_wake()
    assert pool.promote().rest == [1, -1]
    assert not pool.woken()


def test_a_full_redis_still_promotes(real: Scripts) -> None:
    real.submit(task("a", when="+1000"))
    real.sleep_until_due("a")
    real.runner.server.fill()
    assert real.promote().rest == [1, -1]
    assert real.state()["ready"] == {"a": place(2)}
