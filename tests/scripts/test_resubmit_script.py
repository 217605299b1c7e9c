"""resubmit.lua: finished tasks come back once, as a fresh start that keeps the history."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError
from script_driver import Scripts, body, place, task


def test_finished_tasks_move_back_to_the_end_of_the_queue(pool: Scripts) -> None:
    stored = pool.submit(task("dead"), task("late", 5))
    first = pool.finish_now("dead", kind="d", entry=b"no")
    second = pool.finish_now("late", entry=b"yes")
    back = pool.resubmit(("dead", "", b"again"), ("late", "5 +60000 -", b"again"))
    assert back.verdicts == "ss"
    assert pool.state("stats") == {
        "tasks": {
            "dead": body("dead", stored.now, (b"no", first.now), (b"again", back.now)),
            "late": body("late", stored.now, (b"yes", second.now), (b"again", back.now)),
        },
        "ready": {"dead": place(3)},
        "delayed": {"late": back.now + 60_000},
        "info": {"late": f"5 0 0 {back.now + 60_000} -"},
        "meta": {"sequence": "4"},
        "wake": ["1"],
    }


def test_an_empty_batch_changes_nothing(pool: Scripts) -> None:
    assert pool.resubmit().rest == [""]
    assert pool.state() == {}


def test_attempts_and_crashes_start_at_nothing(pool: Scripts) -> None:
    pool.submit(task("a", 2))
    pool.retry(("a", pool.claim().token, 0, b"oops"))
    pool.claim("n1")
    pool.judge_owner("n1", culprit="a")
    assert pool.state()["info"]["a"].startswith("2 1 1 ")
    pool.finish_now("a", kind="d")
    pool.resubmit(("a", "2 - -", b"again"))
    assert pool.state()["info"] == {"a": "2 0 0 0 -"}
    assert pool.claim("n2").tasks[0].header == "2 0 0 0 -"


def test_a_second_call_changes_nothing_and_says_so(pool: Scripts) -> None:
    pool.submit(task("a"), task("running"), task("queued"))
    pool.finish_now("a", kind="d")
    pool.claim(want=1)
    pool.resubmit(("a", "", b"again"))
    before = pool.state()
    again = pool.resubmit(*((uid, "", b"again") for uid in ("a", "running", "queued", "never")))
    assert again.verdicts == "aaan"
    assert pool.state() == before


def test_the_same_id_twice_in_one_batch_comes_back_once(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now("a")
    assert pool.resubmit(("a", "", b"x"), ("a", "", b"x")).verdicts == "sa"
    assert pool.state()["ready"] == {"a": place(2)}


@pytest.mark.parametrize("kind", ["s", "d"])
def test_what_ended_again_since_a_bulk_action_began_stays(pool: Scripts, kind: str) -> None:
    pool.submit(task("a"), task("b"))
    pool.finish_now(kind=kind)
    began = pool.now()
    pool.resubmit(("a", "", b"again"), before=began)
    pool.call("ZADD", pool.keys.ready, 1, "a")
    pool.finish_now("a", kind=kind)
    # Ended again a millisecond after the action began, as a slow test would see it anyway.
    pool.call("ZADD", pool.keys.dead if kind == "d" else pool.keys.done, began + 1, "a")
    before = pool.state()
    twice = pool.resubmit(("a", "", b"again"), before=began)
    assert twice.verdicts == "a"
    assert pool.state() == before
    assert pool.resubmit(("b", "", b"again"), before=began).verdicts == "s"
    assert pool.resubmit(("a", "", b"again"), before=0).verdicts == "s"


def test_a_full_pool_takes_no_more(pool: Scripts) -> None:
    pool.submit(*(task(uid) for uid in "abc"))
    pool.finish_now(kind="d")
    pool.submit(task("x"), task("y", when="+1000"))
    back = pool.resubmit(*((uid, "", b"again") for uid in "abc"), capacity=3)
    assert back.verdicts == "sff"
    assert set(pool.state()["dead"]) == {"b", "c"}


def test_a_unique_key_is_taken_again(pool: Scripts) -> None:
    pool.submit(task("a", unique="d:x:0:k"))
    pool.finish_now("a", kind="d")
    assert pool.resubmit(("a", "0 - d:x:0:k", b"again")).verdicts == "s"
    state = pool.state()
    assert state["unique"] == {"k": "a 0"}
    assert state["info"] == {"a": "0 0 0 0 d:k"}
    assert pool.submit(task("b", unique="d:x:0:k")).rest == ["u", ["a"]]


@pytest.mark.parametrize("on_duplicate", ["x", "r", "p"])
def test_a_unique_key_that_another_task_holds_is_a_conflict_that_says_whose(
    pool: Scripts, on_duplicate: str
) -> None:
    pool.submit(task("a", unique="d:x:0:k"), task("c"))
    pool.finish_now(kind="d")
    pool.submit(task("b", unique="d:x:0:k"))
    before = pool.state("wake")
    back = pool.resubmit(
        ("a", f"0 - d:{on_duplicate}:0:k", b"again"), ("never", "", b"again")
    )
    assert back.rest == ["un", ["b"]]
    assert pool.state("wake") == before


def test_two_finished_tasks_with_one_key_do_not_both_come_back(pool: Scripts) -> None:
    pool.submit(task("a", unique="d:x:0:k"))
    pool.finish_now("a", kind="d")
    pool.submit(task("b", unique="d:x:0:k"))
    pool.finish_now("b", kind="d")
    back = pool.resubmit(("a", "0 - d:x:0:k", b"x"), ("b", "0 - d:x:0:k", b"x"))
    assert back.rest == ["su", ["a"]]


def test_a_window_of_its_own_does_not_stand_in_a_tasks_way(pool: Scripts) -> None:
    pool.submit(task("a", unique="w:x:60000:k"))
    pool.finish_now("a")
    back = pool.resubmit(("a", "0 - w:x:60000:k", b"again"))
    assert back.verdicts == "s"
    assert pool.state()["unique"] == {"k": f"a {back.now + 60_000}"}
    assert pool.state()["windows"] == {"k": back.now + 60_000}


def test_a_paused_pool_takes_tasks_back_and_wakes_nobody(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now("a")
    pool.pause()
    assert pool.resubmit(("a", "", b"again")).verdicts == "s"
    assert not pool.woken()


def test_options_nobody_can_read_change_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.finish_now()
    before = pool.state()
    with pytest.raises(ResponseError, match="options nobody can read"):
        pool.resubmit(("a", "", b"x"), ("b", "what", b"x"))
    assert pool.state() == before


def test_500_come_back_in_one_call(pool: Scripts) -> None:
    uids = [f"{i:03d}".ljust(200, "x") for i in range(500)]
    pool.submit(*map(task, uids))
    pool.finish_now(kind="d")
    back = pool.resubmit(*((u, f"9 - w:x:1:k{i}", b"x") for i, u in enumerate(uids)), before=2**52)
    assert back.verdicts == "s" * 500
    assert list(pool.state()["ready"]) == uids
    assert "records" not in pool.state()


def test_a_full_redis_still_takes_tasks_back_whole(real: Scripts) -> None:
    real.submit(task("a"))
    real.finish_now("a", kind="d")
    real.runner.server.fill()
    assert real.resubmit(("a", "1 - d:x:0:k", b"again")).verdicts == "s"
    state = real.state("stats", "meta", "wake")
    assert {name: set(value) for name, value in state.items()} == {
        "tasks": {"a"}, "ready": {"a"}, "info": {"a"}, "unique": {"k"},
    }
