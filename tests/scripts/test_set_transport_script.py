"""set_transport.lua, and what the other scripts make of a pool whose ready work is a stream.

What a storage promises is in the conformance suite; here is what Redis holds.
"""

from __future__ import annotations

import pytest
import redis
from script_driver import LEASE, Reply, Scripts, place, task


def settle(pool: Scripts, transport: str = "streams", lease: int = LEASE) -> list[str]:
    """The letter and the transport in force."""
    return Reply(pool.run("set_transport", transport, lease)).rest


def entries(pool: Scripts) -> list[tuple[str, str]]:
    """(entry, uid) of all that the stream holds."""
    found = pool.runner.client.xrange(pool.keys.stream)
    return [(entry.decode(), fields[b"t"].decode()) for entry, fields in found]


def uids(pool: Scripts) -> list[str]:
    return [uid for _, uid in entries(pool)]


def pending(pool: Scripts) -> int:
    return int(pool.runner.client.xpending(pool.keys.stream, "workers")["pending"])


def consumers(pool: Scripts) -> set[str]:
    found = pool.runner.client.xinfo_consumers(pool.keys.stream, "workers")
    return {one["name"].decode() for one in found}


@pytest.fixture
def streamed(pool: Scripts) -> Scripts:
    assert settle(pool) == ["s", "streams"]
    return pool


def test_a_pool_is_kept_in_sorted_sets_until_its_master_says_otherwise(pool: Scripts) -> None:
    assert settle(pool, "") == ["k", ""]
    pool.submit(task("a"))
    assert settle(pool) == ["h", ""]
    claimed = pool.claim("h:1:1", 1)
    assert settle(pool) == ["h", ""]
    pool.finish(("a", claimed.token, "s", b"e"), owner="h:1:1")
    assert settle(pool) == ["s", "streams"]
    assert settle(pool) == ["k", "streams"]


def test_a_stream_that_holds_work_is_not_given_up(streamed: Scripts) -> None:
    streamed.submit(task("a"))
    assert settle(streamed, "") == ["h", "streams"]
    claimed = streamed.claim("h:1:1", 1)
    assert settle(streamed, "") == ["h", "streams"]
    streamed.finish(("a", claimed.token, "s", b"e"), owner="h:1:1")
    assert settle(streamed, "") == ["s", ""]
    assert not streamed.runner.call("EXISTS", streamed.keys.stream)
    streamed.submit(task("b"))
    assert streamed.claim("h:1:1", 1).uids == ["b"]


def test_delayed_tasks_do_not_hold_up_the_change(pool: Scripts) -> None:
    pool.submit(task("soon", priority=7, when="+50000"), task("far", when="+50000"))
    assert settle(pool) == ["s", "streams"]
    pool.sleep_until_due("soon")
    pool.promote()
    assert uids(pool) == ["soon"]
    assert [one.place for one in pool.claim("h:1:1", 1).tasks] == [place(3)]


def test_an_entry_is_numbered_by_its_place_and_goes_with_its_claim(streamed: Scripts) -> None:
    streamed.submit(task("a"), task("b"))
    assert entries(streamed) == [(f"{place(1)}-0", "a"), (f"{place(2)}-0", "b")]
    claimed = streamed.claim("h:1:1", 1)
    assert [one.place for one in claimed.tasks] == [place(1)]
    assert (uids(streamed), pending(streamed)) == (["a", "b"], 1)
    streamed.finish(("a", claimed.token, "s", b"e"), owner="h:1:1")
    assert (uids(streamed), pending(streamed)) == (["b"], 0)
    assert not streamed.runner.call("EXISTS", streamed.keys.ready, streamed.keys.leases)


def test_what_is_taken_out_is_passed_over_and_forgotten(streamed: Scripts) -> None:
    streamed.submit(task("a"), task("b"), task("c"))
    streamed.run("cancel", "a", b"e", "channel", "message")
    assert streamed.runner.call("HGET", streamed.keys.removed, "") == b"1"
    assert uids(streamed) == ["a", "b", "c"]
    assert streamed.claim("h:1:1", 1).uids == []
    assert uids(streamed) == ["b", "c"]
    assert not streamed.runner.call("EXISTS", streamed.keys.removed)
    assert streamed.claim("h:1:1", 1).uids == ["b"]


def test_what_is_taken_out_further_behind_holds_up_nobody(streamed: Scripts) -> None:
    streamed.submit(task("a"), task("b"), task("c"))
    streamed.cancel("c")
    assert streamed.claim("h:1:1", 1).uids == ["a"]
    assert streamed.claim("h:1:1", 2).uids == ["b"]


def test_a_stream_of_which_all_is_taken_out_is_empty_at_once(streamed: Scripts) -> None:
    streamed.submit(*(task(f"t{i}") for i in range(10)))
    streamed.run("purge", "unstarted", *(f"t{i}" for i in range(10)))
    assert uids(streamed) == []
    assert not streamed.runner.call("EXISTS", streamed.keys.removed)


def test_a_sweep_drops_what_was_taken_out_of_a_paused_pool(streamed: Scripts) -> None:
    streamed.submit(task("run"), task("a"), task("b"), task("c"))
    streamed.claim("h:1:1", 1)
    streamed.run("pause", "1")
    streamed.run("purge", "unstarted", "a", "b")
    streamed.run("recover", 500, LEASE, 10**9)
    assert uids(streamed) == ["run", "c"]
    assert not streamed.runner.call("EXISTS", streamed.keys.removed)


def test_a_consumer_goes_with_its_owner(streamed: Scripts) -> None:
    streamed.submit(task("a"), task("b"))
    streamed.claim("h:1:1", 1)
    streamed.claim("h:2:1", 1)
    assert consumers(streamed) == {"h:1:1", "h:2:1"}
    streamed.run("release", "owner", "h:1:1", owner="h:1:1")
    assert consumers(streamed) == {"h:2:1"}
    assert (uids(streamed), pending(streamed)) == (["b", "a"], 1)


def test_a_renewal_is_no_delivery(streamed: Scripts) -> None:
    streamed.submit(task("a"))
    claimed = streamed.claim("h:1:1", 1)
    for _ in range(3):
        streamed.run("renew", LEASE, "a", claimed.token, owner="h:1:1")
    found = streamed.runner.client.xpending_range(streamed.keys.stream, "workers", "-", "+", 10)
    assert [(one["consumer"], one["times_delivered"]) for one in found] == [(b"h:1:1", 1)]


def test_an_entry_without_a_body_is_set_aside(streamed: Scripts) -> None:
    streamed.submit(task("a"), task("b"))
    streamed.runner.call("HDEL", streamed.keys.tasks, "a")
    assert streamed.claim("h:1:1", 2).uids == ["b"]
    assert uids(streamed) == ["b"]
    assert streamed.runner.call("HEXISTS", streamed.keys.broken, "a")


def test_a_group_that_somebody_removed_is_made_anew_and_nothing_runs_twice(
    streamed: Scripts,
) -> None:
    streamed.submit(task("a"), task("b"))
    claimed = streamed.claim("h:1:1", 1)
    streamed.runner.call("XGROUP", "DESTROY", streamed.keys.stream, "workers")
    assert streamed.claim("h:2:1", 2).uids == ["b"]
    streamed.run("renew", LEASE, "a", claimed.token, owner="h:1:1")
    assert streamed.finish(("a", claimed.token, "s", b"e"), owner="h:1:1").verdicts == "k"
    assert uids(streamed) == ["b"]


def test_the_sequence_goes_on_behind_the_stream_where_meta_was_removed(
    streamed: Scripts,
) -> None:
    streamed.submit(task("a"), task("b"))
    streamed.runner.call("DEL", streamed.keys.meta)
    streamed.runner.call("HSET", streamed.keys.meta, "transport", "streams")
    settle(streamed)
    streamed.submit(task("c"))
    assert streamed.claim("h:1:1", 3).uids == ["a", "b", "c"]


def test_the_longest_lease_of_those_who_claim_holds_for_all(streamed: Scripts) -> None:
    def visibility() -> int:
        return int(streamed.runner.call("HGET", streamed.keys.meta, "visibility"))

    streamed.submit(task("a"))
    streamed.claim("h:1:1", 1)
    settle(streamed, lease=3 * LEASE)
    assert visibility() == 3 * LEASE
    settle(streamed, lease=LEASE)
    assert visibility() == 3 * LEASE
    streamed.run("release", "owner", "h:1:1", owner="h:1:1")
    settle(streamed, lease=LEASE)
    assert visibility() == LEASE


def test_a_pool_that_another_program_keeps_takes_nothing_by_our_scripts(pool: Scripts) -> None:
    assert settle(pool, "elsewhere") == ["s", "elsewhere"]
    with pytest.raises(redis.ResponseError, match="TRANSPORT elsewhere"):
        pool.submit(task("a"))
    assert not pool.runner.call("EXISTS", pool.keys.tasks, pool.keys.ready)
    assert settle(pool, "") == ["s", ""]
