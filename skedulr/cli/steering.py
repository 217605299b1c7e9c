"""Commands that change one task or one pool: ``cancel``, ``resubmit``, ``remove``, ``pause``,
``resume``, ``scale``. Each answers with what it changed, as it is then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import sizing
from ..errors import ConfigError, TaskNotFound, UnknownPool
from ..keys import PoolKeys
from ..store import Store
from . import exits
from .session import Session

_ENDED = ("succeeded", "dead", "cancelled", "skipped", "expired")


def cancel(session: Session) -> int:
    """``skedulr cancel ID``: 1 if it had ended already."""
    done = session.client.cancel(session.given.id)
    task = session.client.get(session.given.id)
    how = "cancelled" if task["state"] == "cancelled" else "it is running and was told to stop"
    return _answer(session, task, how if done else None, "had ended already")


def resubmit(session: Session) -> int:
    """``skedulr resubmit ID``: 1 if it has not ended."""
    done = session.client.resubmit(session.given.id)
    task = session.client.get(session.given.id)
    return _answer(session, task, "back in the queue" if done else None, "has not ended")


def remove(session: Session) -> int:
    """``skedulr remove ID``: 1 if it runs."""
    client = session.client
    task = client.get(session.given.id)
    if task["state"] == "running":
        return _answer(session, task, None, "runs just now: cancel it first")
    store = store_of(session, task["pool"])
    ended = task["state"] in _ENDED
    removed = client.ask(lambda wire: store.purge(wire, [task["uid"]], ended=ended))
    if not removed:
        # Moved on between the two looks, or gone already: a lost answer has it asked twice.
        try:
            return _answer(session, client.get(task["id"]), None, "was not removed: it moved on")
        except TaskNotFound:
            pass
    return _answer(session, task, "removed", "")


def store_of(session: Session, pool: str) -> Store:
    """The tasks of one pool, for what the client has no method for."""
    return Store(PoolKeys(session.settings.namespace, pool))


def _answer(session: Session, task: Mapping[str, Any], done: str | None, why_not: str) -> int:
    """The task, and what became of it (``done``), or why nothing did."""
    out = session.output
    if out.json:
        out.document(task)
    if done is None:
        session.complain(f"task {task['id']} {why_not}: it is {task['state']}")
        return exits.FAILURE
    if not out.json:
        out.line(f"{task['id']}: {done}")
    return exits.OK


# ----------------------------------------------------------------------------------- pools


def pause(session: Session) -> int:
    """``skedulr pause [POOL]``."""
    return _set_paused(session, True)


def resume(session: Session) -> int:
    """``skedulr resume [POOL]``."""
    return _set_paused(session, False)


def _set_paused(session: Session, paused: bool) -> int:
    name, client, out = session.given.pool, session.client, session.output
    changed = client.pause(name, paused)
    pools = [pool for pool in client.pools() if name in (None, pool["name"])]
    if out.json:
        out.document({"items": pools, "cursor": None} if name is None else pools[0])
        return exits.OK
    for pool in pools:
        state = "paused" if paused else "resumed"
        already = "was paused already" if paused else "was not paused"
        out.line(f"{pool['name']}: {state if pool['name'] in changed else already}")
    if not pools:
        out.line("no pools yet: none was served or submitted to")
    return exits.OK


def scale(session: Session) -> int:
    """``skedulr scale POOL N|reset``."""
    given, client = session.given, session.client
    workers = None if given.workers == "reset" else _workers(given.workers)
    try:
        changed = client.scale_pool(given.pool, workers, create=given.create)
    except UnknownPool as error:
        raise UnknownPool(str(error).replace("create=True has", "--create has")) from None
    if workers is not None:
        how = f"{workers:,} workers a process, on every node within a second"
    else:
        how = "back to --pools and tuning" if changed else "had no size of its own"
    if session.output.json:
        session.output.document(next(
            (pool for pool in client.pools() if pool["name"] == given.pool), {"name": given.pool}
        ))
    else:
        session.output.line(f"{given.pool}: {how}")
    return exits.OK


def _workers(text: str) -> int:
    try:
        return sizing.check_workers(int(text))
    except ValueError:
        raise ConfigError(f"{text!r} is neither a number of workers nor reset") from None
