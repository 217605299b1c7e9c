"""Random graphs against a plain model: whoever dies between two steps, all ends as it should.

Graphs of up to 60 tasks in three pools; tasks succeed, fail, or fail and succeed; some are
cancelled; parents end before, while or after their children are submitted; dead ones are put back,
and what was skipped for them waits again. Workflows have maps and parts as well. A process dies
before or after any call of the protocol: what it was about to do is left to the next deliverer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skedulr
from skedulr import Skedulr
from skedulr.redis_scripts import Script
from skedulr.testing import app
from skedulr.testing.driven import DrivenApp

PROTOCOL = {"attach", "take", "resolve", "reopen"}
POOLS = ("default", "b", "c")
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
        st.sampled_from(["ok", "ok", "ok", "ok", "fail", "retry", "once"]),
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


def end_of(waits: dict[str, list[int]], outcome: str, states: Sequence[str]) -> str:
    """The model: how a task ends whose parents ended so."""
    good = {trigger: [states[one] == "succeeded" for one in found]
            for trigger, found in waits.items()}
    runs = all(good.get("depends_on", [])) and all(good.get("on_success", []))
    if not runs or all(good.get("on_failure", [False])):
        return "skipped"
    return "dead" if outcome in ("fail", "once") else "succeeded"


def ends(all_nodes: list[Node], cancelled: set[int]) -> list[str]:
    """The model: how each of them has to end."""
    states: list[str] = []
    for at, node in enumerate(all_nodes):
        waits = waits_of(at, node, all_nodes)
        states.append("cancelled" if at in cancelled else end_of(waits, node.outcome, states))
    return states


def put_back(all_nodes: list[Node], states: list[str], at: int) -> set[int]:
    """The model: task ``at`` is put back, and succeeds; ``states`` are changed. Those that wait
    again for it, and that run for it: those that were skipped, and their like behind them."""
    states[at] = "succeeded"
    opened, ran = {at}, set()
    for behind in range(at + 1, len(all_nodes)):
        parents = {one for of in waits_of(behind, all_nodes[behind], all_nodes).values()
                   for one in of}
        if states[behind] == "skipped" and parents & opened:
            opened.add(behind)
            node = all_nodes[behind]._replace(cancelled=False)
            waits = waits_of(behind, node, all_nodes)
            states[behind] = end_of(waits, node.outcome, states)
            if states[behind] != "skipped":
                ran.add(behind)
    return ran


def go_on(driven: DrivenApp, wire: Dying) -> None:
    """Until nothing is left to do, whoever dies meanwhile."""
    for _ in range(60):
        with suppress(Died):
            driven.advance(3600)
            if not left(driven):
                break
    else:
        wire.revive()
        driven.advance(3600)


def left(driven: DrivenApp) -> int:
    """What is left of waiting and telling."""
    keys = [f"{{skedulr:{pool}}}:{one}" for pool in POOLS for one in ("waiting", "held", "outbox")]
    return int(driven.wire.call("EXISTS", *keys))


@given(nodes, deaths)
@settings(
    max_examples=30, deadline=None, suppress_health_check=list(HealthCheck),
)
def test_every_task_ends_as_the_model_says_and_runs_once(
    all_nodes: list[Node], dying: dict[int, bool]
) -> None:
    with app(served=Skedulr()) as driven:
        ran: Counter[int] = Counter()
        healed: set[int] = set()
        wire = Dying(driven, dying)

        @driven.task(name="node", max_retries=1)
        def run(at: int, outcome: str) -> int:
            ran[at] += 1
            if outcome == "fail" or (outcome == "retry" and ran[at] == 1) or (
                outcome == "once" and at not in healed
            ):
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
        go_on(driven, wire)

        expected = ends(all_nodes, cancelled)
        tries = Counter({
            at: 1 + (node.outcome != "ok") for at, node in enumerate(all_nodes)
            if expected[at] in ("succeeded", "dead")
        })

        def check() -> None:
            found = [driven.get(f"{one.pool}/n{at}").state for at, one in enumerate(all_nodes)]
            assert found == expected
            for at in range(len(all_nodes)):
                # A task that was cancelled between its attempts has run before.
                assert ran[at] == tries[at] or at in cancelled
            assert not left(driven)

        check()
        for at, node in enumerate(all_nodes):
            if expected[at] == "dead" and node.outcome == "once":
                healed.add(at)
                assert driven.resubmit(f"{node.pool}/n{at}")
                tries[at] += 1
                for behind in put_back(all_nodes, expected, at):
                    tries[behind] += 1 + (all_nodes[behind].outcome != "ok")
                go_on(driven, wire)
        check()


# Workflows with maps and parts: each is made of plain tasks and joins, and so is the model


class Part(NamedTuple):
    """One of a workflow. ``kind``: "step", "map" over so many items, or "part" of so many steps,
    each behind the one before it; ``bad`` is the one of them that fails, until it is put back if
    ``once``."""

    pool: str
    other: str
    kind: str
    parents: tuple[tuple[int, str], ...]
    size: int
    bad: int | None
    once: bool


class Plain(NamedTuple):
    """One task of the model: what it waits for, and "ok", "fail", "once", or "join" for what runs
    no code; ``among`` the steps whose failures skip the end of their part."""

    waits: dict[str, list[int]]
    outcome: str
    among: tuple[int, ...] = ()


parts = st.lists(
    st.builds(
        Part, st.sampled_from(POOLS), st.sampled_from(POOLS),
        st.sampled_from(["step", "step", "map", "part"]),
        st.lists(
            st.tuples(st.integers(1, 4), st.sampled_from(TRIGGERS)), max_size=3, unique=True
        ).map(tuple),
        st.integers(0, 4), st.sampled_from([None, None, 0, 1, 3]), st.booleans(),
    ), min_size=1, max_size=9,
)


def outcome_of(part: Part, number: int) -> str:
    if part.bad != number:
        return "ok"
    return "once" if part.once else "fail"


def build(w: Any, run: Any, source: Any, all_parts: list[Part]) -> tuple[list[Any], list[Plain]]:
    """Add all to the workflow; the steps, and the tasks of the model. The items of a map are no
    steps, so they stand as functions of the map step's id."""
    named: list[Any] = []
    joins: list[int] = []
    ids: list[Any] = []
    model: list[Plain] = []

    def put(id: Any, waits: dict[str, list[int]], outcome: str, among: tuple[int, ...] = ()) -> int:
        ids.append(id)
        model.append(Plain(waits, outcome, among))
        return len(model) - 1

    for at, part in enumerate(all_parts):
        found = waits_of(at, Node(part.pool, part.parents, "", False, False), [])
        waits = {trigger: [named[one] for one in of] for trigger, of in found.items()}
        means = {trigger: [joins[one] for one in of] for trigger, of in found.items()}
        if part.kind == "step":
            step = w.add(run.using(pool=part.pool).bind(f"{at}", outcome_of(part, 0)), **waits)
            named.append(step)
            joins.append(put(step, means, outcome_of(part, 0)))
        elif part.kind == "map":
            items = [[f"{at}.{one}", outcome_of(part, one)] for one in range(part.size)]
            first = w.add(source.using(pool=part.pool).bind(f"{at}", items), **waits)
            step = w.map(run.using(pool=part.other).bind(skedulr.previous), first)
            goes_over = put(first, means, "ok")
            made = [
                put((step, one), {"depends_on": [goes_over]}, outcome_of(part, one))
                for one in range(part.size)
            ]
            named.append(step)
            joins.append(put(step, {"depends_on": [goes_over, *made]}, "join"))
        else:
            inner: list[int] = []
            with w.workflow(f"part {at}", **waits) as block:
                for one in range(part.size + 1):
                    pool = part.pool if one % 2 else part.other
                    before = {"depends_on": [ids[inner[-1]]]} if inner else {}
                    outcome = outcome_of(part, one)
                    step = block.add(run.using(pool=pool).bind(f"{at}.{one}", outcome), **before)
                    behind = {"depends_on": [inner[-1]]} if inner else means
                    inner.append(put(step, behind, outcome))
            named.append(block)
            after = {**means, "after": [*means.get("after", []), *inner]}
            joins.append(put(block, after, "join", tuple(inner)))
    return ids, model


def judge(task: Plain, healed: bool, states: Sequence[str]) -> str:
    end = end_of(task.waits, "ok" if healed and task.outcome == "once" else task.outcome, states)
    if end != "skipped" and any(states[one] == "dead" for one in task.among):
        return "skipped"
    return end


@given(parts, deaths)
@settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck),
)
def test_workflows_with_maps_and_parts_end_as_the_model_says_before_and_after_a_resubmit(
    all_parts: list[Part], dying: dict[int, bool]
) -> None:
    with app(served=Skedulr()) as driven:
        ran: Counter[str] = Counter()
        healed: list[bool] = []

        @driven.task(name="run", max_retries=0)
        def run(name: str | list[str], outcome: str = "") -> str:
            if isinstance(name, list):
                name, outcome = name
            ran[name] += 1
            if outcome == "fail" or (outcome == "once" and not healed):
                raise ValueError(name)
            return name

        @driven.task(name="source", max_retries=0)
        def source(name: str, items: list[Any]) -> list[Any]:
            ran[name] += 1
            return items

        w = driven.workflow("w")
        steps, model = build(w, run, source, all_parts)
        w.start()
        wire = Dying(driven, dying)
        ids = [f"{one[0].id}.{one[1]}" if isinstance(one, tuple) else one.id for one in steps]

        def found() -> list[str]:
            # What a map never made is skipped, for the model.
            return [one.replace("unknown", "skipped") for one in driven.client.states(ids)]

        go_on(driven, wire)
        states: list[str] = []
        for task in model:
            states.append(judge(task, False, states))
        assert found() == states
        runs = Counter({at: 1 for at, task in enumerate(model)
                        if task.outcome != "join" and states[at] in ("succeeded", "dead")})
        assert sum(ran.values()) == sum(runs.values())

        healed.append(True)
        failed = [at for at, state in enumerate(states) if state == "dead"]
        assert w.resubmit() == len(failed)
        go_on(driven, wire)
        opened: set[int] = set(failed)
        now = found()
        for at, task in enumerate(model):
            parents = {one for of in task.waits.values() for one in of}
            if at in failed:
                states[at] = "dead" if task.outcome == "fail" else "succeeded"
            elif states[at] == "skipped" and parents & opened:
                opened.add(at)
                states[at] = judge(task, True, states)
                # The end of a failure branch that was put back itself, beside the failure that led
                # to it: which of the two was opened first decides whether that one still counts.
                if opened.intersection(task.waits.get("on_failure", ())) and parents & set(failed):
                    assert now[at] in ("skipped", "succeeded")
                    states[at] = now[at]
            if at in opened and task.outcome != "join" and states[at] != "skipped":
                runs[at] += 1
        assert found() == states
        assert sum(ran.values()) == sum(runs.values())
        assert not left(driven)
