"""Dependencies: what a task waits for, as its options say it and as its envelope carries it.

A parent is named by its full id. Each has a letter: S, it has to succeed; A, it has to end; F, one
of those with this letter has to end otherwise. Children are found from their parents by edges that
Redis keeps (see attach.lua); this is the way back, and the order of ``inputs()``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .errors import ConfigError
from .keys import split_id

#: The options, in the order in which their tasks are inputs, and their letters.
LETTERS = {"depends_on": "S", "on_success": "S", "on_failure": "F", "after": "A"}
#: The most tasks that one can wait for.
MOST_PARENTS = 100_000
#: How much longer each may make an envelope, bytes: beyond the limit of the arguments.
BYTES_A_PARENT = 280


class Waits(NamedTuple):
    """The parents of a task, a letter each, and whether one may not exist yet.

    ``held``: the last one stands for the workflow that the task is a step of; it is no input.
    """

    parents: tuple[str, ...]
    letters: str
    missing: bool = False
    held: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The parents whose results are this task's."""
        return self.parents[:-1] if self.held else self.parents


def check_parents(name: str, value: Any) -> list[str]:
    """Ids from ids, handles or steps, one or several; each once, bare ones still bare."""
    given = [value] if isinstance(value, str) or hasattr(value, "id") else value
    if not isinstance(given, Iterable):
        raise ConfigError(f"{name}={value!r} is not usable: a task's handle or id, or several")
    found: dict[str, None] = {}
    for one in given:
        id = getattr(one, "id", one)
        if not isinstance(id, str):
            raise ConfigError(f"{name}={one!r} is not usable: a task's handle or id, or several")
        split_id(id)
        found[id] = None
    return list(found)


def waits_of(own: Mapping[str, Any], pool: str, uid: str) -> Waits | None:
    """What a call with these options waits for; None for nothing. Raises ConfigError."""
    parents: dict[tuple[str, str], None] = {}
    for name, letter in LETTERS.items():
        for id in own.get(name, ()):
            parents[id if "/" in id else f"{pool}/{id}", letter] = None
    held = own.get("_workflow") if own.get("_root") else None
    if held is not None:
        parents[held, "S"] = None
    if not parents:
        return None
    if len(parents) > MOST_PARENTS:
        raise ConfigError(f"{len(parents):,} tasks to wait for; at most {MOST_PARENTS:,} are")
    waits = Waits(
        tuple(id for id, _ in parents), "".join(letter for _, letter in parents),
        bool(own.get("allow_missing")), held is not None,
    )
    if f"{pool}/{uid}" in waits.parents:
        raise ConfigError(f"task {pool}/{uid} can not wait for itself")
    return waits


def extras_of(waits: Waits, workflow: str | None = None) -> dict[str, Any]:
    """As the envelope carries it: steps of the same workflow by their numbers."""
    extras: dict[str, Any] = {
        "parents": [short_id(one, workflow) for one in waits.parents], "letters": waits.letters
    }
    if waits.missing:
        extras["missing"] = True
    if waits.held:
        extras["held"] = True
    return extras


def read_waits(extras: Mapping[str, Any]) -> Waits | None:
    """From an envelope's extras; None where the task waits for nothing."""
    if "parents" not in extras:
        return None
    workflow = extras.get("workflow")
    return Waits(
        tuple(full_id(one, workflow) for one in extras["parents"]), extras["letters"],
        "missing" in extras, "held" in extras,
    )


def short_id(id: str, workflow: str | None) -> str | int:
    """The id of a step of ``workflow`` that lies in the pool of that, as its number; -1 for the
    workflow itself; any other id as it is."""
    if workflow is None or not id.startswith(workflow):
        return id
    if id == workflow:
        return -1
    number = id[len(workflow) + 1:]
    plain = id[len(workflow)] == "." and number.isdecimal() and number == str(int(number))
    return int(number) if plain else id


def full_id(short: str | int, workflow: str | None) -> str:
    """What ``short_id`` was given."""
    if isinstance(short, str):
        return short
    return str(workflow) if short == -1 else f"{workflow}.{short}"
