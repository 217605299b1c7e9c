"""What the end of a task costs that others wait for: counted calls, exact, and no timing.

One ``take`` finds all ends that were noted since the last one, and one ``resolve`` tells up to 500
children of a pool, so a finished parent costs two script calls more however many wait for it; what
was delivered is removed by the next ``take`` there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from cli_driver import Hands
from servers import Server

import skedulr
from skedulr.delivery import Delivery
from skedulr.redis_scripts import Script
from skedulr.wire import Wire

pytestmark = pytest.mark.server


class Counted:
    """A delivery, and the calls it makes, by script or command."""

    def __init__(self, server: Server) -> None:
        self.calls: Counter[str] = Counter()
        wire = Wire(server.url, name="counted")
        run, call = wire.run, wire.call

        def run_counted(script: Script, keys: list[str], args: list[Any]) -> Any:
            self.calls[script.name] += 1
            return run(script, keys, args)

        def call_counted(command: str, *args: Any) -> Any:
            self.calls[command] += command != "EVAL"  # a script, which is counted by its name
            return call(command, *args)

        wire.run, wire.call = run_counted, call_counted  # type: ignore[method-assign,assignment]
        self._delivery = Delivery("skedulr", wire)

    def deliver(self) -> dict[str, int]:
        """What one delivery of the pool's outbox took."""
        self.calls.clear()
        self._delivery.deliver("default")
        return dict(+self.calls)


@pytest.fixture
def submit(one_server: Server) -> Callable[..., None]:
    """``submit(parents, children, pools)``: so many children a parent, in these pools in turn."""
    app = skedulr.Skedulr(url=one_server.url)

    def run(parents: int, children: int, pools: tuple[str, ...] = ("default",)) -> None:
        handles = app.submit_many(
            app.remote("work", pool="default", id=f"parent{at}").bind() for at in range(parents)
        )
        app.submit_many(
            app.remote("work", pool=pools[at % len(pools)], depends_on=parent).bind()
            for parent in handles for at in range(children)
        )

    return run


@pytest.mark.parametrize("ends", ["well", "badly"])
@pytest.mark.parametrize("children", [1, 500, 5_000])
def test_an_end_costs_one_take_and_one_resolve_for_500_children(
    one_server: Server, submit: Callable[..., None], children: int, ends: str
) -> None:
    submit(1, children)
    hands, counted = Hands(one_server), Counted(one_server)
    hands.succeed() if ends == "well" else hands.fail()
    pages = ceil(children / 500) - 1
    # After a failure it is looked at whether that still holds, once.
    asked = {"HGET": pages} if pages else {}
    asked |= {"HMGET": 1} if ends == "badly" else {}
    assert counted.deliver() == {"take": 1, "resolve": pages + 1, **asked}
    assert counted.deliver() == {"take": 1}
    freed = {"queued": children} if ends == "well" else {"skipped": children}
    assert Counter(one for one in states(one_server, "default") if one != "parent") == freed


def test_children_in_other_pools_cost_one_resolve_for_500_of_each(
    one_server: Server, submit: Callable[..., None]
) -> None:
    submit(1, 1_200, ("default", "other", "third"))
    Hands(one_server).succeed()
    assert Counted(one_server).deliver() == {"take": 1, "resolve": 3, "HGET": 2}


def test_ends_that_gathered_share_their_calls(
    one_server: Server, submit: Callable[..., None]
) -> None:
    submit(250, 2, ("default", "other"))
    Hands(one_server).succeed(count=250)
    assert Counted(one_server).deliver() == {"take": 1, "resolve": 2}


def test_an_end_nobody_waits_for_costs_nothing(
    one_server: Server, submit: Callable[..., None]
) -> None:
    submit(1, 1)
    submit_alone = skedulr.Skedulr(url=one_server.url).remote("alone", pool="default")
    submit_alone.submit()
    hands, counted = Hands(one_server), Counted(one_server)
    hands.succeed()
    counted.deliver()
    hands.succeed()
    assert counted.deliver() == {"take": 1}


def states(server: Server, pool: str) -> list[str]:
    """The states of a pool's children, from where they are."""
    prefix = f"{{skedulr:{pool}}}:"
    client = server.client
    return ["queued"] * client.zcard(prefix + "ready") + ["skipped"] * (
        client.zcard(prefix + "done") - (client.hget(prefix + "stats", "succeeded") is not None)
    ) + ["waiting"] * client.hlen(prefix + "waiting")
