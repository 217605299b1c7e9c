"""Transports by name: which ``Storage`` keeps a pool's tasks.

``zset`` (sorted sets, the default) and ``streams`` are ``Store`` on Redis. Another one is any
package's: an entry point of the group ``skedulr.transports`` names a callable that is given the
pool's ``PoolKeys`` and returns a ``Storage``. A pool gets it by its name, as in
``--pools events=8:NAME``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar, cast

from redis.exceptions import ResponseError

from .config import TRANSPORT_GROUP, TRANSPORTS, transports
from .errors import ConfigError, nearest
from .keys import PoolKeys
from .storage import Storage
from .store import Store
from .wire import Runner

T = TypeVar("T")
Opener = Callable[[PoolKeys], Storage]

#: What transport.lua says of a pool that another program keeps.
_OTHER = re.compile(r"\bTRANSPORT ([\w.-]+)")


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


def on_storage(store: Store, act: Callable[[Storage], T]) -> T:
    """What ``act`` does on a pool's storage, for producers, who need not know which one that is: on
    ours, unless its scripts say that another transport keeps the pool. ConfigError where that is
    not to be had here."""
    try:
        return act(store)
    except ResponseError as error:
        other = elsewhere(store, error)
    return act(other)


def elsewhere(store: Store, error: ResponseError) -> Storage:
    """The storage that keeps a pool which, a script says, is none of ours; any other error is
    raised again."""
    named = _OTHER.search(str(error))
    if named is None:
        raise error
    return _opened(os.getpid(), store.keys.namespace, store.keys.pool, named[1])


def kept_elsewhere(wire: Runner, keys: PoolKeys) -> Storage | None:
    """The storage of a pool that a transport keeps which is none of ours, or None."""
    name = (wire.call("HGET", keys.meta, "transport") or b"").decode()
    if not name or name in TRANSPORTS:
        return None
    return _opened(os.getpid(), keys.namespace, keys.pool, name)


@lru_cache(maxsize=1000)
def _opened(pid: int, namespace: str, pool: str, transport: str) -> Storage:
    # A fork opens its own: what a storage holds open is not known here.
    return open_storage(PoolKeys(namespace, pool), transport)


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
        f"there is no transport {transport!r} here{nearest(transport, transports())}: install the "
        "package that brings it"
    )
