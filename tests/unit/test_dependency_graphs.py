"""Random graphs against a plain model: whoever dies between two steps, all ends as it should.

Graphs of up to 60 tasks in three pools; tasks succeed, fail, or fail and succeed; some are
cancelled; parents end before, while or after their children are submitted. A process dies before or
after any call of the protocol: what it was about to do is left to the next deliverer.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skedulr import Skedulr
from skedulr.redis_scripts import Script
from skedulr.testing import app
from skedulr.testing.driven import DrivenApp

PROTOCOL = {"attach", "take", "resolve", "reopen"}
TRIGGERS = ("depends_on", "on_success", "on_failure", "after")


class Died(BaseException):
    """The process is gone, in the middle of things."""


class Node(NamedTuple):
    """``parents``: how many nodes back, and by which trigger."""

    pool: str
    parents: tuple[tuple[int, str], ...]
    outcome: str
    cancelled: bool
    drained: bool


parents = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from(TRIGGERS)), max_size=4, unique=True
).map(tuple)
nodes = st.lists(
    st.builds(
        Node, st.sampled_from(["default", "default", "b", "c"]), parents,
        st.sampled_from(["ok", "ok", "ok", "fail", "retry"]),
        st.sampled_from([False] * 9 + [True]), st.booleans(),
    ), min_size=1, max_size=60,
)
deaths = st.dictionaries(st.integers(0, 120), st.booleans(), max_size=25)


class Dying:
    """Stands before the wire: dies at the calls named, before (False) or after (True) them."""

    def __init__(self, driven: DrivenApp, at: dict[int, bool]) -> None:
        self._run, self._at, self._calls = driven.wire.run, at, 0
        driven.wire.run = self.run  # type: ignore[method-assign]

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        if script.name not in PROTOCOL:
            return self._run(script, keys, args)
        number, self._calls = self._calls, self._calls + 1
        if self._at.get(number) is False:
            raise Died
        reply = self._run(script, keys, args)
        if self._at.get(number):
            raise Died
        return reply

    def revive(self) -> None:
        self._at = {}


def waits_of(at: int, node: Node, all_nodes: list[Node]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for back, trigger in node.parents:
        if back <= at:
            found.setdefault(trigger, []).append(at - back)
    return found


def ends(all_nodes: list[Node], cancelled: set[int]) -> list[str]:
    """The model: how each of them has to end."""
    states: list[str] = []
    for at, node in enumerate(all_nodes):
        waits = waits_of(at, node, all_nodes)
        good = {trigger: [states[one] == "succeeded" for one in found]
                for trigger, found in waits.items()}
        runs = all(good.get("depends_on", [])) and all(good.get("on_success", []))
        runs = runs and not all(good.get("on_failure", [False]))
        if at in cancelled:
            states.append("cancelled")
        elif not runs:
            states.append("skipped")
        else:
            states.append("dead" if node.outcome == "fail" else "succeeded")
    return states


@given(nodes, deaths)
@settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck),
)
def test_every_task_ends_as_the_model_says_and_runs_once(
    all_nodes: list[Node], dying: dict[int, bool]
) -> None:
    with app(served=Skedulr()) as driven:
        ran: Counter[int] = Counter()
        wire = Dying(driven, dying)

        @driven.task(name="node", max_retries=1)
        def run(at: int, outcome: str) -> int:
            ran[at] += 1
            if outcome == "fail" or (outcome == "retry" and ran[at] == 1):
                raise ValueError(at)
            return at

        cancelled = set()
        for at, node in enumerate(all_nodes):
            waits: dict[str, Any] = {
                trigger: [f"{all_nodes[one].pool}/n{one}" for one in found]
                for trigger, found in waits_of(at, node, all_nodes).items()
            }
            with suppress(Died):
                run.using(pool=node.pool, id=f"n{at}", **waits).submit(at, node.outcome)
            if node.drained:
                with suppress(Died):
                    driven.drain()
            if node.cancelled and driven.cancel(f"{node.pool}/n{at}"):
                cancelled.add(at)
        for _ in range(60):
            with suppress(Died):
                driven.advance(3600)
        wire.revive()
        driven.advance(3600)

        found = [driven.get(f"{node.pool}/n{at}").state for at, node in enumerate(all_nodes)]
        expected = ends(all_nodes, cancelled)
        assert found == expected
        for at, node in enumerate(all_nodes):
            once = expected[at] in ("succeeded", "dead")
            tries = 1 + (node.outcome != "ok") if once else 0
            # A task that was cancelled between its attempts has run before.
            assert ran[at] == tries or at in cancelled
        for pool in ("default", "b", "c"):
            prefix = f"{{skedulr:{pool}}}:"
            left = [prefix + one for one in ("waiting", "held", "outbox")]
            assert not driven.wire.call("EXISTS", *left)
