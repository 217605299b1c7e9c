"""sample.lua: a pool's business in five numbers, and nothing is changed."""

from __future__ import annotations

from script_driver import Scripts, task


def test_it_counts_what_waits_what_is_claimed_and_what_has_ended(pool: Scripts) -> None:
    assert pool.run("sample")[1:] == [0, 0, 0, 0]
    pool.submit(*(task(uid) for uid in "abcd"), task("later", when="+60000"))
    pool.finish_now("a")
    pool.claim(want=1)
    before = pool.state()
    assert pool.run("sample")[1:] == [2, 1, 1, 0]
    assert pool.state() == before


def test_failed_attempts_have_ended_and_a_pause_is_told(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.retry(("a", taken.token, 1000, b"failed"))
    pool.pause()
    assert pool.run("sample")[1:] == [0, 0, 1, 1]
