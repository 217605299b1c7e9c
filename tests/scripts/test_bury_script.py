"""bury.lua: a journal that nobody can read gives way to a record among the dead."""

from __future__ import annotations

import pytest
from script_driver import Reply, Scripts, body, place, task


def bury(pool: Scripts, *triples: tuple[str, bytes, bytes]) -> Reply:
    return Reply(pool.run("bury", *(part for one in triples for part in one)))


@pytest.mark.parametrize("where", ["ready", "delayed", "suspects"])
def test_a_body_ends_in_the_dead_letter_queue(pool: Scripts, where: str) -> None:
    pool.submit(task("a", 2, unique="d:x:0:k"))
    pool.call("DEL", pool.keys.ready)
    pool.call("ZADD", getattr(pool.keys, where), 5, "a")
    pool.call("HSET", pool.keys.tasks, "a", b"rubbish")
    reply = bury(pool, ("a", b"rubbish", b"stone"))
    assert reply.verdicts == "m"
    assert pool.state("wake") == {
        "records": {"a": b"stone"}, "dead": {"a": reply.now}, "deaths": {"a": reply.now},
        "meta": {"sequence": "1"},
        "stats": {"failed": "1", "dead": "1"},
    }


def test_a_record_keeps_its_time_and_hooks_hear_of_it_unless_it_was_dead_already(
    pool: Scripts,
) -> None:
    pool.submit(task("a"), task("b"))
    pool.finish_now()
    before = pool.state()
    record = pool.call("HGET", pool.keys.records, "a")
    buried = bury(pool, ("a", record, b"stone"))
    assert buried.verdicts == "m"
    assert bury(pool, ("a", b"stone", b"gravel"), ("a", b"gravel", b"stone")).verdicts == "mm"
    assert pool.state() == {
        **before, "records": {**before["records"], "a": b"stone"},
        "done": {"b": before["done"]["b"]}, "dead": {"a": before["done"]["a"]},
        "deaths": {"a": buried.now},
    }


def test_a_journal_that_is_another_one_by_now_stays(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b"))
    before = pool.state()
    whole = body("b", stored.now)
    assert bury(pool, ("a", b"rubbish", b"stone"), ("ghost", b"", b"stone")).verdicts == "--"
    assert pool.state() == before
    assert bury(pool, ("a", b"", b"stone"), ("b", whole, b"stone")).verdicts == "-m"
    assert pool.state()["ready"] == {"a": place(1)}


def test_what_runs_is_left_to_its_worker(pool: Scripts) -> None:
    stored = pool.submit(task("a"))
    pool.claim()
    before = pool.state()
    assert bury(pool, ("a", body("a", stored.now), b"stone")).verdicts == "-"
    assert pool.state() == before


def test_who_waits_for_what_is_buried_is_to_be_told(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.call("HSET", pool.keys.edges, "a", "0,1 c")
    pool.call("HSET", pool.keys.tasks, "a", b"rubbish")
    assert bury(pool, ("a", b"rubbish", b"stone")).verdicts == "m"
    assert list(pool.state()["outbox"]) == ["d a"]
