"""Site: what all handlers share: the questions pages ask, the changes they make, who asks.

Answers that many browsers want at once are made once and kept for a moment; everything behind the
HTTP interface is asked anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import bottle

from .. import figures, lists, measures, queries, sizing
from ..client import Client
from ..counts import Overview
from ..errors import ConfigError, StorageUnavailable, UnknownPool, nearest
from ..handles import Handle
from ..kept import Kept
from ..keys import PoolKeys, check_name, split_id
from ..limiting import Limit
from ..queries import PoolQueries
from ..schedule_client import Schedule, Schedules
from ..wire import Wire
from . import redisview, samples, sparks
from .audit import Audit
from .calls import call_of
from .checkup import Checkup
from .events import Feed
from .operations import Operations, Record
from .security import Caller
from .sparks import Failing, Spark

#: Where a request's own things are kept in its environ.
BASE, CALLER = "skedulr.base", "skedulr.caller"
#: How long answers for pages are kept, seconds.
_COUNTS_S, _NAMES_S, _SAMPLES_S, _HISTORY_S = 0.5, 1.0, 5.0, 5.0
#: Histories that are kept at a time.
_HISTORIES = 200

#: What can be done to a workflow.
WORKFLOW_ACTIONS = ("cancel", "resubmit")


class Site:
    """One namespace as the UI sees it. ``client`` may be a function, for one that comes later."""

    def __init__(self, client: Client | Callable[[], Client]) -> None:
        self._client = client
        self._key: bytes | None = None
        self._spare_key = os.urandom(32)
        self._key_guard = threading.Lock()
        self._overview = Kept(self.overview, _COUNTS_S)
        self._ended = Kept(self._sample, _SAMPLES_S)
        self._names = Kept(self._measure_names, _NAMES_S)
        self._dead = Kept(self._sample_dead, _SAMPLES_S)
        self._sparks = Kept(self._make_sparks, _HISTORY_S)
        self._failing = Kept(self._make_failing, _HISTORY_S)
        self._frame = Kept(self._make_frame, _COUNTS_S)
        self._histories: dict[tuple[Any, ...], Kept[dict[str, Any]]] = {}
        self.feed = Feed(lambda: self.overview().stats())

    @property
    def client(self) -> Client:
        """The client; it connects at its first use."""
        return self._client if isinstance(self._client, Client) else self._client()

    @property
    def audit_log(self) -> Audit:
        """The list of changes."""
        return Audit(self.client)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the namespace."""
        return Schedules(self.client)

    @property
    def operations(self) -> Operations:
        """Changes of many tasks in the background."""
        client = self.client
        known: Operations | None = getattr(self, "_operations", None)
        if known is None or known.client is not client:
            known = self._operations = Operations(client)
        return known

    @property
    def checkup(self) -> Checkup:
        """The doctor's examination, in the background."""
        return Checkup(self.client)

    # Looking

    def overview(self) -> Overview:
        """Pools and nodes in numbers, now."""
        return self.client.overview()

    def kept_overview(self) -> Overview:
        """The same, at most half a second old."""
        return self._overview.get()

    def stats(self) -> dict[str, Any]:
        """The form the HTTP interface calls "stats"."""
        return {**self.overview().stats(), "names": self._names.get()}

    def names_measured(self) -> list[dict[str, Any]]:
        """Runs, failures and times of each task since ever."""
        return self._names.get()

    def pool(self, name: str) -> dict[str, Any]:
        """One pool in numbers; UnknownPool."""
        check_name("pool", name)
        pools = {pool["name"]: pool for pool in self.overview().pools}
        if name not in pools:
            raise UnknownPool(f"no pool is called {name!r}{nearest(name, pools)}")
        return pools[name]

    def page(self, selection: lists.Selection, limit: int, cursor: str | None) -> lists.Page:
        """One page of a list of tasks."""
        def look(wire: Wire) -> lists.Page:
            return lists.page(
                wire, self.client.config.namespace, self.pool_names(), selection, limit, cursor
            )

        return self.client.ask(look)

    def views(self, ids: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Those tasks that are known, by (pool, uid)."""
        by_pool: dict[str, list[str]] = {}
        for pool, uid in ids:
            by_pool.setdefault(pool, []).append(uid)
        return self.client.ask(lambda wire: [
            view for pool, uids in by_pool.items() for view in self._queries(pool).tasks(wire, uids)
        ])

    def attempts(self, pool: str, uid: str) -> list[dict[str, Any]]:
        """How each attempt of a task ended, oldest first."""
        pool, uid = split_id(f"{pool}/{uid}")
        return self.client.ask(lambda wire: self._queries(pool).attempts(wire, uid))

    def names(self) -> list[str]:
        """Names of tasks, for completion: published ones, and those that ended lately."""
        def look(wire: Wire) -> list[str]:
            published = {name.decode() for name in wire.call("HKEYS", self.client.space.names)}
            return sorted(published | set(samples.names_of(self._ended.get())))

        return self.client.ask(look)

    def dead_sample(self) -> list[samples.Ended]:
        """The newest dead tasks of each pool."""
        return self._dead.get()

    def history(
        self, pool: str | None, name: str | None, period_s: float, step_s: float | None
    ) -> dict[str, Any]:
        """How a pool, or a task, did over time, at most some seconds old; see ``measures``."""
        # Checked before it is kept: what is kept is bounded by what there is.
        how = figures.plan(period_s, step_s)
        asked = (pool, name, how)
        if asked not in self._histories and len(self._histories) >= _HISTORIES:
            self._histories.clear()
        kept = self._histories.setdefault(asked, Kept(
            lambda: self.client.history(pool, name, period_s, step_s), _HISTORY_S
        ))
        return kept.get()

    def sparks(self) -> dict[str, Spark]:
        """The last hour of each pool in small."""
        return self._sparks.get()

    def failing(self) -> list[Failing]:
        """Which tasks failed in the last hour."""
        return self._failing.get()

    def terms(self) -> list[str]:
        """What is worth searching for: errors, tags, workers and names of what ended lately."""
        return samples.terms([*self._dead.get(), *self._ended.get()])

    def redis(self) -> redisview.RedisView:
        """The server below."""
        return redisview.look(self.client, self.pool_names())

    def frame(self) -> dict[str, Any]:
        """What every page shows around itself: how many dead tasks, which operations run."""
        return self._frame.get()

    def pool_names(self) -> list[str]:
        """All pools, sorted, also one that was used for the first time just now."""
        space = self.client.space
        return self.client.ask(lambda wire: queries.pool_names(wire, space))

    def now_s(self) -> float:
        """Redis' time, as far as it is known."""
        try:
            return self.kept_overview().now_s
        except StorageUnavailable:
            return time.time()

    def wall_s(self) -> float:
        """This machine's time, which sessions go by."""
        return time.time()

    def schedule_page(
        self, limit: int, cursor: str | None
    ) -> tuple[list[tuple[Schedule, list[dict[str, Any]]]], str | None]:
        """Schedules with their last runs, sorted by name, and where the next page begins."""
        schedules = self.schedules
        found, following = schedules.read_page(limit, cursor)
        return list(zip(found, schedules.runs_of(found), strict=True)), following

    # Changing

    def steer_schedule(self, name: str, action: str) -> tuple[Schedule, str | None]:
        """Run, pause, resume or remove a schedule; it as it is then (a removed one as it was), and
        the id of the run."""
        schedules, run = self.schedules, None
        schedule = schedules.get(name)
        if action == "run":
            run = schedules.run(name).id
        elif action == "remove":
            schedules.remove(name)
        else:
            schedule = schedules.pause(name) if action == "pause" else schedules.resume(name)
        self.audit(f"{action} schedule", name)
        return schedule, run

    def steer_workflow(self, id: str, action: str) -> int:
        """Cancel a workflow, or resubmit what failed of it; how many tasks that was a change for.
        TaskNotFound."""
        act = self.client.cancel_workflow if action == "cancel" else self.client.resubmit_workflow
        count = act(id)
        self.audit(f"{action} workflow", id)
        return count

    def submit(self, given: dict[str, Any]) -> Handle[Any]:
        """Queue what a submit's JSON describes."""
        return self.client.submit(call_of(given))

    def pause(self, pool: str | None, paused: bool) -> None:
        """Pause or resume one pool, or (None) all of them; UnknownPool."""
        self.client.pause(pool, paused)
        self.audit("pause" if paused else "resume", f"pool {pool}" if pool else "all pools")

    def scale(self, pool: str, workers: int | None) -> None:
        """Give a pool this many workers a process; None: as many as it was started with."""
        sizing.check_workers(0 if workers is None else workers)
        self.pool(pool)
        self.client.scale_pool(pool, workers)
        self.audit("scale", f"pool {pool} to {'its own size' if workers is None else workers}")

    def limits(self) -> list[dict[str, Any]]:
        """The limits of all pools."""
        return self.client.limits()

    def set_limit(
        self, name: str, limit: Limit | None, pool: str | None
    ) -> list[dict[str, Any]]:
        """Have a limit be another one, or (None) as its tasks declare it; what it is then."""
        changed = self.client.set_limit(name, limit, pool)
        how = "as declared" if limit is None else repr(limit)
        self.audit("set limit", f"{name} in {pool or 'all pools'}: {how}")
        return changed

    def drain(self, node: str, drained: bool) -> dict[str, Any]:
        """Have a node claim nothing more, or again; its record as it is then."""
        self.client.drain_node(node, drained)
        self.audit("drain" if drained else "undrain", f"node {node}")
        return next(one for one in self.overview().nodes if one["id"] == node)

    def sizes(self) -> dict[str, int]:
        """Workers a process of each pool has: as they were set, else as they are."""
        overview = self.kept_overview()
        found = {
            child["pool"]: int(child.get("workers") or 0)
            for node in overview.nodes if not node["silent"] for child in node["children"]
        }
        space = self.client.space
        stored = self.client.ask(lambda wire: sizing.read(wire, space))
        return {**found, **{name: size.workers for name, size in stored.items()}}

    def start(self, action: str, selection: lists.Selection) -> Record:
        """Begin an operation on all tasks that are meant."""
        if selection == lists.Selection():
            raise ConfigError(
                "an empty selection means every task there is: name a state, a pool or a task"
            )
        if action == "remove" and selection.state is None:
            raise ConfigError('removing needs a "state": what ended is removed when it is named')
        if selection.pool is not None:
            self.pool(selection.pool)
        record = self.operations.start(action, selection, self.caller().name or "anybody")
        self.audit(f"{action} all", _described(selection))
        return record

    def purge(self, pool: str, state: str | None, name: str | None) -> Record:
        """Remove what a pool holds in a state; None: all that has not started."""
        self.pool(pool)
        if state == "running":
            raise ConfigError("what runs can not be purged: cancel it")
        selection = lists.Selection(state=state, pool=pool, name=name)
        record = self.operations.start("purge", selection, self.caller().name or "anybody")
        self.audit("purge", _described(selection))
        return record

    def examine(self, fix: bool) -> dict[str, Any]:
        """Begin a checkup, or find the one that runs; its record."""
        record = self.checkup.start(self.caller().name or "anybody", fix=fix)
        self.audit("doctor, with repair" if fix else "doctor", "all pools")
        return record

    def audit(self, what: str, target: str) -> None:
        """Note a change: who did what to what."""
        caller = self.caller()
        where = str(bottle.request.environ.get("REMOTE_ADDR", ""))
        self.audit_log.note(
            who=caller.name or "anybody", where=where, what=what, target=target
        )

    # Who and where

    def base(self) -> str:
        """The path this UI is mounted at, as the browser sees it; '' at the root."""
        return str(bottle.request.environ[BASE])

    def caller(self) -> Caller:
        """Who sent the request at hand."""
        caller: Caller = bottle.request.environ[CALLER]
        return caller

    def key(self) -> bytes:
        """A secret that all masters of the namespace share; made by the first one.

        Where Redis does not answer, one of this process for the time being: pages still open.
        """
        with self._key_guard:
            if self._key is None:
                try:
                    self._key = self.client.ask(self._shared_key)
                except StorageUnavailable:
                    return self._spare_key
            return self._key

    def _shared_key(self, wire: Wire) -> bytes:
        place = self.client.space.ui
        wire.call("HSETNX", place, "secret", os.urandom(32).hex())
        key: bytes = wire.call("HGET", place, "secret")
        return key

    # Inside

    def _queries(self, pool: str) -> PoolQueries:
        return PoolQueries(PoolKeys(self.client.config.namespace, pool))

    def _measure_names(self) -> list[dict[str, Any]]:
        names = self.pool_names()
        return self.client.ask(
            lambda wire: measures.names(wire, self.client.config.namespace, names)
        )

    def _sample(self) -> list[samples.Ended]:
        names = self.pool_names()
        return self.client.ask(lambda wire: samples.newest(
            wire, self.client.config.namespace, names, ("done", "dead"), samples.RECORDS
        ))

    def _sample_dead(self) -> list[samples.Ended]:
        names = self.pool_names()
        return self.client.ask(lambda wire: samples.newest(
            wire, self.client.config.namespace, names, ("dead",), samples.DEAD_RECORDS
        ))

    def _make_failing(self) -> list[Failing]:
        names = self._names.get()
        return self.client.ask(lambda wire: sparks.failing(
            wire, self.client.config.namespace, names, self.now_s()
        ))

    def _make_sparks(self) -> dict[str, Spark]:
        names = self.pool_names()
        return self.client.ask(lambda wire: sparks.sparks(
            wire, self.client.config.namespace, names, self.now_s()
        ))

    def _make_frame(self) -> dict[str, Any]:
        overview = self.kept_overview()
        return {
            "dead": sum(pool["dead"] for pool in overview.pools), "pools": overview.pools,
            "operations": [
                one for one in self.operations.newest() if one["state"] == "running"
            ],
        }


def _described(selection: lists.Selection) -> str:
    """A selection in words."""
    parts = [
        f"{name} {value}"
        for name in ("state", "pool", "name", "query") if (value := getattr(selection, name))
    ]
    return ", ".join(parts)
