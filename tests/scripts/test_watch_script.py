"""watch.lua: asking for word of a task's end misses no end."""

from __future__ import annotations

from script_driver import Scripts, body, task


def test_a_task_that_lives_is_watched_by_each_process_once(pool: Scripts) -> None:
    pool.submit(task("a"))
    before = pool.state()
    assert [pool.watch("a", "ch1"), pool.watch("a", "ch12"), pool.watch("a", "ch1")] == [1, 1, 1]
    assert pool.state() == before | {"watch": {"a": "ch1 ch12"}}


def test_a_channel_whose_name_begins_like_another_is_another(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.watch("a", "ch12")
    pool.watch("a", "ch1")
    assert pool.state()["watch"] == {"a": "ch12 ch1"}


def test_a_task_that_ended_gives_its_record_at_once(pool: Scripts) -> None:
    stored = pool.submit(task("a"))
    ended = pool.finish_now("a", entry=b"yes")
    assert pool.watch("a") == body("a", stored.now, (b"yes", ended.now))
    assert "watch" not in pool.state()


def test_an_id_nobody_knows_is_told_at_once(pool: Scripts) -> None:
    assert pool.watch("a") is None
    assert pool.state() == {}


def test_a_full_redis_still_lets_watch(real: Scripts) -> None:
    real.submit(task("a"))
    real.runner.server.fill()
    assert real.watch("a") == 1
    assert real.state()["watch"] == {"a": "ch1"}
