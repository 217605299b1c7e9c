"""Suspects, losses, presumed deaths: who is charged where a death names nobody for sure."""

from __future__ import annotations

from script_driver import FAR, Scripts, place, task


def make_suspects(pool: Scripts, *uids: str) -> None:
    """They ran when a process died."""
    pool.submit(*map(task, uids))
    pool.claim("dead", want=len(uids))
    pool.judge_owner("dead")


def wary(pool: Scripts) -> str | None:
    return pool.state()["meta"].get("wary")


# -- groups ---------------------------------------------------------------------------------------


def test_each_group_that_ran_for_a_while_lets_in_one_twice_as_large(pool: Scripts) -> None:
    make_suspects(pool, *"abcdefghij")
    taken = [pool.claim("n1").uids]
    for _ in range(3):
        pool.suspects_may_start_at("n1", 1)
        taken.append(pool.claim("n1").uids)
    assert taken == [["a"], ["b", "c"], ["d", "e", "f", "g"], ["h", "i", "j"]]


def test_a_group_that_has_ended_lets_in_the_next_at_once(pool: Scripts) -> None:
    make_suspects(pool, *"abcd")
    one = pool.claim("n1")
    pool.finish(("a", one.token, "s", b"x"))
    two = pool.claim("n1")
    assert two.uids == ["b", "c"]
    pool.suspects_may_start_at("n1", FAR)
    pool.finish(("b", two.token, "s", b"x"))
    assert pool.claim("n1").uids == [], "one of them still runs"
    pool.finish(("c", two.token, "s", b"x"))
    assert pool.claim("n1").uids == ["d"]


def test_a_group_is_no_larger_than_the_workers_that_are_free(pool: Scripts) -> None:
    make_suspects(pool, *"abcd")
    pool.claim("n1")
    pool.suspects_may_start_at("n1", 1)
    assert pool.claim("n1", starting=1).uids == ["b"]


def test_the_answer_says_when_the_next_group_may_start(pool: Scripts) -> None:
    make_suspects(pool, *"ab")
    first = pool.claim("n1")
    assert first.next_due == first.now + 500
    pool.suspects_may_start_at("n1", FAR)
    assert pool.claim("n1").next_due == FAR
    pool.suspects_may_start_at("n1", 1)
    assert pool.claim("n1").next_due == -1, "none is left"


def test_a_second_death_with_several_charges_nobody_and_they_run_one_at_a_time(
    pool: Scripts,
) -> None:
    make_suspects(pool, *"abcd")
    pool.claim("n1")
    pool.suspects_may_start_at("n1", 1)
    pool.claim("n1")
    assert pool.judge_owner("n1").rest[2:] == [[], []]
    assert pool.state()["suspects"] == {uid: place(n) for n, uid in enumerate("abcd", 1)}
    assert wary(pool) == "1"
    taken = [pool.claim("n2").uids]
    for _ in range(2):
        pool.suspects_may_start_at("n2", 1)
        taken.append(pool.claim("n2").uids)
    assert taken == [["a"], ["b"], ["c"]]


def test_a_third_such_death_makes_them_run_each_alone_until_it_ends(pool: Scripts) -> None:
    make_suspects(pool, *"abcd")
    for n in range(2):
        pool.claim(f"n{n}")
        pool.suspects_may_start_at(f"n{n}", 1)
        pool.claim(f"n{n}")
        assert pool.judge_owner(f"n{n}").rest[2:] == [[], []]
    assert wary(pool) == "2"
    alone = pool.claim("last")
    pool.suspects_may_start_at("last", 1)
    assert pool.claim("last").uids == []
    pool.finish(("a", alone.token, "s", b"x"), owner="last")
    assert pool.claim("last").uids == ["b"]


def test_what_kills_at_once_is_found_among_many_and_nobody_else_is_charged(pool: Scripts) -> None:
    names = [f"t{n:02}" for n in range(30)]
    make_suspects(pool, *names)
    charged, deaths = [], 0
    while "t17" in pool.state()["tasks"]:
        owner, deaths = f"n{deaths}", deaths + 1
        while True:
            taken = pool.claim(owner)
            if "t17" in taken.uids:
                reply = pool.judge_owner(owner)
                charged += reply.rest[2] + reply.rest[3]
                break
            pool.finish(*((uid, taken.token, "s", b"x") for uid in taken.uids), owner=owner)
    assert charged == ["t17"] * 3
    assert deaths <= 5, "each death takes a process and its neighbours along"


def test_what_kills_after_a_while_is_found_among_others_that_run_long(pool: Scripts) -> None:
    make_suspects(pool, *"abcdef")
    charged, deaths = [], 0
    while "d" in pool.state()["tasks"]:
        owner, deaths, taken = f"n{deaths}", deaths + 1, None
        while taken is None or "d" not in taken.uids:
            taken = pool.claim(owner)
            if wary(pool) == "2" and taken.uids != ["d"]:
                pool.finish((taken.uids[0], taken.token, "s", b"x"), owner=owner)
            else:
                # All of them run long; so they are in the process when it dies.
                pool.suspects_may_start_at(owner, 1)
        reply = pool.judge_owner(owner)
        charged += reply.rest[2] + reply.rest[3]
    assert charged == ["d"] * 3
    assert deaths == 5, "two with several, three alone"


def test_once_no_suspect_is_left_a_death_begins_boldly_again(pool: Scripts) -> None:
    make_suspects(pool, *"abcd")
    pool.call("HSET", pool.keys.meta, "wary", 2)
    for _ in range(4):
        taken = pool.claim("n1")
        pool.finish((taken.uids[0], taken.token, "s", b"x"))
    pool.submit(task("e"))
    pool.claim("n2")
    pool.judge_owner("n2")
    assert wary(pool) is None


# -- losses ---------------------------------------------------------------------------------------


def test_a_loss_is_counted_apart_and_its_own_limit_kills(pool: Scripts) -> None:
    pool.submit(task("a"))
    for n in range(4):
        pool.claim(f"n{n}")
        assert pool.judge_owner(f"n{n}", culprit="a", limit=5, loss=True).rest[2:] == [["a"], []]
    assert pool.state()["info"] == {"a": "0 0 0+4 0 -"}
    pool.claim("crash")
    assert pool.judge_owner("crash", culprit="a").rest[2:] == [["a"], []], "its first crash"
    assert pool.state()["info"] == {"a": "0 0 1+4 0 -"}
    pool.claim("last")
    assert pool.judge_owner("last", culprit="a", limit=5, loss=True).rest[2:] == [[], ["a"]]
    assert "info" not in pool.state()


# -- lost leases ----------------------------------------------------------------------------------


def lose(pool: Scripts, uid: str, owner: str) -> str:
    """An owner's lease of this task runs out; the token it held."""
    taken = pool.claim(owner)
    assert taken.uids == [uid]
    pool.let_leases_expire(uid)
    pool.judge_hosts()
    return taken.token


def test_an_owner_that_lives_after_all_takes_the_charge_back(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.sweeps_have_run()
    lose(pool, "a", "n0")
    token = lose(pool, "a", "n1")
    assert pool.state()["info"] == {"a": f"0 0 1 0 - 0 {token}"}
    for _ in range(2):
        pool.renew(("a", token), owner="n1")
        assert pool.state()["info"] == {"a": "0 0 0 0 -"}


def test_an_outcome_under_a_lost_lease_takes_the_charge_back_too(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.sweeps_have_run()
    lose(pool, "a", "n0")
    token = lose(pool, "a", "n1")
    assert pool.finish(("a", token, "s", b"x"), owner="n1").verdicts == "l"
    assert pool.state()["info"] == {"a": "0 0 0 0 -"}


def test_a_charge_of_another_claim_stays(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.sweeps_have_run()
    first = lose(pool, "a", "n0")
    lose(pool, "a", "n1")
    before = pool.state()["info"]
    pool.renew(("a", first), owner="n0")
    pool.renew(("a", "n1:7"), owner="n1")
    assert pool.state()["info"] == before


def test_a_task_whose_host_dies_each_time_is_dead_in_the_end(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.sweeps_have_run()
    for n in range(4):
        lose(pool, "a", f"n{n}")
    assert pool.state()["dead"].keys() == {"a"}
