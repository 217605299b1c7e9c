"""Limits as users have them: declared, submitted, shown, set while running; on the testing kit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from listing import listed

import skedulr
from skedulr import ConfigError, Limit, Skedulr, UnknownPool, names, testing
from skedulr.limiting import MOST_LIMITS, from_rows, read_known, rows
from skedulr.testing import DrivenApp

# -- declared


@pytest.mark.parametrize(("given", "said"), [
    ({}, "needs concurrency=, rate= or fair=True"),
    ({"concurrency": 0}, "concurrency=0 is not usable"),
    ({"concurrency": True}, "concurrency=True"), ({"concurrency": 2.5}, "concurrency=2.5"),
    ({"concurrency": 1_000_001}, "1,000,000"),
    ({"rate": 0}, "rate=0 is not usable"), ({"rate": -1}, "rate=-1"), ({"rate": "9"}, "rate='9'"),
    ({"rate": float("nan")}, "rate=nan"), ({"rate": 1, "per": 0}, "per=0"),
    ({"rate": 1, "burst": 0}, "burst=0"), ({"rate": 1, "concurrency": 1}, "a list of two limits"),
    ({"concurrency": 1, "per": 60}, "belong to a limit with rate="),
    ({"concurrency": 1, "burst": 2}, "belong to a limit with rate="),
    ({"concurrency": 1, "key": ""}, "key=''"), ({"concurrency": 1, "name": ""}, "limit name ''"),
    ({"fair": True}, "whose turns"), ({"fair": 1, "key": "k"}, "fair=1"),
    ({"concurency": 1}, "no option 'concurency'; did you mean 'concurrency'"),
])
def test_a_limit_that_can_not_be_is_refused_where_it_is_written(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Limit(**given)
    assert said.split(";")[0] in str(error.value)
    if ";" in said:
        assert "concurrency" in str(error.value)


@pytest.mark.parametrize(("value", "said"), [
    (3, "Limit(concurrency=3)"), ([Limit(rate=1), "x"], "'x'"),
    ([Limit(rate=1, name=f"n{i}") for i in range(MOST_LIMITS + 1)], "at most 4"),
    ([Limit(rate=1), Limit(rate=2, per=60)], "give them names"),
    ([Limit(fair=True, key="a"), Limit(fair=True, key="b")], "fair=True twice"),
])
def test_an_option_that_is_no_limit_is_refused_at_the_declaration(value: Any, said: str) -> None:
    app = Skedulr()
    with pytest.raises(ConfigError, match=said.replace("(", r"\(").replace(")", r"\)")):
        app.task(name="t", limit=value)(_nothing)


def _nothing() -> None: ...


def test_a_burst_is_one_or_what_fifty_milliseconds_bring() -> None:
    assert [Limit(rate=rate, per=per).burst for rate, per in ((10, 60), (20, 1), (1000, 1))] == [
        1, 1, 50
    ]
    assert Limit(rate=1000, burst=1).burst == 1
    assert Limit(rate=6, per=timedelta(minutes=1)).per == 60


def test_a_limit_travels_as_plain_values_and_shows_itself() -> None:
    limits = (
        Limit(concurrency=3, key="{a}", name="n"), Limit(rate=0.5, per=2, burst=3),
        Limit(fair=True, key="{b}"),
    )
    assert from_rows(rows(limits)) == limits
    assert eval(repr(limits[0])) == limits[0]


def test_what_redis_holds_of_a_limit_is_read_or_passed_over() -> None:
    known = read_known(b"rx", b"r:10:60000:1 r:20:60000:2 send%20it")
    assert known is not None
    assert (known.name, known.declared.rate, known.holds.rate, known.holds.burst) == (
        "send it", 10.0, 20.0, 2
    )
    for text in (b"", b"c:x - n", b"z:1 - n", b"r:1:2 - n", b"c:1 -"):
        assert read_known(b"cx", text) is None


def test_the_directory_of_tasks_carries_limits() -> None:
    app = Skedulr()
    limit = Limit(concurrency=2, key="{customer}")
    app.task(name="t", limit=limit)(_nothing)
    said = names.published(app.tasks.require("t"))
    assert names.unpack(names.pack(said)).defaults == {"limit": (limit,)}  # type: ignore[union-attr]


# -- used


@pytest.fixture
def app() -> Skedulr:
    return Skedulr()


@pytest.fixture
def driven(app: Skedulr) -> Iterator[DrivenApp]:
    with testing.app(testing.Clock(1_700_000_000), served=app) as driven:
        yield driven


def test_a_key_is_formatted_with_the_calls_arguments_and_must_fit_them(driven: DrivenApp) -> None:
    @driven.task(name="t", limit=Limit(rate=1, per=60, key="{customer}"))
    def t(customer: str, note: str = "-") -> str:
        return customer

    handles = [t.submit(who) for who in ("ann", "ann", "bob")]
    driven.drain()
    assert [one.state for one in handles] == ["succeeded", "queued", "succeeded"]
    with pytest.raises(ConfigError, match="names what the call does not have"):
        t.using(limit=Limit(rate=1, key="{host}")).submit("ann")


def test_a_rate_lets_tasks_start_as_time_passes_and_counts_no_attempt(driven: DrivenApp) -> None:
    starts = []

    @driven.task(name="t", limit=Limit(rate=1, per=10))
    def t() -> None:
        starts.append(driven.clock.now())

    handles = [t.submit() for _ in range(4)]
    driven.drain()
    assert len(starts) == 1
    driven.advance(35)
    assert [one.state for one in handles] == ["succeeded"] * 4
    gaps = [round((b - a).total_seconds()) for a, b in pairwise(starts)]
    assert gaps == [10] * 3
    assert [one.info()["attempt"] for one in handles] == [1] * 4


def test_a_parked_task_is_queued_and_says_what_it_waits_for(driven: DrivenApp) -> None:
    @driven.task(name="t", limit=Limit(rate=1, per=3600, key="{host}", name="hosts"))
    def t(host: str) -> None: ...

    _, second = t.submit("a.example"), t.submit("a.example")
    plain = driven.remote("nobody").using(priority=1).submit()
    driven.drain()
    info = second.info()
    assert (info["state"], info["limit"], info["attempt"]) == (
        "queued", {"name": "hosts", "kind": "rate", "key": "a.example"}, 0
    )
    assert plain.info().get("limit") is None
    pool = driven.stats()["pools"][0]
    assert (pool["queued"], pool.get("parked", 0)) == (1, 1)
    assert [one["id"] for one in listed(driven.client, "queued")] == [second.id]
    assert driven.purge("default", state="queued") == 1
    assert driven.stats()["pools"][0].get("parked", 0) == 0


def test_a_key_made_of_a_redacted_argument_is_not_shown(driven: DrivenApp) -> None:
    @driven.task(name="t", limit=Limit(rate=1, per=3600, key="{card}"), redact=("card",))
    def t(card: str) -> None: ...

    handles = [t.submit("4111") for _ in range(2)]
    driven.drain()
    assert handles[1].info()["limit"] == {"name": "t", "kind": "rate", "key": None}


def test_a_limit_shared_by_name_holds_for_several_tasks(driven: DrivenApp) -> None:
    shared = Limit(rate=1, per=3600, name="api")
    one = driven.task(name="one", limit=shared)(_nothing)
    other = driven.task(name="other", limit=shared)(_nothing)
    handles = [one.submit(), other.submit()]
    driven.drain()
    assert [handle.state for handle in handles] == ["succeeded", "queued"]


def test_defaults_of_an_app_may_limit_and_none_lifts_it(driven: DrivenApp, app: Skedulr) -> None:
    app.configure(defaults={"limit": Limit(rate=1, per=3600)})
    driven.shared = app.shared
    t = driven.task(name="t")(_nothing)
    handles = [t.submit(), t.submit(), t.using(limit=None).submit()]
    driven.drain()
    assert [one.state for one in handles] == ["succeeded", "queued", "succeeded"]


def test_a_limit_is_set_and_reset_while_tasks_wait(driven: DrivenApp) -> None:
    t = driven.task(name="t", limit=Limit(rate=1, per=3600))(_nothing)
    handles = [t.submit() for _ in range(5)]
    driven.drain()
    driven.set_limit("t", rate=100, burst=2)
    driven.advance(1)
    assert {one.state for one in handles} == {"succeeded"}
    (limit,) = driven.limits()
    assert (limit["rate"], limit["declared"]["rate"], limit["changed"]) == (100.0, 1.0, True)
    driven.reset_limit("t", pool="default")
    (limit,) = driven.limits("default")
    assert (limit["rate"], limit["changed"], limit["waiting"]) == (1.0, False, 0)


def test_what_can_not_be_set_is_said(driven: DrivenApp) -> None:
    driven.task(name="crawl", limit=Limit(rate=1))(_nothing).submit()
    with pytest.raises(ConfigError, match="'crawl'"):
        driven.set_limit("crwl", rate=2)
    with pytest.raises(ConfigError, match="is a rate limit"):
        driven.set_limit("crawl", concurrency=2)
    with pytest.raises(ConfigError, match="needs concurrency"):
        driven.set_limit("crawl")
    with pytest.raises(UnknownPool):
        driven.set_limit("crawl", rate=2, pool="nowhere")


def test_a_resubmitted_task_and_a_schedules_run_are_limited_too(driven: DrivenApp) -> None:
    limit = Limit(rate=1, per=3600)
    t = driven.task(name="t", limit=limit)(_nothing)
    handle = t.submit()
    driven.drain()
    handle.resubmit()
    driven.drain()
    assert handle.state == "queued"
    assert handle.info()["limit"] == {"name": "t", "kind": "rate", "key": None}
    driven.schedule_recurring(t, 60, name="often")
    driven.advance(130)
    assert driven.stats()["pools"][0].get("parked", 0) >= 2


def test_a_step_of_a_workflow_is_limited_when_its_parents_have_ended(driven: DrivenApp) -> None:
    first = driven.task(name="first")(_nothing)
    t = driven.task(name="t", limit=Limit(rate=1, per=3600), priority=3)(_nothing)
    handles = [t.using(depends_on=first.submit()).submit() for _ in range(3)]
    driven.drain()
    assert sorted(one.state for one in handles) == ["queued", "queued", "succeeded"]


def test_a_call_by_name_is_limited_as_the_task_says(driven: DrivenApp) -> None:
    driven.task(name="t", limit=Limit(rate=1, per=3600, key="{who}"))(lambda_free)
    handles = [driven.submit("t", who="ann") for _ in range(2)]
    driven.drain()
    assert [one.state for one in handles] == ["succeeded", "queued"]


def lambda_free(who: str) -> None: ...


def test_fair_keys_take_turns(driven: DrivenApp) -> None:
    order = []

    @driven.task(name="t", limit=Limit(fair=True, key="{who}"))
    def t(who: str) -> None:
        order.append(who)

    for who in "aaaaaabb":
        t.submit(who)
    driven.drain()
    assert "".join(order[:4]) in ("abab", "baba", "abba", "baab")
    assert "".join(sorted(order)) == "aaaaaabb"


def test_inline_tasks_have_no_one_to_wait_for(app: Skedulr) -> None:
    t = app.task(name="t", limit=Limit(concurrency=1))(_nothing)
    with testing.inline(served=app):
        assert [t.submit().state for _ in range(3)] == ["succeeded"] * 3


# -- debounce and throttle (as the docs have them)


def test_unique_for_a_time_throttles_submits(driven: DrivenApp) -> None:
    runs = []

    @driven.task(name="refresh", unique=60, on_duplicate="return", key="{account}")
    def refresh(account: int) -> None:
        runs.append(account)

    handles = [refresh.submit(7) for _ in range(5)]
    driven.drain()
    assert (runs, {one.id for one in handles}) == ([7], {handles[0].id})
    driven.advance(61)
    refresh.submit(7)
    driven.drain()
    assert runs == [7, 7]


def test_replace_with_a_delay_debounces_submits(driven: DrivenApp) -> None:
    saved = []

    @driven.task(name="save", delay=5, unique="until_start", on_duplicate="replace", key="{doc}")
    def save(doc: int, text: str) -> None:
        saved.append(text)

    for text in ("h", "he", "hel"):
        save.submit(1, text)
        driven.advance(3)
    assert saved == []
    driven.advance(3)
    assert saved == ["hel"]


def test_the_package_has_the_names() -> None:
    assert {"Limit", "set_limit", "reset_limit", "limits"} <= set(skedulr.__all__)
