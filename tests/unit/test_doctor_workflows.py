"""The doctor of tasks that wait for others: no state that scripts pass through is an illness, and
after a mend nothing waits for ever, whatever of the workflow keys was lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from skedulr import Skedulr, TaskNotFound, message
from skedulr.doctor import Doctor
from skedulr.findings import Finding
from skedulr.keys import PoolKeys
from skedulr.redis_scripts import Script
from skedulr.testing import app
from skedulr.testing.driven import DrivenApp

#: What ties, tells and begins; a worker that died would keep its claims, in the kit.
PROTOCOL = {"attach", "take", "resolve", "reopen", "begin"}
POOL, OTHER = PoolKeys("skedulr", "default"), PoolKeys("skedulr", "other")


class Died(BaseException):
    """The process is gone, in the middle of things."""


class House:
    """An app with tasks, and a doctor who may look after every script; ``fail`` names tasks that
    are to fail."""

    def __init__(self, driven: DrivenApp) -> None:
        self.app, self.wire = driven, driven.wire
        self.ran: list[Any] = []
        self.fail: set[Any] = set()
        self._run = driven.wire.run
        self.looks = 0

        @driven.task(name="run", max_retries=0)
        def run(name: Any, *rest: Any) -> Any:
            self.ran.append(name)
            if name in self.fail:
                raise ValueError(name)
            return name

        @driven.task(name="numbers")
        def numbers(count: int) -> list[int]:
            return list(range(count))

        self.run, self.numbers = run, numbers

    def submit(self, name: str, pool: str = "default", **waits: Any) -> Any:
        return self.run.using(pool=pool, id=name, **waits).submit(name)

    def state(self, name: str, pool: str = "default") -> str:
        return self.app.get(f"{pool}/{name}").state

    def examine(self) -> list[Finding]:
        doctor = Doctor(self.wire, "skedulr", moment_s=0)
        found = [one for pool in doctor.pools() for one in doctor.examine(pool)]
        # The kit's workers never renew: their leases are without end.
        return [one for one in found if one.kind != "lease-too-long"]

    def kinds(self) -> list[tuple[str, str]]:
        return sorted((one.kind, one.uid) for one in self.examine())

    def mend(self) -> None:
        """As ``skedulr doctor --fix`` does."""
        for _ in range(3):
            Doctor(self.wire, "skedulr", moment_s=0).mend(self.examine())

    def watch(self) -> None:
        """Look after every script from now on that has to do with what waits."""

        def watched(script: Script, keys: list[str], args: list[Any]) -> Any:
            reply = self._run(script, keys, args)
            if not {POOL.waiting, POOL.edges, OTHER.waiting, OTHER.edges} & set(keys):
                return reply
            found = self.examine()
            assert found == [], f"after {script.name}: {found}"
            self.looks += 1
            return reply

        self.wire.run = watched  # type: ignore[method-assign]

    def die(self, at: int) -> None:
        """The process that ties and tells dies after so many of its scripts."""
        calls = iter(range(10**6))

        def dying(script: Script, keys: list[str], args: list[Any]) -> Any:
            reply = self._run(script, keys, args)
            if script.name in PROTOCOL and next(calls) == at:
                raise Died
            return reply

        self.wire.run = dying  # type: ignore[method-assign]

    def rest(self) -> None:
        self.wire.run = self._run  # type: ignore[method-assign]


@pytest.fixture
def house() -> Iterator[House]:
    with app(served=Skedulr()) as driven:
        yield House(driven)


# --------------------------------------------------------------------------------- under way


def plain_edges(house: House) -> None:
    house.submit("a")
    house.submit("b", "other", depends_on="default/a")
    house.submit("c", on_failure="a")
    house.submit("d", after=["other/b", "c"], priority=5, delay=10, expires=500)
    house.submit("e", depends_on="later", allow_missing=True)
    with suppress(TaskNotFound):
        house.submit("f", depends_on=["a", "nobody"])
    house.app.drain()
    house.submit("later")
    house.submit("g", depends_on=["a", "d"], unique="until_done")
    house.app.advance(60)


def failures_put_back(house: House) -> None:
    house.fail.add("a")
    house.submit("a")
    house.submit("b", depends_on="a")
    house.submit("c", "other", depends_on=["default/b"])
    house.submit("d", on_failure="a")
    house.app.drain()
    house.fail.clear()
    house.app.resubmit("a")
    house.app.drain()
    assert house.state("c", "other") == "succeeded"
    house.app.resubmit("b")
    house.app.drain()


def cancels_and_purges(house: House) -> None:
    house.submit("a", delay=60)
    house.submit("b", depends_on="a")
    house.submit("c", "other", after="default/b")
    house.submit("d", depends_on="other/c")
    house.app.cancel("b")
    house.app.drain()
    house.submit("e", depends_on="a")
    house.submit("f", "other", depends_on="default/e", after="default/e")
    house.app.purge("default")
    house.app.drain()
    assert house.state("f", "other") == "skipped"


def a_workflow(house: House) -> None:
    with house.app.workflow("whole") as w:
        a = w.add(house.run.bind("a"))
        b = w.add(house.run.using(pool="other").bind("b"), depends_on=a)
        w.add(house.run.bind("c"), on_failure=b)
        with w.workflow("part") as part:
            one = part.add(house.run.bind("one"))
            part.add(house.run.using(pool="other").bind("two"), depends_on=one)
        w.add(house.run.bind("d"), after=[b, part])
    house.app.drain()
    assert w.state == "succeeded"


def a_map(house: House) -> None:
    with house.app.workflow("map") as w:
        many = w.add(house.numbers.bind(3))
        mapped = w.map(house.run.using(pool="other"), many)
        w.add(house.run.bind("join", mapped))
    house.fail.add(1)
    house.app.drain()
    house.fail.clear()
    w.resubmit()
    house.app.drain()
    assert w.state == "succeeded"


def a_cancelled_workflow(house: House) -> None:
    with house.app.workflow("w") as w:
        a = w.add(house.run.using(delay=60).bind("a"))
        w.add(house.run.bind("b"), depends_on=a)
    w.cancel()
    house.app.drain()
    w.resubmit()
    house.app.advance(120)


STORIES = (plain_edges, failures_put_back, cancels_and_purges, a_workflow, a_map,
           a_cancelled_workflow)


@pytest.mark.parametrize("story", STORIES, ids=lambda one: one.__name__)
def test_no_state_between_two_scripts_is_an_illness(
    house: House, story: Callable[[House], None]
) -> None:
    house.watch()
    story(house)
    house.rest()
    assert house.looks > 10
    assert house.examine() == []


@pytest.mark.parametrize("story", STORIES, ids=lambda one: one.__name__)
def test_what_a_dead_process_leaves_to_the_next_deliverer_is_no_illness(
    story: Callable[[House], None]
) -> None:
    for at in range(12):
        with app(served=Skedulr()) as driven:
            house = House(driven)
            house.die(at)
            with suppress(Died):
                story(house)
            house.rest()
            assert house.examine() == []


def test_a_workflow_that_was_half_stored_is_no_illness_until_it_is_gone(house: House) -> None:
    house.watch()
    begin = house.wire.run

    def dying(script: Script, keys: list[str], args: list[Any]) -> Any:
        if script.name == "begin" and args[0] == "begin":
            raise Died
        return begin(script, keys, args)

    house.wire.run = dying  # type: ignore[method-assign]
    with suppress(Died), house.app.workflow("w", id="night") as w:
        a = w.add(house.run.bind("a"))
        w.add(house.run.using(pool="other").bind("b"), depends_on=a)
        w.map(house.run, w.add(house.numbers.bind(3)))
        with w.workflow("part") as part:
            part.add(house.run.bind("c"))
    house.watch()
    for _ in range(3):
        house.app.advance(60)
        house.app.drain()
    assert house.examine() == []
    assert not house.wire.call("EXISTS", POOL.tasks, OTHER.tasks, POOL.waiting)


# --------------------------------------------------------------------------------- consequences


def drop(house: House, keys: PoolKeys, key: str, *members: str) -> None:
    command = "HDEL" if key in ("tasks", "waiting", "edges", "records") else "ZREM"
    assert house.wire.call(command, keys.prefix + key, *members) == len(members)


def test_a_lost_edge_from_another_pool_is_put_back(house: House) -> None:
    house.submit("a", delay=60)
    house.submit("b", "other", depends_on="default/a")
    drop(house, POOL, "edges", "a")
    assert house.kinds() == [("edge-lost", "b")]
    house.mend()
    assert house.state("b", "other") == "waiting"
    house.app.advance(60)
    assert house.ran == ["a", "b"]


@pytest.mark.parametrize("fails", [False, True])
def test_children_that_were_not_told_hear_of_it_from_the_record(
    house: House, fails: bool
) -> None:
    if fails:
        house.fail.add("a")
    house.submit("a")
    house.submit("good", "other", depends_on="default/a")
    house.submit("bad", on_failure="a")
    house.submit("any", after="a")
    house.die(0)
    with suppress(Died):
        house.app.drain()
    house.rest()
    drop(house, POOL, "outbox", "d a" if fails else "s a")
    assert house.kinds() == [("parent-ended", "any"), ("parent-ended", "bad"),
                             ("parent-ended", "good")]
    house.mend()
    assert house.examine() == []
    house.app.drain()
    assert sorted(house.ran) == ["a", "any", "bad" if fails else "good"]
    skipped = house.app.get("other/good" if fails else "default/bad").info()
    assert skipped["state"] == "skipped"
    if fails:
        assert skipped["error"]["message"] == "default/a is dead"


def test_a_child_whose_parent_is_lost_is_skipped_and_says_so(house: House) -> None:
    house.submit("a")
    house.submit("b", "other", depends_on="default/a")
    house.submit("c", depends_on="other/b")
    drop(house, POOL, "tasks", "a")
    drop(house, POOL, "ready", "a")
    assert house.kinds() == [("edges-without-parent", "a"), ("parent-unknown", "b")]
    house.mend()
    house.app.drain()
    why = house.app.get("other/b").info()["error"]["message"]
    assert why == "no task default/a is known"
    assert house.state("c") == "skipped"
    assert house.examine() == []


def test_a_parent_that_went_to_another_pool_is_looked_for_there(house: House) -> None:
    house.submit("a", "other", delay=60)
    house.submit("b", depends_on="other/a")
    body = house.wire.call("HGET", OTHER.tasks, "a")
    # As the mover leaves it, once its edges have gone along.
    house.wire.call("HSET", POOL.records, "a", body + message.moved("me", "other/a") + body[-9:])
    house.wire.call("ZADD", POOL.done, house.app.clock.ms, "a")
    waits = house.app.get("b").info()["depends_on"]
    assert waits == ["other/a"]
    house.submit("c", depends_on="default/a")
    assert house.examine() == []
    drop(house, OTHER, "edges", "a")
    assert house.kinds() == [("edge-lost", "b"), ("edge-lost", "c")] or house.kinds() == [
        ("edge-lost", "b"), ("parent-ended", "c")]
    house.mend()
    assert house.examine() == []
    house.app.advance(60)
    assert sorted(house.ran) == ["a", "b", "c"]


def test_a_task_of_a_map_that_was_lost_is_made_anew(house: House) -> None:
    with house.app.workflow("map") as w:
        many = w.add(house.numbers.bind(3))
        mapped = w.map(house.run.using(delay=60), many)
        w.add(house.run.bind("join", mapped))
    house.app.drain()
    uid = mapped.id.partition("/")[2]
    drop(house, POOL, "tasks", f"{uid}.1")
    drop(house, POOL, "delayed", f"{uid}.1")
    drop(house, POOL, "edges", f"{uid}.0")
    assert house.kinds() == [("edge-lost", uid), ("edges-without-parent", f"{uid}.1"),
                             ("parent-unknown", uid)]
    house.mend()
    assert house.examine() == []
    house.app.advance(60)
    house.app.advance(60)
    assert sorted(house.ran, key=str) == [0, 1, 2, "join"]


def test_what_waits_is_not_started_by_a_mend(house: House) -> None:
    house.submit("a", delay=60)
    house.submit("b", depends_on="a", priority=7)
    house.submit("c", "other", after="default/a", expires=500)
    for keys, uid in ((POOL, "b"), (OTHER, "c")):
        drop(house, keys, "waiting", uid)
        drop(house, keys, "held", uid)
    house.mend()
    assert house.examine() == []
    house.app.drain()
    assert house.ran == []
    house.app.advance(60)
    assert sorted(house.ran) == ["a", "b", "c"]
    assert house.app.get("b").info()["priority"] == 7


def test_a_freed_task_that_was_lost_asks_its_parents_and_runs(house: House) -> None:
    house.submit("a")
    house.submit("b", depends_on="a")
    house.die(1)  # b was told
    with suppress(Died):
        house.app.drain()
    house.rest()
    drop(house, POOL, "ready", "b")
    assert house.kinds() == [("waits-in-no-place", "b")]
    house.mend()
    house.app.drain()
    assert house.ran == ["a", "b"]


def test_a_parent_that_can_not_be_read_is_buried_and_its_children_hear_of_it(house: House) -> None:
    house.submit("a", delay=60)
    house.submit("b", depends_on="a")
    house.submit("c", on_failure="a")
    house.wire.call("HSET", POOL.tasks, "a", b"rubbish")
    house.mend()
    house.app.drain()
    assert house.state("b") == "skipped"
    assert house.ran == ["c"]


def damage(house: House, dice: random.Random) -> int:
    """Take away or garble some of what is kept of tasks that wait."""
    count = 0
    for keys in (POOL, OTHER):
        for key in (keys.waiting, keys.edges):
            for field in house.wire.call("HKEYS", key):
                luck = dice.random()
                if luck < 0.2:
                    count += house.wire.call("HDEL", key, field)
                elif luck < 0.3:
                    house.wire.call("HSET", key, field, dice.choice((b"", b"0 0 - - s", b"a b,c")))
                    count += 1
        for key in (keys.held, keys.outbox):
            for member in house.wire.call("ZRANGE", key, 0, -1):
                if dice.random() < 0.25:
                    count += house.wire.call("ZREM", key, member)
    return count


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_lost_of_a_workflow_nothing_waits_for_ever(seed: int) -> None:
    dice, lost = random.Random(seed), 0
    for story in STORIES:
        with app(served=Skedulr()) as driven:
            house = House(driven)
            house.die(dice.randint(0, 12))
            with suppress(Died):
                story(house)
            house.rest()
            lost += damage(house, dice)
            house.mend()
            assert house.examine() == [], story.__name__
            for _ in range(4):
                house.app.advance(60)
                house.app.drain()
            if story is plain_edges and house.wire.call("HDEL", POOL.tasks, "e"):
                house.wire.call("HDEL", POOL.waiting, "e")  # it waits for one that never came
            assert not house.wire.call("EXISTS", POOL.tasks, OTHER.tasks), (
                story.__name__, house.wire.call("HGETALL", POOL.waiting),
                house.wire.call("HGETALL", OTHER.waiting))
    assert lost


def test_a_workflow_that_another_process_left_untied_is_tied_by_the_next_that_starts_it(
    house: House,
) -> None:
    def start() -> None:
        with house.app.workflow("night", id="night-1") as w:
            a = w.add(house.run.bind("a"))
            w.add(house.run.using(pool="other").bind("b"), depends_on=a)

    house.die(0)  # all steps are stored, and some are tied
    with suppress(Died):
        start()
    house.watch()
    start()
    house.app.drain()
    assert house.ran == ["a", "b"]
