"""unwatch.lua: a process that waits no longer is told nothing; the others are."""

from __future__ import annotations

from script_driver import Scripts, task


def test_only_the_named_channel_goes(pool: Scripts) -> None:
    pool.submit(task("a"))
    for channel in ("ch1", "ch12", "ch2"):
        pool.watch("a", channel)
    assert pool.unwatch("a", "ch1") == 1
    assert pool.state()["watch"] == {"a": "ch12 ch2"}


def test_the_last_channel_takes_the_entry_along(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.watch("a")
    pool.unwatch("a")
    assert "watch" not in pool.state()


def test_a_repeat_and_an_unknown_id_change_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.watch("a", "ch1")
    before = pool.state()
    assert pool.unwatch("a", "ch9") == 1
    assert pool.unwatch("never", "ch1") == 1
    assert pool.state() == before


def test_a_full_redis_still_lets_go(real: Scripts) -> None:
    real.submit(task("a"))
    real.watch("a", "ch1")
    real.watch("a", "ch2")
    real.runner.server.fill()
    real.unwatch("a", "ch1")
    assert real.state()["watch"] == {"a": "ch2"}
