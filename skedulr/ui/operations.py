"""Operations: cancel, resubmit or remove everything a selection names, in the background.

An operation works through its selection page by page, newest first, and writes down after each page
how far it is and where it goes on. So it shows its progress to every browser of every master, and
when its process dies another one takes it up where it was: each step may run twice without harm.
What is submitted after an operation began is not touched, save tasks that come to stand behind
those it has not reached yet.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgpack

from .. import lists, message
from ..client import Client
from ..errors import DuplicateTask, StorageUnavailable, TaskNotFound
from ..keys import PoolKeys
from ..store import STORED, Store
from ..wire import Wire

log = logging.getLogger("skedulr.ui")

#: The states an action means when none is named, and those it can act on.
CANCELLABLE = ("waiting", "scheduled", "queued", "running")
ENDED = ("succeeded", "dead", "cancelled", "skipped", "expired")
ACTIONS: Mapping[str, tuple[str, ...]] = {
    "cancel": CANCELLABLE,
    "resubmit": ENDED,
    "remove": ("waiting", "scheduled", "queued", *ENDED),
}
#: The states meant where none is named. A resubmit without one means what failed, not all that ever
#: ran; a purge (the removal of what a pool holds) takes all that has not started.
DEFAULTS: Mapping[str, tuple[str, ...]] = {
    **ACTIONS, "resubmit": ("dead",), "purge": ("waiting", "scheduled", "queued"),
}
#: Tasks acted on between two writes of the progress.
PAGE = 250
#: An operation whose process was silent for this long may be taken up by another, milliseconds.
LOCK_MS = 15_000
#: Finished operations that are kept.
KEPT = 50

Record = dict[str, Any]


class Operations:
    """Starts and follows operations; ``client`` is where the tasks are."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._mine: set[str] = set()
        self._guard = threading.Lock()

    # Asking

    def start(self, action: str, selection: lists.Selection, by: str) -> Record:
        """Begin; the record with ``id``, ``done`` and ``total``."""
        states = (selection.state,) if selection.state else DEFAULTS[action]
        record: Record = {
            "id": secrets.token_hex(6), "action": action, "by": by, "state": "running",
            "selection": {"state": selection.state, "pool": selection.pool,
                          "name": selection.name, "query": selection.query},
            "states": list(states), "cursor": None, "done": 0, "changed": 0,
            "total": self.client.ask(lambda wire: self._total(wire, states, selection.pool)),
            "error": None, "started_at": self._now(), "finished_at": None,
        }
        self._write(record)
        self._take_up(record)
        return record

    def get(self, id: str) -> Record:
        """One operation; TaskNotFound."""
        text = self.client.ask(lambda wire: wire.call("HGET", self._place, id))
        if text is None:
            raise TaskNotFound(f"no operation {id[:40]!r} is known")
        return self._read(text)

    def newest(self) -> list[Record]:
        """All that are kept, newest first. Those that their process left behind are taken up."""
        texts = self.client.ask(lambda wire: wire.call("HVALS", self._place))
        records = sorted(map(self._read, texts), key=lambda one: -one["started_at"])
        for record in records:
            if record["state"] == "running" and record["id"] not in self._mine:
                self._take_up(record)
        return records

    def wait(self, id: str, seconds: float) -> Record:
        """The operation once it ended, or as it is after ``seconds``; for one of this process."""
        thread = next((one for one in threading.enumerate() if one.name == _thread(id)), None)
        if thread is not None:
            thread.join(seconds)
        return self.get(id)

    def run(self, record: Record) -> None:
        """Work through it until it ends, or another process has taken it."""
        token = secrets.token_hex(8)
        try:
            while record["state"] == "running" and self._holds(record["id"], token):
                self._step(record)
                self._write(record)
        except StorageUnavailable as error:
            log.warning("operation %s waits to be taken up again: %s", record["id"], error)
        except Exception as error:
            log.exception("operation %s stopped", record["id"])
            record.update(state="failed", error=str(error)[:500], finished_at=self._now())
            self._write(record)
        finally:
            with self._guard:
                self._mine.discard(record["id"])

    # Running

    def _take_up(self, record: Record) -> None:
        with self._guard:
            if record["id"] in self._mine:
                return
            self._mine.add(record["id"])
        threading.Thread(
            target=self.run, args=(record,), name=_thread(record["id"]), daemon=True
        ).start()

    def _holds(self, id: str, token: str) -> bool:
        """Whether this run may go on: it has the lock, or nobody had."""
        key = self.client.space.operation_lock(id)

        def look(wire: Wire) -> bool:
            if wire.call("SET", key, token, "NX", "PX", LOCK_MS) is not None:
                return True
            if wire.call("GET", key) != token.encode():
                return False
            wire.call("PEXPIRE", key, LOCK_MS)
            return True

        return self.client.ask(look)

    def _step(self, record: Record) -> None:
        """Act on one page and move on; the end once no state is left."""
        if not record["states"]:
            record.update(state="finished", finished_at=self._now())
            # What came in between is not counted twice, nor is what others took away missed.
            record["total"] = max(record["total"], record["done"])
            return
        selection = lists.Selection(**{**record["selection"], "state": record["states"][0]})
        page = self.client.ask(lambda wire: lists.page(
            wire, self.client.config.namespace, self._pools(wire, selection.pool), selection,
            PAGE, record["cursor"],
        ))
        record["changed"] += self.act(record["action"], page.items)
        record["done"] += page.looked_at
        record["total"] = max(record["total"], record["done"])
        record["cursor"] = page.cursor
        if page.cursor is None:
            record["states"] = record["states"][1:]

    def act(self, action: str, tasks: Iterable[Mapping[str, Any]]) -> int:
        """Do it to these tasks, at most 500; how many were changed."""
        action = "remove" if action == "purge" else action
        fit = [task for task in tasks if task["state"] in ACTIONS[action]]
        if action == "cancel":
            return self.client.ask(lambda wire: self._cancel(wire, fit))
        if action == "resubmit":
            return self._resubmit(fit)
        return self.client.ask(lambda wire: self._remove(wire, fit))

    def _cancel(self, wire: Wire, tasks: list[Mapping[str, Any]]) -> int:
        entry = message.entry(message.CANCELLED, "", 0, 0, "cancelled before it started")
        stores = self._stores(tasks)
        verdicts = Counter(
            stores[task["pool"]].cancel(wire, task["uid"], entry, self.client.space.control)
            for task in tasks
        )
        return sum(verdicts[was] for was in CANCELLABLE)

    def _resubmit(self, tasks: list[Mapping[str, Any]]) -> int:
        return sum(
            self._put_back(pool, uids) for pool, uids in _by_pool(tasks).items()
        )

    def _put_back(self, pool: str, uids: list[str]) -> int:
        try:
            return self.client.resubmit_all(pool, uids).count(STORED)
        except (TaskNotFound, DuplicateTask):
            return 0  # a single one is refused by an error: removed meanwhile, or its key is taken

    def _remove(self, wire: Wire, tasks: list[Mapping[str, Any]]) -> int:
        stores, count = self._stores(tasks), 0
        for ended in (True, False):
            some = [task for task in tasks if (task["state"] in ENDED) is ended]
            for pool, uids in _by_pool(some).items():
                count += stores[pool].purge(wire, uids, ended=ended)
        return count

    # Inside

    @property
    def _place(self) -> str:
        return self.client.space.operations

    def _stores(self, tasks: Iterable[Mapping[str, Any]]) -> dict[str, Store]:
        namespace = self.client.config.namespace
        return {pool: Store(PoolKeys(namespace, pool)) for pool in {t["pool"] for t in tasks}}

    def _pools(self, wire: Wire, only: str | None) -> list[str]:
        if only is not None:
            return [only]
        return sorted(name.decode() for name in wire.call("HKEYS", self.client.space.pools))

    def _total(self, wire: Wire, states: Iterable[str], pool: str | None) -> int:
        """How many tasks are in these states: an upper bound of what is meant."""
        kinds = {kind for state in states for kind in _KINDS.get(state, ("done",))}
        asked = [
            ("ZCARD", getattr(PoolKeys(self.client.config.namespace, name), kind))
            for name in self._pools(wire, pool) for kind in sorted(kinds)
        ]
        return sum(wire.calls(asked)) if asked else 0

    def _now(self) -> float:
        seconds, micros = self.client.ask(lambda wire: wire.call("TIME"))
        return int(seconds) + int(micros) / 1e6

    def _write(self, record: Record) -> None:
        def write(wire: Wire) -> None:
            wire.call("HSET", self._place, record["id"], msgpack.packb(record))
            if wire.call("HLEN", self._place) > 2 * KEPT:
                self._forget(wire)

        self.client.ask(write)

    def _forget(self, wire: Wire) -> None:
        records = sorted(
            map(self._read, wire.call("HVALS", self._place)), key=lambda one: -one["started_at"]
        )
        old = [one["id"] for one in records[KEPT:] if one["state"] != "running"]
        if old:
            wire.call("HDEL", self._place, *old)

    @staticmethod
    def _read(text: bytes) -> Record:
        record: Record = msgpack.unpackb(text)
        return record


_KINDS: Mapping[str, tuple[str, ...]] = {
    "queued": ("ready", "suspects", "parked"), "scheduled": ("delayed",), "running": ("leases",),
    "dead": ("dead",), "waiting": ("held",),
}


def _thread(id: str) -> str:
    return f"skedulr-ui-operation-{id}"


def _by_pool(tasks: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    pools: dict[str, list[str]] = {}
    for task in tasks:
        pools.setdefault(task["pool"], []).append(task["uid"])
    return pools
