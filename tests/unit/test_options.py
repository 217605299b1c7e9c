"""Every option: what is taken, what it becomes, and what is refused with which words."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import skedulr
from skedulr import ConfigError, options

EPOCH_S = 1_785_600_000.0
KATHMANDU = ZoneInfo("Asia/Kathmandu")


class Strategy:
    def next_delay(self, attempt: int, error: BaseException | None) -> float | None:
        return 1.0


@pytest.mark.parametrize(("given", "becomes"), [
    ({"pool": "critical"}, "critical"),
    ({"pool": "a.b-c_9"}, "a.b-c_9"),
    ({"priority": -100}, -100),
    ({"priority": 0}, 0),
    ({"priority": 100}, 100),
    ({"delay": 0}, 0.0),
    ({"delay": 1}, 1.0),
    ({"delay": 0.25}, 0.25),
    ({"delay": timedelta(minutes=2)}, 120.0),
    ({"at": EPOCH_S}, EPOCH_S),
    ({"at": 1_785_600_000}, EPOCH_S),
    ({"at": datetime.fromtimestamp(EPOCH_S, UTC)}, EPOCH_S),
    ({"at": datetime.fromtimestamp(EPOCH_S, KATHMANDU)}, EPOCH_S),
    ({"at": datetime.fromtimestamp(EPOCH_S, timezone(timedelta(hours=-3)))}, EPOCH_S),
    ({"at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}, 253_402_300_799.0),
    ({"timeout": None}, None),
    ({"timeout": 30}, 30.0),
    ({"timeout": 0.001}, 0.001),
    ({"timeout": timedelta(hours=1)}, 3600.0),
    ({"max_retries": 0}, 0),
    ({"max_retries": None}, None),
    ({"max_retries": 1000}, 1000),
    ({"retry_on": ValueError}, (ValueError,)),
    ({"retry_on": (ValueError, KeyError)}, (ValueError, KeyError)),
    ({"never_retry_on": KeyError}, (KeyError,)),
    ({"expires": 5}, 5.0),
    ({"id": "a"}, "a"),
    ({"id": "Order-7_x.y:z@w=1+2"}, "Order-7_x.y:z@w=1+2"),
    ({"id": "9" * 200}, "9" * 200),
    ({"key": "u{to}"}, "u{to}"),
    ({"unique": "until_done"}, "until_done"),
    ({"unique": "until_start"}, "until_start"),
    ({"unique": 60}, 60.0),
    ({"unique": timedelta(minutes=1)}, 60.0),
    ({"on_duplicate": "replace"}, "replace"),
    ({"keep_result": False}, False),
    ({"keep_result": 60}, 60.0),
    ({"headers": {"a": [1]}}, {"a": [1]}),
    ({"tags": ["x", "y"]}, ["x", "y"]),
    ({"tags": ("x",)}, ["x"]),
    ({"tags": {"y", "x"}}, ["x", "y"]),
])
def test_an_option_is_taken(given: dict[str, Any], becomes: Any) -> None:
    (name,) = given
    assert options.check(given) == {name: becomes}


def test_a_strategy_of_any_class_is_taken() -> None:
    for strategy in (Strategy(), skedulr.LinearRetry(base=1), skedulr.ExponentialBackoff(base=1)):
        assert options.check({"retry": strategy})["retry"] is strategy


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(("given", "words"), [
    ({"pool": ""}, "pool name '' is not usable: 1 to 64 of letters"),
    ({"pool": "a b"}, "'a b'"),
    ({"pool": "x" * 65}, "1 to 64"),
    ({"pool": "a{b}"}, "letters, digits, '_', '.' and '-'"),
    ({"pool": "a:b"}, "'a:b'"),
    ({"pool": "a\n"}, r"'a\n'"),
    ({"pool": 3}, "pool name 3"),
    ({"priority": 101}, "priority=101 is not usable: a whole number from -100 to 100"),
    ({"priority": -101}, "priority=-101"),
    ({"priority": 1.0}, "priority=1.0"),
    ({"priority": True}, "priority=True"),
    ({"priority": "high"}, "priority='high'"),
    ({"delay": -1}, "delay=-1 is not usable: a number of seconds or a timedelta, at least 0"),
    ({"delay": timedelta(seconds=-1)}, "delay=-1.0"),
    ({"delay": NAN}, "delay=nan"),
    ({"delay": INFINITE}, "delay=inf"),
    ({"delay": 1e300}, "delay=1e+300"),
    ({"delay": "5"}, "delay='5'"),
    ({"delay": None}, "delay=None"),
    ({"delay": True}, "delay=True"),
    ({"delay": datetime.now(UTC)}, "delay=datetime"),
    ({"at": datetime(2026, 8, 1, 9)}, "has no time zone: give an aware datetime"),
    ({"at": "2026-08-01T09:00:00+00:00"}, "at='2026-08-01T09:00:00+00:00' is not usable: an aware"),
    ({"at": EPOCH_S * 1000}, "epoch seconds, not milliseconds"),
    ({"at": -1}, "at=-1 is out of range"),
    ({"at": NAN}, "at=nan"),
    ({"at": INFINITE}, "at=inf"),
    ({"at": datetime(1, 1, 1, tzinfo=UTC)}, "out of range"),
    ({"at": timedelta(1)}, "at=datetime.timedelta"),
    ({"at": True}, "at=True"),
    ({"timeout": 0}, "timeout=0 is not usable: a number of seconds or a timedelta, above 0"),
    ({"timeout": -1}, "timeout=-1"),
    ({"timeout": INFINITE}, "timeout=inf"),
    ({"timeout": "10"}, "timeout='10'"),
    ({"max_retries": -1}, "max_retries=-1 is not usable: a whole number from 0"),
    ({"max_retries": 2.5}, "max_retries=2.5"),
    ({"max_retries": True}, "max_retries=True"),
    ({"max_retries": 2**31}, "max_retries=2147483648"),
    ({"retry": 3}, "retry=3 is no retry strategy: LinearRetry"),
    ({"retry": None}, "retry=None"),
    ({"retry_on": "ValueError"}, "retry_on='ValueError' is not usable: an exception class"),
    ({"retry_on": [ValueError]}, "or a tuple of them"),
    ({"retry_on": (ValueError, 3)}, "or a tuple of them"),
    ({"never_retry_on": ValueError()}, "never_retry_on=ValueError()"),
    ({"expires": 0}, "expires=0"),
    ({"id": ""}, "id='' is not usable: 1 to 200 of letters, digits"),
    ({"id": "-a"}, "beginning with a letter or digit"),
    ({"id": "a/b"}, "id='a/b'"),
    ({"id": "a b"}, "id='a b'"),
    ({"id": "ü"}, "id='ü'"),
    ({"id": "a\n"}, r"id='a\n'"),
    ({"id": "9" * 201}, "1 to 200"),
    ({"id": 7}, "id=7"),
    ({"key": ""}, "key=''"),
    ({"key": 7}, "key=7"),
    ({"unique": "until"}, "unique='until' is not usable: 'until_done', 'until_start' or a window"),
    ({"unique": True}, "unique=True"),
    ({"unique": 0}, "unique=0"),
    ({"on_duplicate": "retrun"}, "did you mean 'return'?"),
    ({"keep_result": True}, "keep_result=True"),
    ({"keep_result": 0}, "keep_result=0"),
    ({"headers": [("a", 1)]}, "headers=[('a', 1)] is not usable: a dict with text keys"),
    ({"headers": {1: 2}}, "text keys"),
    ({"tags": "red"}, "tags='red' is not usable: a list of texts"),
    ({"tags": 5}, "tags=5"),
    ({"tags": ["a", ""]}, "tags=['a', '']"),
    ({"tags": [1]}, "tags=[1]"),
])
def test_an_unusable_value_is_refused_naming_option_and_value(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        options.check(given)
    assert words in str(caught.value)
    assert next(iter(given)) in str(caught.value)


@pytest.mark.parametrize(("name", "near"), [
    ("prioritty", "priority"), ("pol", "pool"), ("timout", "timeout"), ("max_retry", "max_retries"),
    ("eta", None), ("countdown", None), ("Pool", "pool"), ("depend_on", None),
])
def test_an_unknown_option_names_itself_and_the_nearest(name: str, near: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        options.check({name: 1})
    assert f"unknown option {name!r}" in str(caught.value)
    if near is not None:
        assert f"did you mean '{near}'?" in str(caught.value)


def test_delay_and_at_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"delay= and at= say the same thing twice"):
        options.check({"delay": 1, "at": EPOCH_S})


def test_every_option_of_the_typed_dict_has_its_check_and_no_other() -> None:
    assert set(options.Options.__annotations__) == set(options._CHECKS)


def test_times_of_day_in_the_zone_that_changes_keep_their_instant() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    moments = [options.check({"at": one})["at"] for one in (first, second)]
    assert moments[1] - moments[0] == 3600


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """The process's own time zone, changed for the test."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    "zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"], indirect=True
)
@pytest.mark.usefixtures("zone")
def test_the_zone_of_the_process_changes_no_instant_and_naive_ones_stay_refused() -> None:
    aware = datetime(2026, 8, 1, 9, tzinfo=UTC)
    local = aware.astimezone()
    assert options.check({"at": aware}) == options.check({"at": local}) == {"at": 1785574800.0}
    with pytest.raises(ConfigError, match="no time zone"):
        options.check({"at": local.replace(tzinfo=None)})


# --- where options are given --------------------------------------------------------------------


def make(**given: Any) -> skedulr.Task[[int], int]:
    app = skedulr.Skedulr(url="redis://nowhere.invalid/0")

    @app.task(name="t", **given)
    def t(a: int) -> int:
        return a

    return t


def test_using_makes_another_task_and_changes_nothing_in_the_first() -> None:
    plain = make(priority=1, pool="p")
    urgent = plain.using(priority=9)
    more = urgent.using(pool="q", delay=3)
    assert [one.option("priority") for one in (plain, urgent, more)] == [1, 9, 9]
    assert [one.option("pool") for one in (plain, urgent, more)] == ["p", "p", "q"]
    assert plain.option("delay") is None
    assert (plain.name, plain.function) == (more.name, more.function)


def test_the_later_of_delay_and_at_holds() -> None:
    plain = make(delay=5)
    assert plain.using(at=EPOCH_S).using(delay=3).own == {"delay": 3.0}
    assert plain.using(delay=3).using(at=EPOCH_S).own == {"at": EPOCH_S}


@pytest.mark.parametrize("give", [
    lambda: make(prioritty=1),
    lambda: make().using(prioritty=1),
    lambda: skedulr.Skedulr(url="redis://nowhere.invalid/0").remote("x", prioritty=1),
])
def test_a_wrong_option_is_refused_where_it_is_given(give: Any) -> None:
    with pytest.raises(ConfigError, match="did you mean 'priority'"):
        give()


def test_an_id_belongs_to_one_call() -> None:
    with pytest.raises(ConfigError, match=r"task.using\(id=\.\.\.\)"):
        make(id="x")
    assert make().using(id="x").own == {"id": "x"}


def test_a_strategy_of_one_s_own_can_not_travel_with_a_call() -> None:
    with pytest.raises(ConfigError, match="can not travel in a message"):
        options.extras_of({"retry": Strategy()})
    assert options.extras_of({"retry": skedulr.LinearRetry(base=2, cap=9)})["retry"]


def test_what_the_worker_needs_travels_and_the_rest_stays() -> None:
    given = options.check({
        "pool": "p", "priority": 3, "delay": 1, "id": "x", "timeout": 5, "max_retries": 1,
        "expires": 60, "keep_result": False, "headers": {"a": 1}, "tags": ["t"],
    })
    assert options.extras_of(given) == {
        "timeout": 5.0, "max_retries": 1, "expires": 60.0, "keep_result": False,
        "headers": {"a": 1}, "tags": ["t"],
    }
