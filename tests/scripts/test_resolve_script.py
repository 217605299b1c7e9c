"""resolve.lua: each edge counts once; then the child is queued, waits on, or is skipped."""

from __future__ import annotations

import pytest
from script_driver import Scripts, body, place, task


def test_a_step_of_a_workflow_is_not_tied_by_others(pool: Scripts) -> None:
    stored = pool.submit(task("c")._replace(options="0 - - SAw"))
    assert pool.state() == {
        "tasks": {"c": body("c", stored.now)}, "waiting": {"c": "0 0 - - SA"},
        "held": {"c": stored.now},
    }


def waiting(pool: Scripts, letters: str, options: str = "0 - -", uid: str = "c") -> int:
    now = pool.submit(task(uid)._replace(options=f"{options} {letters}")).now
    pool.call("DEL", pool.keys.outbox)  # it is tied already
    return now


def test_a_child_stored_to_wait_is_nowhere_else(pool: Scripts) -> None:
    stored = pool.submit(task("c")._replace(options="5 +100 - SAF"))
    assert stored.verdicts == "s"
    assert pool.state() == {
        "tasks": {"c": body("c", stored.now)}, "waiting": {"c": "0 5 +100 - SAF"},
        "held": {"c": stored.now}, "outbox": {"a c": stored.now + 1000},
    }


@pytest.mark.parametrize(("letters", "news", "after"), [
    ("S", [(1, 0)], "free"), ("S", [(1, 1)], "skipped"),
    ("A", [(1, 0)], "free"), ("A", [(1, 1)], "free"),
    ("F", [(1, 0)], "skipped"), ("F", [(1, 1)], "free"),
    ("FF", [(1, 0)], "fF"), ("FF", [(2, 1)], "free"), ("FF", [(1, 0), (2, 0)], "skipped"),
    ("SS", [(2, 0)], "Ss"), ("SS", [(1, 0), (2, 0)], "free"), ("SS", [(1, 0), (1, 0)], "sS"),
    ("SF", [(2, 1)], "Sx"), ("SF", [(2, 1), (1, 0)], "free"), ("SF", [(1, 0), (2, 0)], "skipped"),
    ("AF", [(1, 1)], "aF"), ("SA", [(0, 1)], "skipped"), ("SSS", [(3, 0), (1, 0)], "sSs"),
])
def test_triggers(
    pool: Scripts, letters: str, news: list[tuple[int, int]], after: str
) -> None:
    waiting(pool, letters)
    for one_call in (True, False):
        if one_call:
            pool.resolve(*(("c", f"{place},0", entry) for place, entry in news))
        else:  # again, one by one: nothing counts twice
            for place_, entry in news:
                pool.resolve(("c", f"{place_},0", entry))
        state = pool.state()
        if after == "free":
            assert state["ready"] == {"c": place(1)}
            assert not {"waiting", "held"} & set(state)
        elif after == "skipped":
            assert list(state["done"]) == ["c"]
            assert not {"waiting", "held", "ready", "tasks"} & set(state)
        else:
            assert state["waiting"] == {"c": f"0 0 - - {after}"}


def test_a_skipped_task_has_a_record_with_the_reason_and_tells_its_own_children(
    pool: Scripts,
) -> None:
    stored = waiting(pool, "S")
    pool.attach(("c", "other/d,1,0", ""))
    reply = pool.resolve(("c", "1,0", 1))
    assert reply.rest == [0, 1, 1]
    assert pool.state() == {
        "records": {"c": body("c", stored, (b"parent failed", reply.now))},
        "done": {"c": reply.now}, "edges": {"c": "0,1 other/d,1,0"},
        "outbox": {"k c": reply.now},
        "stats": {"skipped": "1"},
    }


def test_another_round_is_not_counted(pool: Scripts) -> None:
    waiting(pool, "S")
    before = pool.state()
    assert pool.resolve(("c", "1,1", 0), ("gone", "1,0", 0)).rest == [0, 0, 0]
    assert pool.state() == before


def test_a_delay_counts_from_the_end_of_the_waiting_and_a_priority_is_kept(pool: Scripts) -> None:
    waiting(pool, "S", "7 +5000 -")
    waiting(pool, "S", "7 - -", "d")
    reply = pool.resolve(("c", "1,0", 0), ("d", "1,0", 0))
    assert reply.rest == [2, 0, 0]
    state = pool.state()
    assert state["delayed"] == {"c": reply.now + 5000}
    assert state["ready"] == {"d": place(2, 7)}
    assert pool.woken()


def test_a_unique_key_is_held_while_it_waits_and_after(pool: Scripts) -> None:
    waiting(pool, "S", "0 - d:x:0:key")
    assert pool.submit(task("e", unique="d:x:0:key")).verdicts == "u"
    pool.resolve(("c", "1,0", 0))
    assert pool.submit(task("e", unique="d:x:0:key")).verdicts == "u"
    assert pool.submit(task("e", unique="d:p:0:key"), entry=b"replaced").verdicts == "s"


def test_a_waiting_task_can_be_replaced_cancelled_and_purged(pool: Scripts) -> None:
    pool.submit(task("c")._replace(options="0 - d:x:0:key S"))
    assert pool.submit(task("e", unique="d:p:0:key"), entry=b"replaced").verdicts == "s"
    state = pool.state()
    assert not {"waiting", "held", "outbox"} & set(state)
    assert list(state["records"]) == ["c"]
    pool.submit(task("f")._replace(options="0 - - S"), task("g")._replace(options="0 - - S"))
    assert pool.cancel("f").rest == ["waiting"]
    assert pool.purge("unstarted", "g").rest == [1]
    assert not {"waiting", "held", "outbox"} & set(pool.state())


def test_a_wide_join_counts_each_parent_once(pool: Scripts) -> None:
    waiting(pool, "A" * 1000)
    for at in range(1, 1001, 250):
        pool.resolve(*(("c", f"{n},0", n % 2) for n in range(at, at + 250)))
        pool.resolve(*(("c", f"{n},0", 0) for n in range(at, at + 250)))
    assert pool.state()["ready"] == {"c": place(1)}


def test_a_full_redis_can_still_be_told(real: Scripts) -> None:
    waiting(real, "S")
    real.runner.server.fill()
    assert real.resolve(("c", "1,0", 0)).rest == [1, 0, 0]
