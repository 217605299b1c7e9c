"""suspend.lua: claimed tasks wait for others that they found out about."""

from __future__ import annotations

from typing import Any

import pytest
from script_driver import Reply, Scripts, body, place, task

from skedulr.wire import Gone

MADE = b"made 2"
TEXT = "1 0 - - SS"


def suspend(
    pool: Scripts, *tasks: tuple[str, str], owner: str = "n1", number: int | None = None
) -> Reply:
    flat: list[Any] = [part for uid, token in tasks for part in (uid, token, MADE, TEXT)]
    return Reply(pool.run("suspend", pool._number(owner, "finish", number), *flat, owner=owner))


def test_a_suspended_task_waits_and_is_to_be_tied_with_its_journal_one_longer(
    pool: Scripts,
) -> None:
    stored = pool.submit(task("a", 4), task("b"))
    taken = pool.claim(want=2)
    pool.progress(("a", taken.token, b"half"))
    pool.drain_wake()
    reply = suspend(pool, ("a", taken.token))
    assert reply.verdicts == "k"
    assert pool.state("owned", "own") == {
        "tasks": {"a": body("a", stored.now, (MADE, reply.now)), "b": body("b", stored.now)},
        "waiting": {"a": TEXT},
        "held": {"a": reply.now},
        "outbox": {"t a": reply.now},
        "leases": {"b": taken.now + 15_000},
        "claims": {"b": f"{taken.token} {place(2)} {taken.now}"},
        "meta": {"sequence": "2"},
    }


def test_it_is_told_counted_and_queued_like_any_waiting_task(pool: Scripts) -> None:
    pool.submit(task("a"))
    suspend(pool, ("a", pool.claim().token))
    assert pool.resolve(("a", "1,0", 0), ("a", "1,1", 0)).rest == [0, 0, 0]
    assert pool.state()["waiting"] == {"a": "1 0 - - sS"}
    assert pool.resolve(("a", "2,1", 0)).rest == [1, 0, 0]
    assert list(pool.state()["ready"]) == ["a"]


def test_a_stale_token_suspends_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    stale = pool.claim("n1")
    pool.release(("a", stale.token))
    pool.claim("n2")
    before = pool.state("own")
    assert suspend(pool, ("a", stale.token)).verdicts == "l"
    assert pool.state("own") == before


def test_a_repeated_number_gets_the_stored_answer(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    suspend(pool, ("a", taken.token), ("b", "stale:1"))
    before = pool.state()
    assert suspend(pool, ("a", taken.token), ("b", "stale:1"), number=1).verdicts == "kl"
    assert pool.state() == before


def test_a_task_cancelled_meanwhile_stays_claimed_for_its_owner_to_end(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.cancel("a")
    assert suspend(pool, ("a", taken.token)).verdicts == "c"
    assert pool.finish(("a", taken.token, "c", b"stopped")).verdicts == "k"


def test_a_released_owner_suspends_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.release_owner()
    with pytest.raises(Gone):
        suspend(pool, ("a", taken.token))
    assert pool.state()["ready"] == {"a": place(1)}


def test_a_full_redis_still_suspends(real: Scripts) -> None:
    real.submit(task("a"))
    taken = real.claim()
    real.runner.server.fill()
    assert suspend(real, ("a", taken.token)).verdicts == "k"
    assert set(real.state()["waiting"]) == {"a"}
