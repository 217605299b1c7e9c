"""The client: what producers call, patched or not, from greenlets or threads.

It connects at first use, and again in each process that a fork makes. Submits go through one
committer per pool, questions through a few shared connections, waits through one subscription.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from . import (
    context,
    counts,
    flows,
    lead,
    limit_store,
    lists,
    measures,
    message,
    options,
    queries,
    sizing,
    spreading,
    workflow_list,
)
from .addresses import read_address
from .bulk import Bulk
from .codecs import Codec
from .committer import Committer, Parcel, unavailable
from .config import hide_password
from .delivery import Child, Delivery
from .errors import (
    BulkError,
    ConfigError,
    DuplicateTask,
    PayloadError,
    PayloadTooLarge,
    QueueFull,
    ResultTimeout,
    SkedulrError,
    StorageUnavailable,
    TaskFailed,
    TaskNotFound,
    UnknownPool,
    UnknownTask,
    nearest,
)
from .handles import Handle
from .keys import PoolKeys, SpaceKeys, split_id
from .limiting import Limit
from .names import Directory, Published
from .prepare import prepare
from .storage import (
    ALREADY,
    DUPLICATE,
    ENDED,
    FULL,
    PRIORITY,
    STORED,
    TAKEN,
    UNKNOWN,
    Submission,
    without_priorities,
)
from .store import Store
from .tasks import Call, Task
from .transports import kept_elsewhere, on_storage
from .uids import Uids
from .waiting import Listener, Watch
from .whereabouts import Whereabouts
from .wire import Wire, WireError, socket_thread
from .wires import Wires

T = TypeVar("T")

log = logging.getLogger("skedulr.client")
#: Results of several tasks, read at once, have this many bytes at most, their records included.
MOST_RESULT_BYTES = 16_777_216
#: How often it is looked for a stack that a process was asked for, seconds.
_LOOK_S = 0.05
#: A workflow has no more steps.
MOST_STEPS = 200_000
#: What has connections in this process; in a forked child they are left.
_live: weakref.WeakSet[_Process] = weakref.WeakSet()
_live_known: list[bool] = []
#: The states of what a purge removes where none is named.
_NOT_STARTED = ("waiting", "scheduled", "queued")
#: Names of tasks that were warned of waiting inside their own pool.
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The client's part of the configuration; times in seconds, sizes in bytes."""

    url: str
    namespace: str = "skedulr"
    submit_timeout_s: float = 5.0
    payload_limit: int = 1_048_576
    capacity: int = 0
    name: str = "client"
    #: So many replicas must have a submitted task before it counts.
    wait_replicas: int = 0
    codec: Codec | None = None
    #: How the address was found, as a phrase for errors ("from SKEDULR_REDIS_URL").
    how: str = ""
    #: Where nobody named the server: where it is by now.
    whereabouts: Whereabouts | None = None

    @property
    def at(self) -> str:
        """The server in words, its password hidden."""
        if self.whereabouts is not None:
            return str(self.whereabouts)
        return hide_password(self.url) + (f" ({self.how})" if self.how else "")


class _Process:
    """What belongs to one process id: connections, committers, the listener.

    Under gevent to one native thread of it, for so do the sockets there.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.pid = os.getpid()
        self._config = config
        if not _live_known:
            _live_known.append(True)
            os.register_at_fork(after_in_child=_leave_parents)
        _live.add(self)
        self._space = SpaceKeys(config.namespace)
        name = f"skedulr:{config.name}:{self.pid}"
        self.wires = Wires(
            config.url, name=f"{name}:query", timeout_s=config.submit_timeout_s,
            whereabouts=config.whereabouts,
        )
        self.listener = Listener(
            url=config.url, channel=self._space.ended(f"{self.pid}-{os.urandom(6).hex()}"),
            name=f"{name}:listen", whereabouts=config.whereabouts,
        )
        self._name = name
        self._committers: dict[str, Committer] = {}
        self._guard = threading.Lock()

    def committer(self, pool: str) -> Committer:
        """The committer of a pool, made at its first submit; it announces the pool."""
        known = self._committers.get(pool)
        if known is None:
            with self._guard:
                known = self._committers.get(pool)
                if known is None:
                    known = self._committers[pool] = self._new_committer(pool)
        return known

    def _new_committer(self, pool: str) -> Committer:
        return Committer(
            store=Store(PoolKeys(self._config.namespace, pool)),
            wire=Wire(
                self._config.url, name=f"{self._name}:submit",
                timeout_s=self._config.submit_timeout_s, whereabouts=self._config.whereabouts,
            ),
            timeout_s=self._config.submit_timeout_s, capacity=self._config.capacity,
            wait_replicas=self._config.wait_replicas, at=lambda: self._config.at,
            announce=partial(_announce, self._space.pools, pool),
        )

    def close(self) -> None:
        """Let the threads end and close the connections."""
        for committer in list(self._committers.values()):
            committer.stop()
        self.listener.stop()
        self.wires.close()

    def drop(self) -> None:
        """As ``close``, from another native thread than the one whose hub the sockets belong to."""
        self.listener.stop(now=False)
        # A committer that is a thread of its own has its socket to itself, and can be told. One
        # that is a greenlet goes with its hub.
        if type(self._guard).__module__ == "_thread":
            for committer in list(self._committers.values()):
                committer.stop()

    def leave(self) -> None:
        """In a forked child: these connections are the parent's alone."""
        for committer in list(self._committers.values()):
            committer.leave_parent()
        self.listener.leave_parent()
        self.wires.leave()


def _leave_parents() -> None:
    for process in list(_live):
        process.leave()
    _live.clear()


def _announce(pools: str, pool: str, wire: Wire) -> None:
    wire.call("HSETNX", pools, pool, int(time.time() * 1000))


class _Workflow(NamedTuple):
    """What is known of a workflow now: its steps in order, those that are known as tasks by id,
    and by map step the tasks it has made with their states."""

    begun: bool
    journal: message.Journal
    steps: list[flows.StepOf]
    views: dict[str, dict[str, Any]]
    children: dict[str, dict[str, str]]

    def states(self) -> dict[str, str]:
        """Of every step, and before each map step of its tasks."""
        found: dict[str, str] = {}
        for one in self.steps:
            found |= self.children.get(one.id, {})
            found[one.id] = str(self.views[one.id]["state"]) if one.id in self.views else "unknown"
        return found

    def has_parents(self, id: str) -> bool:
        """Whether a step waited for others."""
        return id in self.views and bool(self.views[id]["depends_on"])


class Client:
    """Submits, asks and waits, for one server and namespace."""

    def __init__(self, config: ClientConfig) -> None:
        # An address that can not be used is told here, and not in the middle of a submit.
        read_address(config.url)
        self.config = config
        self.space = SpaceKeys(config.namespace)
        self._uids = Uids()
        self._directory = Directory(self._look_up)
        self._processes: dict[tuple[int, int], _Process] = {}

    def close(self) -> None:
        """End this process's threads and connections; the next use makes new ones."""
        here = os.getpid(), socket_thread()
        for key in list(self._processes):
            process = self._processes.pop(key, None)
            if process is not None:
                process.close() if key == here else process.drop()

    # Submitting

    def submit(self, call: Call[Any]) -> Handle[Any]:
        """Store one call. Returns after Redis has acknowledged it."""
        pool, submission = self._prepare(call)
        return self._store_one(pool, submission)

    def _store_one(self, pool: str, submission: Submission) -> Handle[Any]:
        parcel = self._process().committer(pool).submit([submission])
        if submission.waits is not None:
            self._tie(pool, parcel)
        return self._settle(pool, parcel, 0)

    def later(self, call: Call[Any]) -> tuple[Handle[Any], Callable[[], None]]:
        """A call's handle, and a function that stores it. The arguments are taken as they are now;
        what is wrong with them is raised now."""
        pool, submission = self._prepare(call)

        def store() -> None:
            self._store_one(pool, submission)

        return Handle(self, f"{pool}/{submission.uid}"), store

    def submit_many(self, calls: Iterable[Call[Any]]) -> list[Handle[Any]]:
        """Store calls, 500 a round trip; their handles in order.

        Raises BulkError with what was stored before, where one in the middle can not be.
        """
        handles: list[Handle[Any]] = []
        try:
            handles.extend(self._bulk().run(calls))
        except Exception as error:
            if isinstance(error, SkedulrError):
                error.__traceback__ = None  # it is told in our own words, which name what is wrong
            raise BulkError(
                f"{len(handles):,} calls are stored, then: {error}", list(handles), len(handles)
            ) from error
        return handles

    def submit_iter(self, calls: Iterable[Call[Any]]) -> Iterator[str]:
        """Store calls as they come, in constant memory; yields each id once it is stored."""
        return (handle.id for handle in self._bulk().run(calls))

    def _bulk(self) -> Bulk[Call[Any], Handle[Any]]:
        return Bulk(
            prepare=self._prepare, post=self._post, settle=self._settle, stored=self._tie
        )

    def _prepare(self, call: Call[Any]) -> tuple[str, Submission]:
        # What Skedulr runs itself goes by the name of another task, and has none of its options.
        if call.task.function is None and not call.task.own.keys() & {"_map", "_part"}:
            call = self._placed(call)
        return prepare(call, self._uids.next(), self.config.payload_limit, self.config.codec)

    def _post(self, pool: str, submissions: list[Submission]) -> Parcel:
        return self._process().committer(pool).post(submissions)

    def _tie(self, pool: str, parcel: Parcel, verdicts: str = STORED) -> None:
        """Tie tasks that were just stored to those they wait for. Where one of these is unknown,
        what waits for it is removed again: TaskNotFound.

        A process that dies before this, or Redis, leaves it to the next deliverer.
        """
        children = [
            Child(pool, one.uid, 0, one.waits)
            for one, verdict in zip(parcel.submissions, parcel.wait(), strict=True)
            if one.waits is not None and verdict in verdicts
        ]
        if children:
            try:
                lost = self._try(lambda wire: self._attach(wire, children), None)
            except WireError as error:
                # They are stored, and will be tied by a deliverer.
                raise unavailable(error, at=self.config.at, maybe_submitted=True) from error
            for id, parent in lost.items():
                raise TaskNotFound(
                    f"{id} was to wait for {parent}, which is unknown: never submitted, or its "
                    "record was forgotten (allow_missing=True waits for it)"
                )

    def _attach(self, wire: Wire, children: list[Child]) -> dict[str, str]:
        delivery = Delivery(self.config.namespace, wire)
        lost = delivery.attach(children, skip_lost=False)
        for id in lost:
            pool, uid = split_id(id)
            for ended in (False, True):
                self._store(pool).purge(wire, [uid], ended=ended)
        self._tell_deliverers(wire, delivery.told)
        by_pool: dict[str, list[str]] = {}
        for one in children:
            by_pool.setdefault(one.pool, []).append(f"a {one.uid}")
        for pool, items in by_pool.items():
            wire.call("ZREM", PoolKeys(self.config.namespace, pool).outbox, *items)
        return lost

    def _tell_deliverers(self, wire: Wire, pools: Iterable[str]) -> None:
        """The outboxes of these pools were filled: their children should look at once."""
        for pool in pools:
            wire.call("PUBLISH", self.space.control, f"outbox {pool}/")

    def _settle(self, pool: str, parcel: Parcel, index: int) -> Handle[Any]:
        """The handle of a stored submission; raises what its verdict stands for."""
        verdict = parcel.wait()[index]
        id = f"{pool}/{parcel.submissions[index].uid}"
        if verdict == DUPLICATE:
            raise DuplicateTask(f"another task has the id {id}: ids are used once", id)
        if verdict == PRIORITY:
            raise ConfigError(without_priorities(pool))
        if verdict == FULL:
            raise QueueFull(f"pool {pool!r} is full: it holds {self.config.capacity:,} tasks")
        if verdict == TAKEN:
            holder = f"{pool}/{parcel.holders[index]}"
            if ":r:" not in parcel.submissions[index].options:
                raise DuplicateTask(f"task {holder} holds the same unique key", holder)
            return Handle(self, holder)
        return Handle(self, id)

    # Asking and steering

    def handle(self, id: str) -> Handle[Any]:
        """A handle for an id; asks nothing."""
        pool, uid = split_id(id)
        return Handle(self, f"{pool}/{uid}")

    def get(self, id: str) -> dict[str, Any]:
        """All that is known of a task; TaskNotFound."""
        pool, uid = split_id(id)
        found = self._ask(lambda wire: self._queries(pool).task(wire, uid))
        return self.get(self._home(id)) if found is None else found

    def state(self, id: str) -> str:
        """A task's state; TaskNotFound."""
        pool, uid = split_id(id)
        found = self._ask(lambda wire: self._queries(pool).state(wire, uid))
        return self.state(self._home(id)) if found is None else found

    def cancel(self, id: str) -> bool:
        """Cancel a task; True if it was or will be, False once it had ended; TaskNotFound."""
        pool, uid = split_id(id)
        note = message.entry(message.CANCELLED, "", 0, 0, "cancelled before it started")
        was = self._ask(lambda wire: on_storage(
            self._store(pool),
            lambda storage: storage.cancel(wire, uid, note, self.space.control),
        ))
        if was == "unknown":
            raise _not_found(id)
        if was == "waiting":
            self._cancel_mapped(pool, uid)
        home = self._moved_to(id) if was == "ended" else None
        return was != "ended" if home is None else self.cancel(home)

    def _cancel_mapped(self, pool: str, uid: str) -> None:
        """Cancel the tasks of a map step that was cancelled while it waited for them."""
        record = self._ask(lambda wire: self._queries(pool).look(wire, [uid])[0]).record
        for one in _children_of(f"{pool}/{uid}", record):
            try:
                self.cancel(one)
            except TaskNotFound:
                continue  # it is not made yet, and will not be

    def stack(self, id: str, timeout_s: float = 1.5) -> str | None:
        """Where a running task is in its code at this moment, as Python's tracebacks show it.

        None where it does not run, or its process says nothing within ``timeout_s``: something
        there computes without a pause. Raises TaskNotFound for an unknown id.
        """
        pool, uid = split_id(id)
        if self.state(id) != "running":
            return None
        key = self.space.stack(f"{pool}/{uid}")

        def ask(wire: Wire) -> bytes | None:
            # Anew each time: a task that was claimed may not have started when it was asked first.
            wire.call("PUBLISH", self.space.control, f"look {pool}/{uid}")
            found: bytes | None = wire.call("GET", key)
            return found

        self._ask(lambda wire: wire.call("DEL", key))
        deadline = time.monotonic() + timeout_s
        while (text := self._ask(ask)) is None:
            if time.monotonic() > deadline:
                return None
            # Between two looks no connection is held: others have answers to wait for.
            time.sleep(_LOOK_S)
        return str(text, "utf-8", "replace")

    def ask(self, look: Callable[[Wire], T]) -> T:
        """What ``look(wire)`` finds; for questions and steps that may run twice.

        Raises StorageUnavailable.
        """
        return self._ask(look)

    def overview(self) -> counts.Overview:
        """All pools and nodes in numbers, now."""
        return self._ask(lambda wire: counts.look(wire, self.config.namespace))

    def stats(self, priority: int = 0) -> dict[str, Any]:
        """See ``Skedulr.stats``."""
        return self._ask(lambda wire: measures.stats(wire, self.config.namespace, priority))

    def history(
        self, pool: str | None, name: str | None, period_s: float, step_s: float | None
    ) -> dict[str, Any]:
        """See ``Skedulr.history``."""
        return self._ask(lambda wire: measures.history(
            wire, self.config.namespace, pool, name, period_s, step_s
        ))

    def leader(self) -> dict[str, Any] | None:
        """Which node leads: ``{"node", "term", "since", "why"}``, ``since`` in epoch seconds and
        ``why`` the lead was free to take, in words; None where nobody leads."""
        key = self.space.leader

        def look(wire: Wire) -> lead.Reign | None:
            fields, (seconds, micros) = wire.calls([
                ("HMGET", key, *lead.REIGN_FIELDS), ("TIME",)
            ])
            return lead.reign_of(fields, int(seconds) * 1000 + int(micros) // 1000)

        reign = self._ask(look)
        if reign is None:
            return None
        return {"node": reign.node, "term": reign.term, "since": reign.since_s, "why": reign.why}

    def decisions(self, limit: int = lead.MOST_DECISIONS) -> list[dict[str, Any]]:
        """What the leader decided of tuned pools and why, newest first; the last 200 are kept.

        Each is ``{"at", "pool", "kind", "from", "to", "why", "wait", "work", "leader"}``: epoch
        seconds; "grow", "shrink", "bounds", "limit" (it can not be what it should), "manual" or
        "auto"; workers in the cluster before and after; the reason; the predicted wait in seconds
        and how many workers had work; the node that decided.
        """
        key = SpaceKeys(self.config.namespace).decisions
        packed = self._ask(lambda wire: wire.call("LRANGE", key, 0, max(0, limit - 1)))
        return lead.decisions_of(packed)

    def resubmit(self, id: str) -> bool:
        """Put an ended task back into its queue; see ``Handle.resubmit``."""
        pool, uid = split_id(self._moved_to(id) or id)
        return self.resubmit_all(pool, [uid])[0] == STORED

    def resubmit_all(self, pool: str, uids: Sequence[str]) -> str:
        """Put up to 500 ended tasks of a pool back; a verdict letter each (see ``store``).

        Raises what the verdict stands for where a single one is named.
        """
        note = message.entry(message.RESUBMITTED, self.config.name, 0, 0)

        def put_back(wire: Wire) -> str:
            found = self._queries(pool).look(wire, uids)
            batch = [(facts.uid, _placing_again(facts.record), note) for facts in found]
            return self._store(pool).resubmit(wire, batch, self.config.capacity)

        verdicts = self.ask(put_back)
        if len(uids) == 1 and verdicts in (UNKNOWN, FULL, TAKEN):
            id = f"{pool}/{uids[0]}"
            if verdicts == UNKNOWN:
                raise _not_found(id)
            if verdicts == FULL:
                raise QueueFull(f"pool {pool!r} is full: it holds {self.config.capacity:,} tasks")
            raise DuplicateTask(f"another task has taken the unique key of {id}")
        return verdicts

    def pause(self, pool: str | None, paused: bool) -> list[str]:
        """Pause or resume a pool, or (None) every pool there is; the pools for which that was a
        change. UnknownPool."""
        chosen = self._chosen_pools(pool)

        def pause(wire: Wire, one: str) -> bool:
            return on_storage(self._store(one), lambda storage: storage.pause(wire, paused))

        return self.ask(lambda wire: [one for one in chosen if pause(wire, one)])

    def limits(self, pool: str | None = None) -> list[dict[str, Any]]:
        """The limits of a pool, or (None) of all there are; UnknownPool."""
        pools = self._chosen_pools(pool)
        return self.ask(lambda wire: limit_store.look(wire, self.config.namespace, pools))

    def set_limit(
        self, name: str, limit: Limit | None, pool: str | None = None
    ) -> list[dict[str, Any]]:
        """Have a limit be another one from now on, or (None) what its tasks declare; in one pool or
        in all that know it. What it is then. ConfigError, UnknownPool."""
        pools = self._chosen_pools(None)
        return self.ask(lambda wire: limit_store.change(
            wire, self.config.namespace, pools, name, limit, pool
        ))

    def scale_pool(self, pool: str, workers: int | None, *, create: bool = False) -> bool:
        """Give a pool ``workers`` workers in each of its processes, on every node; None: as many
        as it was started with (False where that was so). UnknownPool where no node serves it,
        unless ``create``."""
        def act(wire: Wire) -> bool:
            if workers is None:
                return sizing.reset(wire, self.space, pool)
            served = [one["name"] for one in counts.look(wire, self.config.namespace).pools
                      if not one["unserved"]]
            sizing.write(wire, self.space, pool, workers, served=served, create=create)
            return True

        return self.ask(act)

    def drain_node(self, node: str, drained: bool) -> bool:
        """Have a node claim nothing more, while what runs there ends, or (False) claim again; False
        where that was so already. ConfigError for a node that is not known."""
        def act(wire: Wire) -> bool:
            known = [one["id"] for one in counts.look(wire, self.config.namespace).nodes]
            if node not in known:
                raise ConfigError(f"there is no node {node!r}{nearest(node, known)}")
            return sizing.drain(wire, self.space, node, drained)

        return self.ask(act)

    def purge(self, pool: str, *, state: str | None = None, name: str | None = None) -> int:
        """Remove tasks of a pool for good, 500 a step; see ``Skedulr.purge``."""
        if state == "running":
            raise ConfigError("what runs is not removed: cancel it first")
        queries.check_state(state)
        self._chosen_pools(pool)
        states = _NOT_STARTED if state is None else (state,)
        return sum(self._purge_state(pool, one, name) for one in states)

    def _purge_state(self, pool: str, state: str, name: str | None) -> int:
        selection, namespace = lists.Selection(state, pool, name), self.config.namespace
        store, ended = self._store(pool), state not in _NOT_STARTED
        removed, cursor = 0, None
        while True:
            page = self.ask(partial(
                lists.page, namespace=namespace, pools=[pool], selection=selection,
                limit=queries.MOST_ITEMS, cursor=cursor,
            ))
            uids = [task["uid"] for task in page.items]
            if uids:
                removed += self.ask(partial(store.purge, uids=uids, ended=ended))
            cursor = page.cursor
            if cursor is None:
                return removed

    def _chosen_pools(self, pool: str | None) -> list[str]:
        """That pool, or (None) all there are; UnknownPool."""
        known = [one["name"] for one in self.pools()]
        if pool is not None and pool not in known:
            raise UnknownPool(f"there is no pool {pool!r}{nearest(pool, known)}")
        return known if pool is None else [pool]

    def pools(self) -> list[dict[str, Any]]:
        """Every pool in numbers: the form the HTTP interface calls "pool"."""
        return self.overview().pools

    def results(self, ids: Sequence[str]) -> list[Any]:
        """The results of tasks; a TaskFailed stands for each that did not succeed (so far).

        Raises PayloadTooLarge for more than MOST_RESULT_BYTES, StorageUnavailable.
        """
        found: dict[str, Any] = {}
        for id, record in self._ask(lambda wire: self._records(wire, ids)).items():
            home = None if record is None else message.moved_to(record)
            if home is not None:
                found[id] = self.results([home])[0]
            elif record is None:
                found[id] = self._unended(id)
            else:
                found[id] = _result_of(id, record, self.config.codec)
        return [found[id] for id in ids]

    def states(self, ids: Sequence[str]) -> list[str]:
        """The states of tasks; "unknown" where nothing is known of one."""
        found = self._ask(lambda wire: self._states(wire, ids))
        return [found.get(id) or self._state_elsewhere(id) for id in ids]

    def _states(self, wire: Wire, ids: Sequence[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for pool, uids in _by_pool(ids).items():
            for at in range(0, len(uids), 500):
                for facts in self._queries(pool).look(wire, uids[at:at + 500]):
                    found[f"{pool}/{facts.uid}"] = facts.state
        return found

    def _state_elsewhere(self, id: str) -> str:
        try:
            return self.state(id)
        except TaskNotFound:
            return "unknown"

    def _unended(self, id: str) -> TaskFailed:
        try:
            return TaskFailed(id, self.state(id), None, "it has not ended")
        except TaskNotFound:
            return TaskFailed(id, "removed", None, "nothing is known of it any more")

    def _records(self, wire: Wire, ids: Sequence[str]) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        left = MOST_RESULT_BYTES
        for pool, uids in _by_pool(ids).items():
            key = PoolKeys(self.config.namespace, pool).records
            for at in range(0, len(uids), 500):
                part = uids[at:at + 500]
                left -= sum(wire.calls([("HSTRLEN", key, uid) for uid in part]))
                if left < 0:
                    raise PayloadTooLarge(
                        f"the results of {len(ids):,} tasks have more than "
                        f"{MOST_RESULT_BYTES:,} bytes together"
                    )
                records = wire.call("HMGET", key, *part)
                found |= {f"{pool}/{uid}": one for uid, one in zip(part, records, strict=True)}
        return found

    # Workflows

    def new_uid(self) -> str:
        """A uid that nothing has yet."""
        return self._uids.next()

    def placed(self, call: Call[Any]) -> Call[Any]:
        """A call whose task's pool is known as well as it can be."""
        return self._placed(call) if call.task.function is None else call

    def start_workflow(
        self, id: str, name: str, steps: Sequence[tuple[str | None, str | None, Call[Any]]],
        *, given: bool = False,
    ) -> None:
        """Store the steps of a workflow, all of them or none, and let them go: name, kind ("map",
        "part" or None), call. ``given``: the id is the user's, and may have been started before.

        They are held back by a task that stands for all of it until the last one is stored. A
        process that dies meanwhile leaves nothing that runs: a deliverer removes it all.
        Raises what a submit raises.
        """
        pool, _ = split_id(id)
        places = [
            [name, call.task.option("pool", "default"), *([] if kind is None else [kind])]
            for name, kind, call in steps
        ]
        body = message.envelope(
            message.name_part(name), (), {}, {"steps": places}, self.config.payload_limit,
            self.config.payload_limit + 400 * len(places),
        )
        calls = [call for _, _, call in steps]
        deadline = time.monotonic() + self.config.submit_timeout_s
        while not self._begin_workflow(id, body, calls, given=given):
            # What an earlier try had left was removed in the middle of this one.
            if not given or time.monotonic() > deadline:
                raise StorageUnavailable(
                    f"workflow {id} took too long to be stored, and was removed: nothing of it runs"
                )
            time.sleep(_LOOK_S)
        try:
            self._ask(lambda wire: self._tell_deliverers(wire, [pool]))
        except StorageUnavailable as error:
            log.debug("the deliverers could not be told, and look by themselves: %s", error)

    def _begin_workflow(
        self, id: str, body: bytes, calls: Sequence[Call[Any]], *, given: bool
    ) -> bool:
        """Store it and let it begin, if it has not; False where a deliverer took it for unfinished
        and removed it meanwhile."""
        pool, uid = split_id(id)
        held = Submission(uid, body, "0 - - A")
        try:
            self._settle(pool, self._process().committer(pool).submit([held]), 0)
        except StorageUnavailable as error:
            raise self._unstarted(error, maybe=False) from error
        if given and self._has_begun(pool, uid):
            return True  # and is the same: another one would have been a duplicate
        asked = False
        try:
            self._store_steps(calls)
            entry, asked = message.entry(message.SUCCEEDED, "", 0, 0, {"steps": len(calls)}), True
            begun = self._ask(lambda wire: self._store(pool).begin(wire, "begin", uid, entry))
        except BaseException as error:
            if given and isinstance(error, TaskNotFound) and self._was_removed(pool, uid):
                return False  # and so were the steps that others of its steps wait for
            # Under an id of the user's another process may be storing the same workflow just now:
            # what is unfinished after a minute goes by itself.
            gone = None if given else self._drop_workflow(id, body)
            if not isinstance(error, StorageUnavailable):
                raise
            if gone is not False:
                raise self._unstarted(error, maybe=asked and not gone) from error
            begun = ENDED  # it had begun, and that was not heard
        return begun != UNKNOWN

    def _has_begun(self, pool: str, uid: str) -> bool:
        return self._ask(lambda wire: self._queries(pool).look(wire, [uid])[0]).record is not None

    def _was_removed(self, pool: str, uid: str) -> bool:
        held = self._ask(lambda wire: self._store(pool).waits(wire, uid))
        return not held and not self._has_begun(pool, uid)

    def _unstarted(self, error: StorageUnavailable, *, maybe: bool) -> StorageUnavailable:
        """Why a workflow could not be started: whatever is stored of it, it runs only once it has
        begun."""
        return unavailable(error.__cause__ or error, at=self.config.at, maybe_submitted=maybe)

    def _store_steps(self, calls: Iterable[Call[Any]]) -> None:
        parcels: list[tuple[str, Parcel]] = []
        bulk: Bulk[Call[Any], Handle[Any]] = Bulk(
            prepare=self._prepare, post=self._post, settle=self._settle,
            stored=lambda pool, parcel: parcels.append((pool, parcel)),
        )
        for _ in bulk.run(calls):
            pass
        # Only now: a step may wait for one that was stored after it.
        for pool, parcel in parcels:
            # Also those that were there: the reply of an earlier try was lost, or its process died
            # before it had tied them, and nobody else ties what a workflow holds back.
            self._tie(pool, parcel, STORED + ALREADY)

    def _drop_workflow(self, id: str, body: bytes) -> bool | None:
        """Remove what is stored of it; False where it had begun. None where Redis does not answer:
        a deliverer does it in time."""
        try:
            return self._ask(lambda wire: Delivery(self.config.namespace, wire).drop(
                id, message.read_journal(body)
            ))
        except StorageUnavailable as error:
            log.warning("workflow %s could not be removed now: %s", id, error)
            return None

    def workflow(
        self, id: str, *, most_steps: int = 500, among: Container[str] | None = None
    ) -> dict[str, Any]:
        """A workflow: state, how many of its steps are in which state, its first steps in full.
        ``among`` leaves it at those steps, of a part of it.

        Raises TaskNotFound.
        """
        seen = self._see_workflow(id, among)
        return flows.workflow_view(
            "/".join(split_id(id)), seen.journal, begun=seen.begun, steps=seen.steps,
            views=seen.views, children=seen.children, most_steps=most_steps,
        )

    def workflows(
        self, *, pool: str | None = None, state: str | None = None, limit: int = 25,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """The newest workflows by pages: ``{"items", "cursor"}``; see ``workflow_list.page``."""
        def look(wire: Wire) -> tuple[list[dict[str, Any]], str | None]:
            return workflow_list.page(
                wire, self.config.namespace, queries.pool_names(wire, self.space), pool=pool,
                state=state, limit=limit, cursor=cursor,
            )

        items, following = self._ask(look)
        return {"items": items, "cursor": following}

    def _see_workflow(self, id: str, among: Container[str] | None) -> _Workflow:
        pool, uid = split_id(id)
        facts = self._ask(lambda wire: self._queries(pool).look(wire, [uid])[0])
        text = facts.record or facts.body
        journal = None if text is None else message.read_journal(text)
        if journal is None or "steps" not in journal.extras:
            raise TaskNotFound(f"no workflow {id} is known")
        steps = [
            flows.StepOf(f"{where}/{uid}.{at}", name, kind[0] if kind else None)
            for at, (name, where, *kind) in enumerate(journal.extras["steps"])
        ]
        steps = [one for one in steps if among is None or one.id in among]
        views = self._ask(lambda wire: self._looks(wire, [one.id for one in steps]))
        maps = [one.id for one in steps if one.kind == "map" and one.id in views]
        return _Workflow(
            facts.record is not None, journal, steps, views,
            {one: self._mapped(one, views[one]["state"]) for one in maps},
        )

    def _mapped(self, id: str, state: str) -> dict[str, str]:
        """The tasks that a map step has made, and their states."""
        pool, uid = split_id(id)
        facts = self._ask(lambda wire: self._queries(pool).look(wire, [uid])[0])
        ids = _children_of(id, facts.record or facts.body)
        if state == "succeeded":
            return dict.fromkeys(ids, "succeeded")
        return dict(zip(ids, self.states(ids), strict=True))

    def _looks(self, wire: Wire, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for pool, uids in _by_pool(ids).items():
            for at in range(0, len(uids), 500):
                for view in self._queries(pool).tasks(wire, uids[at:at + 500]):
                    found[view["id"]] = view
        return found

    def open_steps(self, id: str, *, among: Container[str] | None = None) -> list[str]:
        """The ids of steps, and tasks of maps, that have not ended."""
        states = self._see_workflow(id, among).states()
        return [one for one, state in states.items() if state not in (*flows.ENDS, "unknown")]

    def cancel_workflow(self, id: str, *, among: Container[str] | None = None) -> int:
        """Cancel every step that has not ended, those that wait first; how many were."""
        pool, uid = split_id(id)
        seen = self._see_workflow(id, among)
        if not seen.begun and among is None:
            facts = self._ask(lambda wire: self._queries(pool).look(wire, [uid])[0])
            if facts.body is not None:
                self._drop_workflow(id, facts.body)
        # Backwards and waiting ones first, or the end of one would start what waits for it.
        open_ = [(one, state) for one, state in reversed(seen.states().items())
                 if state not in (*flows.ENDS, "unknown")]
        open_.sort(key=lambda one: one[1] != "waiting")
        count = 0
        for one, _ in open_:
            try:
                # A map's tasks may have been cancelled with it.
                count += self.cancel(one) or self.state(one) == "cancelled"
            except TaskNotFound:
                continue
        return count

    def resubmit_workflow(self, id: str, *, among: Container[str] | None = None) -> int:
        """Put back every step that failed; what was skipped for it waits again; how many were.

        What was cancelled waits again for what it waited for, or a step would run before those
        that were cancelled with it.
        """
        seen = self._see_workflow(id, among)
        states = seen.states()
        waiting = [one for one, state in states.items()
                   if state == "cancelled" and seen.has_parents(one)]
        count = self._ask(lambda wire: self._open_again(wire, waiting)) if waiting else 0
        failed = [one for one, state in states.items()
                  if state in flows.FAILED and one not in waiting]
        return count + sum(self.resubmit(one) for one in failed)

    def _open_again(self, wire: Wire, ids: Sequence[str]) -> int:
        delivery = Delivery(self.config.namespace, wire)
        count = delivery.open_again(ids)
        self._tell_deliverers(wire, delivery.told)
        return count

    # Waiting

    def result(self, id: str, timeout: float | timedelta | None) -> Any:
        """The result of a task, waiting for its end; see ``Handle.result`` for the errors."""
        record = self.wait(id, timeout)
        if record is None:
            raise ResultTimeout(f"task {id} had not ended after {timeout} s")
        found = _result_of(id, record, self.config.codec)
        if isinstance(found, TaskFailed):
            raise found
        return found

    def wait(self, id: str, timeout: float | timedelta | None) -> bytes | None:
        """The record of a task once it ended, or None when the time is over; TaskNotFound."""
        for _, record in self.ends([id], timeout):
            return record
        return None

    def ends(
        self, ids: Iterable[str], timeout: float | timedelta | None
    ) -> Iterator[tuple[str, bytes]]:
        """(id, record) of tasks in the order in which they end, until all have or time is over.

        Raises TaskNotFound, and StorageUnavailable where the time is over and Redis was away; no
        time-out, no such end.
        """
        deadline = None
        if timeout is not None:
            deadline = time.monotonic() + options.seconds("timeout", timeout)
        asked = {"/".join(split_id(id)): id for id in ids}
        process = self._process()
        channel = process.listener.channel
        _warn_of_deadlock(asked)

        def look(id: str) -> bytes | None:
            pool, uid = split_id(id)
            store = self._store(pool)
            # Longer than the waiting, if that is short: or a busy Redis would never be heard.
            left_s = None if deadline is None else max(1.0, deadline - time.monotonic())
            found = self._try(lambda wire: store.watch(wire, uid, channel), left_s)
            if found is False:
                found = self._try(lambda wire: _look_elsewhere(wire, store, uid, channel), left_s)
            if found is False:
                raise _not_found(id)
            return found if isinstance(found, bytes) else None

        def unlook(id: str) -> None:
            pool, uid = split_id(id)
            self._try(lambda wire: self._store(pool).unwatch(wire, uid, channel), 1.0)

        watch = Watch(listener=process.listener, ids=asked, look=look, unlook=unlook)
        elsewhere: dict[str, str] = {}
        try:
            for id, record in watch.ends(deadline):
                home = message.moved_to(record)
                if home is None:
                    yield asked[id], record
                else:
                    elsewhere[home] = asked[id]
        except WireError as error:
            raise unavailable(error, at=self.config.at) from error
        if elsewhere:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for home, record in self.ends(elsewhere, left):
                yield elsewhere[home], record

    # Tasks by name

    def published(self, name: str) -> Published | None:
        """What children say of a task: its pool, its defaults; None where none knows the name."""
        return self._directory.find(name)

    def require(self, name: str) -> Published:
        """The same; UnknownTask names the nearest one."""
        found = self.published(name)
        if found is None:
            known = self._ask(lambda wire: wire.call("HKEYS", self.space.names))
            names = (one.decode("utf-8", "replace") for one in known)
            raise UnknownTask(f"no process has published a task {name!r}{nearest(name, names)}")
        return found

    def require_pool(self, name: str) -> None:
        """UnknownPool where nothing was ever served or submitted under that name; it names the
        nearest pool there is."""
        self._chosen_pools(name)

    def _look_up(self, name: str) -> bytes | None:
        entry: bytes | None = self._ask(lambda wire: wire.call("HGET", self.space.names, name))
        return entry

    def _placed(self, call: Call[Any]) -> Call[Any]:
        """A call by name alone, with the pool and the defaults that its task was published with."""
        task = call.task
        found = self.published(task.name)
        if found is None and "pool" in task.own:
            return call
        defaults = {} if found is None else {**found.defaults, "pool": found.pool}
        return Call(
            Task(
                app=task.app, name=task.name, function=None, defaults=defaults, own=task.own,
                unplaced=found is None,
            ),
            call.args, call.kwargs,
        )

    def _home(self, id: str) -> str:
        """Where an id that is nothing here any more went; TaskNotFound."""
        home = self._moved_to(id)
        if home is None:
            raise _not_found(id)
        return home

    def _moved_to(self, id: str) -> str | None:
        pool, uid = split_id(id)
        return self._ask(lambda wire: self._queries(pool).look(wire, [uid])[0].moved_to)

    # Inside

    def _store(self, pool: str) -> Store:
        return Store(PoolKeys(self.config.namespace, pool))

    def _queries(self, pool: str) -> queries.PoolQueries:
        return queries.PoolQueries(PoolKeys(self.config.namespace, pool))

    def _process(self) -> _Process:
        here = os.getpid(), socket_thread()
        current = self._processes.get(here)
        if current is None:
            # After a fork the parent's connections and threads are not ours. Of several threads
            # that come here at once one wins, without a lock that a fork could copy locked.
            current = self._processes.setdefault(here, _Process(self.config))
            self._drop_those_of_dead_threads()
        return current

    def _drop_those_of_dead_threads(self) -> None:
        if sys.platform != "linux":
            return  # nowhere to ask
        for pid, thread in list(self._processes):
            if thread and not os.path.exists(f"/proc/{pid}/task/{thread}"):
                process = self._processes.pop((pid, thread), None)
                if process is not None:
                    process.drop()

    def _ask(self, look: Callable[[Wire], T]) -> T:
        """Run a harmless question or a repeatable step; StorageUnavailable."""
        try:
            return self._try(look, None)
        except WireError as error:
            raise unavailable(error, at=self.config.at) from error

    def _try(self, look: Callable[[Wire], T], timeout_s: float | None) -> T:
        """Run it, and once more where its connection had died, in ``timeout_s`` (None: as long as
        a submit may take)."""
        wires = self._process().wires
        allowed_s = self.config.submit_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + allowed_s
        try:
            with wires.lend(allowed_s) as wire:
                return look(wire)
        except WireError:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise
        with wires.lend(left_s) as wire:
            return look(wire)


def _warn_of_deadlock(ids: Iterable[str]) -> None:
    """Say once where a task waits for one of its own pool: all workers may come to wait like it."""
    here = context.running_context()
    if here is None or here.name in _warned:
        return
    if any(split_id(id)[0] == here.pool for id in ids):
        _warned.add(here.name)
        log.warning(
            "task %s waits for a task of its own pool %r: when every worker of the pool waits, "
            "nothing runs any more; submit it to another pool, or use depends_on",
            here.id, here.pool,
        )


def _look_elsewhere(wire: Wire, store: Store, uid: str, channel: str) -> bytes | bool:
    """As ``watch``, of a task that is not known in Redis: its pool may be kept somewhere else."""
    other = kept_elsewhere(wire, store.keys)
    return False if other is None else other.watch(wire, uid, channel)


def _children_of(id: str, journal: bytes | None) -> list[str]:
    """The ids of the tasks that a map step has made; none of any other task."""
    if journal is None or b"map" not in journal:
        return []
    try:
        return spreading.child_ids(id, spreading.spread_of(message.read_journal(journal)) or 0)
    except PayloadError:
        return []


def _result_of(id: str, record: bytes, codec: Codec | None) -> Any:
    """The result in a record, or the TaskFailed that says how the task ended; PayloadError for a
    result that the codec did not seal."""
    journal = message.read_journal(record)
    last = journal.entries[-1]
    if last.kind == message.SUCCEEDED:
        return message.open_result(journal.name, last.value, codec)
    state = journal.end_state or "dead"
    if isinstance(last.value, list):
        return TaskFailed(id, state, last.value[0], last.value[1])
    return TaskFailed(id, state, None, str(last.value or ""))


def _by_pool(ids: Iterable[str]) -> dict[str, list[str]]:
    pools: dict[str, list[str]] = {}
    for id in ids:
        pool, uid = split_id(id)
        pools.setdefault(pool, []).append(uid)
    return pools


def _placing_again(record: bytes | None) -> str:
    """The options under which an ended task is put back: its priority and its unique key."""
    if record is None:
        return ""
    try:
        placing = str(message.read_journal(record).extras.get("placing", ""))
    except PayloadError:
        return ""
    # Where the key is taken by now that is said, whatever the first submit was told to do.
    return re.sub(r" ([dsw]):[rp]:", r" \1:x:", placing)


def _not_found(id: str) -> TaskNotFound:
    id = "/".join(split_id(id))  # the pool that a bare uid means is told
    return TaskNotFound(f"no task {id} is known: never submitted, or its record was forgotten")
