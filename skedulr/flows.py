"""A workflow in the form that the HTTP interface, the command line and ``Workflow`` share. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from . import message

ENDS = frozenset(message.END_STATES.values())
_STEP = (
    "id", "name", "state", "attempt", "submitted_at", "started_at", "finished_at", "depends_on",
    "error",
)


def workflow_view(
    id: str, journal: message.Journal, *, begun: bool, names: Sequence[str | None],
    ids: Sequence[str], views: Mapping[str, Mapping[str, Any]], most_steps: int,
) -> dict[str, Any]:
    """``views`` are the tasks of the steps that are known, by id; one that was forgotten counts as
    ``unknown``. ``steps`` holds the first ``most_steps``, ``ids`` all."""
    counts = Counter(
        str(views[one]["state"]) if one in views else "unknown" for one in ids
    )
    steps = []
    for name, one in list(zip(names, ids, strict=True))[:most_steps]:
        view = views.get(one, {"id": one, "state": "unknown"})
        step = {key: view.get(key) for key in _STEP}
        steps.append({**step, "task": step["name"], "name": name})
    ended = [views[one]["finished_at"] for one in ids if one in views]
    state = _state(begun, counts, len(ids))
    return {
        "id": id, "name": journal.name, "state": state, "total": len(ids),
        "ended": sum(counts[one] for one in (*ENDS, "unknown")), "counts": dict(counts),
        "submitted_at": journal.submitted_ms / 1000,
        "finished_at": max(filter(None, ended), default=None)
        if state not in ("starting", "running") else None,
        "steps": steps, "ids": list(ids),
    }


def _state(begun: bool, counts: Mapping[str, int], total: int) -> str:
    """``starting``, ``running``, or once all have ended: ``failed`` where a step is dead or
    expired, ``cancelled`` where one was cancelled, else ``succeeded`` (a branch may be skipped)."""
    if not begun:
        return "starting"
    if sum(counts.get(one, 0) for one in (*ENDS, "unknown")) < total:
        return "running"
    if counts.get("dead") or counts.get("expired"):
        return "failed"
    return "cancelled" if counts.get("cancelled") else "succeeded"
