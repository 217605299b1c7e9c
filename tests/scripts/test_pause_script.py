"""pause.lua: a paused pool gives out nothing and wakes nobody; resumed, it goes on by itself."""

from __future__ import annotations

from script_driver import Scripts, task


def test_a_paused_pool_gives_out_nothing_until_it_is_resumed(pool: Scripts) -> None:
    pool.submit(task("a"))
    assert pool.run("pause", "1")[1] == 1
    assert pool.claim().uids == []
    assert pool.run("pause", "0")[1] == 1
    assert pool.claim().uids == ["a"]


def test_pausing_changes_one_field_and_nothing_else(pool: Scripts) -> None:
    pool.submit(task("a"), task("b", when="+60000"))
    before = pool.state()
    pool.run("pause", "1")
    assert pool.state() == {**before, "meta": {**before["meta"], "paused": "1"}}


def test_a_second_pause_and_a_second_resume_change_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    assert [pool.run("pause", one)[1] for one in ("1", "1", "0", "0")] == [1, 0, 1, 0]


def test_resuming_wakes_one_fetcher_for_what_was_submitted_meanwhile(pool: Scripts) -> None:
    pool.run("pause", "1")
    pool.submit(task("a"))
    assert not pool.woken()
    pool.run("pause", "0")
    assert pool.woken()


def test_resuming_an_empty_pool_wakes_nobody(pool: Scripts) -> None:
    pool.run("pause", "1")
    pool.run("pause", "0")
    assert not pool.woken()
