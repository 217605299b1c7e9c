"""A workflow in the form that the HTTP interface, the command line and ``Workflow`` share. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import message

#: A step that ended so is put back by a resubmit of its workflow.
FAILED = ("dead", "expired", "cancelled")
ENDS = frozenset(message.END_STATES.values())
_STEP = (
    "id", "name", "state", "attempt", "submitted_at", "started_at", "finished_at", "depends_on",
    "error",
)


class StepOf(NamedTuple):
    """A step of a workflow: its task's id, its name, and "map", "part" or None."""

    id: str
    name: str | None
    kind: str | None


def workflow_view(
    id: str, journal: message.Journal, *, begun: bool, steps: Sequence[StepOf],
    views: Mapping[str, Mapping[str, Any]], children: Mapping[str, Mapping[str, str]],
    most_steps: int,
) -> dict[str, Any]:
    """``views`` are the tasks of the steps that are known, by id; one that was forgotten counts as
    ``unknown``. ``children`` are the states of what map steps made: they count, and are no steps.
    ``steps`` of the view holds the first ``most_steps``, ``ids`` all."""
    counts = Counter(str(views[one.id]["state"]) if one.id in views else "unknown"
                     for one in steps)
    for made in children.values():
        counts.update(made.values())
    ended = [views[one.id]["finished_at"] for one in steps if one.id in views]
    total = len(steps) + sum(len(made) for made in children.values())
    state = state_of(begun, counts, total)
    return {
        "id": id, "name": journal.name, "state": state, "total": total,
        "ended": sum(counts[one] for one in (*ENDS, "unknown")), "counts": dict(counts),
        "submitted_at": journal.submitted_ms / 1000,
        "finished_at": max(filter(None, ended), default=None)
        if state not in ("starting", "running") else None,
        "steps": [_step_view(one, views.get(one.id), children.get(one.id))
                  for one in steps[:most_steps]],
        "ids": [one.id for one in steps],
    }


def _step_view(
    step: StepOf, view: Mapping[str, Any] | None, made: Mapping[str, str] | None
) -> dict[str, Any]:
    """``kind`` is "map", "part" or None; ``mapped`` of a map step how many tasks it has made, and
    how many of them are in which state."""
    known = view or {"id": step.id, "state": "unknown"}
    shown = {key: known.get(key) for key in _STEP}
    mapped = None if made is None else {"total": len(made), "counts": dict(Counter(made.values()))}
    return {**shown, "task": shown["name"], "name": step.name, "kind": step.kind, "mapped": mapped}


def state_of(begun: bool, counts: Mapping[str, int], total: int) -> str:
    """``starting``, ``running``, or once all have ended: ``failed`` where a step is dead or
    expired, ``cancelled`` where one was cancelled, else ``succeeded`` (a branch may be skipped)."""
    if not begun:
        return "starting"
    if sum(counts.get(one, 0) for one in (*ENDS, "unknown")) < total:
        return "running"
    if counts.get("dead") or counts.get("expired"):
        return "failed"
    return "cancelled" if counts.get("cancelled") else "succeeded"
