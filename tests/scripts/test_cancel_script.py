"""cancel.lua: what has not started ends here; what runs gets a flag that stays."""

from __future__ import annotations

import pytest
from script_driver import Scripts, body, place, task


@pytest.mark.parametrize(("when", "was"), [("-", "queued"), ("+60000", "scheduled")])
def test_a_task_that_has_not_started_ends_as_cancelled(
    pool: Scripts, when: str, was: str
) -> None:
    stored = pool.submit(task("a", 3, when, "d:x:0:k"), task("b"))
    pool.watch("a")
    pool.drain_wake()
    cancelled = pool.cancel("a")
    assert cancelled.rest == [was]
    assert pool.state("meta") == {
        "tasks": {"b": body("b", stored.now)},
        "ready": {"b": place(2)},
        "records": {"a": body("a", stored.now, (b"cancelled", cancelled.now))},
        "done": {"a": cancelled.now},
        "stats": {"cancelled": "1"},
    }


def test_a_running_task_gets_a_flag_and_its_owner_a_message(pool: Scripts) -> None:
    listener = pool.runner.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("control")
    listener.get_message(timeout=1)
    pool.submit(task("a"))
    pool.claim()
    before = pool.state()
    assert pool.cancel("a").rest == ["running"]
    assert pool.state() == before | {"cancels": {"a"}}
    assert listener.get_message(timeout=2)["data"] == b"cancel default/a"
    listener.close()


def test_a_cancel_that_is_repeated_changes_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.claim(want=1)
    pool.cancel("a")
    pool.cancel("b")
    before = pool.state()
    assert pool.cancel("a").rest == ["running"]
    assert pool.cancel("b").rest == ["ended"]
    assert pool.state() == before


@pytest.mark.parametrize("kind", ["s", "d"])
def test_a_task_that_ended_stays_as_it_is(pool: Scripts, kind: str) -> None:
    pool.submit(task("a"))
    pool.finish_now("a", kind=kind)
    before = pool.state()
    assert pool.cancel("a").rest == ["ended"]
    assert pool.state() == before


def test_an_id_nobody_knows_is_unknown(pool: Scripts) -> None:
    assert pool.cancel("a").rest == ["unknown"]
    assert pool.state() == {}


def test_a_task_between_two_attempts_keeps_its_history(pool: Scripts) -> None:
    stored = pool.submit(task("a"))
    failed = pool.retry(("a", pool.claim().token, 60_000, b"oops"))
    cancelled = pool.cancel("a")
    assert cancelled.rest == ["scheduled"]
    assert pool.state()["records"] == {
        "a": body("a", stored.now, (b"oops", failed.now), (b"cancelled", cancelled.now))
    }


def test_the_flag_outlives_a_crash_and_reaches_the_next_owner(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("n1")
    pool.cancel("a")
    pool.release_owner("n1")
    taken = pool.claim("n2")
    assert taken.cancelled == ["a"]
    pool.finish(("a", taken.token, "c", b"stopped"), owner="n2")
    assert "cancels" not in pool.state()


def test_a_cancel_of_a_flagged_task_that_is_back_in_the_queue_ends_it(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("n1")
    pool.cancel("a")
    pool.release_owner("n1")
    assert pool.cancel("a").rest == ["queued"]
    assert "cancels" not in pool.state()


def test_a_suspect_counts_as_queued(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.judge_owner()
    assert pool.cancel("a").rest == ["queued"]
    assert "suspects" not in pool.state()


def test_a_cancelled_task_gives_its_window_free(pool: Scripts) -> None:
    pool.submit(task("a", unique="w:x:60000:k"))
    pool.cancel("a")
    assert pool.submit(task("b", unique="w:x:60000:k")).verdicts == "s"


def test_a_full_redis_still_cancels(real: Scripts) -> None:
    real.submit(task("a"), task("b"))
    real.claim(want=1)
    real.runner.server.fill()
    assert real.cancel("a").rest == ["running"]
    assert real.cancel("b").rest == ["queued"]
    assert real.state()["cancels"] == {"a"}
