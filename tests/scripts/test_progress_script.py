"""progress.lua: what running tasks report, if their claims still hold."""

from __future__ import annotations

from script_driver import Scripts, task


def test_reports_of_running_tasks_are_kept(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    before = pool.state()
    assert pool.progress(("a", taken.token, b"10"), ("b", taken.token, b"20 note")).verdicts == "kk"
    assert pool.state() == before | {"progress": {"a": "10", "b": "20 note"}}


def test_the_latest_report_counts(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    for text in (b"10", b"90"):
        pool.progress(("a", taken.token, text))
    assert pool.state()["progress"] == {"a": "90"}


def test_a_report_under_a_stale_token_is_refused(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    pool.release(("a", taken.token))
    reported = pool.progress(
        ("a", taken.token, b"10"), ("b", taken.token, b"20"), ("never", taken.token, b"30")
    )
    assert reported.verdicts == "lkl"
    assert pool.state()["progress"] == {"b": "20"}


def test_a_released_owner_reports_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.release_owner()
    assert pool.progress(("a", taken.token, b"10")).verdicts == "l"
    assert "progress" not in pool.state()


def test_no_reports_change_nothing(pool: Scripts) -> None:
    assert pool.progress().verdicts == ""
    assert pool.state() == {}


def test_a_full_redis_still_takes_reports(real: Scripts) -> None:
    real.submit(task("a"))
    taken = real.claim()
    real.runner.server.fill()
    assert real.progress(("a", taken.token, b"10")).verdicts == "k"
    assert real.state()["progress"] == {"a": "10"}
