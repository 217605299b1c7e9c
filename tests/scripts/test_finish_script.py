"""finish.lua: the one way in which runs end, for those who still hold their claims."""

from __future__ import annotations

import pytest
from script_driver import Scripts, body, place, task

from skedulr.wire import Gone


def test_runs_end_as_records_and_leave_nothing_else_behind(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b", 5), task("c"), task("d"))
    taken = pool.claim()
    pool.drain_wake()
    ended = pool.finish(*(
        (uid, taken.token, kind, entry)
        for uid, kind, entry in
        [("a", "s", b"yes"), ("b", "d", b"no"), ("c", "c", b"stop"), ("d", "e", b"late")]
    ))
    assert ended.verdicts == "kkkk"
    assert pool.state() == {
        "records": {
            "a": body("a", stored.now, (b"yes", ended.now)),
            "b": body("b", stored.now, (b"no", ended.now)),
            "c": body("c", stored.now, (b"stop", ended.now)),
            "d": body("d", stored.now, (b"late", ended.now)),
        },
        "done": {"a": ended.now, "c": ended.now, "d": ended.now},
        "dead": {"b": ended.now},
        "stats": {"succeeded": "1", "failed": "1", "dead": "1", "cancelled": "1", "expired": "1"},
        "own:n1": {"claim": "1 b a c d", "finish": "1 kkkk"},
        "meta": {"sequence": "4"},
    }


def test_a_token_that_does_not_hold_any_more_changes_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    stale = pool.claim("n1")
    pool.release(("a", stale.token), owner="n1")
    pool.claim("n2")
    before = pool.state("own")
    refused = pool.finish(
        ("a", stale.token, "s", b"late"), ("b", "n1:11", "s", b"x"), ("c", "n1", "d", b"x"),
        ("never", stale.token, "s", b"x"),
    )
    assert refused.verdicts == "llll"
    assert pool.state("own") == before


def test_a_batch_may_be_kept_in_part(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    pool.release(("a", taken.token))
    ended = pool.finish(("a", taken.token, "s", b"x"), ("b", taken.token, "s", b"x"))
    assert ended.verdicts == "lk"
    assert pool.state()["ready"] == {"a": place(1)}
    assert pool.state()["done"] == {"b": ended.now}


def test_a_repeated_call_gets_the_stored_answer_and_changes_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    batch = [("a", taken.token, "s", b"x"), ("b", "stale:1", "s", b"x")]
    pool.finish(*batch, number=4)
    before = pool.state()
    assert pool.finish(*batch, number=4).verdicts == "kl"
    assert pool.state() == before


def test_a_released_owner_ends_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.release_owner()
    before = pool.state()
    with pytest.raises(Gone):
        pool.finish(("a", taken.token, "s", b"x"))
    assert pool.state() == before


def test_a_late_first_call_of_a_new_owner_works_without_any_claim(pool: Scripts) -> None:
    assert pool.finish(owner="n9").verdicts == ""
    assert pool.state() == {"own:n9": {"finish": "1 "}}


def test_what_was_started_since_is_noted_in_the_claims(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    taken = pool.claim(starting=0)
    noted = pool.finish(
        ("a", taken.token, "s", b"x"), started=(("b", taken.token), ("c", "stale:1"))
    )
    assert pool.state()["claims"] == {
        "b": f"n1:1 {place(2)} {noted.now}", "c": f"n1:1 {place(3)} 0",
    }


def test_a_task_that_was_started_and_ended_in_one_call_just_ends(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim(starting=0)
    pool.finish(("a", taken.token, "s", b"x"), started=(("a", taken.token),))
    assert "claims" not in pool.state()


def test_a_start_that_is_noted_keeps_a_suspects_mark(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("dead")
    pool.judge_owner("dead")
    taken = pool.claim("n1", starting=1)
    noted = pool.finish(started=(("a", taken.token),))
    assert pool.state()["claims"] == {"a": f"n1:1 {place(1)} {noted.now} s"}


def test_who_waits_for_a_task_is_told_once(pool: Scripts) -> None:
    listener = pool.runner.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("ch1", "ch2")
    listener.get_message(timeout=1), listener.get_message(timeout=1)
    pool.submit(task("a"), task("b"), task("c"))
    taken = pool.claim()
    pool.watch("a", "ch1")
    pool.watch("a", "ch2")
    pool.watch("b", "ch1")
    pool.finish(("a", taken.token, "s", b"x"), ("c", taken.token, "s", b"x"))
    told = [listener.get_message(timeout=2) for _ in range(2)]
    assert [(one["channel"], one["data"]) for one in told] == [
        (b"ch1", b"default/a"), (b"ch2", b"default/a")
    ]
    assert listener.get_message(timeout=0.01) is None
    assert pool.state()["watch"] == {"b": "ch1"}
    listener.close()


def test_a_finished_task_takes_its_cancel_flag_and_progress_along(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.progress(("a", taken.token, b"50 half"))
    pool.cancel("a")
    pool.finish(("a", taken.token, "s", b"x"))
    state = pool.state()
    assert "cancels" not in state
    assert "progress" not in state


@pytest.mark.parametrize("kind", ["s", "d", "c", "e"])
def test_every_end_gives_the_unique_key_free(pool: Scripts, kind: str) -> None:
    pool.submit(task("a", unique="d:x:0:k"), task("b", unique="d:x:0:other"))
    taken = pool.claim()
    pool.finish(("a", taken.token, kind, b"x"))
    assert pool.state()["unique"] == {"other": "b 0"}


def test_a_unique_key_that_another_task_holds_by_now_stays(pool: Scripts) -> None:
    pool.submit(task("a", unique="s:x:0:k"))
    taken = pool.claim()
    pool.submit(task("b", unique="s:x:0:k"))
    pool.finish(("a", taken.token, "s", b"x"))
    assert pool.state()["unique"] == {"k": "b 0"}


@pytest.mark.parametrize(("kind", "left"), [("s", True), ("d", True), ("e", True), ("c", False)])
def test_a_window_runs_on_unless_the_task_was_cancelled(
    pool: Scripts, kind: str, left: bool
) -> None:
    stored = pool.submit(task("a", unique="w:x:5000:k"))
    taken = pool.claim()
    pool.finish(("a", taken.token, kind, b"x"))
    assert pool.state().get("unique") == ({"k": f"a {stored.now + 5000}"} if left else None)


def test_unique_until_it_starts_ends_with_a_start_that_is_noted_later(pool: Scripts) -> None:
    pool.submit(task("a", unique="s:x:0:k"), task("b", unique="d:x:0:m"))
    taken = pool.claim(starting=0)
    assert set(pool.state()["unique"]) == {"k", "m"}
    pool.finish(started=(("a", taken.token), ("b", taken.token)))
    assert pool.state()["unique"] == {"m": "b 0"}


def test_a_run_whose_body_is_gone_ends_all_the_same(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b"))
    taken = pool.claim()
    pool.call("HDEL", pool.keys.tasks, "a")
    ended = pool.finish(("a", taken.token, "s", b"x"), ("b", taken.token, "s", b"x"))
    assert ended.verdicts == "kk"
    assert pool.state()["records"]["b"] == body("b", stored.now, (b"x", ended.now))


def test_500_runs_end_in_one_call(pool: Scripts) -> None:
    uids = [f"{i:03d}".ljust(200, "x") for i in range(500)]
    pool.submit(*(task(uid, 1, unique=f"d:x:0:k{i}") for i, uid in enumerate(uids)))
    taken = pool.claim(want=500)
    for uid in uids:
        pool.watch(uid)
    assert pool.finish(*((u, taken.token, "s", b"x") for u in uids)).verdicts == "k" * 500
    state = pool.state("own")
    assert set(state) == {"records", "done", "stats", "meta", "wake"}
    assert len(state["records"]) == 500


def test_counters_go_on_beyond_31_bits(pool: Scripts) -> None:
    pool.call("HSET", pool.keys.stats, "succeeded", 2**40)
    pool.submit(task("a"))
    pool.finish_now("a")
    assert pool.state()["stats"] == {"succeeded": str(2**40 + 1)}


def test_a_full_redis_still_takes_results(real: Scripts) -> None:
    real.submit(task("a", unique="w:x:90000:k"), task("b"))
    taken = real.claim()
    real.runner.server.fill()
    ended = real.finish(("a", taken.token, "s", b"x" * 1000), started=(("b", taken.token),))
    assert ended.verdicts == "k"
    assert real.state()["done"] == {"a": ended.now}
    noted = real.finish(started=(("b", taken.token),))
    assert real.state()["claims"]["b"].endswith(f" {noted.now}")
