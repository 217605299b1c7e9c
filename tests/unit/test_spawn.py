"""``current_task().spawn``: greenlets of a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import gevent
import pytest

import skedulr
from skedulr import Skedulr, current_task, testing
from skedulr.testing import DrivenApp

COLOUR = ContextVar("COLOUR", default="none")


@pytest.fixture
def app() -> Iterator[DrivenApp]:
    with testing.app(served=Skedulr()) as driven:
        yield driven


def test_a_spawned_greenlet_returns_raises_and_sees_the_task(app: DrivenApp) -> None:
    def look(number: int, plus: int = 0) -> Any:
        gevent.sleep(0)
        return [current_task().id, COLOUR.get(), number + plus]

    def fail() -> None:
        raise KeyError("inner")

    @app.task(name="parent", max_retries=0)
    def parent() -> Any:
        COLOUR.set("red")
        me = current_task()
        seen = me.spawn(look, 1, plus=2)
        COLOUR.set("blue")
        try:
            me.spawn(fail).get()
        except KeyError as error:
            return [*seen.get(), str(error)]

    handle = parent.submit()
    app.drain()
    assert handle.result() == [handle.id, "red", 3, "'inner'"]


@pytest.mark.parametrize("how", ["returns", "raises", "times out", "is cancelled"])
def test_what_still_runs_ends_with_the_task_however_that_ends(app: DrivenApp, how: str) -> None:
    ended: list[str] = []

    def run_for_ever() -> None:
        try:
            gevent.sleep(3600)
        finally:
            ended.append(type(gevent.getcurrent()).__name__)

    @app.task(name="parent", max_retries=0, timeout=0.05)
    def parent() -> None:
        for _ in range(2):
            current_task().spawn(run_for_ever)
        gevent.sleep(0)
        if how == "raises":
            raise ValueError
        if how == "is cancelled":
            app.cancel(current_task().id)
        if how != "returns":
            gevent.sleep(3600)

    handle = parent.submit()
    app.drain()
    expected = {"returns": "succeeded", "is cancelled": "cancelled"}.get(how, "dead")
    assert (handle.state, len(ended)) == (expected, 2)


def test_nothing_is_spawned_in_a_task_that_has_ended(app: DrivenApp) -> None:
    kept: list[Any] = []
    app.task(name="leaks")(lambda_keep(kept))
    app.submit("leaks")
    app.drain()
    with pytest.raises(RuntimeError, match="has ended"):
        kept[0].spawn(print)


def lambda_keep(kept: list[Any]) -> Any:
    def keep() -> None:
        kept.append(current_task())

    return keep


def test_its_time_on_the_cpu_is_charged_to_the_tasks_slot(app: DrivenApp) -> None:
    charged: list[tuple[str, float]] = []

    def board() -> Any:
        [crew] = app._crews.values()
        return crew._board

    def work(who: str) -> None:
        for _ in range(3):
            charged.append((who, board().on_cpu))
            gevent.sleep(0)

    @app.task(name="parent")
    def parent(who: str) -> float:
        slot: float = board().on_cpu
        current_task().spawn(work, who).join()
        return slot

    handles = {who: parent.submit(who) for who in ("a", "b")}
    app.drain()
    for who, handle in handles.items():
        assert {slot for one, slot in charged if one == who} == {handle.result()}


def test_outside_of_a_worker_there_is_nothing_to_spawn_in() -> None:
    with pytest.raises(RuntimeError):
        skedulr.current_task()
