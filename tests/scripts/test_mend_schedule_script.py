"""mend_schedule.lua: a schedule has its definition, its state, and a next tick or a reason."""

from __future__ import annotations

import pytest
import redis
from script_driver import Scripts

PLAN = "abc - 5000 0 3 1 4000,3000"


def mend(pool: Scripts, what: str, *names: str) -> str:
    letters: bytes = pool.run("mend_schedule", what, *names)[1]
    return letters.decode()


@pytest.fixture
def sound(pool: Scripts) -> Scripts:
    """One schedule that ticks, ``a``, and one that rests, ``b``."""
    pool.call("HSET", pool.keys.schedules, "a", "definition", "b", "definition")
    pool.call("HSET", pool.keys.planned, "a", PLAN, "b", PLAN)
    pool.call("ZADD", pool.keys.ticks, 5000, "a")
    pool.call("HSET", pool.keys.resting, "b", "paused")
    return pool


@pytest.mark.parametrize("what", ["remove", "tick", "rest"])
def test_what_is_sound_or_unknown_stays_as_it_is(sound: Scripts, what: str) -> None:
    before = sound.state()
    assert mend(sound, what, "a", "b", "c") == "---"
    assert sound.state() == before


@pytest.mark.parametrize("key", ["schedules", "planned"])
def test_what_is_left_of_a_schedule_goes(sound: Scripts, key: str) -> None:
    sound.call("HDEL", getattr(sound.keys, key), "a")
    assert mend(sound, "remove", "a", "b") == "m-"
    assert sound.state() == {
        "schedules": {"b": "definition"}, "planned": {"b": PLAN}, "resting": {"b": "paused"},
    }


def test_a_schedule_whose_state_nobody_can_read_goes(sound: Scripts) -> None:
    sound.call("HSET", sound.keys.planned, "a", "tomorrow")
    assert mend(sound, "remove", "a") == "m"
    assert "ticks" not in sound.state()


def test_a_lost_tick_comes_back_as_it_was_stored(sound: Scripts) -> None:
    before = sound.state()
    sound.call("DEL", sound.keys.ticks)
    assert mend(sound, "tick", "a") == "m"
    assert sound.state() == before


def test_a_schedule_without_any_more_ticks_has_ended(sound: Scripts) -> None:
    sound.call("HSET", sound.keys.planned, "a", PLAN.replace("5000", "-"))
    sound.call("DEL", sound.keys.ticks)
    assert mend(sound, "tick", "a") == "m"
    assert sound.state()["resting"] == {"a": "ended", "b": "paused"}


def test_one_that_rests_does_not_tick(sound: Scripts) -> None:
    before = sound.state()
    sound.call("ZADD", sound.keys.ticks, 5000, "b")
    assert mend(sound, "rest", "a", "b") == "-m"
    assert sound.state() == before


def test_a_mend_nobody_knows_is_an_error(pool: Scripts) -> None:
    with pytest.raises(redis.exceptions.ResponseError, match="nothing is mended that way"):
        mend(pool, "xyz", "a")
