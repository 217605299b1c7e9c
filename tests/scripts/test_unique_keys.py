"""Unique keys through submit.lua: who may come in while another task holds the key."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError
from script_driver import Scripts, body, place, task


def unique(uid: str, rest: str = "d:x:0:k", when: str = "-"):
    return task(uid, unique=rest, when=when)


def test_a_unique_task_takes_its_key_with_it_into_header_and_lock(pool: Scripts) -> None:
    stored = pool.submit(unique("a", "d:x:0:k1"), unique("b", "s:r:0:k2"),
                         unique("c", "w:p:9000:k3", "+60000"))
    assert pool.state("tasks", "meta", "wake") == {
        "ready": {"a": place(1), "b": place(2)},
        "delayed": {"c": stored.now + 60_000},
        "info": {
            "a": "0 0 0 0 d:k1", "b": "0 0 0 0 s:k2", "c": f"0 0 0 {stored.now + 60_000} w:k3",
        },
        "unique": {"k1": "a 0", "k2": "b 0", "k3": f"c {stored.now + 9000}"},
        "windows": {"k3": stored.now + 9000},
    }


@pytest.mark.parametrize("on_duplicate", ["x", "r"])
@pytest.mark.parametrize("mode", ["d", "s", "w"])
def test_a_second_task_with_the_key_is_refused_and_told_who_holds_it(
    pool: Scripts, mode: str, on_duplicate: str
) -> None:
    rest = f"{mode}:{on_duplicate}:60000:k"
    pool.submit(unique("a", rest))
    before = pool.state()
    refused = pool.submit(unique("b", rest), unique("c", rest))
    assert refused.rest == ["uu", ["a", "a"]]
    assert pool.state() == before


def test_members_of_one_batch_stand_in_each_others_way_too(pool: Scripts) -> None:
    stored = pool.submit(unique("a"), task("p"), unique("b"), unique("c", "d:x:0:other"))
    assert stored.rest == ["ssus", ["a"]]
    assert set(pool.state()["tasks"]) == {"a", "p", "c"}


def test_a_key_holds_through_running_and_retries_until_the_task_is_done(pool: Scripts) -> None:
    pool.submit(unique("a"))
    taken = pool.claim()
    assert pool.submit(unique("b")).verdicts == "u"
    pool.retry(("a", taken.token, 1000, b"oops"))
    assert pool.submit(unique("b")).verdicts == "u"
    pool.sleep_until_due("a")
    taken = pool.claim()
    pool.finish(("a", taken.token, "s", b"x"))
    assert pool.submit(unique("b")).verdicts == "s"


def test_a_key_holds_through_a_crash_and_ends_with_the_last(pool: Scripts) -> None:
    pool.submit(unique("a"))
    pool.claim("n1")
    pool.judge_owner("n1", culprit="a", limit=2)
    assert pool.submit(unique("b")).verdicts == "u"
    pool.claim("n2")
    pool.judge_owner("n2", culprit="a", limit=2)
    assert pool.submit(unique("b")).verdicts == "s"


def test_a_lock_whose_holder_is_gone_does_not_count(pool: Scripts) -> None:
    pool.submit(unique("a"))
    pool.call("HDEL", pool.keys.tasks, "a")
    assert pool.submit(unique("b")).verdicts == "s"
    assert pool.state()["unique"] == {"k": "b 0"}


def test_a_window_counts_after_its_task_ended_and_not_beyond_its_end(pool: Scripts) -> None:
    stored = pool.submit(unique("a", "w:x:60000:k"))
    pool.finish_now("a")
    assert pool.submit(unique("b", "w:x:60000:k")).rest == ["u", ["a"]]
    pool.call("HSET", pool.keys.unique, "k", f"a {stored.now - 1}")
    assert pool.submit(unique("b", "w:x:60000:k")).verdicts == "s"


def test_a_window_ends_even_if_its_task_still_waits(pool: Scripts) -> None:
    stored = pool.submit(unique("a", "w:x:60000:k"))
    pool.call("HSET", pool.keys.unique, "k", f"a {stored.now - 1}")
    assert pool.submit(unique("b", "w:x:60000:k")).verdicts == "s"
    pool.finish_now("a")
    assert pool.state()["unique"]["k"].startswith("b ")


def test_a_lock_nobody_can_read_does_not_count(pool: Scripts) -> None:
    pool.call("HSET", pool.keys.unique, "k", "rubbish")
    assert pool.submit(unique("a")).verdicts == "s"


def test_a_repeated_submit_is_already_there_and_no_duplicate(pool: Scripts) -> None:
    pool.submit(unique("a"))
    assert pool.submit(unique("a")).rest == ["a"]


def test_a_known_key_is_told_even_where_the_pool_is_full(pool: Scripts) -> None:
    pool.submit(unique("a"))
    assert pool.submit(unique("b"), task("c"), capacity=1).rest == ["uf", ["a"]]


def test_a_refused_task_takes_no_room_from_the_next_one(pool: Scripts) -> None:
    pool.submit(unique("a"))
    assert pool.submit(unique("b"), task("c"), capacity=2).verdicts == "us"


# -- replace --------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["-", "+60000"])
def test_a_holder_that_has_not_started_is_cancelled_for_the_new_task(
    pool: Scripts, when: str
) -> None:
    first = pool.submit(unique("a", when=when))
    pool.watch("a")
    second = pool.submit(unique("b", "d:p:0:k", when), entry=b"replaced")
    assert second.rest == ["s"]
    scheduled = {"delayed": {"b": second.now + 60_000}}
    assert pool.state("info", "meta", "wake") == {
        "tasks": {"b": body("b", second.now)},
        "records": {"a": body("a", first.now, (b"replaced", second.now))},
        "done": {"a": second.now},
        "unique": {"k": "b 0"},
        "stats": {"cancelled": "1"},
        **({"ready": {"b": place(2)}} if when == "-" else scheduled),
    }


def test_a_holder_that_runs_is_not_replaced(pool: Scripts) -> None:
    pool.submit(unique("a"))
    pool.claim(starting=0)
    before = pool.state()
    assert pool.submit(unique("b", "d:p:0:k"), entry=b"replaced").rest == ["u", ["a"]]
    assert pool.state() == before


def test_a_window_whose_task_has_ended_can_not_be_replaced(pool: Scripts) -> None:
    pool.submit(unique("a", "w:p:60000:k"))
    pool.finish_now("a")
    assert pool.submit(unique("b", "w:p:60000:k"), entry=b"replaced").rest == ["u", ["a"]]


def test_a_suspect_that_waits_is_replaced(pool: Scripts) -> None:
    pool.submit(unique("a"))
    pool.claim()
    pool.judge_owner()
    assert pool.submit(unique("b", "d:p:0:k"), entry=b"replaced").verdicts == "s"
    state = pool.state()
    assert "suspects" not in state
    assert set(state["done"]) == {"a"}


def test_in_one_batch_the_last_one_stays(pool: Scripts) -> None:
    pool.submit(unique("z"))
    stored = pool.submit(*(unique(uid, "d:p:0:k") for uid in "abc"), entry=b"replaced")
    assert stored.verdicts == "sss"
    state = pool.state()
    assert set(state["tasks"]) == set(state["ready"]) == set(state["info"]) == {"c"}
    assert set(state["records"]) == set(state["done"]) == {"z", "a", "b"}
    assert state["unique"] == {"k": "c 0"}


def test_a_replacement_needs_no_room_of_its_own(pool: Scripts) -> None:
    pool.submit(unique("a"), task("x"))
    stored = pool.submit(
        unique("b", "d:p:0:k"), task("y"), task("z"), capacity=3, entry=b"replaced"
    )
    assert stored.verdicts == "ssf"


def test_a_replacement_repeated_is_already_there(pool: Scripts) -> None:
    pool.submit(unique("a"))
    pool.submit(unique("b", "d:p:0:k"), entry=b"replaced")
    before = pool.state()
    assert pool.submit(unique("b", "d:p:0:k"), entry=b"replaced").verdicts == "a"
    assert pool.state() == before


def test_a_replacement_without_an_entry_for_the_cancel_changes_nothing(pool: Scripts) -> None:
    pool.submit(unique("a"))
    before = pool.state()
    with pytest.raises(ResponseError, match="no journal entry"):
        pool.submit(unique("b", "d:p:0:k"))
    assert pool.state() == before


def test_the_entry_may_come_along_where_nothing_is_replaced(pool: Scripts) -> None:
    assert pool.submit(unique("a", "d:p:0:k"), task("b"), entry=b"replaced").verdicts == "ss"
    assert "records" not in pool.state()


def test_500_replace_500(pool: Scripts) -> None:
    pool.submit(*(unique(f"a{i}", f"d:p:0:k{i}") for i in range(500)))
    stored = pool.submit(
        *(unique(f"b{i}", f"d:p:0:k{i}") for i in range(500)), entry=b"replaced"
    )
    assert stored.verdicts == "s" * 500
    state = pool.state()
    assert set(state["ready"]) == {f"b{i}" for i in range(500)}
    assert len(state["done"]) == 500
