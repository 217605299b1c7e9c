"""purge.lua: tasks are removed for good, unless they moved on meanwhile."""

from __future__ import annotations

import pytest
from script_driver import Scripts, task


def one_of_each(pool: Scripts) -> None:
    """A task in each place, named for it."""
    pool.submit(task("done"), task("dead"), task("running"), task("suspect"))
    pool.finish_now("done")
    pool.finish_now("dead", kind="d")
    pool.claim("n1", want=1)
    pool.claim("n2", want=1)
    pool.judge_owner("n2")
    pool.submit(task("queued", 3), task("scheduled", when="+60000"))
    pool.drain_wake()


EVERYONE = ("queued", "scheduled", "suspect", "running", "done", "dead", "never")


def test_what_has_not_started_goes_and_nothing_else(pool: Scripts) -> None:
    one_of_each(pool)
    before = pool.state()
    assert pool.purge("unstarted", *EVERYONE).rest == [3]
    for gone in ("ready", "delayed", "suspects", "info"):
        del before[gone]
    for uid in ("queued", "scheduled", "suspect"):
        del before["tasks"][uid]
    assert pool.state() == before


def test_what_has_ended_goes_with_its_records_and_nothing_else(pool: Scripts) -> None:
    one_of_each(pool)
    before = pool.state()
    assert pool.purge("ended", *EVERYONE).rest == [2]
    for gone in ("done", "dead", "records"):
        del before[gone]
    assert pool.state() == before


@pytest.mark.parametrize("which", ["unstarted", "ended"])
def test_a_purge_that_is_repeated_removes_nothing_more(pool: Scripts, which: str) -> None:
    one_of_each(pool)
    pool.purge(which, *EVERYONE)
    before = pool.state()
    assert pool.purge(which, *EVERYONE).rest == [0]
    assert pool.purge(which).rest == [0]
    assert pool.state() == before


@pytest.mark.parametrize("mode", ["d", "s", "w"])
def test_a_purged_task_gives_its_unique_key_free(pool: Scripts, mode: str) -> None:
    pool.submit(task("a", unique=f"{mode}:x:60000:k"), task("b", unique="d:x:0:other"))
    pool.purge("unstarted", "a")
    assert pool.state()["unique"] == {"other": "b 0"}
    assert pool.submit(task("c", unique=f"{mode}:x:60000:k")).verdicts == "s"


def test_who_waits_for_a_purged_task_is_told(pool: Scripts) -> None:
    listener = pool.runner.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("ch1")
    listener.get_message(timeout=1)
    pool.submit(task("a"))
    pool.watch("a", "ch1")
    pool.purge("unstarted", "a")
    assert listener.get_message(timeout=2)["data"] == b"default/a"
    assert pool.watch("a", "ch1") is None
    assert "watch" not in pool.state()
    listener.close()


def test_a_purged_task_takes_its_cancel_flag_along(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.cancel("a")
    pool.release(("a", taken.token))
    pool.purge("unstarted", "a")
    assert "cancels" not in pool.state()


def test_500_go_in_one_call(pool: Scripts) -> None:
    uids = [f"{i:03d}".ljust(200, "x") for i in range(500)]
    pool.submit(*(task(uid, 1, unique=f"d:x:0:k{i}") for i, uid in enumerate(uids)))
    assert pool.purge("unstarted", *uids).rest == [500]
    assert set(pool.state()) == {"meta", "wake"}
    pool.submit(*map(task, uids))
    pool.finish_now()
    assert pool.purge("ended", *uids).rest == [500]


@pytest.mark.parametrize("which", ["unstarted", "ended"])
def test_a_full_redis_can_be_purged(real: Scripts, which: str) -> None:
    one_of_each(real)
    real.runner.server.fill()
    assert real.purge(which, *EVERYONE).rest[0] > 0
