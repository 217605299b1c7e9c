"""claim.lua: who gets which task, under which token, and what a repeat of the call gives."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError
from script_driver import FAR, LEASE, Claimed, Scripts, body, place, task

from skedulr.wire import Gone


def test_a_claim_leases_tasks_to_their_owner_and_gives_their_bodies(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b", 3))
    pool.drain_wake()
    taken = pool.claim("n1", want=10, starting=1, lease=LEASE)
    assert taken.token == "n1:1"
    assert taken.tasks == [
        Claimed("b", place(2, 3), body("b", stored.now), "3 0 0 0 -"),
        Claimed("a", place(1), body("a", stored.now), ""),
    ]
    assert (taken.next_due, taken.cancelled) == (-1, [])
    assert pool.state() == {
        "tasks": {"a": body("a", stored.now), "b": body("b", stored.now)},
        "info": {"b": "3 0 0 0 -"},
        "leases": {"a": taken.now + LEASE, "b": taken.now + LEASE},
        # The first of them starts at once; the other one waits in its owner's memory.
        "claims": {"b": f"n1:1 {place(2, 3)} {taken.now}", "a": f"n1:1 {place(1)} 0"},
        "owned:n1": {"a", "b"},
        "own:n1": {"claim": "1 b a"},
        "meta": {"sequence": "2"},
    }


def test_an_empty_pool_gives_nothing_and_remembers_nothing(pool: Scripts) -> None:
    assert pool.claim().uids == []
    assert pool.state() == {}


def test_a_claim_takes_no_more_than_it_wants_and_wakes_the_next_fetcher(pool: Scripts) -> None:
    pool.submit(*(task(uid) for uid in "abc"))
    pool.drain_wake()
    assert pool.claim("n1", want=2).uids == ["a", "b"]
    assert pool.woken()
    assert pool.claim("n2", want=2).uids == ["c"]
    assert not pool.woken()


def test_a_claim_that_wants_more_than_500_gets_500(pool: Scripts) -> None:
    pool.submit(*(task(f"a{i}") for i in range(500)))
    pool.submit(task("last"))
    assert len(pool.claim(want=2000).uids) == 500
    assert pool.state()["ready"] == {"last": place(501)}


def test_tasks_of_one_priority_come_first_in_first_out_across_claims(pool: Scripts) -> None:
    pool.submit(*(task(f"t{i}", i % 2) for i in range(6)))
    order = [uid for _ in range(3) for uid in pool.claim(want=2).uids]
    assert order == ["t1", "t3", "t5", "t0", "t2", "t4"]


def test_due_tasks_are_promoted_first_and_the_next_due_time_is_told(pool: Scripts) -> None:
    stored = pool.submit(task("later", when="+60000"), task("due", 2, "+5000"))
    pool.submit(task("plain"))
    pool.sleep_until_due("due")
    taken = pool.claim()
    assert taken.uids == ["due", "plain"]
    assert taken.next_due == stored.now + 60000
    priority, attempts, crashes, due, unique = taken.tasks[0].header.split()
    assert (priority, attempts, crashes, unique) == ("2", "0", "0", "-")
    assert taken.now - 1000 < int(due) < taken.now


def test_a_task_is_never_given_before_it_is_due(pool: Scripts) -> None:
    pool.submit(task("a", when="+3000"))
    assert pool.claim().uids == []
    assert "ready" not in pool.state()


def test_a_claim_that_wants_nothing_ends_the_lane_for_one_that_comes_late(pool: Scripts) -> None:
    pool.submit(task("a"))
    assert pool.claim(want=0, number=7).uids == []
    assert pool.claim(number=7).uids == [], "it was on its way when the other one overtook it"
    assert pool.state()["ready"] == {"a": place(1)}


def test_the_answer_says_that_there_is_more(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    first = pool.claim(want=1)
    assert first.next_due == first.now
    assert pool.claim(want=1).next_due == -1


def test_a_paused_pool_gives_nothing_and_promotes_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b", when="+5000"))
    pool.sleep_until_due("b")
    pool.pause()
    pool.drain_wake()
    before = pool.state()
    taken = pool.claim()
    assert (taken.uids, taken.next_due) == ([], -1)
    assert pool.state() == before


def test_a_repeated_call_gives_the_same_tasks_again(pool: Scripts) -> None:
    pool.submit(task("a"), task("b", 4), task("c"))
    first = pool.claim(want=2)
    before = pool.state()
    again = pool.claim(want=2, number=1)
    assert (again.tasks, again.token) == (first.tasks, first.token)
    assert pool.state() == before


def test_a_repeated_call_leaves_out_what_was_lost_meanwhile(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    pool.release(("a", taken.token))
    pool.claim("n2")
    assert pool.claim(number=1).uids == ["b"]


def test_a_repeat_of_a_call_that_took_nothing_may_take_something(pool: Scripts) -> None:
    assert pool.claim().uids == []
    pool.submit(task("a"))
    assert pool.claim(number=1).uids == ["a"]
    assert pool.claim(number=1).uids == ["a"]


def test_a_call_that_is_already_behind_is_refused(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.claim(want=1, number=7)
    before = pool.state()
    with pytest.raises(ResponseError, match="STALE"):
        pool.claim(want=1, number=6)
    assert pool.state() == before


def test_an_owner_that_was_released_gets_nothing_any_more(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.release_owner("n1")
    before = pool.state()
    with pytest.raises(Gone):
        pool.claim("n1")
    assert pool.state() == before
    assert pool.claim("n1b").uids == ["a"]


def test_an_owner_whose_name_begins_like_a_released_one_goes_on(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.release_owner("n1")
    assert pool.claim("n11").uids == ["a"]


def test_ids_that_are_to_be_cancelled_are_named(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim(want=1)
    pool.cancel("a")
    pool.release(("a", taken.token))
    assert pool.claim("n2").cancelled == ["a"]


def test_an_id_without_a_body_is_set_aside_and_the_rest_goes_on(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    pool.call("HDEL", pool.keys.tasks, "a")
    pool.drain_wake()
    assert pool.claim(want=1).uids == []
    assert pool.woken()
    assert pool.claim().uids == ["b", "c"]
    assert pool.state()["broken"] == {"a": "ready without a body"}


def test_a_header_nobody_can_read_does_not_stop_the_pool(pool: Scripts) -> None:
    pool.submit(task("a", 5, "+5000"), task("b", when="+5000"))
    pool.call("HSET", pool.keys.info, "a", "nonsense")
    pool.sleep_until_due("a", "b")
    assert sorted(pool.claim().uids) == ["a", "b"]


def test_a_place_with_many_trailing_zeros_keeps_its_digits(pool: Scripts) -> None:
    # A server may write such a score as 1.7592187e+15.
    pool.call("HSET", pool.keys.meta, "sequence", 95558399)
    pool.submit(task("a"))
    assert pool.state()["ready"] == {"a": 1759218700000000}
    taken = pool.claim()
    assert pool.state()["claims"] == {"a": f"n1:1 1759218700000000 {taken.now}"}
    pool.release(("a", taken.token))
    assert pool.state()["ready"] == {"a": 1759218700000000}


def test_a_full_redis_still_gives_work(real: Scripts) -> None:
    real.submit(task("a"), task("b", when="+5000"))
    real.sleep_until_due("b")
    real.runner.server.fill()
    assert real.claim().uids == ["a", "b"]
    assert set(real.state()["claims"]) == {"a", "b"}


def test_a_task_that_is_unique_until_it_starts_lets_the_next_one_in(pool: Scripts) -> None:
    pool.submit(task("a", unique="s:x:0:k"), task("b", unique="s:x:0:m"))
    taken = pool.claim(starting=1)
    assert taken.uids == ["a", "b"]
    # b waits in its owner's memory and has not started.
    assert pool.state()["unique"] == {"m": "b 0"}
    assert pool.submit(
        task("a2", unique="s:x:0:k"), task("b2", unique="s:x:0:m")
    ).verdicts == "su"


# -- suspects -------------------------------------------------------------------------------------


def suspects(pool: Scripts, *uids: str) -> None:
    """Make these tasks suspects: they ran when a process died and nobody was named."""
    pool.submit(*(task(uid) for uid in uids))
    pool.claim("dead", want=len(uids))
    pool.judge_owner("dead")
    pool.call("DEL", *pool.keys.of(("own", "owned"), "dead"))
    pool.drain_wake()


def test_a_suspect_comes_alone_and_its_claim_is_marked(pool: Scripts) -> None:
    suspects(pool, "s1", "s2")
    pool.submit(task("a"))
    pool.drain_wake()
    taken = pool.claim("n1", want=10)
    assert taken.uids == ["s1"]
    assert pool.woken(), "there is more for others"
    assert pool.state("tasks", "meta") == {
        "suspects": {"s2": place(2)},
        "ready": {"a": place(3)},
        "leases": {"s1": taken.now + LEASE},
        "claims": {"s1": f"n1:1 {place(1)} {taken.now} s"},
        "owned:n1": {"s1"},
        "own:n1": {"claim": "1 s1", "suspect": f"{taken.now + 500} 1 s1"},
    }


def test_an_owner_that_holds_a_suspect_gets_no_second_one(pool: Scripts) -> None:
    suspects(pool, "s1", "s2")
    pool.submit(task("a"))
    assert pool.claim("n1").uids == ["s1"]
    pool.suspects_may_start_at("n1", FAR)
    assert [pool.claim("n1").uids for _ in range(2)] == [["a"], []]
    assert pool.claim("n2").uids == ["s2"]


def test_a_claim_that_took_nothing_wakes_nobody_though_suspects_wait(pool: Scripts) -> None:
    suspects(pool, "s1", "s2")
    pool.claim("n1")
    pool.suspects_may_start_at("n1", FAR)
    pool.drain_wake()
    assert pool.claim("n1").uids == []
    assert not pool.woken(), "its fetcher would wake itself for ever"


def test_an_owner_that_holds_a_suspect_gets_the_next_once_it_ended(pool: Scripts) -> None:
    suspects(pool, "s1", "s2")
    taken = pool.claim()
    pool.drain_wake()
    pool.finish(("s1", taken.token, "s", b"done"))
    assert pool.woken(), "the owner may take the next one at once"
    assert pool.claim().uids == ["s2"]


def test_an_owner_that_lost_its_suspect_may_take_another_one(pool: Scripts) -> None:
    suspects(pool, "s1", "s2")
    pool.claim("n1")
    pool.sweeps_have_run()
    pool.let_leases_expire("s1")
    pool.recover()
    assert pool.claim("n2").uids == ["s1"]
    assert pool.claim("n1").uids == ["s2"]


def test_a_claim_that_starts_nothing_leaves_suspects_alone(pool: Scripts) -> None:
    suspects(pool, "s1")
    pool.submit(task("a"))
    assert pool.claim(starting=0).uids == ["a"]


def test_a_repeated_claim_of_a_suspect_gives_it_again(pool: Scripts) -> None:
    suspects(pool, "s1", "s2")
    first = pool.claim()
    before = pool.state()
    assert pool.claim(number=1).tasks == first.tasks
    assert pool.state() == before
