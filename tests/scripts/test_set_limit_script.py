"""set_limit.lua, and what limits do to other scripts: who runs, who is parked, who comes back."""

from __future__ import annotations

import pytest
from script_driver import Reply, Scripts, limited, place, task

from skedulr.limiting import Limit

TWO = Limit(concurrency=2)
MINUTE = Limit(rate=2, per=60, burst=2)


def header(*limits: Limit, front: str = "0 0 0 0 -") -> str:
    """The header of a task with these limits and one limit key."""
    key = limited(*limits).split(" ")[0].split("/")[0]
    return f"{front} {key}"


def key_of(limit: Limit) -> str:
    return limited(limit).removeprefix("l:").split("/")[0]


def test_what_a_limit_refuses_is_parked_in_its_order_and_the_rest_is_claimed(pool: Scripts) -> None:
    stored = pool.submit(*(task(uid, limits=limited(TWO)) for uid in "abcd"), task("plain"))
    taken = pool.claim("n1", want=3)
    assert taken.uids == ["a", "b", "plain"]
    assert taken.tasks[0].header == header(TWO)
    key = key_of(TWO)
    state = pool.state("claims", "leases", "owned", "own", "tasks", "info", "wake")
    assert state == {
        "limits": {key.split(".")[0]: "c:2 - t"},
        "parked": {"c": place(3), "d": place(4)},
        "queues": {
            f"!{key} {place(3):016} {key}": 0, f"{key} {place(3):016} c": 0,
            f"{key} {place(4):016} d": 0,
        },
        "slots": {
            "a": key, "b": key, f"#{key}": "2", f"@{key}": f"!{key} {place(3):016} {key}",
        },
        "meta": {"sequence": "5"},
    }
    assert stored.verdicts == "sssss"


def test_a_slot_that_is_freed_lets_the_next_one_out_and_wakes_a_fetcher(pool: Scripts) -> None:
    pool.submit(*(task(uid, limits=limited(TWO)) for uid in "abcd"))
    taken = pool.claim(want=10)
    pool.drain_wake()
    pool.finish(("a", taken.token, "s", b"done"))
    assert pool.woken()
    assert pool.state()["ready"] == {"c": place(3)}
    again = pool.claim(want=10)
    assert again.uids == ["c"]
    pool.finish(("b", taken.token, "s", b""), ("c", again.token, "s", b""))
    last = pool.claim(want=10)
    pool.finish(("d", last.token, "s", b""))
    state = pool.state()
    assert not {"slots", "parked", "queues", "ready", "info"} & set(state)


@pytest.mark.parametrize("how", [
    "succeeded", "dead", "cancelled", "expired", "retry", "defer", "suspend", "moved", "release",
    "killed", "killed and drained", "killed and blamed", "recover", "host lost",
])
def test_whatever_ends_a_claim_frees_its_slot(pool: Scripts, how: str) -> None:
    pool.submit(task("a", limits=limited(Limit(concurrency=1))),
                task("b", limits=limited(Limit(concurrency=1))))
    taken = pool.claim(want=10)
    assert taken.uids == ["a"]
    if how in ("succeeded", "dead", "cancelled", "expired"):
        pool.finish(("a", taken.token, how[0], b"over"))
    elif how == "retry":
        pool.retry(("a", taken.token, 60_000, b"failed"))
    elif how == "suspend":
        pool.run("suspend", 1, "a", taken.token, b"made 2", "1 0 - - SS", owner="n1")
    elif how == "moved":
        pool.run("moved", 1, "a", taken.token, b"to other/a", owner="n1")
    elif how == "defer":
        pool.defer(("a", taken.token, 60_000))
    elif how == "release":
        pool.release(("a", taken.token))
    elif how == "killed":
        pool.judge_owner("n1", culprit="a", limit=3)
    elif how == "killed and drained":
        pool.release_owner("n1")
    elif how == "killed and blamed":
        pool.judge_owner("n1", culprit="a", limit=1)
    else:
        pool.let_leases_expire()
        pool.sweeps_have_run()
        if how == "recover":
            pool.recover()
        else:
            pool.judge_hosts(crashes=3)
    # Given back it is the first again; else the next one runs. Never both.
    back = how in ("release", "killed", "killed and drained", "recover", "host lost")
    again = pool.claim("n2", want=10)
    assert again.uids == ["a" if back else "b"]
    pool.finish((again.uids[0], again.token, "s", b""), owner="n2")
    last = pool.claim("n2", want=10)
    pool.finish(*((uid, last.token, "s", b"") for uid in last.uids), owner="n2")
    assert not {"slots", "parked", "queues", "releases", "ready"} & set(pool.state())


@pytest.mark.parametrize("uid", ["b", "c"])
def test_a_limited_task_whose_journal_is_buried_leaves_nothing_and_passes_its_turn_on(
    pool: Scripts, uid: str
) -> None:
    """One that was let out, and one that is parked."""
    one = limited(Limit(concurrency=1))
    pool.submit(*(task(which, limits=one) for which in "abcd"))
    first = pool.claim(want=10)
    pool.finish(("a", first.token, "s", b""))
    assert list(pool.state()["ready"]) == ["b"]
    pool.call("HSET", pool.keys.tasks, uid, b"rubbish")
    assert Reply(pool.run("bury", uid, b"rubbish", b"stone")).verdicts == "m"
    for expected in [other for other in "bcd" if other != uid]:
        taken = pool.claim(want=10)
        assert taken.uids == [expected]
        pool.finish((expected, taken.token, "s", b""))
    assert not {"slots", "parked", "queues", "ready", "info"} & set(pool.state())


def test_a_suspect_comes_back_from_being_parked_as_a_suspect(pool: Scripts) -> None:
    one = Limit(concurrency=1)
    pool.submit(task("a", limits=limited(one)), task("b", limits=limited(one)))
    pool.claim("n1")
    pool.judge_owner("n1")
    assert pool.state()["suspects"] == {"a": place(1)}
    # b was let out when a became a suspect: it may take long until that is run alone.
    running = pool.claim("n2", want=1)
    taken = [*running.uids, *pool.claim("n3", want=1).uids]
    assert taken == ["a"]
    pool.finish(("a", running.token, "s", b""), owner="n2")
    assert pool.claim("n3", want=1).uids == ["b"]


def test_a_flood_of_a_full_key_is_parked_as_it_is_submitted(pool: Scripts) -> None:
    pool.submit(*(task(f"a{i}", limits=limited(TWO)) for i in range(4)))
    pool.claim(want=1)
    pool.claim(want=1)
    pool.claim(want=1)
    pool.drain_wake()
    pool.submit(*(task(f"b{i}", limits=limited(TWO)) for i in range(100)))
    state = pool.state()
    assert len(state["parked"]) == 102
    assert "ready" not in state
    assert not pool.woken(), "nobody could take it"


def test_a_claim_looks_beyond_what_is_refused_500_at_most(pool: Scripts) -> None:
    one = Limit(concurrency=1)
    for page in range(3):
        pool.submit(*(task(f"a{page}x{i}", limits=limited(one)) for i in range(400)))
    pool.submit(task("plain"))
    assert pool.claim(want=1).uids == ["a0x0"]
    found = [pool.claim(want=1).uids for _ in range(3)]
    assert found == [[], [], ["plain"]]
    assert pool.woken()


def test_a_full_key_does_not_hold_up_another_one(pool: Scripts) -> None:
    ann, bob = (Limit(concurrency=1, key=key) for key in ("ann", "bob"))
    pool.submit(*(task(f"a{i}", limits=limited(ann)) for i in range(50)),
                task("b", limits=limited(bob)))
    assert pool.claim(want=2).uids == ["a0", "b"]


def test_all_limits_of_a_task_have_to_allow_it_and_its_turn_is_passed_on(pool: Scripts) -> None:
    whole = Limit(concurrency=2, name="whole")
    ann = Limit(concurrency=1, name="customer", key="ann")
    pool.submit(task("a1", limits=limited(ann, whole)), task("a2", limits=limited(ann, whole)),
                task("x", limits=limited(whole)), task("y", limits=limited(whole)))
    taken = pool.claim(want=10)
    assert taken.uids == ["a1", "x"]
    pool.finish(("a1", taken.token, "s", b""))
    # Ann's next and y are both wanted; a2 is the first in order, and takes both slots.
    assert pool.claim("n2", want=10).uids == ["a2"]
    pool.finish(("x", taken.token, "s", b""))
    assert pool.claim("n3", want=10).uids == ["y"]


def test_tokens_of_a_rate_come_back_in_time_and_the_next_is_announced(pool: Scripts) -> None:
    pool.submit(*(task(uid, limits=limited(MINUTE)) for uid in "abcd"))
    taken = pool.claim(want=10)
    assert taken.uids == ["a", "b"]
    # A token every 30 s.
    assert 29_900 <= taken.next_due - taken.now <= 30_000
    assert pool.state()["releases"] == {key_of(MINUTE): taken.next_due}
    assert pool.claim(want=10).uids == []
    pool.finish(("a", taken.token, "s", b""), ("b", taken.token, "s", b""))
    assert pool.claim(want=10).uids == [], "a token is spent by the start, not held by the run"


def test_a_token_that_is_there_lets_one_out(pool: Scripts) -> None:
    pool.submit(*(task(uid, limits=limited(MINUTE)) for uid in "abcd"))
    pool.claim(want=10)
    key = key_of(MINUTE)
    pool.call("ZADD", pool.keys.rates, pool.now() + 29_990, key)
    pool.call("ZADD", pool.keys.releases, pool.now() - 10, key)
    pool.call("HSET", pool.keys.meta, "release_at", pool.now() - 10)
    taken = pool.claim(want=10)
    assert taken.uids == ["c"]
    assert taken.next_due > taken.now + 29_000


def test_promote_lets_out_what_has_a_token_where_all_are_busy(pool: Scripts) -> None:
    pool.submit(*(task(uid, limits=limited(MINUTE)) for uid in "abc"))
    pool.claim(want=10)
    pool.drain_wake()
    pool.call("ZADD", pool.keys.rates, pool.now() - 1, key_of(MINUTE))
    pool.call("ZADD", pool.keys.releases, pool.now() - 10, key_of(MINUTE))
    pool.call("HSET", pool.keys.meta, "release_at", pool.now() - 10)
    assert pool.promote().rest == [1, -1]
    assert pool.woken()
    assert pool.state()["ready"] == {"c": place(3)}


def test_a_pool_never_asks_again_for_keys_that_wait_without_a_token(pool: Scripts) -> None:
    """1,000 parked keys: what a claim says is when the first of them is worth a look."""
    limits = [Limit(rate=1, per=3600, key=f"k{i}") for i in range(1000)]
    for at in range(0, 1000, 250):
        for _ in range(2):
            pool.submit(*(task(f"t{at}x{_}x{i}", limits=limited(one))
                          for i, one in enumerate(limits[at:at + 250])))
    taken = [len(pool.claim(want=500).uids) for _ in range(5)]
    assert sum(taken) == 1000
    last = pool.claim(want=500)
    assert last.uids == []
    assert last.next_due - last.now > 3_500_000
    assert not pool.call("EXISTS", pool.keys.ready)


def test_a_task_that_would_only_wait_in_memory_takes_no_scarce_slot_and_no_token(
    pool: Scripts,
) -> None:
    wide = Limit(concurrency=100, name="wide")
    pool.submit(*(task(f"w{i}", limits=limited(wide)) for i in range(3)),
                task("a", limits=limited(TWO)), task("b", limits=limited(MINUTE)))
    assert pool.claim("n1", want=5, starting=1).uids == ["w0", "w1", "w2", "a"]
    assert pool.state()["ready"] == {"b": place(5)}
    assert pool.woken(), "for whoever is free"
    assert pool.claim("n2", want=5, starting=5).uids == ["b"]


@pytest.mark.parametrize("how", ["cancel", "purge"])
def test_a_parked_task_that_is_cancelled_or_removed_leaves_nothing(
    pool: Scripts, how: str
) -> None:
    one = Limit(concurrency=1)
    pool.submit(*(task(uid, limits=limited(one)) for uid in "abc"))
    taken = pool.claim(want=5)
    before = pool.state()["queues"]
    assert len(before) == 3
    if how == "cancel":
        assert pool.cancel("b").rest == ["queued"]
        assert pool.cancel("c").rest == ["queued"]
    else:
        assert pool.purge("unstarted", "b", "c").rest == [2]
    pool.finish(("a", taken.token, "s", b""))
    assert not {"parked", "queues", "slots", "info", "tasks", "ready"} & set(pool.state())


@pytest.mark.parametrize("how", ["cancel", "purge"])
def test_the_one_that_was_let_out_may_go_and_the_next_comes_in_its_place(
    pool: Scripts, how: str
) -> None:
    one = Limit(concurrency=1)
    pool.submit(*(task(uid, limits=limited(one)) for uid in "abc"))
    taken = pool.claim(want=5)
    pool.finish(("a", taken.token, "s", b""))
    assert pool.state()["ready"] == {"b": place(2)}
    if how == "cancel":
        pool.cancel("b")
    else:
        pool.purge("unstarted", "b")
    assert pool.claim(want=5).uids == ["c"]


def test_a_parked_task_may_be_replaced_by_its_unique_key(pool: Scripts) -> None:
    one = Limit(concurrency=1)
    pool.submit(task("a", limits=limited(one)))
    pool.claim(want=1)
    pool.submit(task("b", unique="d:p:0:k1", limits=limited(one)), entry=b"replaced")
    assert pool.claim(want=5).uids == []
    assert pool.submit(
        task("c", unique="d:p:0:k1", limits=limited(one)), entry=b"replaced"
    ).verdicts == "s"
    assert set(pool.state()["parked"]) == {"c"}


def test_delayed_tasks_keep_their_limits_and_a_retry_too(pool: Scripts) -> None:
    one = Limit(concurrency=1)
    pool.submit(task("a", limits=limited(one)), task("b", when="+60000", limits=limited(one)))
    taken = pool.claim(want=5)
    pool.sleep_until_due("b")
    assert pool.claim(want=5).uids == []
    assert set(pool.state()["parked"]) == {"b"}
    pool.retry(("a", taken.token, 60_000, b"failed"))
    assert pool.claim("n2", want=5).uids == ["b"]
    pool.sleep_until_due("a")
    assert pool.claim("n3", want=5).uids == []


def test_a_resubmitted_task_has_its_limits_again_and_says_nothing_of_what_they_are(
    pool: Scripts,
) -> None:
    old, new = Limit(concurrency=1), Limit(concurrency=3)
    pool.submit(task("a", limits=limited(old)))
    pool.finish_now()
    pool.submit(task("b", limits=limited(new)))
    pool.resubmit(("a", f"0 - - {limited(old)}", b"again"))
    id = key_of(old).split(".")[0]
    assert pool.state()["limits"] == {id: "c:3 - t"}
    assert pool.claim(want=5).uids == ["b", "a"]


def test_a_parked_task_counts_for_the_capacity(pool: Scripts) -> None:
    one = Limit(concurrency=1)
    pool.submit(task("a", limits=limited(one)), task("b", limits=limited(one)))
    pool.claim(want=5)
    assert pool.submit(task("c"), task("d"), capacity=2).verdicts == "sf"


# -- set_limit.lua


def test_a_limit_that_is_raised_lets_out_as_many_as_it_has_room_for(pool: Scripts) -> None:
    pool.submit(*(task(f"t{i}", limits=limited(TWO)) for i in range(10)))
    pool.claim(want=10)
    pool.drain_wake()
    assert pool.set_limit(Limit(concurrency=5)).rest == [1, ""]
    assert pool.woken()
    assert pool.claim("n2", want=10).uids == ["t2", "t3", "t4"]
    assert pool.state()["limits"] == {key_of(TWO).split(".")[0]: "c:2 c:5 t"}


def test_what_was_set_holds_against_what_is_declared_until_it_is_reset(pool: Scripts) -> None:
    pool.submit(*(task(f"t{i}", limits=limited(TWO)) for i in range(10)))
    pool.set_limit(Limit(concurrency=1))
    taken = pool.claim(want=10)
    assert taken.uids == ["t0"]
    pool.submit(task("u", limits=limited(Limit(concurrency=4))))
    assert pool.claim(want=10).uids == []
    pool.set_limit(None)
    assert pool.claim(want=10).uids == ["t1", "t2", "t3"]


def test_a_limit_that_is_lowered_lets_what_runs_go_on_and_nobody_in_until_there_is_room(
    pool: Scripts,
) -> None:
    pool.submit(*(task(f"t{i}", limits=limited(TWO)) for i in range(4)))
    taken = pool.claim(want=10)
    pool.set_limit(Limit(concurrency=1))
    pool.finish(("t0", taken.token, "s", b""))
    assert pool.claim(want=10).uids == []
    pool.finish(("t1", taken.token, "s", b""))
    assert pool.claim(want=10).uids == ["t2"]


def test_a_rate_that_is_raised_counts_at_once(pool: Scripts) -> None:
    day = Limit(rate=1, per=86_400)
    pool.submit(*(task(f"t{i}", limits=limited(day)) for i in range(4)))
    assert pool.claim(want=10).uids == ["t0"]
    pool.set_limit(Limit(rate=1000, burst=1))
    pool.sleep_until_due()
    found: list[str] = []
    for _ in range(200):
        found += pool.claim(want=10).uids
        if len(found) == 3:
            break
    assert found == ["t1", "t2", "t3"]


def test_many_keys_of_a_limit_are_let_out_page_by_page(pool: Scripts) -> None:
    for at in range(0, 600, 200):
        pool.submit(*(
            task(f"t{at + i}x{n}", limits=limited(Limit(concurrency=1, key=f"k{at + i}")))
            for i in range(200) for n in range(2)
        ))
    for _ in range(8):
        pool.claim(want=200)
    assert len(pool.state()["parked"]) == 600
    pool.set_limit(Limit(concurrency=2))
    assert "parked" not in pool.state()


def test_a_limit_nobody_knows_can_not_be_set(pool: Scripts) -> None:
    assert pool.set_limit(Limit(concurrency=5), "nobody").rest == [0, ""]
    assert pool.state() == {}


# -- fairness and aging


def test_fair_keys_take_turns_whoever_came_first(pool: Scripts) -> None:
    ann, bob, eve = (limited(Limit(fair=True, key=key)) for key in ("ann", "bob", "eve"))
    pool.submit(*(task(f"a{i}", limits=ann) for i in range(100)))
    pool.submit(*(task(f"b{i}", limits=bob) for i in range(3)))
    assert sorted(pool.claim(want=2).uids) == ["a0", "b0"]
    assert sorted(pool.claim(want=2).uids) == ["a1", "b1"]
    # One that comes late starts with the turn that it is, and has nothing to catch up.
    pool.submit(*(task(f"e{i}", limits=eve) for i in range(3)))
    assert sorted(pool.claim(want=3).uids) == ["a2", "b2", "e0"]
    assert sorted(pool.claim(want=2).uids) == ["a3", "e1"]


def test_a_task_without_a_key_is_not_put_behind_a_whole_flood_nor_before_its_turn(
    pool: Scripts,
) -> None:
    ann = limited(Limit(fair=True, key="ann"))
    pool.submit(*(task(f"a{i}", limits=ann) for i in range(100)))
    pool.claim(want=50)
    pool.submit(task("plain"))
    assert "plain" in pool.claim(want=2).uids
    pool.submit(*(task(f"p{i}") for i in range(100)))
    assert "a60" in pool.claim(want=30).uids


def test_turns_are_forgotten_when_they_have_come(pool: Scripts) -> None:
    for i in range(20):
        pool.submit(task(f"t{i}", limits=limited(Limit(fair=True, key=f"k{i}"))))
    pool.claim(want=50)
    assert "turns" not in pool.state()


def test_priorities_stay_strict_between_fair_keys(pool: Scripts) -> None:
    ann, bob = (limited(Limit(fair=True, key=key)) for key in ("ann", "bob"))
    pool.submit(task("a", limits=ann), task("b", 5, limits=bob), task("c", 5, limits=ann))
    assert pool.claim(want=1).uids + pool.claim(want=5).uids == ["b", "c", "a"]


def test_what_has_waited_too_long_goes_before_what_is_more_urgent(pool: Scripts) -> None:
    pool.submit(task("low1", -5), task("low2", -5))
    pool.submit(*(task(f"first{i}", 5) for i in range(2)))
    assert pool.claim(want=1, aging=100_000).uids == ["first0"]
    marks = pool.keys.marks
    sequence = pool.call("ZRANGE", marks, 0, -1)[0]
    pool.call("ZADD", marks, pool.now() - 150_000, sequence)
    pool.submit(task("new", -5), *(task(f"urgent{i}", 5) for i in range(4)))
    # Half of what is wanted at most, in its order; what is not that old stays where it is.
    assert pool.claim(want=2, aging=100_000).uids == ["low1", "first1"]
    assert pool.claim(want=2, aging=100_000).uids == ["low2", "urgent0"]
    assert pool.claim(want=2, aging=100_000).uids == ["urgent1", "urgent2"]


def test_without_aging_low_work_waits_for_as_long_as_there_is_higher(pool: Scripts) -> None:
    pool.submit(task("low", -5), *(task(f"u{i}", 5) for i in range(5)))
    for i in range(5):
        assert pool.claim(want=1).uids == [f"u{i}"]
    assert "marks" not in pool.state()
