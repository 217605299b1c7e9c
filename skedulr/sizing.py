"""Sizes of pools as operators set them while nodes run: ``scale_pool`` and its reset; and which
nodes are to claim nothing, whatever their pools' sizes are.

One hash holds them all, so that a node reads them in one step. A size is a number of workers per
process; it wins over ``--pools`` and tuning until it is reset. The field ``#`` counts changes, and
``@<node>`` is there for a node that is drained.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .config import MAX_WORKERS
from .errors import ConfigError, UnknownPool, nearest
from .keys import SpaceKeys, check_name
from .wire import Runner

#: The field that counts changes; no pool can be called so.
VERSION = "#"
#: What the field of a drained node begins with; nor can one begin like this.
_NODE = b"@"


class Size(NamedTuple):
    """How many workers a process of the pool has; ``created``: every node forks a process for it,
    also one that was not told of the pool at its start."""

    workers: int
    created: bool = False


def check_workers(workers: Any) -> int:
    """``workers`` itself; ConfigError unless it is a whole number from 0 to 10,000."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 0 <= workers <= MAX_WORKERS:
        raise ConfigError(f"workers={workers!r}: a whole number from 0 to {MAX_WORKERS:,}")
    return workers


class Look(NamedTuple):
    """How often sizes were changed by now, every size that is set, by pool, the drained nodes."""

    version: int
    sizes: dict[str, Size]
    drained: frozenset[str]


def read(wire: Runner, space: SpaceKeys) -> dict[str, Size]:
    """Every size that is set, by pool."""
    return look(wire, space).sizes


def look(wire: Runner, space: SpaceKeys) -> Look:
    """All that is stored."""
    flat = wire.call("HGETALL", space.sizes)
    if isinstance(flat, dict):
        flat = [part for pair in flat.items() for part in pair]
    version, sizes, drained = 0, {}, set()
    for name, text in zip(flat[::2], flat[1::2], strict=True):
        words = text.decode().split()
        if name.decode() == VERSION:
            version = int(text)
        elif name.startswith(_NODE):
            drained.add(name.decode().removeprefix(_NODE.decode()))
        elif words and words[0].isdecimal():
            sizes[name.decode()] = Size(min(int(words[0]), MAX_WORKERS), "created" in words)
    return Look(version, sizes, frozenset(drained))


def drain(wire: Runner, space: SpaceKeys, node: str, drained: bool) -> bool:
    """Have a node claim nothing, or claim again; False where that was so already. Nodes that are
    gone are forgotten."""
    gone = look(wire, space).drained - {
        name.decode() for name in wire.call("HKEYS", space.nodes)
    }
    if gone:
        wire.call("HDEL", space.sizes, *(_NODE + one.encode() for one in gone))
    field = _NODE + node.encode()
    if drained:
        changed = bool(wire.call("HSETNX", space.sizes, field, "drained"))
    else:
        changed = bool(wire.call("HDEL", space.sizes, field))
    if changed:
        _tell(wire, space, "*")
    return changed


def write(
    wire: Runner, space: SpaceKeys, pool: str, workers: int, *, served: Iterable[str],
    create: bool = False,
) -> int:
    """Set a pool's size; the number of this change. ``served`` are the pools that live nodes serve.

    Raises UnknownPool for a pool that nobody serves, unless ``create``: then every node does.
    """
    check_name("pool", pool)
    check_workers(workers)
    before = read(wire, space).get(pool)
    created = before is not None and before.created
    if not created and pool not in set(served):
        if not create:
            raise UnknownPool(
                f"no node serves a pool {pool!r}{nearest(pool, served)}; "
                "create=True has every node fork a process for it"
            )
        created = True
    wire.call("HSET", space.sizes, pool, f"{workers} created" if created else str(workers))
    return _tell(wire, space, pool)


def reset(wire: Runner, space: SpaceKeys, pool: str) -> bool:
    """Give a pool back to ``--pools`` and tuning; False where no size was set. A pool that was made
    by ``create`` is served no more: its running tasks end first, its queue stays."""
    check_name("pool", pool)
    removed = bool(wire.call("HDEL", space.sizes, pool))
    if removed:
        _tell(wire, space, pool)
    return removed


def _tell(wire: Runner, space: SpaceKeys, pool: str) -> int:
    version: int = wire.call("HINCRBY", space.sizes, VERSION, 1)
    wire.call("PUBLISH", space.control, f"size {pool}/")
    return version
