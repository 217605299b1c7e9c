"""retry.lua: a failed attempt is counted and the task planned again."""

from __future__ import annotations

import pytest
from script_driver import Scripts, body, place, task

from skedulr.wire import Gone


def test_a_failed_attempt_goes_into_the_journal_and_the_task_into_delayed(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b", -5, unique="d:x:0:k"))
    taken = pool.claim()
    pool.drain_wake()
    failed = pool.retry(("a", taken.token, 700, b"oops"), ("b", taken.token, 0, b"ouch"))
    assert failed.verdicts == "kk"
    assert pool.state() == {
        "tasks": {
            "a": body("a", stored.now, (b"oops", failed.now)),
            "b": body("b", stored.now, (b"ouch", failed.now)),
        },
        "delayed": {"a": failed.now + 700, "b": failed.now},
        "info": {
            "a": f"0 1 0 {failed.now + 700} -", "b": f"-5 1 0 {failed.now} d:k",
        },
        "unique": {"k": "b 0"},
        "stats": {"failed": "2"},
        "own:n1": {"claim": "1 a b", "finish": "1 kk"},
        "meta": {"sequence": "2"},
        "wake": ["1"],
    }


def test_the_next_attempt_comes_back_with_its_count_and_history(pool: Scripts) -> None:
    stored = pool.submit(task("a", 3))
    entries = []
    for attempt in range(1, 4):
        taken = pool.claim()
        assert taken.tasks[0].body == body("a", stored.now, *entries)
        failed = pool.retry(("a", taken.token, 5000, b"oops"))
        entries.append((b"oops", failed.now))
        assert pool.state()["info"] == {"a": f"3 {attempt} 0 {failed.now + 5000} -"}
        pool.sleep_until_due("a")


def test_a_stale_token_counts_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    stale = pool.claim("n1")
    pool.release(("a", stale.token))
    pool.claim("n2")
    before = pool.state("own")
    assert pool.retry(("a", stale.token, 0, b"x")).verdicts == "l"
    assert pool.state("own") == before


def test_a_repeated_call_gets_the_stored_answer_and_counts_once(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.retry(("a", taken.token, 50, b"x"), number=9)
    before = pool.state()
    assert pool.retry(("a", taken.token, 50, b"x"), number=9).verdicts == "k"
    assert pool.state() == before


def test_an_empty_batch_is_only_remembered(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.cancel("a")
    before = pool.state("own")
    assert pool.retry().rest == [""]
    assert pool.state("own") == before


def test_a_released_owner_counts_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.release_owner()
    with pytest.raises(Gone):
        pool.retry(("a", taken.token, 0, b"x"))
    assert pool.state()["ready"] == {"a": place(1)}


def test_a_task_cancelled_meanwhile_stays_claimed_for_its_owner_to_end(pool: Scripts) -> None:
    pool.submit(*(task(uid) for uid in "cab"))
    taken = pool.claim()
    pool.cancel("b")
    pool.release(("c", taken.token))
    pool.drain_wake()
    failed = pool.retry(*((uid, taken.token, 10, b"x") for uid in "cab"))
    assert failed.verdicts == "lkc"
    state = pool.state()
    assert set(state["claims"]) == {"b"}
    assert set(state["delayed"]) == {"a"}
    assert state["stats"] == {"failed": "1"}
    assert pool.finish(("b", taken.token, "c", b"stopped")).verdicts == "k"


def test_only_a_retry_that_is_the_earliest_wakes_a_fetcher(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c", when="+5000"))
    taken = pool.claim()
    pool.drain_wake()
    pool.retry(("a", taken.token, 9000, b"x"))
    assert not pool.woken()
    pool.retry(("b", taken.token, 1000, b"x"))
    assert pool.woken()


def test_progress_goes_with_the_attempt(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.progress(("a", taken.token, b"90"))
    pool.retry(("a", taken.token, 10, b"x"))
    assert "progress" not in pool.state()


def test_a_suspect_that_failed_in_an_orderly_way_is_a_suspect_no_more(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.claim("dead")
    pool.judge_owner("dead")
    taken = pool.claim("n1")
    pool.drain_wake()
    pool.retry(("a", taken.token, 90_000, b"x"))
    assert pool.woken(), "the next suspect may be taken"
    assert pool.claim("n1").uids == ["b"]
    pool.sleep_until_due("a")
    again = pool.claim("n1")
    assert pool.state()["claims"]["a"] == f"{again.token} {place(3)} {again.now}"


def test_500_failures_in_one_call(pool: Scripts) -> None:
    uids = [f"{i:03d}".ljust(200, "x") for i in range(500)]
    pool.submit(*map(task, uids))
    taken = pool.claim(want=500)
    assert pool.retry(*((u, taken.token, 1, b"x" * 50) for u in uids)).verdicts == "k" * 500
    assert len(pool.state()["delayed"]) == 500


def test_a_full_redis_still_counts_attempts(real: Scripts) -> None:
    stored = real.submit(task("a"))
    taken = real.claim()
    real.runner.server.fill()
    failed = real.retry(("a", taken.token, 100, b"x" * 1000))
    assert failed.verdicts == "k"
    assert real.state()["tasks"] == {"a": body("a", stored.now, (b"x" * 1000, failed.now))}
