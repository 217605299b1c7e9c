"""restore.lua: tasks of an exported pool go back to where they were; what is there stays."""

from __future__ import annotations

from typing import Any

import pytest
from script_driver import FAR, Reply, Scripts, body, limited, place, task

from skedulr.limiting import Limit
from skedulr.wire_errors import Refused

#: The score of what is to be tied later.
LATER = 2**52
Item = tuple[str, str, bytes, str]


def restore(pool: Scripts, *items: Item, mode: str = "store") -> Reply:
    flat: list[Any] = [part for one in items for part in one]
    return Reply(pool.run("restore", mode, LATER, *flat))


def item(uid: str, where: str = "q 0 -", header: str = "") -> Item:
    return uid, where, b"journal-" + uid.encode(), header


def test_each_goes_back_to_its_place_and_nothing_of_it_is_changed(pool: Scripts) -> None:
    reply = restore(
        pool, item("a"), item("b", header="7 2 1+1 1000 -"), item("c", f"d {FAR} -"),
        item("d", "w 5000 - 0 0 - - SA"), item("e", "e 6000 -"), item("x", "x 7000 -"),
        item("f", f"d {FAR + 1} -", "0 1 0 400 -"),
    )
    assert reply.verdicts == "sssssss"
    assert pool.state() == {
        "tasks": {uid: b"journal-" + uid.encode() for uid in "abcdf"},
        "records": {uid: b"journal-" + uid.encode() for uid in "ex"},
        "ready": {"a": place(1), "b": place(2, 7)},
        "delayed": {"c": FAR, "f": FAR + 1},
        "info": {"b": "7 2 1+1 1000 -", "f": "0 1 0 400 -"},
        "waiting": {"d": "0 0 - - SA"}, "held": {"d": 5000}, "outbox": {"a d": LATER},
        "done": {"e": 6000}, "dead": {"x": 7000},
        "meta": {"sequence": "2"}, "wake": ["1"],
    }


def test_a_repeat_changes_nothing_and_says_so(pool: Scripts) -> None:
    items = (item("a"), item("c", f"d {FAR} -"), item("d", "w 5000 - 0 0 - - S"),
             item("e", "e 6000 -"), item("u", "q 0 l", "0 0 0 0 d:dig"))
    restore(pool, *items)
    before = pool.state()
    assert restore(pool, *items).verdicts == "aaaaa"
    assert pool.state() == before


def test_an_id_that_is_known_stays_whatever_became_of_it(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    pool.finish_now("a")
    before = pool.state()
    again = restore(pool, item("a"), item("b", "e 1 -"), item("c", f"d {FAR} -"), item("c"))
    assert again.verdicts == "aaaa"
    assert pool.state() == before


def test_a_look_changes_nothing_and_says_what_would_be(pool: Scripts) -> None:
    pool.submit(task("a"))
    before = pool.state()
    assert restore(pool, item("a"), item("b"), item("b"), mode="look").verdicts == "asa"
    assert pool.state() == before


def test_what_was_queued_goes_behind_what_is_queued_in_its_order(pool: Scripts) -> None:
    pool.submit(task("here"))
    restore(pool, item("z"), item("y", header="5 0 0 0 -"), item("x"))
    assert pool.claim().uids == ["y", "here", "z", "x"]


def test_a_unique_key_is_taken_again_and_one_that_is_held_is_refused(pool: Scripts) -> None:
    pool.submit(task("here", unique="d:x:0:one"))
    reply = restore(
        pool, item("a", "q 0 l", "0 0 0 0 d:one"), item("b", f"d {FAR} l", "0 0 0 0 s:two"),
        item("c", "q 0 -", "0 0 0 0 s:one"),
    )
    assert reply.verdicts == "uss"
    assert pool.state()["unique"] == {"one": "here 0", "two": "b 0"}
    assert pool.submit(task("d", unique="d:x:0:two")).verdicts == "u"


def test_a_window_is_locked_until_it_ends(pool: Scripts) -> None:
    items = (("dig", f"k {FAR} - gone", b"", ""), ("old", "k 1000 - gone", b"", ""))
    assert restore(pool, *items).verdicts == "sa"
    assert restore(pool, *items).verdicts == "aa"
    state = pool.state()
    assert state == {"unique": {"dig": f"gone {FAR}"}, "windows": {"dig": FAR}}
    assert pool.submit(task("a", unique="w:x:1000:dig")).verdicts == "u"


def test_a_cancel_flag_comes_along(pool: Scripts) -> None:
    restore(pool, item("a", "q 0 c"))
    assert pool.claim().cancelled == ["a"]


def test_a_lost_lease_of_another_place_is_charged_to_nobody_here(pool: Scripts) -> None:
    restore(pool, item("a", header="0 1 2 0 - 0 n1.1:7"), item("b", header="of a later release"))
    assert pool.state()["info"] == {"a": "0 1 2 0 -", "b": "of a later release"}


def test_what_waits_is_not_taken_to_be_tied_before_the_import_says_so(pool: Scripts) -> None:
    restore(pool, item("d", "w 5000 - 0 0 - - S"))
    assert pool.take().rest[1:] == []
    pool.call("ZADD", pool.keys.outbox, "XX", pool.now(), "a d")
    assert pool.take().rest[1:] == ["a d", "journal-d"]


def test_what_is_limited_is_parked_again_where_others_are(pool: Scripts) -> None:
    limit = limited(Limit(concurrency=1))
    pool.submit(task("a", limits=limit), task("b", limits=limit))
    assert pool.claim().uids == ["a"]
    key = limit.removeprefix("l:").partition("/")[0]
    restore(pool, item("c", header=f"0 0 0 0 - l:{key}"))
    assert set(pool.state()["parked"]) == {"b", "c"}


def test_keys_that_take_turns_take_turns(pool: Scripts) -> None:
    restore(pool, *(item(f"{key}{n}", header=f"0 0 0 0 - f:{key}") for key in "xy"
                    for n in range(3)))
    assert [uid[0] for uid in pool.claim().uids] in (list("xyxyxy"), list("yxyxyx"))


def test_a_pool_in_streams_takes_them_in_order_whatever_their_priority_and_none_with_a_limit(
    pool: Scripts,
) -> None:
    pool.run("set_transport", "streams", 15_000)
    reply = restore(
        pool, item("b"), item("a"), item("p", header="5 0 0 0 -"),
        item("l", header="0 0 0 0 - l:c.x"), item("w", "w 5 - 0 100 - - S"), item("r", "e 5 -"),
        item("d", f"d {FAR} -"), item("v", "w 5 - 0 0 - - l:s/c.x|c:1|x S"),
        item("t", f"d {FAR} -", "0 0 0 0 - f:k"),
    )
    assert reply.verdicts == "ssspssspp"
    assert pool.claim().uids == ["b", "a", "p"]


def test_a_full_server_takes_nothing(real: Scripts) -> None:
    real.runner.server.fill()
    with pytest.raises(Refused):
        restore(real, item("a"))
    with pytest.raises(Refused):
        restore(real, item("a", "e 5 -"))
    real.runner.server.client.config_set("maxmemory", "0")
    assert real.state() == {}


def test_a_place_that_nobody_knows_stores_nothing(pool: Scripts) -> None:
    with pytest.raises(Exception, match="nothing is restored that way"):
        restore(pool, item("a"), item("b", "z 0 -"))
    assert pool.state() == {}


def test_500_at_once_are_as_good_as_one(pool: Scripts) -> None:
    reply = restore(pool, *(item(f"t{n}", "q 0 -", "1 0 0 0 -") for n in range(500)))
    assert reply.verdicts == "s" * 500
    assert len(pool.state()["ready"]) == 500


def test_a_body_that_was_submitted_here_is_as_it_would_be_restored(pool: Scripts) -> None:
    stored = pool.submit(task("a", 3))
    first = pool.state()
    pool.call("FLUSHALL")
    restore(pool, ("a", "q 0 -", body("a", stored.now), "3 0 0 0 -"))
    assert pool.state() == first
