"""What the history checker asks of workflows; see ``history.py`` for what it asks of every task.

A ``Flow`` is a workflow as it was submitted: its steps and what each waits for. What became of them
is in the finals (each step's ends and re-openings, with the server's times) and the effect log. The
rules, by the names that violations carry:

- ``half``      some of a workflow's steps are there and others are not, or one ran of a workflow
                that was said not to be stored
- ``waiting``   a step waits though all that it waits for have ended
- ``early``     a step began before a task it depends on had succeeded, or one it is after had ended
- ``branch``    a step of a failure branch began before any of its tasks had failed
- ``skipped``   a step was skipped and ran, or was skipped and should have run, or the reverse
- ``step``      a step ended otherwise than its kind of task can, given how its parents ended
- ``cancelled`` a step began after the cancel of its workflow was answered
- ``given``     a step was given other results than its parents' recorded ones
- ``mapped``    the result of a map is not that of its tasks in order, or an item has no task

That a step was started once in each opening, unless a crash excuses the repeat, is the rule
``doubled`` of every task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

#: A run may begin this long after the answer to a cancel, in a process that had claimed it before
#: and hears of it by a message, seconds.
HEARD_S = 1.0
#: Times in records are whole milliseconds, and those of runs another clock's.
SLACK_MS = 5
#: Ends that a resubmit of the workflow puts back.
FAILED = frozenset(("dead", "expired", "cancelled"))


class Step(NamedTuple):
    """A step as it was submitted: its uid, what it waits for by letter (S has to succeed, A to
    end, F one of these to fail), in the order of its inputs; ``ends`` of it if it runs.

    ``kind`` "map": it goes over the result of ``source``; "part": it ends with ``parts``. ``args``
    are the steps whose results are its arguments.
    """

    uid: str
    waits: tuple[tuple[str, str], ...] = ()
    ends: tuple[str, ...] = ("succeeded",)
    kind: str = ""
    source: str = ""
    parts: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


@dataclass
class Flow:
    """A workflow. ``answer`` to its submit: "stored", "maybe" or "refused". ``cancel`` says whether
    one was asked for; ``cancelled_at`` when it was answered, monotonic seconds."""

    uid: str
    answer: str
    steps: list[Step] = field(default_factory=list)
    #: With its pool.
    id: str = ""
    cancel: bool = False
    cancelled_at: float | None = None


class End(NamedTuple):
    """How a task ended once, and when by the server's clock, ms."""

    state: str
    at_ms: float


class Seen(Protocol):
    """Of a final, what is looked at here."""

    @property
    def places(self) -> frozenset[str]: ...

    @property
    def state(self) -> str | None: ...

    @property
    def value(self) -> Any: ...

    @property
    def ends(self) -> tuple[End, ...]: ...

    @property
    def crashed(self) -> bool: ...


class Began(Protocol):
    """Of a run, what is looked at here."""

    @property
    def began(self) -> float: ...

    @property
    def epoch(self) -> float: ...

    @property
    def given(self) -> str: ...

    @property
    def token(self) -> str: ...


class Broken(NamedTuple):
    """A rule that does not hold of a step."""

    rule: str
    uid: str
    text: str


class FlowRules:
    """Judges one workflow. ``excused(run, at)``: a fault kept the run's process from hearing, or it
    had been cut off, at that time."""

    def __init__(
        self, flow: Flow, finals: Mapping[str, Seen], runs: Mapping[str, Sequence[Began]],
        excused: Any,
    ) -> None:
        self._flow, self._finals, self._runs, self._excused = flow, finals, runs, excused
        self._steps = {one.uid: one for one in flow.steps}

    def broken(self) -> Iterator[Broken]:
        """Everything that is wrong with it."""
        there = [one.uid for one in self._flow.steps if self._known(one.uid)]
        if not there and self._flow.answer != "stored":
            return
        if len(there) < len(self._flow.steps) or self._flow.answer == "refused":
            yield Broken("half", self._flow.uid, (
                f"{len(there)} of its {len(self._flow.steps)} steps are there; it was "
                f"{self._flow.answer}"
            ))
            return
        for step in self._flow.steps:
            yield from self._step(step)
            if step.kind == "map":
                yield from self._mapped(step)

    def _known(self, uid: str) -> bool:
        return uid in self._finals or bool(self._runs.get(uid))

    def _step(self, step: Step) -> Iterator[Broken]:
        final = self._finals.get(step.uid)
        if final is None or "records" not in final.places:
            if final is not None and "waiting" in final.places and self._all_ended(step):
                yield Broken("waiting", step.uid, "it waits, and all it waits for have ended")
            return  # the rest is for the rules of every task
        yield from self._ended_rightly(step, final)
        for run in self._runs.get(step.uid, ()):
            yield from self._began_rightly(step, run)
        if final.state == "skipped" and self._runs.get(step.uid) and not any(
            one.state in FAILED for one in final.ends
        ):
            yield Broken("skipped", step.uid, "it is skipped, and it ran")

    def _all_ended(self, step: Step) -> bool:
        return all(self._state(uid) is not None for _, uid in step.waits)

    def _state(self, uid: str) -> str | None:
        final = self._finals.get(uid)
        return final.state if final is not None else None

    # How it ended

    def _ended_rightly(self, step: Step, final: Seen) -> Iterator[Broken]:
        must, may = self._runnable(step)
        if final.state == "skipped":
            if must and not (step.kind and self._is_skipped_of_itself(step)) and not (
                self._flow.cancel
            ):
                yield Broken("skipped", step.uid, "it is skipped, and all it waits for is as asked")
        elif final.state == "cancelled":
            if not self._flow.cancel:
                yield Broken("step", step.uid, "it is cancelled, and nobody asked for that")
        elif not may:
            yield Broken("skipped", step.uid, f"it is {final.state}, and its trigger can not be")
        elif step.kind == "part" and self._is_skipped_of_itself(step):
            yield Broken("step", step.uid, f"it is {final.state}, and a step of it failed")
        elif final.state not in self._ends_of(step, final):
            yield Broken(
                "step", step.uid, f"it is {final.state}, not {' or '.join(step.ends)}"
            )

    def _runnable(self, step: Step) -> tuple[bool, bool]:
        """Whether it has to run, and whether it may, as its parents have ended."""
        good = all(self._state(uid) == "succeeded" for letter, uid in step.waits if letter == "S")
        branch = [uid for letter, uid in step.waits if letter == "F"]
        failed = [uid for uid in branch if self._state(uid) != "succeeded"]
        had_failed = [uid for uid in branch if self._had_failed(uid)]
        return good and bool(failed or not branch), good and bool(had_failed or not branch)

    def _had_failed(self, uid: str) -> bool:
        final = self._finals.get(uid)
        return final is not None and any(one.state != "succeeded" for one in final.ends)

    def _is_skipped_of_itself(self, step: Step) -> bool:
        """Whether a map or the end of a part was right to be skipped: one of its own failed."""
        own = step.parts if step.kind == "part" else self._children(step)
        return any(self._state(uid) in FAILED for uid in own)

    def _ends_of(self, step: Step, final: Seen) -> tuple[str, ...]:
        return (*step.ends, "dead") if final.crashed else step.ends

    # How it began

    def _began_rightly(self, step: Step, run: Began) -> Iterator[Broken]:
        for letter, uid in step.waits:
            if letter == "S" and not self._had_ended(uid, run, ("succeeded",)):
                yield Broken("early", step.uid, f"it began before {uid} had succeeded")
            elif letter == "A" and not self._had_ended(uid, run):
                yield Broken("early", step.uid, f"it began before {uid} had ended")
        branch = [uid for letter, uid in step.waits if letter == "F"]
        if branch and not any(
            self._had_ended(uid, run, ("dead", "skipped", "cancelled", "expired"))
            for uid in branch
        ):
            yield Broken("branch", step.uid, f"it began before any of {' '.join(branch)} failed")
        yield from self._not_cancelled(step.uid, run)
        yield from self._given_rightly(step, run)

    def _not_cancelled(self, uid: str, run: Began) -> Iterator[Broken]:
        at = self._flow.cancelled_at
        if at is not None and run.began > at + HEARD_S and not self._excused(run, at):
            yield Broken("cancelled", uid, (
                f"it began {run.began - at:.3f} s after the cancel was answered"
            ))

    def _had_ended(self, uid: str, run: Began, states: tuple[str, ...] = ()) -> bool:
        final = self._finals.get(uid)
        return final is not None and any(
            one.at_ms <= run.epoch * 1000 + SLACK_MS and (not states or one.state in states)
            for one in final.ends
        )

    # What it was given

    def _given_rightly(self, step: Step, run: Began) -> Iterator[Broken]:
        if not run.given:
            return
        inputs, args = json.loads(run.given)
        parents = list(dict.fromkeys(uid for _, uid in step.waits))
        # It begins at the first failure, whatever the others of its branch do then.
        open_ = {uid for letter, uid in step.waits if letter == "F"}
        for kind, told, uids in (("inputs", inputs, parents), ("arguments", args, step.args)):
            if len(told) != len(uids):
                yield Broken("given", step.uid, f"{len(told)} {kind} for {len(uids)} parents")
                continue
            for value, uid in zip(told, uids, strict=True):
                if not self._may_be_result(value, uid) and not (
                    uid in open_ and value in ("!waiting", "!scheduled", "!queued", "!running")
                ):
                    yield Broken("given", step.uid, f"it was given {value!r} as that of {uid}")

    def _may_be_result(self, value: Any, uid: str) -> bool:
        final = self._finals.get(uid)
        if final is None:
            return False
        if isinstance(value, str) and value.startswith("!"):
            # How it had ended then; or it had been put back since, and was at work again.
            return any(one.state == value[1:] for one in final.ends) or len(final.ends) > 1
        return final.state == "succeeded" and bool(final.value == value)

    # Maps

    def _children(self, step: Step) -> list[str]:
        source = self._finals.get(step.source)
        value = source.value if source is not None else None
        return [f"{step.uid}.{at}" for at in range(len(value))] if isinstance(value, list) else []

    def _mapped(self, step: Step) -> Iterator[Broken]:
        final, children = self._finals.get(step.uid), self._children(step)
        source = self._finals.get(step.source)
        for at, uid in enumerate(children):
            for run in self._runs.get(uid, ()):
                yield from self._not_cancelled(uid, run)
                if source is None or not self._had_ended(step.source, run, ("succeeded",)):
                    yield Broken("early", uid, f"it began before {step.source} had succeeded")
                elif run.given and json.loads(run.given)[1] != [source.value[at]]:
                    yield Broken("mapped", uid, f"it ran with {run.given}, not its item")
        if final is None or final.state != "succeeded":
            return
        values = [self._finals[uid].value if uid in self._finals else None for uid in children]
        if final.value != values:
            yield Broken("mapped", step.uid, f"its result is {final.value!r}, not {values!r}")

    def children(self) -> Iterable[str]:
        """The tasks of its maps."""
        for step in self._flow.steps:
            if step.kind == "map":
                yield from self._children(step)
