"""submit.lua: what is stored, where, and what is refused before anything is written."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError
from script_driver import Scripts, body, place, task

from skedulr.wire import Refused


def test_plain_tasks_are_stored_in_order_and_one_fetcher_is_woken(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("b"))
    assert stored.verdicts == "ss"
    assert pool.state() == {
        "tasks": {"a": body("a", stored.now), "b": body("b", stored.now)},
        "ready": {"a": place(1), "b": place(2)},
        "meta": {"sequence": "2"},
        "wake": ["1"],
    }


def test_one_plain_task_is_stored_the_short_way_as_the_long_way_stores_it(pool: Scripts) -> None:
    """With a bound to the queue it goes the long way, and so does what is there already."""
    states, verdicts = [], []
    for capacity in (0, 100):
        pool.runner.client.flushall()
        answers = [
            pool.submit(task(name), capacity=capacity) for name in ("a", "b", "a")
        ]
        states.append(pool.state("tasks"))
        verdicts.append([one.verdicts for one in answers])
        assert pool.state()["tasks"] == {
            "a": body("a", answers[0].now), "b": body("b", answers[1].now)
        }
        assert pool.submit(task("a", envelope=b"other"), capacity=capacity).verdicts == "d"
    assert states[0] == states[1] == {
        "ready": {"a": place(1), "b": place(2)}, "meta": {"sequence": "2"}, "wake": ["1"],
    }
    assert verdicts[0] == verdicts[1] == ["s", "s", "a"]


def test_one_plain_task_that_has_ended_is_not_stored_again(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now()
    before = pool.state()
    assert pool.submit(task("a")).verdicts == "a"
    assert pool.state() == before


def test_an_empty_batch_changes_nothing(pool: Scripts) -> None:
    assert pool.submit().rest == [""]
    assert pool.state() == {}


def test_a_priority_puts_a_task_on_its_own_level_and_into_its_header(pool: Scripts) -> None:
    pool.submit(task("low", -100), task("plain"), task("high", 100), task("later", 100))
    assert pool.state("tasks", "meta", "wake") == {
        "ready": {
            "high": place(3, 100), "later": place(4, 100), "plain": place(2),
            "low": place(1, -100),
        },
        "info": {"low": "-100 0 0 0 -", "high": "100 0 0 0 -", "later": "100 0 0 0 -"},
    }
    assert pool.claim().uids == ["high", "later", "plain", "low"]


def test_a_delay_and_a_time_put_a_task_into_delayed(pool: Scripts) -> None:
    stored = pool.submit(task("a", when="+500"), task("b", when="@4102444800123", priority=7))
    assert pool.state("meta") == {
        "tasks": {"a": body("a", stored.now), "b": body("b", stored.now)},
        "delayed": {"a": stored.now + 500, "b": 4102444800123},
        "info": {"b": "7 0 0 0 -"} | {"b": "7 0 0 4102444800123 -"},
        "wake": ["1"],
    }


@pytest.mark.parametrize("when", ["+0", "@1000000000000"])
def test_a_time_in_the_past_is_ready_at_once_and_remembered_as_due(
    pool: Scripts, when: str
) -> None:
    stored = pool.submit(task("a", when=when))
    due = stored.now if when == "+0" else 1000000000000
    assert pool.state("tasks", "meta", "wake") == {
        "ready": {"a": place(1)}, "info": {"a": f"0 0 0 {due} -"},
    }


def test_a_delayed_task_wakes_a_fetcher_only_if_it_is_the_earliest(pool: Scripts) -> None:
    pool.submit(task("a", when="+5000"))
    assert pool.woken()
    pool.submit(task("b", when="+6000"))
    assert not pool.woken()
    pool.submit(task("c", when="+4000"))
    assert pool.woken()


def test_at_most_one_wake_token_lies_there(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.submit(task("b"))
    assert pool.state()["wake"] == ["1"]


def test_a_paused_pool_stores_tasks_and_wakes_nobody(pool: Scripts) -> None:
    pool.pause()
    assert pool.submit(task("a"), task("b", when="+1000")).verdicts == "ss"
    assert "wake" not in pool.state()


def test_the_same_submit_again_changes_nothing(pool: Scripts) -> None:
    batch = [task("a"), task("b", 5, "+1000"), task("c", unique="d:x:0:k")]
    pool.submit(*batch)
    pool.drain_wake()
    before = pool.state()
    assert pool.submit(*batch).verdicts == "aaa"
    assert pool.state() == before


def test_the_same_submit_after_the_task_ended_changes_nothing(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now("a")
    before = pool.state()
    assert pool.submit(task("a")).verdicts == "a"
    assert pool.state() == before


def test_another_task_under_a_known_id_is_refused(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.finish_now("b")
    before = pool.state()
    assert pool.submit(task("a", envelope=b"other"), task("b", envelope=b"other")).verdicts == "dd"
    assert pool.state() == before


def test_the_same_id_twice_in_one_batch_counts_once(pool: Scripts) -> None:
    stored = pool.submit(task("a"), task("a"), task("a", envelope=b"other"), task("b"))
    assert stored.verdicts == "sads"
    assert pool.state("tasks", "wake") == {
        "ready": {"a": place(1), "b": place(2)}, "meta": {"sequence": "2"},
    }


def test_an_id_whose_record_was_forgotten_starts_clean(pool: Scripts) -> None:
    pool.submit(task("a", 9))
    taken = pool.claim()
    pool.retry(("a", taken.token, 0, b"failed"))
    pool.finish_now("a")
    pool.purge("ended", "a")
    stored = pool.submit(task("a"))
    assert pool.state("own", "owned", "stats", "meta", "wake") == {
        "tasks": {"a": body("a", stored.now)}, "ready": {"a": place(3)},
    }


def test_a_full_pool_takes_no_more(pool: Scripts) -> None:
    pool.submit(task("a"), task("b", when="+1000"))
    assert pool.submit(task("c"), task("d"), task("a"), capacity=3).verdicts == "sfa"
    assert pool.state()["ready"] == {"a": place(1), "c": place(3)}


def test_a_capacity_below_what_is_there_takes_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    before = pool.state()
    assert pool.submit(task("c"), capacity=1).verdicts == "f"
    assert pool.state() == before


def test_running_tasks_take_no_room(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    assert pool.submit(task("b"), capacity=1).verdicts == "s"


def test_a_batch_of_500_with_long_ids_and_all_options(pool: Scripts) -> None:
    uids = [f"{i:03d}".ljust(200, "x") for i in range(500)]
    batch = [task(uid, 100, "-", f"w:x:60000:{'k' * 61}{i:03d}") for i, uid in enumerate(uids)]
    stored = pool.submit(*batch)
    assert stored.verdicts == "s" * 500
    state = pool.state()
    assert list(state["ready"]) == uids
    assert state["ready"][uids[-1]] == place(500, 100)
    assert len(state["unique"]) == len(state["windows"]) == len(state["info"]) == 500
    assert pool.submit(*batch).verdicts == "a" * 500


def test_places_stay_exact_when_the_sequence_is_far_beyond_31_bits(pool: Scripts) -> None:
    pool.call("HSET", pool.keys.meta, "sequence", 2**43)
    pool.submit(task("a", -100), task("b", -100))
    assert pool.state()["ready"] == {
        "a": place(2**43 + 1, -100), "b": place(2**43 + 2, -100)
    }
    assert [one.place for one in pool.claim().tasks] == [
        place(2**43 + 1, -100), place(2**43 + 2, -100)
    ]


def test_envelopes_of_any_bytes_are_kept_as_they_are(pool: Scripts) -> None:
    envelope = bytes(range(256)) + b"\r\n$-1\r\n"
    pool.submit(task("a", envelope=envelope))
    assert pool.claim().tasks[0].body[:-9] == envelope


@pytest.mark.parametrize(
    "options",
    ["x", "1", "1 - -x", "1 +1.5 -", "1 5 -", "0 - q:x:0:k", "0 - d:x:0:", "0 - d:x:0:a b"],
)
def test_options_nobody_can_read_refuse_the_whole_batch(pool: Scripts, options: str) -> None:
    with pytest.raises(ResponseError, match="options nobody can read"):
        pool.submit(task("a"), task("b")._replace(options=options))
    assert pool.state() == {}


def test_a_full_redis_stores_nothing_of_a_batch(real: Scripts) -> None:
    real.submit(task("a", when="+1000"))
    real.drain_wake()
    before = real.state()
    real.runner.server.fill()
    with pytest.raises(Refused):
        real.submit(task("b"), task("c", 5, "+1", "w:x:1000:k"))
    assert real.state() == before
    # What is there already is still found: the caller learns that it need not worry.
    assert real.submit(task("a", when="+1000")).verdicts == "a"


def test_scripts_are_sent_again_after_a_flush(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.call("SCRIPT FLUSH" if pool.runner.__class__.__name__ == "FakeRunner" else "SCRIPT",
              *([] if pool.runner.__class__.__name__ == "FakeRunner" else ["FLUSH"]))
    assert pool.submit(task("b")).verdicts == "s"
    assert pool.claim().uids == ["a", "b"]
