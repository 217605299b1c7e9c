"""Spreading: tasks that Skedulr runs itself, because what they wait for is known only on the way.

A map step waits for the step whose result it goes over. Then it is run, and makes a task of each
item: it appends how many to its journal, and waits again, now for these, in one script. Whoever
delivers that it is to be tied (see delivery.py) makes the tasks first, under ids that follow from
its own; so wherever a process dies the next one makes the rest, and no item runs twice. When all of
them succeeded it is run once more, and its result is the list of theirs.

The end of a part (a workflow inside of a workflow) waits for the end of all its steps, and is run
to see how they ended. A step that was opened again meanwhile is waited for anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from . import limiting, message
from .dependencies import MOST_PARENTS, Waits, full_id, read_waits
from .errors import PayloadError, TaskFailed
from .store import Submission

#: The results of a map step's tasks may have so many bytes together.
MOST_MAPPED_BYTES = 8_388_608
#: So often one task waits again; then something is wrong with what it waits for.
MOST_ROUNDS = 100
#: Why a skipped task waits once more: the value of the entry that says it does.
AGAIN = "a task it waits for was resubmitted"
#: What a part must not hold when it ends.
FAILURES = ("dead", "expired", "cancelled")


class WaitFor(NamedTuple):
    """The run ends, and the task waits again: for ``many`` tasks that are to be made, or (None)
    for those that its envelope names."""

    many: int | None


class Result(NamedTuple):
    """The run ends with this."""

    value: Any


class Fault(NamedTuple):
    """The task can not succeed: dead, with an error of this type."""

    type: str
    text: str


class Skip(NamedTuple):
    """Its trigger can not happen any more."""

    reason: str


class Asked(Protocol):
    """What is asked of a client."""

    def results(self, ids: Sequence[str]) -> list[Any]: ...

    def states(self, ids: Sequence[str]) -> list[str]: ...


def is_planned(extras: Mapping[str, Any]) -> bool:
    """Whether Skedulr runs the task of these extras itself."""
    return "map" in extras or "part" in extras


# ---------------------------------------------------------------------------------- map steps


def spread_of(journal: message.Journal) -> int | None:
    """How many tasks a map step has made, or is about to; None where it has not come to that."""
    for entry in reversed(journal.entries):
        if entry.kind == message.SPREAD:
            return entry.value if isinstance(entry.value, int) else None
    return None


def child_ids(id: str, count: int) -> list[str]:
    """The ids of the tasks of a map step."""
    return [f"{id}.{at}" for at in range(count)]


def waits_now(id: str, journal: message.Journal) -> Waits | None:
    """What a task waits for, after all that its journal tells."""
    count = spread_of(journal)
    if count is None:
        return read_waits(journal.extras)
    return Waits(tuple(child_ids(id, count)), "S" * count)


def children(
    uid: str, journal: message.Journal, items: Sequence[Any]
) -> Iterator[Submission]:
    """The tasks of a map step, one an item. Raises PayloadError."""
    plan, head = journal.extras["map"], message.name_part(journal.name)
    for at, item in enumerate(items):
        args, kwargs = list(plan["args"]), dict(plan["kwargs"])
        for place in plan["at"]:
            if isinstance(place, str):
                kwargs[place] = item
            else:
                args[place] = item
        extras, placing = plan["extras"], plan["placing"]
        if "limits" in plan:
            extras, placing = _limited(journal.name, plan, args, item)
        body = message.envelope(head, tuple(args), kwargs, extras, MOST_MAPPED_BYTES)
        yield Submission(f"{uid}.{at}", body, placing)


def _limited(
    name: str, plan: Mapping[str, Any], args: Sequence[Any], item: Any
) -> tuple[dict[str, Any], str]:
    """Extras and placing of a task whose limits have the item in their keys. A key that the item
    does not fill stands as it is written: the task must not be lost for that."""
    said = plan["limits"]
    limits, values = limiting.from_rows(said["rows"]), dict(said["values"])
    values.update(dict.fromkeys(said["item"], item))

    def fill(key: str) -> str:
        try:
            return key.format(*args, **values)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError):
            return key

    text = limiting.placing_of(limits, name, fill)
    rows = limiting.shown(limits, name, fill, said["hidden"])
    # "<priority> <when> <lock>": a resubmit has no delay.
    priority, _, lock = plan["placing"].split(" ")
    return (
        {**plan["extras"], "limits": rows, "placing": f"{priority} - {lock} {text}"},
        f"{plan['placing']} {text}",
    )


def source_of(journal: message.Journal) -> str:
    """The id of the task whose result a map step goes over."""
    return full_id(journal.extras["map"]["source"], journal.extras.get("workflow"))


# ------------------------------------------------------------------------------------ the runs


def next_step(
    client: Asked, id: str, journal: message.Journal
) -> WaitFor | Result | Fault | Skip:
    """What a run of such a task comes to. Raises what ``client`` does."""
    rounds = sum(entry.kind == message.SPREAD for entry in journal.entries)
    if rounds > MOST_ROUNDS:
        return Fault("RuntimeError", f"it has waited {rounds} times, and never saw the end")
    if "part" in journal.extras:
        return _end_part(client, journal)
    count = spread_of(journal)
    return _spread(client, journal) if count is None else _gather(client, id, count)


def _spread(client: Asked, journal: message.Journal) -> WaitFor | Result | Fault:
    source = source_of(journal)
    try:
        items = client.results([source])[0]
    except PayloadError as error:
        return Fault("InputMissing", str(error))
    if isinstance(items, TaskFailed):
        return Fault("InputMissing", f"what it goes over gave no result: {items}")
    if not isinstance(items, list):
        return Fault(
            "NotAList", f"it goes over the result of {source}, which is no list but "
            f"{type(items).__name__}"
        )
    if len(items) > MOST_PARENTS:
        return Fault("TooMany", f"{len(items):,} items; at most {MOST_PARENTS:,} are mapped")
    return WaitFor(len(items)) if items else Result([])


def _gather(client: Asked, id: str, count: int) -> WaitFor | Result | Fault:
    try:
        results = client.results(child_ids(id, count))
    except PayloadError as error:
        return Fault(type(error).__name__, str(error))
    # One was resubmitted, or removed: being tied again will tell.
    if any(isinstance(one, TaskFailed) for one in results):
        return WaitFor(count)
    return Result(results)


def _end_part(client: Asked, journal: message.Journal) -> WaitFor | Result | Skip:
    waits = read_waits(journal.extras)
    steps = () if waits is None else waits.inputs[-journal.extras["part"]:]
    states = client.states(steps)
    for step, state in zip(steps, states, strict=True):
        if state in (*FAILURES, "unknown"):
            return Skip(f"{step} is {state}")
    if any(state not in message.END_STATES.values() for state in states):
        return WaitFor(None)
    return Result(None)


def waiting_text(journal: message.Journal, letters: str, *, more_rounds: int = 1) -> str:
    """What ``waiting`` is to hold of a task that waits again (see hold_back.lua)."""
    priority, *rest = str(journal.extras.get("placing", "0")).split(" ")
    limits = "".join(f" {one}" for one in rest[2:])
    return f"{round_of(journal) + more_rounds} {priority} - -{limits} {letters}"


def round_of(journal: message.Journal) -> int:
    """How often the task has begun to wait anew."""
    return sum(entry.kind in (message.RESUBMITTED, message.SPREAD) for entry in journal.entries)
