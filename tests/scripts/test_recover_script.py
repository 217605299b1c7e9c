"""recover.lua: what expired leases hold comes back, but not after an outage of Redis."""

from __future__ import annotations

from script_driver import LEASE, Scripts, body, place, task


def test_expired_leases_go_back_to_their_old_places_with_nothing_counted(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b", 5), task("live"))
    taken = pool.claim("n1")
    pool.submit(task("new"))
    pool.let_leases_expire("a", "b")
    pool.sweeps_have_run()
    pool.drain_wake()
    swept = pool.recover()
    assert swept.rest == [["a", "b"], 0] or swept.rest == [["b", "a"], 0]
    assert pool.state() == {
        "tasks": {
            **{uid: body(uid, stored.now) for uid in ("a", "b", "live")},
            "new": pool.state()["tasks"]["new"],
        },
        "ready": {"b": place(2, 5), "a": place(1), "new": place(4)},
        "info": {"b": "5 0 0 0 -"},
        "leases": {"live": taken.now + LEASE},
        "claims": {"live": f"n1:1 {place(3)} {taken.now}"},
        # The owner's own set is mended by its next renewal, or goes with it.
        "owned:n1": {"a", "b", "live"},
        "own:n1": {"claim": "1 b a live"},
        "meta": {"sequence": "4", "swept": str(swept.now), "recover_after": "1"},
        "wake": ["1"],
    }


def test_a_sweep_that_finds_nothing_only_notes_its_time(pool: Scripts) -> None:
    pool.sweeps_have_run()
    swept = pool.recover()
    assert swept.rest == [[], 0]
    assert pool.state() == {"meta": {"swept": str(swept.now), "recover_after": "1"}}


def test_the_first_sweep_ever_gives_owners_one_lease_to_renew(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.let_leases_expire()
    swept = pool.recover()
    assert swept.rest == [[], 0]
    assert pool.state()["meta"] == {
        "sequence": "1", "swept": str(swept.now), "recover_after": str(swept.now + LEASE),
    }
    assert pool.recover().rest == [[], 0]


def gap(pool: Scripts, ms: int) -> None:
    """As if the last sweep had run ``ms`` ago (in the future, if negative)."""
    pool.call("HSET", pool.keys.meta, "swept", pool.now() - ms)


def test_after_a_gap_nothing_is_taken_for_one_lease(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.let_leases_expire()
    pool.sweeps_have_run()
    gap(pool, 10_001)
    first = pool.recover(gap=10_000)
    assert first.rest == [[], 0]
    assert pool.recover().rest == [[], 0]
    # The grace is over.
    pool.call("HSET", pool.keys.meta, "recover_after", first.now - 1)
    assert pool.recover().rest == [["a"], 0]


def test_a_gap_within_the_bound_needs_no_grace(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.let_leases_expire()
    pool.sweeps_have_run()
    gap(pool, 9_000)
    assert pool.recover(gap=10_000).rest == [["a"], 0]


def test_an_owner_that_renews_during_the_grace_keeps_its_claims(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.let_leases_expire()
    pool.recover()
    pool.renew(("a", taken.token))
    pool.call("HSET", pool.keys.meta, "recover_after", 1)
    assert pool.recover().rest == [[], 0]
    assert pool.finish(("a", taken.token, "s", b"x")).verdicts == "k"


def test_a_clock_set_back_is_taken_for_a_gap(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.let_leases_expire()
    pool.sweeps_have_run()
    gap(pool, -3_600_000)
    swept = pool.recover()
    assert swept.rest == [[], 0]
    assert pool.state()["meta"]["recover_after"] == str(swept.now + LEASE)


def test_a_grace_that_a_clock_set_back_put_far_ahead_does_not_stop_recovery(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.let_leases_expire()
    pool.sweeps_have_run()
    pool.call("HSET", pool.keys.meta, "recover_after", pool.now() + 86_400_000)
    assert pool.recover().rest == [["a"], 0]


def test_more_expired_leases_than_the_limit_come_back_page_by_page(pool: Scripts) -> None:
    pool.submit(*(task(f"a{i}") for i in range(500)))
    pool.submit(*(task(f"b{i}") for i in range(100)))
    pool.claim("n1", want=500)
    pool.claim("n1", want=500)
    pool.let_leases_expire()
    pool.sweeps_have_run()
    pages = [pool.recover(limit=5000) for _ in range(3)]
    assert [len(page.rest[0]) for page in pages] == [500, 100, 0]
    assert len(pool.state()["ready"]) == 600


def test_a_task_is_given_back_once_however_many_sweep(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("n1")
    pool.let_leases_expire()
    pool.sweeps_have_run()
    assert [pool.recover().rest[0] for _ in range(3)] == [["a"], [], []]
    pool.claim("n2")
    assert pool.recover().rest == [[], 0]


def test_the_old_owner_changes_nothing_after_a_recovery(pool: Scripts) -> None:
    pool.submit(task("a"))
    old = pool.claim("n1")
    pool.let_leases_expire()
    pool.sweeps_have_run()
    pool.recover()
    pool.claim("n2")
    before = pool.state("own", "owned")
    assert pool.finish(("a", old.token, "s", b"late")).verdicts == "l"
    assert pool.retry(("a", old.token, 0, b"late")).verdicts == "l"
    assert pool.progress(("a", old.token, b"99")).verdicts == "l"
    assert pool.renew(("a", old.token)).rest == [["a"], []]
    assert pool.release(("a", old.token)).rest == [[], 0]
    assert pool.state("own", "owned") == before


def test_a_lease_without_a_readable_claim_is_set_aside_and_the_rest_goes_on(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    pool.claim()
    pool.call("HDEL", pool.keys.claims, "a")
    pool.call("HSET", pool.keys.claims, "b", "rubbish")
    pool.let_leases_expire()
    pool.sweeps_have_run()
    assert pool.recover().rest == [["c"], 0]
    state = pool.state()
    assert state["broken"] == {"a": "leased without a claim", "b": "leased without a claim"}
    assert "leases" not in state


def test_a_paused_pool_gets_its_tasks_back_and_wakes_nobody(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.let_leases_expire()
    pool.sweeps_have_run()
    pool.pause()
    pool.drain_wake()
    assert pool.recover().rest == [["a"], 0]
    assert not pool.woken()


def test_a_full_redis_still_recovers(real: Scripts) -> None:
    real.submit(task("a"), task("b"))
    real.claim(starting=1)
    real.let_leases_expire()
    real.sweeps_have_run()
    real.runner.server.fill()
    swept = real.judge_hosts()
    assert sorted(swept.rest[0]) == ["a", "b"]
    assert set(real.state()["suspects"]) == {"a"}
    assert set(real.state()["ready"]) == {"b"}


# -- the judgement of a host's death --------------------------------------------------------------


def test_what_ran_on_a_host_that_died_becomes_suspect_uncharged(pool: Scripts) -> None:
    stored = pool.submit(task("ran"), task("waited"))
    pool.claim("n1", starting=1)
    pool.let_leases_expire()
    pool.sweeps_have_run()
    swept = pool.judge_hosts()
    assert sorted(swept.rest[0]) == ["ran", "waited"]
    assert swept.rest[1:] == [0, [], [], 0, 0]
    assert pool.state("own", "owned", "wake", "meta") == {
        "tasks": {uid: body(uid, stored.now) for uid in ("ran", "waited")},
        "suspects": {"ran": place(1)},
        "ready": {"waited": place(2)},
    }


def test_a_suspect_on_a_host_that_dies_is_charged_and_dies_at_the_limit(pool: Scripts) -> None:
    stored = pool.submit(task("a"))
    outcomes, crashes = [], []
    for n in range(4):
        pool.claim(f"n{n}")
        pool.let_leases_expire()
        pool.sweeps_have_run()
        swept = pool.judge_hosts(crashes=3)
        outcomes.append(swept.rest)
        crashes.append((b"crash", swept.now))
    assert outcomes == [
        [["a"], 0, [], [], 0, 0], [["a"], 0, ["a"], [], 0, 0], [["a"], 0, ["a"], [], 0, 0],
        [[], 0, [], ["a"], 1, 0],
    ]
    assert pool.state("own", "owned", "wake", "meta") == {
        "records": {
            "a": body("a", stored.now, *crashes[1:3], (b"killed", crashes[3][1])),
        },
        "dead": {"a": crashes[3][1]}, "deaths": {"a": crashes[3][1]},
        "stats": {"failed": "1", "dead": "1", "crashed": "3"},
    }


def test_a_judging_sweep_within_the_grace_judges_nobody(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.let_leases_expire()
    assert pool.judge_hosts().rest == [[], 0, [], [], 0, 0]
    assert set(pool.state()["leases"]) == {"a"}
