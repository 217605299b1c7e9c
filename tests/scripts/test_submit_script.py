"""submit.lua: what is stored, where, and what is refused before anything is written."""

from __future__ import annotations

from script_driver import Scripts, body, place, task


def test_a_plain_task_is_stored_at_the_end_of_ready_and_a_fetcher_is_woken(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b"))
    assert stored.verdicts == "ss"
    assert pool.state() == {
        "tasks": {"a": body("a", stored.now), "b": body("b", stored.now)},
        "ready": {"a": place(1), "b": place(2)},
        "meta": {"sequence": "2"},
        "wake": ["1"],
    }
