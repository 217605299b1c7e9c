"""Transports by name: which ``Storage`` keeps a pool's tasks.

``zset`` (sorted sets, the default) and ``streams`` are ``Store`` on Redis. Another one is any
package's: an entry point of the group ``skedulr.transports`` names a callable that is given the
pool's ``PoolKeys`` and returns a ``Storage``. A pool gets it by its name, as in
``--pools events=8:NAME``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from .config import TRANSPORT_GROUP, TRANSPORTS
from .errors import ConfigError
from .keys import PoolKeys
from .storage import Storage
from .store import Store
from .wire import Runner

Opener = Callable[[PoolKeys], Storage]


def open_storage(keys: PoolKeys, transport: str = "zset") -> Storage:
    """The storage of a pool, by its transport's name. ConfigError for one that nobody knows, or
    that can not be loaded."""
    if transport in TRANSPORTS:
        return Store(keys, transport)
    return _opener(transport)(keys)


def settle(wire: Runner, keys: PoolKeys, transport: str, lease_s: float) -> None:
    """Tell Redis how a pool that is served here is kept: every producer's scripts act on that.
    ConfigError where the pool holds work that is kept in another way. Raises WireError."""
    kept = Store(keys, transport).settle(wire, round(lease_s * 1000))
    if kept is not None:
        raise ConfigError(
            f"pool {keys.pool!r} holds work of the transport {kept!r}, and is to be served as "
            f"{transport!r}: let it run empty first (queued and running tasks; delayed ones may "
            f"stay), or serve it as {kept!r}"
        )


def _opener(transport: str) -> Opener:
    # Only who has one of their own pays for looking through what is installed.
    from importlib.metadata import entry_points

    for found in entry_points(group=TRANSPORT_GROUP, name=transport):
        try:
            return cast(Opener, found.load())
        except Exception as error:
            raise ConfigError(
                f"transport {transport!r} ({found.value}) can not be loaded: {error!r}"
            ) from error
    raise ConfigError(
        f"there is no transport {transport!r} here: install the package that brings it"
    )
