"""Death at every step of the outbox protocol: an edge is tied, told and taken off, in two pools.

As in ``test_steps.py``: what a process does it does by scripts, so it dies before one was applied,
or before its answer came. All children of the node die there, both pools' at once: what was begun
is left to those that come after them. The workflow goes back and forth between the two pools:

    first -> second (other pool) -> list -> map (other pool) -> join -> end of a part

and has a branch for a failure. Its producer dies as well, at each call of a submit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest
from flow_rules import Flow
from flows import FlowMaker, Plan
from harness import Node
from servers import Server, selected, wait_until
from world import Trap, World

from skedulr.redis_scripts import script

pytestmark = pytest.mark.server

POOLS = ("default", "other")
DEFAULT, OTHER = b"{faults:default}", b"{faults:other}"
MOMENTS = {"before it was applied": "drop_request", "before its answer came": "drop_reply"}


class Installation:
    """A node that serves both pools, and what is submitted to it."""

    def __init__(self, world: World, node: Node) -> None:
        self.world, self.node, self.app = world, node, world.app()
        self.maker = FlowMaker(world.history, self.app, random.Random(1), pools=POOLS)

    def kill_at(
        self, called: str, moment: str, *holds: bytes, when: Callable[[], bool] = lambda: True
    ) -> Trap:
        """The children die at the next call of that script whose request holds this."""
        before, self.lost = self.node.children(), self.world.proxy(self.node).lost

        def stop() -> None:
            for pid in before:
                os.kill(pid, signal.SIGSTOP)

        return self.world.trap(self.node, called, MOMENTS[moment], stop, when, holds)

    def bury(self, trap: Trap, moment: str) -> None:
        """Wait until they died there, and others took their places."""
        wait_until(lambda: trap.sprung, what="the step is reached")
        if MOMENTS[moment] == "drop_reply":
            wait_until(lambda: trap.lost > self.lost, what="it was applied")
        ready = self.node.log.count("workers ready")
        self.world.kill(*self.node.children())
        self.node.wait_ready(ready + 2)

    def settled(self) -> list[str]:
        """All that is wrong once everything has ended."""
        return [str(one) for one in self.world.settle(20).verdict()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One for all tests here: what counts are the deaths, not the starts."""
    server = Server(selected()[0]).start()
    try:
        with World(server, tmp_path_factory.mktemp("flows"), lease_s=5, names=POOLS) as world:
            node = world.node("node", proxied=True, variant="hurried", pools="default=2,other=2")
            yield Installation(world, node)
    finally:
        server.close()


def there_and_back(plan: Plan) -> None:
    """The workflow of these tests; its steps' numbers are used below."""
    first = plan.add("ok", pool="default")
    second = plan.add("ok", pool="other", args=(first,))
    items = plan.items(3, pool="default", depends_on=[second])
    mapped = plan.map(items, pool="other")
    joined = plan.add("ok", pool="default", args=(mapped,))
    end = plan.part("part", lambda: plan.add("ok", pool="other"), depends_on=[joined])
    bad = plan.add("once", pool="other", after=[end])
    plan.add("ok", pool="default", on_success=[bad])
    plan.add("ok", pool="default", on_failure=[bad])


class Step(NamedTuple):
    """A step of the protocol: the script, and what its request holds; ``%`` is the workflow."""

    name: str
    called: str
    holds: tuple[str, ...]
    #: Of the first pool: something lies in its outbox, to be taken.
    to_take: bool = False


STEPS = (
    Step("a parent's finish", "finish", ("{faults:default}", "%.0")),
    Step("the end is taken from the outbox", "take", ("{faults:default}",), to_take=True),
    Step("it is told in the other pool", "resolve", ("{faults:other}", "%.1")),
    Step("it is taken off the outbox", "take", ("{faults:default}", "s %.0")),
    Step("it is told back", "resolve", ("{faults:default}", "%.2")),
    Step("a map finds out what it waits for", "suspend", ("%.3",)),
    Step("a map's tasks are stored", "submit", ("{faults:other}", "%.3.0")),
    Step("a map is tied to them", "attach", ("{faults:other}", "%.3.0")),
    Step("that it is tied is noted", "take", ("{faults:other}", "t %.3")),
    Step("a map's results are gathered", "finish", ("{faults:other}", "%.3\r\n", "o")),
    Step("a part ends", "finish", ("{faults:other}", "%.6")),
    Step("a failure is told", "resolve", ("{faults:default}", "%.8")),
    Step("that a step was skipped is taken", "take", ("{faults:default}",), to_take=True),
)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.replace(" ", "-"))
def test_a_death_at_a_step_of_the_protocol_loses_and_doubles_nothing(
    installed: Installation, step: Step, moment: str
) -> None:
    plan = installed.maker.plan(there_and_back)
    uid = plan.uid
    keys = installed.world.keys
    trap = installed.kill_at(
        step.called, moment, *(one.replace("%", uid).encode() for one in step.holds),
        when=lambda: not step.to_take or installed.world.server.client.zcard(keys.outbox) > 0,
    )
    flow = installed.maker.start(plan)
    installed.bury(trap, moment)
    assert installed.settled() == []
    assert flow.answer == "stored"
    assert states(installed, flow) == [*["succeeded"] * 7, "dead", "skipped", "succeeded"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("called", ["reopen", "attach", "resolve", "take"])
def test_a_death_while_skipped_steps_are_opened_again_opens_them_once(
    installed: Installation, called: str, moment: str
) -> None:
    flow = installed.maker.start(installed.maker.plan(there_and_back))
    assert installed.settled() == []
    holds = {
        "reopen": f"{flow.uid}.8", "attach": f"{flow.uid}.7", "resolve": f"{flow.uid}.8",
        "take": f"r {flow.uid}.7",
    }
    trap = installed.kill_at(called, moment, holds[called].encode())
    installed.maker.resubmit(flow)
    installed.bury(trap, moment)
    assert installed.settled() == []
    assert states(installed, flow) == ["succeeded"] * 10


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("called", ["submit", "moved", "take", "attach"])
def test_a_death_while_a_parent_moves_to_another_pool_leaves_its_child_tied_to_it(
    installed: Installation, called: str, moment: str
) -> None:
    """It was submitted by name alone before anybody had said where it belongs."""
    app = installed.world.app()
    app.client.published = lambda name: None  # type: ignore[method-assign]
    holds = {
        "submit": (OTHER, b"lost-"), "moved": (DEFAULT, b"lost-"), "take": (DEFAULT, b"m lost-"),
        "attach": (OTHER, b"lost-"),
    }
    trap = installed.kill_at(called, moment, *holds[called])
    uid = f"lost-{called}-{len(moment)}"
    parent = app.submit_call(app.remote("elsewhere", id=uid).bind())
    child = app.submit_call(app.remote("plain", pool="default", depends_on=parent).bind())
    installed.bury(trap, moment)
    assert installed.settled() == []
    assert [one.info()["state"] for one in (parent, child)] == ["succeeded", "succeeded"]
    assert len(installed.world.effects(child.uid, "ended")) == 1


SUBMIT = """
import sys
import skedulr
sys.stdin.read()  # until it is told to
app = skedulr.Skedulr(url=sys.argv[1], namespace="faults")
w = app.workflow("half", id=sys.argv[2])
def step(pool, *args):
    return app.remote("step", pool=pool).bind("ok", 0, *args)
a = w.add(step("default"))
b = w.add(step("other", a))
w.map(app.remote("step", pool="default").bind("ok", 0, skedulr.previous),
      w.add(app.remote("list", pool="other").bind(2), depends_on=b))
w.start()
"""


class Death(NamedTuple):
    """Where a producer dies: the script, and what its request holds."""

    called: str
    holds: tuple[bytes, ...]


DEATHS = (
    Death("submit", (DEFAULT,)), Death("submit", (OTHER,)), Death("attach", (DEFAULT,)),
    Death("attach", (OTHER,)), Death("begin", ()),
)


def test_a_producer_that_dies_at_any_call_of_a_submit_leaves_all_of_a_workflow_or_nothing(
    installed: Installation,
) -> None:
    """All at once: what is half there goes after a while. Some come again with the same id."""
    world = installed.world
    dying = [Dying(world.server, death, mode) for death in DEATHS for mode in MOMENTS.values()]
    coming_again = [Dying(world.server, death, "drop_reply") for death in DEATHS]
    for one in (*dying, *coming_again):
        one.let_go()
    for one in (*dying, *coming_again):
        one.wait()
    again = [produce(world.server.url, one.uid) for one in coming_again]
    assert [one.wait(30) for one in again] == [0] * len(again)
    assert installed.settled() == []
    begun = {one.uid for one in dying if (one.called, one.mode) == ("begin", "drop_reply")}
    begun |= {one.uid for one in coming_again}
    for uid in (one.uid for one in (*dying, *coming_again)):
        runs = [one.uid for one in world.effects(phase="ended") if one.uid.startswith(f"{uid}.")]
        assert sorted(runs) == (
            [f"{uid}.{one}" for one in ("0", "1", "2", "3.0", "3.1")] if uid in begun else []
        )
        assert bool(world.server.client.hexists(world.keys.records, uid)) == (uid in begun)
    for keys in world.every_keys:
        assert not world.server.client.exists(keys.waiting, keys.held, keys.outbox)


class Dying:
    """A producer that dies there."""

    def __init__(self, server: Server, death: Death, mode: str) -> None:
        self.uid, self.called, self.mode = f"half{next(_numbers)}", death.called, mode
        server.client.script_load(script(death.called).text)
        self._proxy = Trap(server.url).start()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SUBMIT, self._proxy.url, self.uid], stdin=subprocess.PIPE
        )
        self._proxy.set_trap(death.called, mode, self._process.kill, holds=death.holds)

    def let_go(self) -> None:
        """It submits now."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        """Wait until it has died."""
        assert self._process.wait(60) == -signal.SIGKILL
        self._proxy.stop()


_numbers = count(1)


def produce(url: str, uid: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SUBMIT, url, uid], stdin=subprocess.DEVNULL)


def states(installed: Installation, flow: Flow) -> list[Any]:
    finals = installed.world.history.finals
    return [finals[one.uid].state for one in flow.steps]
