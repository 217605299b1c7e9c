"""defer.lua: tasks whose names nobody here knows are put off; no attempt is counted."""

from __future__ import annotations

import pytest
from script_driver import Scripts, body, place, task

from skedulr.wire import Gone


def test_a_deferred_task_is_delayed_with_the_time_since_when_it_is_unknown(pool: Scripts) -> None:
    stored = pool.submit(task("a", 4, unique="d:x:0:k"))
    taken = pool.claim()
    pool.drain_wake()
    put_off = pool.defer(("a", taken.token, 5000))
    assert put_off.verdicts == "k"
    assert pool.state() == {
        "tasks": {"a": body("a", stored.now)},
        "delayed": {"a": put_off.now + 5000},
        "info": {"a": f"4 0 0 0 d:k {put_off.now}"},
        "unique": {"k": "a 0"},
        "own:n1": {"claim": "1 a", "finish": "1 k"},
        "meta": {"sequence": "1"},
        "wake": ["1"],
    }


def test_the_first_time_and_the_first_due_time_stay_however_often_it_is_deferred(
    pool: Scripts,
) -> None:
    due = 1_700_000_000_000
    pool.submit(task("a", when=f"@{due}"))
    taken = pool.claim()
    first = pool.defer(("a", taken.token, 5000))
    for _ in range(3):
        pool.sleep_until_due("a")
        taken = pool.claim()
        assert taken.tasks[0].header == f"0 0 0 {due} - {first.now}"
        pool.defer(("a", taken.token, 5000))


def test_an_attempt_of_someone_who_knows_the_name_ends_the_count(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.defer(("a", pool.claim().token, 5000))
    pool.sleep_until_due("a")
    failed = pool.retry(("a", pool.claim().token, 100, b"oops"))
    assert pool.state()["info"] == {"a": f"0 1 0 {failed.now + 100} -"}


def test_a_stale_token_defers_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    stale = pool.claim("n1")
    pool.release(("a", stale.token))
    before = pool.state("own")
    assert pool.defer(("a", stale.token, 5000)).verdicts == "l"
    assert pool.state("own") == before


def test_a_repeated_call_gets_the_stored_answer(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    pool.defer(("a", taken.token, 5000), ("b", "stale:1", 5000))
    before = pool.state()
    assert pool.defer(("a", taken.token, 5000), ("b", "stale:1", 5000), number=1).verdicts == "kl"
    assert pool.state() == before


def test_it_shares_its_numbers_with_finish(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    pool.finish(("a", taken.token, "s", b"x"))
    assert pool.defer(("b", taken.token, 5000)).verdicts == "k"
    assert pool.state()["own:n1"]["finish"] == "2 k"


def test_an_empty_batch_is_only_remembered(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.cancel("a")
    before = pool.state("own")
    assert pool.defer().rest == [""]
    assert pool.state("own") == before


def test_a_released_owner_defers_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.release_owner()
    with pytest.raises(Gone):
        pool.defer(("a", taken.token, 5000))
    assert pool.state()["ready"] == {"a": place(1)}


def test_a_task_cancelled_meanwhile_stays_claimed_for_its_owner_to_end(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.cancel("a")
    assert pool.defer(("a", taken.token, 5000)).verdicts == "c"
    assert pool.finish(("a", taken.token, "c", b"stopped")).verdicts == "k"


def test_a_full_redis_still_defers(real: Scripts) -> None:
    real.submit(task("a"))
    taken = real.claim()
    real.runner.server.fill()
    assert real.defer(("a", taken.token, 5000)).verdicts == "k"
    assert set(real.state()["delayed"]) == {"a"}
