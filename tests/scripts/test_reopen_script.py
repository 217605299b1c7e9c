"""reopen.lua: a skipped task waits again, once, and its own children hear of it."""

from __future__ import annotations

from script_driver import Scripts, body, task


def test_a_skipped_task_waits_again_with_its_history(pool: Scripts) -> None:
    stored = pool.submit(task("c")._replace(options="0 - - S")).now
    pool.attach(("c", "default/d,1,0", ""))
    at = pool.resolve(("c", "1,0", 1)).now
    pool.call("DEL", pool.keys.outbox)
    length = len(body("c", stored, (b"parent failed", at)))
    reply = pool.reopen(("c", length, "1 0 - - S", b"again"))
    assert reply.rest == [1]
    after = {
        "tasks": {"c": body("c", stored, (b"parent failed", at), (b"again", reply.now))},
        "waiting": {"c": "1 0 - - S"}, "held": {"c": reply.now},
        "edges": {"c": "0,1 default/d,1,0"},
        "outbox": {"t c": reply.now, "r c": reply.now},
        "stats": {"skipped": "1"},
    }
    assert pool.state() == after
    assert pool.reopen(("c", length, "1 0 - - S", b"again")).rest == [0]
    assert pool.state() == after


def test_a_record_that_is_another_by_now_stays(pool: Scripts) -> None:
    pool.submit(task("c"))
    pool.finish_now("c")
    before = pool.state()
    assert pool.reopen(("c", 1, "1 0 - - S", b"again"), ("x", 1, "1 0 - - S", b"")).rest == [0]
    assert pool.state() == before


def test_a_resubmitted_parent_notes_it_and_takes_back_what_is_not_told_yet(pool: Scripts) -> None:
    pool.submit(task("a"), task("plain"))
    pool.attach(("a", "default/c,1,0", ""))
    pool.finish_now("a", "plain", kind="d")
    assert list(pool.state()["outbox"]) == ["d a"]
    assert pool.resubmit(("a", "", b"again"), ("plain", "", b"again")).verdicts == "ss"
    assert list(pool.state()["outbox"]) == ["r a"]
