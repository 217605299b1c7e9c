"""trim.lua: old records go, young ones stay, and locks that hold nothing go as well."""

from __future__ import annotations

from script_driver import Reply, Scripts, task

HOUR = 3_600_000


def ended(pool: Scripts, *uids: str, kind: str = "s", ago: int = 0) -> None:
    """Finished tasks that ended ``ago`` ms ago, the first the longest."""
    pool.submit(*map(task, uids))
    pool.finish_now(*uids, kind=kind)
    index = pool.keys.dead if kind == "d" else pool.keys.done
    for n, uid in enumerate(uids):
        pool.call("ZADD", index, pool.now() - ago - len(uids) + n, uid)


def test_records_past_the_age_are_forgotten_in_done_and_dead(pool: Scripts) -> None:
    ended(pool, "old", ago=2 * HOUR)
    ended(pool, "new")
    ended(pool, "olddead", kind="d", ago=2 * HOUR)
    ended(pool, "newdead", kind="d")
    assert pool.trim(age=HOUR).rest == [2]
    state = pool.state()
    assert (set(state["done"]), set(state["dead"])) == ({"new"}, {"newdead"})
    assert set(state["records"]) == {"new", "newdead"}


def test_records_over_the_count_are_forgotten_oldest_first(pool: Scripts) -> None:
    ended(pool, *"abcde", ago=HOUR)
    ended(pool, *"vwxyz", kind="d", ago=HOUR)
    assert pool.trim(most_done=2, most_dead=4).rest == [4]
    state = pool.state()
    assert (set(state["done"]), set(state["dead"])) == ({"d", "e"}, {"w", "x", "y", "z"})
    assert set(state["records"]) == set("dewxyz")


def test_no_record_younger_than_a_minute_is_forgotten(pool: Scripts) -> None:
    ended(pool, "a", "b", ago=30_000)
    ended(pool, "c", kind="d", ago=30_000)
    assert pool.trim(age=1, most_done=0, most_dead=0).rest == [0]
    assert set(pool.state()["records"]) == {"a", "b", "c"}


def test_nothing_to_forget_changes_nothing(pool: Scripts) -> None:
    ended(pool, "a")
    pool.submit(task("b", unique="d:x:0:k"))
    before = pool.state()
    assert pool.trim().rest == [0]
    assert pool.state() == before


def test_more_than_the_limit_goes_page_by_page(pool: Scripts) -> None:
    for page in range(3):
        ended(pool, *(f"p{page}-{i}" for i in range(300)), ago=2 * HOUR)
    assert [pool.trim(age=HOUR, limit=5000).rest[0] for _ in range(3)] == [500, 400, 0]
    assert "records" not in pool.state()


def test_windows_that_ended_are_dropped(pool: Scripts) -> None:
    stored = pool.submit(task("a", unique="w:x:60000:ended"), task("b", unique="w:x:60000:runs"))
    pool.finish_now()
    pool.call("HSET", pool.keys.unique, "ended", f"a {stored.now - 1}")
    pool.call("ZADD", pool.keys.windows, stored.now - 1, "ended")
    pool.trim()
    state = pool.state()
    assert state["unique"] == {"runs": f"b {stored.now + 60_000}"}
    assert state["windows"] == {"runs": stored.now + 60_000}


def test_a_key_that_was_locked_anew_after_its_window_stays(pool: Scripts) -> None:
    pool.submit(task("a", unique="d:x:0:k"))
    pool.call("ZADD", pool.keys.windows, pool.now() - 1, "k")
    pool.trim()
    state = pool.state()
    assert state["unique"] == {"k": "a 0"}
    assert "windows" not in state


def test_locks_without_a_living_task_are_found_in_a_few_sweeps(pool: Scripts) -> None:
    pool.submit(*(task(f"t{i}", unique=f"d:x:0:k{i}") for i in range(30)))
    for i in range(15):
        pool.call("HDEL", pool.keys.tasks, f"t{i}")
    for _ in range(200):
        pool.trim()
        if len(pool.state()["unique"]) == 15:
            break
    assert pool.state()["unique"] == {f"k{i}": f"t{i} 0" for i in range(15, 30)}


def test_a_full_redis_can_be_trimmed(real: Scripts) -> None:
    ended(real, "a", ago=2 * HOUR)
    real.runner.server.fill()
    assert real.trim(age=HOUR).rest == [1]


def test_a_parent_s_record_stays_until_none_of_its_children_needs_it(pool: Scripts) -> None:
    pool.submit(task("old"), task("older"))
    pool.attach(("old", "default/c,1,0", ""))
    ended(pool, "old", "older", ago=2 * HOUR)
    assert pool.trim(age=HOUR).rest == [1, ["old"], []]
    assert list(pool.state()["records"]) == ["old"]
    passed = Reply(pool.run("trim", 500, HOUR, 1000, 1000, 1, 0))
    assert passed.rest == [0]
    loose = Reply(pool.run("trim", 500, HOUR, 1000, 1000, 0, 0, "old"))
    assert loose.rest == [1]
    assert not {"records", "edges"} & set(pool.state())
