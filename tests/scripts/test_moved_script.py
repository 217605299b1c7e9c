"""moved.lua: tasks that were stored in another pool end here, with a record that says where."""

from __future__ import annotations

from typing import Any

import pytest
from script_driver import Reply, Scripts, body, place, task

from skedulr.wire import Gone

GONE = b"to other/a"


def moved(
    pool: Scripts, *gone: tuple[str, str, bytes], owner: str = "n1", number: int | None = None
) -> Reply:
    flat: list[Any] = [part for one in gone for part in one]
    return Reply(pool.run("moved", pool._number(owner, "finish", number), *flat, owner=owner))


def test_a_moved_task_leaves_a_record_and_counts_nowhere(pool: Scripts) -> None:
    stored = pool.submit(task("a", 4, unique="d:x:0:k"), task("b"))
    taken = pool.claim(want=2)
    pool.drain_wake()
    pool.watch("a")
    reply = moved(pool, ("a", taken.token, GONE))
    assert reply.verdicts == "k"
    assert pool.state("owned", "own") == {
        "tasks": {"b": body("b", stored.now)},
        "records": {"a": body("a", stored.now, (GONE, reply.now))},
        "done": {"a": reply.now},
        "leases": {"b": taken.now + 15_000},
        "claims": {"b": f"{taken.token} {place(2)} {taken.now}"},
        "meta": {"sequence": "2"},
    }


def test_a_moved_task_leaves_no_window_behind(pool: Scripts) -> None:
    pool.submit(task("a", unique="w:x:60000:k"))
    moved(pool, ("a", pool.claim().token, GONE))
    assert pool.submit(task("b", unique="w:x:60000:k")).verdicts == "s"


def test_a_submit_that_is_repeated_after_the_move_is_a_success(pool: Scripts) -> None:
    pool.submit(task("a"))
    moved(pool, ("a", pool.claim().token, GONE))
    assert pool.submit(task("a")).verdicts == "a"
    assert pool.submit(task("a", envelope=b"another")).verdicts == "d"


def test_a_stale_token_ends_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    stale = pool.claim("n1")
    pool.release(("a", stale.token))
    pool.claim("n2")
    before = pool.state("own")
    assert moved(pool, ("a", stale.token, GONE)).verdicts == "l"
    assert pool.state("own") == before


def test_a_repeated_number_gets_the_stored_answer(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    moved(pool, ("a", taken.token, GONE), ("b", "stale:1", GONE))
    before = pool.state()
    again = moved(pool, ("a", taken.token, GONE), ("b", "stale:1", GONE), number=1)
    assert again.verdicts == "kl"
    assert pool.state() == before


def test_a_task_cancelled_meanwhile_stays_claimed_for_its_owner_to_end(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.cancel("a")
    assert moved(pool, ("a", taken.token, GONE)).verdicts == "c"
    assert pool.finish(("a", taken.token, "c", b"stopped")).verdicts == "k"


def test_an_owners_last_suspect_is_done_with(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("dead")
    pool.judge_owner("dead")
    taken = pool.claim()
    assert pool.state()["own:n1"]["suspect"] == f"{taken.now + 500} 1 a"
    moved(pool, ("a", taken.token, GONE))
    assert pool.state()["own:n1"]["suspect"] == f"{taken.now + 500} 1"


def test_a_released_owner_moves_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.release_owner()
    with pytest.raises(Gone):
        moved(pool, ("a", taken.token, GONE))
    assert pool.state()["ready"] == {"a": place(1)}


def test_a_full_redis_still_moves(real: Scripts) -> None:
    real.submit(task("a"))
    taken = real.claim()
    real.runner.server.fill()
    assert moved(real, ("a", taken.token, GONE)).verdicts == "k"
    assert set(real.state()["records"]) == {"a"}


def test_its_children_are_to_hear_where_it_went_and_its_edges_stay_for_that(
    pool: Scripts,
) -> None:
    pool.submit(task("a"))
    pool.attach(("a", "default/c,1,0", ""))
    reply = moved(pool, ("a", pool.claim().token, GONE))
    assert pool.state()["outbox"] == {"m a": reply.now}
    assert pool.state()["edges"] == {"a": "0,1 default/c,1,0"}
