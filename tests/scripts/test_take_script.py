"""take.lua: items are taken for a while, and removed once they are delivered."""

from __future__ import annotations

from script_driver import Scripts, body, task


def parent_of(pool: Scripts, *uids: str) -> None:
    pool.submit(*(task(uid) for uid in uids))
    pool.attach(*((uid, "default/c,1,0", "") for uid in uids))


def test_an_end_of_a_parent_is_taken_with_its_edges(pool: Scripts) -> None:
    parent_of(pool, "a", "b")
    pool.submit(task("plain"))
    pool.finish_now("a", "plain")
    pool.finish_now("b", kind="d")
    taken = pool.take()
    # Two that ended in one millisecond come in no order.
    items, edges = taken.rest[1::2], taken.rest[2::2]
    assert sorted(items) == ["d b", "s a"] and edges == ["0,1 default/c,1,0"] * 2
    assert float(taken.rest[0]) == taken.now + 5000.5


def test_what_is_taken_comes_again_only_after_a_while(pool: Scripts) -> None:
    parent_of(pool, "a")
    pool.finish_now("a")
    pool.take(ahead=0)
    assert pool.take(ahead=0).rest[1:] == []
    assert pool.take(ahead=6000).rest[1:] == ["s a", "0,1 default/c,1,0"]


def test_what_was_delivered_is_removed_and_the_edges_stay(pool: Scripts) -> None:
    parent_of(pool, "a")
    pool.finish_now("a")
    before = pool.state("outbox")
    score, item, _ = pool.take().rest
    assert pool.take((item, score)).rest[1:] == []
    assert pool.state() == before


def test_an_item_that_was_noted_again_meanwhile_stays(pool: Scripts) -> None:
    parent_of(pool, "a")
    pool.finish_now("a", kind="d")
    score, item, _ = pool.take().rest
    pool.call("ZADD", pool.keys.outbox, pool.now(), "d a")
    assert pool.take((item, score)).rest[1:] == ["d a", "0,1 default/c,1,0"]


def test_a_removed_parent_leaves_no_edges_once_that_was_told(pool: Scripts) -> None:
    parent_of(pool, "a")
    pool.purge("unstarted", "a")
    score, item, edges = pool.take().rest
    assert (item, edges) == ("p a", "0,1 default/c,1,0")
    pool.take((item, score))
    assert pool.state("meta", "wake") == {}


def test_a_child_to_be_tied_is_taken_with_its_body_after_a_second(pool: Scripts) -> None:
    stored = pool.submit(task("c")._replace(options="0 - - S"))
    assert pool.take(ahead=0).rest[1:] == []
    item, held = pool.take(ahead=1000).rest[1:]
    assert (item, held) == ("a c", body("c", stored.now).decode("utf-8", "backslashreplace"))


def test_at_most_so_many_are_taken(pool: Scripts) -> None:
    parent_of(pool, "a", "b", "c")
    pool.finish_now("a", "b", "c")
    assert len(pool.take(limit=2).rest) == 5
