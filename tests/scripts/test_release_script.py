"""release.lua: claims are given back before they expire, and a process's death is judged."""

from __future__ import annotations

from script_driver import Scripts, body, place, task

# -- named claims ---------------------------------------------------------------------------------


def test_named_claims_go_back_to_their_old_places_with_nothing_counted(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b", 5), task("c"))
    taken = pool.claim()
    pool.submit(task("new"), task("new5", 5))
    pool.drain_wake()
    given = pool.release(("a", taken.token), ("b", taken.token))
    assert given.rest == [["a", "b"], 0]
    assert pool.state("tasks", "meta") == {
        "ready": {"b": place(2, 5), "new5": place(5, 5), "a": place(1), "new": place(4)},
        "info": {"b": "5 0 0 0 -", "new5": "5 0 0 0 -"},
        "leases": {"c": taken.now + 15_000},
        "claims": {"c": f"n1:1 {place(3)} {taken.now}"},
        "owned:n1": {"c"},
        "own:n1": {"claim": "1 b a c"},
        "wake": ["1"],
    }
    assert pool.state()["tasks"]["a"] == body("a", stored.now)


def test_only_claims_that_still_hold_are_given_back(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim("n1")
    pool.finish(("a", taken.token, "s", b"x"))
    pool.drain_wake()
    before = pool.state()
    assert pool.release(("a", taken.token), ("b", "n1:11"), ("b", "n2:1")).rest == [[], 0]
    assert pool.state() == before


def test_a_release_that_is_repeated_gives_nothing_back_twice(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim("n1")
    pool.release(("a", taken.token))
    pool.claim("n2")
    before = pool.state()
    assert pool.release(("a", taken.token)).rest == [[], 0]
    assert pool.state() == before


def test_a_release_of_nothing_changes_nothing(pool: Scripts) -> None:
    assert pool.release().rest == [[], 0]
    assert pool.state() == {}


def test_a_paused_pool_gets_its_tasks_back_and_wakes_nobody(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.pause()
    pool.drain_wake()
    assert pool.release(("a", taken.token)).rest == [["a"], 0]
    assert not pool.woken()


def test_a_suspect_that_is_given_back_stays_a_suspect(pool: Scripts) -> None:
    pool.submit(task("a", 2))
    pool.claim("dead")
    pool.judge_owner("dead")
    taken = pool.claim("n1")
    pool.release(("a", taken.token))
    state = pool.state()
    assert state["suspects"] == {"a": place(1, 2)}
    assert "ready" not in state


# -- a whole owner --------------------------------------------------------------------------------


def test_all_that_an_owner_holds_goes_back_and_the_owner_is_gone(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b", 5), task("other"))
    pool.claim("n1", want=2)
    kept = pool.claim("n2")
    pool.drain_wake()
    given = pool.release_owner("n1")
    assert sorted(given.rest[0]) == ["a", "b"]
    assert given.rest[1] == 0
    assert pool.state() == {
        "tasks": {uid: body(uid, stored.now) for uid in ("a", "b", "other")},
        "ready": {"b": place(2, 5), "a": place(1)},
        "info": {"b": "5 0 0 0 -"},
        "leases": {"other": kept.now + 15_000},
        "claims": {"other": f"n2:1 {place(3)} {kept.now}"},
        "owned:n2": {"other"},
        "own:n1": {"claim": "1 b a", "gone": "1"},
        "own:n2": {"claim": "1 other"},
        "meta": {"sequence": "3"},
        "wake": ["1"],
    }
    assert 3500 < pool.call("TTL", *pool.keys.of(("own",), "n1")) <= 3600


def test_an_owner_that_never_claimed_is_gone_as_well(pool: Scripts) -> None:
    assert pool.release_owner("n1").rest == [[], 0]
    assert pool.state() == {"own:n1": {"gone": "1"}}


def test_what_the_owner_lost_before_is_left_to_its_new_owner(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("n1")
    pool.sweeps_have_run()
    pool.let_leases_expire()
    pool.recover()
    pool.claim("n11")
    before = pool.state("own", "owned")
    assert pool.release_owner("n1").rest == [[], 0]
    assert pool.state("own", "owned") == before


def test_more_than_500_claims_go_back_page_by_page(pool: Scripts) -> None:
    pool.submit(*(task(f"a{i}") for i in range(500)))
    pool.submit(*(task(f"b{i}") for i in range(100)))
    pool.claim("n1", want=500)
    pool.claim("n1", want=500)
    pages = [pool.release_owner("n1") for _ in range(3)]
    assert [(len(page.rest[0]), page.rest[1]) for page in pages] == [(500, 1), (100, 0), (0, 0)]
    state = pool.state()
    assert len(state["ready"]) == 600
    assert "owned:n1" not in state
    assert "claims" not in state


def test_a_claim_nobody_can_read_does_not_stop_a_release(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.claim("n1")
    pool.call("HSET", pool.keys.claims, "a", "n1:1 what?")
    assert pool.release_owner("n1").rest == [["b"], 0]


def test_a_full_redis_still_takes_claims_back(real: Scripts) -> None:
    real.submit(task("a"), task("b"), task("c"))
    taken = real.claim("n1")
    real.runner.server.fill()
    assert real.release(("a", taken.token)).rest == [["a"], 0]
    assert real.judge_owner("n1", culprit="b").rest[2:] == [["b"], []]
    assert set(real.state()["ready"]) == {"a", "b", "c"}


# -- the judgement --------------------------------------------------------------------------------


def test_the_culprit_is_charged_and_its_neighbours_are_not(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("culprit", 3, unique="d:x:0:k"), task("c"))
    pool.claim("n1")
    judged = pool.judge_owner("n1", culprit="culprit")
    assert sorted(judged.rest[0]) == ["a", "c", "culprit"]
    assert judged.rest[1:] == [0, ["culprit"], []]
    assert pool.state("meta", "own") == {
        "tasks": {
            "a": body("a", stored.now),
            "culprit": body("culprit", stored.now, (b"crash", judged.now)),
            "c": body("c", stored.now),
        },
        "ready": {"culprit": place(2, 3), "a": place(1), "c": place(3)},
        "info": {"culprit": "3 0 1 0 d:k"},
        "unique": {"k": "culprit 0"},
        "stats": {"crashed": "1"},
        "wake": ["1"],
    }


def test_the_crash_that_reaches_the_limit_kills(pool: Scripts) -> None:
    stored = pool.submit(task("a", unique="d:x:0:k"), task("b"))
    crashes = []
    for n in range(2):
        pool.claim(f"n{n}")
        crashes.append((b"crash", pool.judge_owner(f"n{n}", culprit="a").now))
    pool.claim("n2")
    pool.watch("a")
    last = pool.judge_owner("n2", culprit="a")
    assert last.rest == [["b"], 0, [], ["a"]]
    assert pool.state("own", "meta", "wake") == {
        "records": {"a": body("a", stored.now, *crashes, (b"killed", last.now))},
        "dead": {"a": last.now}, "deaths": {"a": last.now},
        "tasks": {"b": body("b", stored.now)},
        "ready": {"b": place(2)},
        "stats": {"failed": "1", "dead": "1", "crashed": "3"},
    }


def test_a_limit_of_one_kills_at_once(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    assert pool.judge_owner(culprit="a", limit=1).rest == [[], 0, [], ["a"]]


def test_a_culprit_the_owner_does_not_hold_any_more_is_charged_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim("n1", want=1)
    pool.finish(("a", taken.token, "s", b"x"))
    pool.claim("n2")
    before = pool.state("own", "wake")
    assert pool.judge_owner("n1", culprit="b").rest == [[], 0, [], []]
    assert pool.judge_owner("n1", culprit="a").rest == [[], 0, [], []]
    assert pool.state("own", "wake") == before


def test_a_repeated_judgement_charges_once(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.judge_owner(culprit="a")
    before = pool.state()
    assert pool.judge_owner(culprit="a").rest == [[], 0, [], []]
    assert pool.state() == before


def test_where_nobody_is_named_the_started_become_suspects_uncharged(pool: Scripts) -> None:
    stored = pool.submit(task("ran", 4), task("waited"))
    pool.claim("n1", starting=1)
    judged = pool.judge_owner("n1")
    assert sorted(judged.rest[0]) == ["ran", "waited"]
    assert judged.rest[1:] == [0, [], []]
    assert pool.state("meta", "own", "wake") == {
        "tasks": {uid: body(uid, stored.now) for uid in ("ran", "waited")},
        "info": {"ran": "4 0 0 0 -"},
        "suspects": {"ran": place(1, 4)},
        "ready": {"waited": place(2)},
    }


def test_a_death_that_is_to_charge_nobody_makes_no_suspects(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    assert pool.judge_owner(suspect_started=False).rest == [["a"], 0, [], []]
    assert pool.state()["ready"] == {"a": place(1)}


def test_a_suspect_that_ran_at_the_next_death_is_charged_and_the_others_are_not(
    pool: Scripts,
) -> None:
    stored = pool.submit(task("s", unique="d:x:0:k"))
    pool.claim("n1")
    pool.judge_owner("n1")
    pool.submit(task("ran"), task("waited"))
    pool.claim("n2")
    pool.claim("n2", starting=1)
    judged = pool.judge_owner("n2")
    assert judged.rest[1:] == [0, ["s"], []]
    assert pool.state("own", "meta", "wake", "unique") == {
        "tasks": {
            "s": body("s", stored.now, (b"crash", judged.now)),
            "ran": pool.state()["tasks"]["ran"], "waited": pool.state()["tasks"]["waited"],
        },
        "info": {"s": "0 0 1 0 d:k"},
        "suspects": {"s": place(1), "ran": place(2)},
        "ready": {"waited": place(3)},
        "stats": {"crashed": "1"},
    }


def test_a_suspect_that_goes_on_killing_processes_dies_at_the_limit(pool: Scripts) -> None:
    pool.submit(task("killer"), task("innocent"))
    pool.claim("n0")
    pool.judge_owner("n0")
    deaths = []
    for n in range(1, 4):
        assert pool.claim(f"n{n}").uids == ["killer"]
        deaths.append(pool.judge_owner(f"n{n}").rest[2:])
    assert deaths == [[["killer"], []], [["killer"], []], [[], ["killer"]]]
    assert pool.claim("n4").uids == ["innocent"]
    assert pool.state()["dead"].keys() == {"killer"}


def test_a_suspect_is_not_charged_where_another_task_is_named(pool: Scripts) -> None:
    pool.submit(task("s"))
    pool.claim("n1")
    pool.judge_owner("n1")
    pool.submit(task("culprit"))
    pool.claim("n2")
    pool.claim("n2")
    assert pool.judge_owner("n2", culprit="culprit").rest[2:] == [["culprit"], []]
    state = pool.state()
    assert state["suspects"] == {"s": place(1)}
    assert state["info"] == {"culprit": "0 0 1 0 -"}
