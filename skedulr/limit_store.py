"""Limits as a namespace's pools know them: listed, and changed while everything runs.

A limit is enforced inside its pool: two pools that have one of the same name have two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .errors import ConfigError, UnknownPool, nearest
from .keys import PoolKeys
from .limiting import Definition, Known, Limit, limit_id, read_known
from .store import Store
from .wire import Wire


def look(wire: Wire, namespace: str, pools: Sequence[str]) -> list[dict[str, Any]]:
    """Every limit of these pools, by name and pool, in the form the HTTP interface calls "limit".

    ``waiting`` is how many keys (or sets of them) have tasks that wait for it; ``running`` how many
    slots are taken, None where each key has its own, or it is a rate.
    """
    keys = [PoolKeys(namespace, pool) for pool in pools]
    found = [
        (k, known)
        for k, flat in zip(keys, wire.calls([("HGETALL", k.limits) for k in keys]), strict=True)
        for id, text in _pairs(flat) if (known := read_known(id, text)) is not None
    ] if keys else []
    asked = [
        command for k, known in found for command in (
            ("ZLEXCOUNT", k.queues, f"[!{known.id}.", f"(!{known.id}/"),
            ("HGET", k.slots, f"#{known.id}.-"),
        )
    ]
    answers = wire.calls(asked) if asked else []
    views = [
        _view(k.pool, known, *answers[2 * i:2 * i + 2])
        for i, (k, known) in enumerate(found)
    ]
    return sorted(views, key=lambda one: (one["name"], one["kind"], one["pool"]))


def change(
    wire: Wire, namespace: str, pools: Sequence[str], name: str, limit: Limit | None,
    pool: str | None = None,
) -> list[dict[str, Any]]:
    """Have the limit called ``name`` be ``limit`` in ``pool``, or in all pools that know it; None:
    as its tasks declare it. What it is then. ConfigError where none knows it, UnknownPool."""
    if pool is not None and pool not in pools:
        raise UnknownPool(f"there is no pool {pool!r}{nearest(pool, pools)}")
    known = look(wire, namespace, pools if pool is None else [pool])
    kinds = {one["kind"] for one in known if one["name"] == name}
    wanted = kinds if limit is None else {kind_of(limit)}
    if not kinds:
        where = "" if pool is None else f" in pool {pool!r}"
        raise ConfigError(
            f"no limit is called {name!r}{where}{nearest(name, {one['name'] for one in known})}: a "
            "pool knows it once a task with it was submitted"
        )
    if not wanted & kinds:
        raise ConfigError(f"limit {name!r} is a {' and a '.join(sorted(kinds))} limit")
    for one in known:
        if one["name"] == name and one["kind"] in wanted:
            definition = "-" if limit is None else limit.definition()
            id = limit_id("c" if one["kind"] == "concurrency" else "r", name)
            Store(PoolKeys(namespace, one["pool"])).set_limit(wire, id, definition)
    now = look(wire, namespace, pools if pool is None else [pool])
    return [one for one in now if one["name"] == name and one["kind"] in wanted]


def kind_of(limit: Limit) -> str:
    """"concurrency" or "rate"; ConfigError for one that only takes turns."""
    if limit.kind is None:
        raise ConfigError("a limit is set with concurrency= or with rate=")
    return "rate" if limit.rate is not None else "concurrency"


def _view(pool: str, known: Known, waiting: int, running: bytes | None) -> dict[str, Any]:
    rated = known.declared.rate is not None
    return {
        "name": known.name, "pool": pool, "kind": "rate" if rated else "concurrency",
        **_numbers(known.holds), "declared": _numbers(known.declared),
        "changed": known.given is not None, "waiting": waiting,
        "running": None if rated or running is None else int(running),
    }


def _numbers(one: Definition) -> dict[str, Any]:
    return {
        "concurrency": one.concurrency, "rate": one.rate, "per": one.per_s, "burst": one.burst,
    }


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
