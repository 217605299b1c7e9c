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
from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.redis_scripts import Script
from skedulr.testing import app
from skedulr.testing.driven import DrivenApp

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
        """Look after every script from now on."""

        def watched(script: Script, keys: list[str], args: list[Any]) -> Any:
            reply = self._run(script, keys, args)
            found = self.examine()
            assert found == [], f"after {script.name}: {found}"
            self.looks += 1
            return reply

        self.wire.run = watched  # type: ignore[method-assign]

    def die(self, at: int) -> None:
        """The process dies after so many scripts, and after each one from then on."""
        calls = iter(range(10**6))

        def dying(script: Script, keys: list[str], args: list[Any]) -> Any:
            reply = self._run(script, keys, args)
            if next(calls) >= at:
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
    for at in (2, 4, 7, 11, 16, 23):
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
