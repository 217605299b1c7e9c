"""Random workflows for the suite: diamonds, wide joins, chains, failure branches, maps and parts.

    maker = FlowMaker(world.history, app, random.Random(7), pools=("default", "other"))
    flow = maker.submit()               # one more of ``history.flows``, whatever the answer was
    maker.cancel(flow); maker.resubmit(flow)

Steps run in all of ``pools``; they succeed, fail, fail once, retry, or take their process with
them. What each of them waits for is noted for ``flow_rules.py``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from flow_rules import Flow, Step
from history import History

import skedulr
from skedulr import LinearRetry
from skedulr.errors import StorageUnavailable, TaskNotFound

#: How a step may end, by how it behaves.
ENDS = {
    "ok": ("succeeded",), "retry": ("succeeded",), "die": ("succeeded",), "fail": ("dead",),
    "once": ("dead", "succeeded"),
}
LETTERS = {"depends_on": "S", "on_success": "S", "on_failure": "F", "after": "A"}


class FlowMaker:
    """Makes and submits workflows, and notes them in ``history``. ``longest_s`` is how long a step
    takes at most."""

    def __init__(
        self, history: History, app: Any, draw: random.Random, *, pools: tuple[str, ...],
        longest_s: float = 0.2,
    ) -> None:
        self._history, self._app, self._draw, self._pools = history, app, draw, pools
        self._longest_s = longest_s

    def submit(self, shape: str | None = None) -> Flow | None:
        """Submit one; None where nothing could even be asked."""
        try:
            return self.start(self.plan(SHAPES[shape or self._draw.choice(list(SHAPES))]))
        except StorageUnavailable:
            return None  # it looks up where a name belongs

    def plan(self, shape: Callable[[Plan], object]) -> Plan:
        """One that is not submitted yet."""
        plan = Plan(self._app, self._draw, self._pools, self._longest_s)
        shape(plan)
        return plan

    def start(self, plan: Plan) -> Flow:
        """Submit it."""
        answer = "stored"
        try:
            plan.workflow.start()
        except StorageUnavailable as error:
            answer = "maybe" if error.maybe_submitted else "refused"
        flow = Flow(plan.uid, answer, plan.steps(), id=plan.workflow.id)
        self._history.flows.append(flow)
        return flow

    def cancel(self, flow: Flow) -> None:
        """Cancel it."""
        flow.cancel = True
        try:
            self._app.client.cancel_workflow(flow.id)
        except (StorageUnavailable, TaskNotFound):
            return
        flow.cancelled_at = time.monotonic()

    def resubmit(self, flow: Flow) -> None:
        """Put back what failed of it."""
        try:
            self._app.client.resubmit_workflow(flow.id)
        except (StorageUnavailable, TaskNotFound):
            pass


class Plan:
    """A workflow that is being made, and what is to be known of its steps."""

    def __init__(
        self, app: Any, draw: random.Random, pools: tuple[str, ...], longest_s: float
    ) -> None:
        self.draw, self._app, self._pools, self._longest_s = draw, app, pools, longest_s
        self.workflow = app.workflow("flow")
        #: Steps as the workflow knows them (a part changes their ids), and makers of ``Step``.
        self._made: list[Callable[[], Step]] = []
        #: The part that is open, what it waits for, and its steps so far.
        self._part: Any = None
        self._part_waits: dict[str, list[Any]] = {}
        self._inside: list[Any] = []

    @property
    def uid(self) -> str:
        """The workflow's, once it has a step; its steps' are this with a dot and a number."""
        return str(self.workflow.id.partition("/")[2])

    def add(
        self, how: str = "", *, args: tuple[Any, ...] = (), pool: str = "", **waits: Any
    ) -> Any:
        """A step; what it waits for are lists of steps."""
        how = how or self.how()
        step = (self._part or self.workflow).add(
            self._task("step", how, pool).bind(how, self._takes_s(), *args), **waits
        )
        self._note(step, waits, args=args, ends=ENDS[how])
        return step

    def items(self, count: int, pool: str = "", **waits: Any) -> Any:
        """A step that returns a list."""
        call = self._task("list", pool=pool).bind(count)
        step = (self._part or self.workflow).add(call, **waits)
        self._note(step, waits)
        return step

    def map(self, over: Any, how: str = "ok", pool: str = "", **waits: Any) -> Any:
        """A map step."""
        call = self._task("step", how, pool).bind(how, self._takes_s(), skedulr.previous)
        step = (self._part or self.workflow).map(call, over, **waits)
        self._note(step, waits, fed=(over,), kind="map", source=over)
        return step

    def part(self, name: str, fill: Callable[[], object], **waits: Any) -> Any:
        """A part, filled by ``fill()``; the step that stands for its end (its pool is the last
        step's)."""
        self._part, self._part_waits = self.workflow.workflow(name, **waits), waits
        self._inside = []
        with self._part as made:
            fill()
        end, inside = made._end, self._inside
        self._part, self._part_waits, self._inside = None, {}, []
        waits = {**waits, "after": [*waits.get("after", ()), *inside]}
        self._note(end, waits, kind="part", parts=inside)
        return end

    def how(self) -> str:
        """How a step is to behave."""
        return self.draw.choices(
            ("ok", "fail", "once", "retry", "die"), (72, 8, 8, 10, 0.7)
        )[0]

    def steps(self) -> list[Step]:
        """What is to be known of them, once their ids are final."""
        return [make() for make in self._made]

    def _task(self, name: str, how: str = "", pool: str = "") -> Any:
        options = {"max_retries": 1, "retry": LinearRetry(0.1)} if how == "retry" else {}
        return self._app.remote(name, pool=pool or self.draw.choice(self._pools), **options)

    def _takes_s(self) -> float:
        return round(self.draw.uniform(0, self._longest_s), 3) if self.draw.random() < 0.5 else 0.0

    def _note(
        self, step: Any, waits: dict[str, list[Any]], *, args: tuple[Any, ...] = (),
        fed: tuple[Any, ...] = (), ends: tuple[str, ...] = ("succeeded",), kind: str = "",
        source: Any = None, parts: list[Any] | None = None,
    ) -> None:
        outer = {}
        if self._part is not None:
            if not any(one in self._inside for of in (*waits.values(), args, fed) for one in of):
                outer = self._part_waits
            self._inside.append(step)

        def uid(one: Any) -> str:
            return str(one.id).partition("/")[2]

        def make() -> Step:
            found: dict[tuple[str, str], None] = {}
            for key, letter in LETTERS.items():
                every = [*waits.get(key, ()), *outer.get(key, ())]
                if key == "depends_on":
                    every += [*args, *fed]
                found |= dict.fromkeys((letter, uid(one)) for one in every)
            return Step(
                uid(step), tuple(found), ends, kind, uid(source) if source else "",
                tuple(map(uid, parts or ())), tuple(map(uid, args)),
            )

        self._made.append(make)


# The shapes


def diamond(plan: Plan) -> None:
    """One, two beside each other, one."""
    top = plan.add()
    left, right = plan.add(args=(top,)), plan.add(depends_on=[top])
    plan.add(args=(right, left))


def wide(plan: Plan) -> None:
    """Many from one, and one after all of them."""
    top = plan.add("ok")
    many = [plan.add("ok", args=(top,)) for _ in range(plan.draw.randint(15, 40))]
    many.append(plan.add())
    plan.add(args=tuple(many[:3]), on_success=many[3:])
    plan.add(after=many)


def chain(plan: Plan) -> None:
    """One after the other."""
    last = plan.add("ok")
    for _ in range(plan.draw.randint(3, 8)):
        last = plan.add(args=(last,))
    plan.add("ok", on_failure=[last])


def branch(plan: Plan) -> None:
    """What goes well goes on; what does not has its own way; and they come together again."""
    first, second = plan.add(plan.draw.choice(("fail", "once", "ok"))), plan.add()
    good = plan.add(on_success=[first, second])
    bad = plan.add(on_failure=[first, second])
    both = plan.add(depends_on=[second], on_failure=[first])
    plan.add("ok", after=[good, bad, both])


def mapped(plan: Plan) -> None:
    """A list, its items, and what comes of them."""
    source = plan.items(plan.draw.choice((1, 5, 12, 40)))
    items = plan.map(source, plan.draw.choice(("ok", "ok", "ok", "retry", "once")))
    plan.add(args=(items,))
    plan.add("ok", on_failure=[items])
    plan.add("ok", after=[items, source])


def part(plan: Plan) -> None:
    """Steps that are one for those outside."""
    top = plan.add()

    def fill() -> None:
        first = plan.add()
        plan.add(args=(first,))
        plan.add("ok", on_failure=[first])
        if plan.draw.random() < 0.4:
            plan.map(plan.items(4, depends_on=[first]))

    end = plan.part("part", fill, depends_on=[top])
    plan.add("ok", depends_on=[end])
    plan.add("ok", on_failure=[end])
    plan.add("ok", after=[end, top])


def anything(plan: Plan) -> None:
    """Each of some earlier ones, each by any trigger."""
    made = [plan.add()]
    for _ in range(plan.draw.randint(4, 12)):
        waits: dict[str, list[Any]] = {}
        chosen = plan.draw.sample(made, min(len(made), plan.draw.randint(0, 3)))
        for one in chosen:
            trigger = plan.draw.choices(
                ("depends_on", "on_success", "on_failure", "after"), (4, 2, 2, 2)
            )[0]
            waits.setdefault(trigger, []).append(one)
        free = [one for one in made if one not in chosen]
        args = (plan.draw.choice(free),) if free and plan.draw.random() < 0.3 else ()
        made.append(plan.add(args=args, **waits))


SHAPES: dict[str, Callable[[Plan], object]] = {
    "diamond": diamond, "wide": wide, "chain": chain, "branch": branch, "map": mapped,
    "part": part, "random": anything,
}
