"""mourn.lua: the dead that no run could tell of are taken for a while, and let go of once told."""

from __future__ import annotations

from script_driver import Reply, Scripts, body, task

TAKEN_MS = 60_000


def mourn(pool: Scripts, *told: tuple[str, str], most: int = 10) -> Reply:
    return Reply(pool.run("mourn", most, TAKEN_MS, *(part for one in told for part in one)))


def shown(journal: bytes) -> str:
    """As ``Reply`` has it."""
    return journal.decode("utf-8", "backslashreplace")


def lose(pool: Scripts, *uids: str) -> int:
    """They die with their process, one after the other; when the last did."""
    for uid in uids:
        pool.submit(task(uid))
        pool.claim(uid)
        last = pool.judge_owner(uid, culprit=uid, limit=1)
    return last.now


def test_who_died_with_its_process_is_taken_with_its_record(pool: Scripts) -> None:
    stored = pool.submit(task("a"))
    pool.claim("n1")
    died = pool.judge_owner("n1", culprit="a", limit=1)
    taken = mourn(pool)
    assert float(taken.rest[0]) == taken.now + TAKEN_MS + 0.5
    assert taken.rest[1:] == ["a", shown(body("a", stored.now, (b"killed", died.now))), ""]


def test_what_a_run_of_its_own_ended_is_not_among_them(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now("a", kind="d")
    assert mourn(pool).rest[1:] == []


def test_who_is_taken_comes_again_only_after_a_while_and_never_once_told(pool: Scripts) -> None:
    lose(pool, "a", "b")
    score, *taken = mourn(pool).rest
    assert sorted(taken[::3]) == ["a", "b"]
    assert mourn(pool).rest[1:] == [], "another process has them in hand"
    pool.call("ZADD", pool.keys.deaths, pool.now(), "b")
    assert mourn(pool, ("a", score), ("b", score)).rest[1::3] == ["b"], "it was noted again"
    assert set(pool.state()["deaths"]) == {"b"}


def test_they_are_taken_in_pages_the_oldest_first(pool: Scripts) -> None:
    lose(pool, "a", "b", "c")
    for at, uid in enumerate("cab"):
        pool.call("ZADD", pool.keys.deaths, at, uid)
    assert mourn(pool, most=2).rest[1::3] == ["c", "a"]
    assert mourn(pool, most=2).rest[1::3] == ["b"]


def test_one_that_is_about_to_end_comes_with_its_journal_and_one_that_is_gone_with_nothing(
    pool: Scripts,
) -> None:
    stored = pool.submit(task("a"))
    pool.call("ZADD", pool.keys.deaths, 1, "a", 2, "ghost")
    assert mourn(pool).rest[1:] == ["a", "", shown(body("a", stored.now)), "ghost", "", ""]


def test_a_sweep_says_that_there_are_some_until_they_are_taken(pool: Scripts) -> None:
    lose(pool, "a")
    pool.sweeps_have_run()
    assert pool.judge_hosts().rest[-2] == 1
    mourn(pool)
    assert pool.judge_hosts().rest[-2] == 0


def test_where_nobody_takes_them_the_oldest_are_let_go_of(pool: Scripts) -> None:
    for at in range(0, 10_000, 500):
        pairs = [part for n in range(at, at + 500) for part in (n + 1, f"old{n}")]
        pool.call("ZADD", pool.keys.deaths, *pairs)
    lose(pool, "a")
    assert pool.call("ZCARD", pool.keys.deaths) == 10_000
    assert pool.call("ZSCORE", pool.keys.deaths, "old0") is None
    assert pool.call("ZSCORE", pool.keys.deaths, "a") is not None
