"""mend.lua: each mend does one thing to what is broken that way, and nothing to what is sound.

That broken states are found, and that these mends end them, is tested in ``unit/test_doctor.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
import redis
from script_driver import Scripts, body, place, stamp, task

from skedulr.findings import KINDS

MENDS = sorted({one.action for one in KINDS.values() if one.script == "mend"})
DETAILS = {"lease": "15000 86400000", "file": "done 7", "recount": "1 1", "hold": "-1 0 0 - - S",
           "untie": "0,1", "hurry": "3600000"}


def mend(pool: Scripts, what: str, *uids: str, detail: str | None = None) -> str:
    detail = DETAILS.get(what, "") if detail is None else detail
    pairs = [part for uid in uids for part in (uid, detail)]
    letters: bytes = pool.run("mend", what, *pairs)[1]
    return letters.decode()


def fill(pool: Scripts) -> dict[str, Any]:
    """A task in each place; the state."""
    pool.submit(task("done"), task("dead"))
    pool.finish_now("done")
    pool.finish_now("dead", kind="d")
    pool.submit(task("held", unique="d:x:0:k1"))
    pool.claim()
    pool.submit(task("later", when="+60000"), task("ready", 3), task("window", unique="w:x:99:k2"))
    pool.watch("ready")
    return pool.state()


@pytest.mark.parametrize("what", MENDS)
def test_what_is_sound_or_unknown_stays_as_it_is(pool: Scripts, what: str) -> None:
    before = fill(pool)
    uids = ("done", "dead", "held", "later", "ready", "window", "ghost", "k1", "k2")
    detail = {"file": "dead 7"}.get(what)
    if detail:
        assert mend(pool, what, "dead", "held", "ghost", detail=detail) == "---"
    else:
        assert mend(pool, what, *uids) == "-" * len(uids)
    assert pool.state() == before


@pytest.mark.parametrize("what", MENDS)
def test_a_second_mend_finds_nothing_left_to_do(pool: Scripts, what: str) -> None:
    fill(pool)
    for key in ("ready", "delayed", "suspects", "leases", "done", "dead", "windows"):
        pool.call("ZADD", getattr(pool.keys, key), 5, "x")
    pool.call("HSET", pool.keys.broken, "x", "why")
    pool.call("RPUSH", pool.keys.wake, "1", "1", "1")
    mend(pool, what, "x")
    before = pool.state()
    assert mend(pool, what, "x") == "-"
    assert pool.state() == before


def test_several_are_mended_in_one_call_each_by_itself(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    pool.call("HDEL", pool.keys.tasks, "a", "c")
    assert mend(pool, "unqueue", "a", "b", "c") == "m-m"
    assert pool.state()["ready"] == {"b": place(2)}


def test_a_claim_without_a_lease_gets_one_that_ends_after_the_grace(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.claim()
    before = pool.state()
    pool.call("DEL", pool.keys.leases)
    now = pool.run("mend", "lease", "a", "2000 86400000")[0]
    assert pool.state() == {**before, "leases": {"a": now + 2000}}


def test_a_lease_far_ahead_is_brought_back_and_another_one_kept(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.claim()
    pool.call("ZADD", pool.keys.leases, pool.now() + 90_000, "a", pool.now() + 50_000, "b")
    assert mend(pool, "lease", "a", "b", detail="2000 60000") == "m-"


def test_an_unreadable_claim_goes_and_its_task_is_queued_behind_its_like(pool: Scripts) -> None:
    pool.submit(task("a", 4, unique="d:x:0:k"), task("b", 4))
    pool.claim(want=1)
    pool.call("HSET", pool.keys.claims, "a", "torn")
    pool.drain_wake()
    assert mend(pool, "unclaim", "a") == "m"
    state = pool.state("owned")
    assert state["ready"] == {"b": place(2, 4), "a": place(3, 4)}
    assert "claims" not in state and "leases" not in state
    assert pool.woken()


def test_a_claim_without_a_body_goes(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    pool.call("HDEL", pool.keys.tasks, "a")
    assert mend(pool, "unclaim", "a") == "m"
    assert set(pool.state("owned", "own", "wake")) == {"meta"}


@pytest.mark.parametrize(("places", "kept"), [
    (("ready", "delayed"), "delayed"), (("ready", "suspects"), "suspects"),
    (("ready", "delayed", "suspects"), "delayed"), (("delayed", "suspects"), "delayed"),
])
def test_of_several_places_the_most_careful_one_stays(
    pool: Scripts, places: tuple[str, ...], kept: str
) -> None:
    pool.submit(task("a"))
    pool.call("DEL", pool.keys.ready)
    for name in places:
        pool.call("ZADD", getattr(pool.keys, name), 5, "a")
    assert mend(pool, "one_place", "a") == "m"
    assert {name for name in ("ready", "delayed", "suspects") if name in pool.state()} == {kept}


def test_what_runs_is_in_no_queue(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    before = pool.state()
    pool.call("ZADD", pool.keys.ready, 5, "a")
    pool.call("ZADD", pool.keys.suspects, 5, "a")
    assert mend(pool, "one_place", "a") == "m"
    assert pool.state() == before


def test_a_task_that_ended_keeps_its_record_alone(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now("a")
    before = pool.state()
    pool.call("HSET", pool.keys.tasks, "a", b"env-a")
    pool.call("HSET", pool.keys.claims, "a", "n:1 5 0")
    for name in ("ready", "delayed", "suspects", "leases"):
        pool.call("ZADD", getattr(pool.keys, name), 5, "a")
    pool.call("HSET", pool.keys.info, "a", "1 0 0 0 -")
    assert mend(pool, "one_life", "a") == "m"
    assert pool.state() == before


def test_a_journal_that_goes_on_behind_its_record_is_the_task(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now("a")
    record = pool.call("HGET", pool.keys.records, "a")
    pool.call("HSET", pool.keys.tasks, "a", record + b"again" + stamp(9))
    pool.call("ZADD", pool.keys.ready, 5, "a")
    assert mend(pool, "one_life", "a") == "m"
    state = pool.state()
    assert state["tasks"] == {"a": record + b"again" + stamp(9)} and state["ready"] == {"a": 5}
    assert not {"records", "done"} & set(state)


@pytest.mark.parametrize(("listed", "after"), [
    ({}, {"dead": {"a": 7}}), ({"done": 3}, {"dead": {"a": 3}}),
    ({"done": 3, "dead": 5}, {"dead": {"a": 5}}),
])
def test_a_record_gets_into_its_list_with_the_time_it_had(
    pool: Scripts, listed: dict[str, int], after: dict[str, Any]
) -> None:
    pool.call("HSET", pool.keys.records, "a", b"record")
    for name, score in listed.items():
        pool.call("ZADD", getattr(pool.keys, name), score, "a")
    assert mend(pool, "file", "a", detail="dead 7") == "m"
    assert pool.state() == {"records": {"a": b"record"}, **after}


def test_what_is_left_of_a_task_goes_and_who_waits_is_told(pool: Scripts) -> None:
    pool.submit(task("b"))
    before = pool.state()
    listener = pool.runner.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("ch1")
    listener.get_message(timeout=5)
    for key, value in (("info", "1 0 0 0 d:k"), ("progress", "p"), ("watch", "ch1")):
        pool.call("HSET", getattr(pool.keys, key), "a", value)
    pool.call("HSET", pool.keys.unique, "k", "a 0")
    pool.call("SADD", pool.keys.cancels, "a")
    assert mend(pool, "forget", "a") == "m"
    assert pool.state() == before
    told = None
    for _ in range(3):
        told = told or listener.get_message(timeout=5)
    assert told is not None and told["data"] == b"default/a"
    listener.close()


def test_a_full_redis_stops_no_mend(real: Scripts) -> None:
    real.submit(task("a", 2), task("b"))
    real.call("ZREM", real.keys.ready, "a")
    real.runner.server.fill()
    try:
        assert mend(real, "requeue", "a") == "m"
    finally:
        real.call("CONFIG", "SET", "maxmemory", "0")
    assert real.state()["ready"] == {"b": place(2), "a": place(3, 2)}, "what had a header"


def test_what_waits_waits_anew_and_is_to_be_tied(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.call("DEL", pool.keys.ready)
    pool.call("HSET", pool.keys.waiting, "b", "torn")
    pool.call("ZADD", pool.keys.held, 5, "b")
    assert mend(pool, "hold", "b", detail="4 tore0 0 - - S") == "-", "it is not what was seen"
    now = pool.run("mend", "hold", "a", "-1 0 0 - - S", "b", "4 torn0 7 - - SA")[0]
    state = pool.state()
    assert state["waiting"] == {"a": "0 0 - - S", "b": "0 7 - - SA"}
    assert state["held"] == {"a": now, "b": 5}
    assert state["outbox"] == {"a a": now, "a b": now}
    assert mend(pool, "hold", "a", detail="-1 0 0 - - S") == "-"
    assert mend(pool, "hold", "b", detail="10 0 7 - - SA") == "m", "it waits for nothing"
    state = pool.state()
    assert list(state["ready"]) == ["b"]
    assert list(state["waiting"]) == list(state["held"]) == ["a"]
    assert list(state["outbox"]) == ["a a"]


def test_what_is_queued_or_runs_is_not_held_back(pool: Scripts) -> None:
    pool.submit(task("runs"))
    pool.claim()
    pool.submit(task("ready"), task("later", when="+60000"))
    before = pool.state()
    assert mend(pool, "hold", "runs", "ready", "later") == "---"
    assert pool.state() == before


def test_what_waits_for_others_is_not_queued_as_well(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.call("HSET", pool.keys.waiting, "a", "0 0 - - S")
    assert mend(pool, "one_place", "a") == "m"
    assert mend(pool, "requeue", "a") == "-"
    assert "ready" not in pool.state()
    assert mend(pool, "list_held", "a", "ghost") == "m-"
    assert list(pool.state()["held"]) == ["a"]


def test_edges_that_can_not_be_read_go_with_their_pages(pool: Scripts) -> None:
    pool.call("HSET", pool.keys.edges, "a", "torn", "a,1", " c1", "a,2", " c2", "b", "0,1 c1")
    assert mend(pool, "unedge", "a", detail="other") == "-"
    assert mend(pool, "unedge", "a", detail="torn") == "m"
    assert pool.state()["edges"] == {"b": "0,1 c1"}


def test_edges_of_a_parent_that_is_gone_go_unless_they_changed_or_it_is_told(
    pool: Scripts,
) -> None:
    pool.submit(task("lives"))
    pool.call("HSET", pool.keys.edges, "a", "1,1 c1", "a,1", " c2", "b", "0,2 c1 c2",
              "c", "0,1 c1", "lives", "0,1 c1")
    pool.call("ZADD", pool.keys.outbox, 5, "p c")
    assert mend(pool, "untie", "b", "c", "lives", "ghost") == "----"
    assert mend(pool, "untie", "a", detail="1,1") == "m"
    assert set(pool.state()["edges"]) == {"b", "c", "lives"}


def test_what_is_to_be_told_far_ahead_is_told_now(pool: Scripts) -> None:
    far = pool.run("mend", "hurry")[0] + 10_000_000
    pool.call("ZADD", pool.keys.outbox, far, "s a", 5, "s b")
    assert mend(pool, "hurry", "s a", "s b", "s c") == "m--"
    assert mend(pool, "untell", "s b", "s c") == "m-"
    assert pool.state()["outbox"]["s a"] < far - 3_600_000


def test_the_earliest_release_is_noted(pool: Scripts) -> None:
    pool.call("ZADD", pool.keys.releases, 70, "r1", 50, "r2")
    assert mend(pool, "note", "release_at") == "m"
    assert pool.state()["meta"]["release_at"] == "50"
    assert mend(pool, "note", "release_at") == "-"
    pool.call("DEL", pool.keys.releases)
    assert mend(pool, "note", "release_at") == "m"
    assert "release_at" not in pool.state().get("meta", {})


def test_a_mend_nobody_knows_is_an_error(pool: Scripts) -> None:
    with pytest.raises(redis.exceptions.ResponseError, match="nothing is mended that way: xyz"):
        pool.run("mend", "xyz", "a", "")


def test_the_body_of_a_queued_task_is_never_touched(pool: Scripts) -> None:
    stored = pool.submit(task("a"))
    for what in MENDS:
        mend(pool, what, "a")
    assert pool.state()["tasks"] == {"a": body("a", stored.now)}
