"""The master: supervises the children of one node, and lets the UI be served beside that.

One loop on the main greenlet acts on recorded signals, reaps, releases what the dead held, forks
successors, kills what hangs, follows the sizes that operators set, and takes part in the election,
whose beat keeps the node's record. A
child that can not boot ends the master with its status; there is no respawn loop for a mistake in
the user's code. Once the node has served, such a child's predecessor goes on instead.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import msgpack
import psutil

from .. import __version__
from ..config import Config, PoolSpec
from ..errors import ConfigError
from ..hub.driver import Driver
from ..hub.monitor import greenlet_stacks
from ..keys import SpaceKeys
from ..lead import Beat, LeadStore
from ..wire import WireError
from ..wires import SharedWire
from .child import CANNOT_BOOT, DRAINED, GONE
from .children import MOST_WORKERS, Children, Death, Process
from .election import Election
from .estates import Estates
from .hangs import HangWatch
from .notify import Notifier
from .reloader import Reloader
from .shares import shares_of
from .signals import WATCHED, Signals
from .sizes import Sizes
from .teller import Teller
from .tuner import FULL, Tuner
from .vitals import NEAR_MAX_RSS, Vitals

log = logging.getLogger("skedulr.master")

#: Between two looks, seconds: while some child is coming or going, less where the lease is under
#: 5 s; and while all are there, less where the lease or the time limit of hangs is short.
LOOK_S, CALM_LOOK_S = 0.5, 1.0
#: Between two looks at the stored sizes that nothing asked for, seconds: whoever changes one may
#: die before it is counted as a change.
SIZES_S = 60.0
#: Between two tries to check a server that does not answer yet, seconds.
CHECK_S = 2.0
#: Between two looks at the files, with --reload, seconds.
RELOAD_S = 0.5
#: Between two looks at a child's memory, its count of tasks, and the CPU it uses, seconds.
TIRED_S = 1.0
#: After the grace time, and what a child needs for its own end, it is killed, seconds.
KILL_AFTER_S = 3.0
#: A terminal may deliver one Ctrl-C twice: only a later one is a second one, seconds.
ONE_SIGNAL_S = 0.2
#: A node that has not written its record for this long, by whatever clock, is forgotten, seconds.
LOST_S = 86_400.0
#: How long the end waits for what the dead held to be given back, seconds.
LAST_RELEASES_S = 2.0

STOPPED, FAILED, UNUSABLE = 0, 1, 2


class Master:
    """Runs one node until it is told to stop. ``url`` is the server, for master and children;
    ``check_server`` is called until it raises no WireError: the server was away at the start. A
    ConfigError of it ends the node."""

    def __init__(
        self, *, config: Config, url: str, notifier: Notifier | None = None,
        check_server: Callable[[], None] | None = None,
    ) -> None:
        self._check_server = check_server
        self.config, self.url = config, url
        self.node = secrets.token_hex(4)
        self.started_at = time.time()
        self.children = Children(config=config, url=url, node=self.node)
        name = f"skedulr:{self.node}:master"
        self._space = SpaceKeys(config.namespace)
        self._signals = Signals()
        self._wire = SharedWire(url, name=f"{name}:node")
        self._sizes = Sizes(
            url=url, space=self._space, name=name, on_change=self._signals.wake,
            on_free=lambda: self._election.hurry(),
        )
        self._estates = Estates(
            url=url, namespace=config.namespace, node=self.node, lease_s=config.lease
        )
        self._hangs = HangWatch(
            timeout_s=config.hang_timeout, lease_s=config.lease, renew=self._renew,
            now=time.monotonic(),
        )
        self._notifier = notifier or Notifier({})
        self._driver = Driver()
        lead = LeadStore(config.namespace)
        tuned = self._tuned = bool(config.modules) and any(pool.tuned for pool in config.pools)
        self._election = Election(
            store=lead, wire=self._wire, node=self.node, driver=self._driver,
            record=self._record, tuned=lambda: tuned, on_beat=self._on_beat,
        )
        self._tuner = Tuner(store=lead, wire=self._wire, node=self.node)
        self._teller = Teller(
            store=lead, wire=self._wire, node=self.node, namespace=config.namespace
        )
        self._vitals = Vitals()
        #: Processes that are to be replaced, one after the other.
        self._rolling: deque[Process] = deque()
        self._releasing: list[gevent.Greenlet] = []
        self._reloading = False
        self._more_workers = 0
        #: Whether the leader has given this node a share of some pool.
        self._tuned_once = False
        self._has_served = False
        self._told: tuple[Any, ...] = ()
        self._stopping_since: float | None = None
        self._killed = False
        self._status = STOPPED

    def run(self, beside: Callable[[], None] = lambda: None) -> int:
        """Supervise; the exit status. ``beside`` is called once the children are forked."""
        self._start(beside)
        look_s = min(LOOK_S, self.config.lease / 10)
        calm_s = max(look_s, min(CALM_LOOK_S, self.config.lease / 10, self.config.hang_timeout / 8))
        calm = False
        while not self._is_over():
            for number in self._signals.wait(calm_s if calm else look_s):
                self._act_on(number)
            for death in self.children.reap():
                self._after(death)
            now = time.monotonic()
            self._hangs.look(self.children.alive(), now)
            self._hurry(now)
            calm = self._stopping_since is None and self._supervise()
            self._notifier.alive(now)
        self._finish()
        return self._status

    def nodes_children(self) -> list[dict[str, Any]]:
        """What this node's children are doing, as the HTTP interface shows it."""
        stored = self._sizes.stored
        return [
            _child_view(process, process.slot.pool.name in stored, self._vitals)
            for process in self.children.serving()
        ]

    def problems(self) -> list[str]:
        """Why this node should be given no work, in words; empty: it is ready."""
        found = ["it is stopping"] if self._stopping_since is not None else []
        now = time.monotonic()
        for slot in self.children.slots:
            process = slot.serving
            if process is None or not process.ready:
                found.append(f"pool {slot.pool.name} has a child that is not ready")
            elif now - process.board.hub_beat > self.config.hang_timeout / 2:
                found.append(f"pool {slot.pool.name} has a child that does not yield")
        return found

    # The start

    def _start(self, beside: Callable[[], None]) -> None:
        self._signals.listen(WATCHED)
        self.children.kept += self._signals.descriptors()
        self.children.plan(self.config.pools if self.config.modules else ())
        # A size that was stored holds from the first task on, where Redis answers.
        self._sizes.look()
        self._follow_sizes()
        self.children.spawn_missing()
        self._sizes.start()
        self._driver.start()
        self._driver.every(SIZES_S, self._sizes.look, internal=True)
        if self._check_server is not None:
            self._checking = self._driver.every(CHECK_S, self._check, internal=True)
        if self._tuned:
            self._driver.every(TIRED_S, self._look_at_cpu, internal=True)
        if self.config.max_tasks or self.config.max_rss:
            self._driver.every(TIRED_S, self._find_tired, internal=True)
        if self.config.reload:
            self._reloader = Reloader(Path.cwd())
            self._driver.every(RELOAD_S, self._look_at_files, internal=True)
        self._election.start()
        gevent.spawn(self._forget_lost_nodes)
        beside()

    def _check(self) -> None:
        """What is checked of a server at the start, once it answers."""
        assert self._check_server is not None
        try:
            self._check_server()
        except WireError as error:
            log.debug("the server can not be checked yet: %s", error)
            return
        except ConfigError as error:
            log.error("%s", error)
            self._status = UNUSABLE
            self._stop("the server can not be used")
            self._signals.wake()
        self._checking.cancel()

    # Signals

    def _act_on(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop(signal.Signals(number).name)
        elif number == signal.SIGUSR1:
            log.warning("stacks of the master, pid %d", os.getpid(),
                        extra={"stack": greenlet_stacks()})
            self.children.signal_all(signal.SIGUSR1)
        elif number == signal.SIGHUP:
            self._reload("HUP")
        elif number in (signal.SIGTTIN, signal.SIGTTOU):
            if number == signal.SIGTTIN:
                self._more_workers += 1
            elif any(slot.workers for slot in self.children.slots):
                self._more_workers -= 1
            self._follow_sizes()
            log.info("%s: %+d workers in each child of this node", signal.Signals(number).name,
                     self._more_workers)

    def _stop(self, why: str) -> None:
        if self._stopping_since is None:
            log.info("%s: draining, at most %g s; again to stop at once", why, self.config.grace)
            self._stopping_since = time.monotonic()
            self._notifier.stopping(self.config.grace)
            self._sizes.stop()
            # Before the drain, which may take long: others size the pools meanwhile.
            gevent.spawn(self._election.resign)
            self.children.signal_all(signal.SIGTERM)
        elif time.monotonic() - self._stopping_since > ONE_SIGNAL_S and not self._killed:
            log.warning("%s again: stopping at once", why)
            self._killed = True
            self.children.signal_all(signal.SIGKILL)

    def _hurry(self, now: float) -> None:
        """A child that ignores its own deadline is killed."""
        longest_s = self.config.grace + KILL_AFTER_S
        for process in self.children.alive():
            since = self._stopping_since or process.leaving_since
            if since is not None and now - since > longest_s:
                process.send(signal.SIGKILL)

    def _is_over(self) -> bool:
        return self._stopping_since is not None and not self.children.alive()

    # Supervision

    def _supervise(self) -> bool:
        """See to it that every child is there; whether they all are."""
        self._follow_sizes()
        self.children.spawn_missing()
        settled = self.children.settle()
        if settled and self._rolling:
            process = self._rolling.popleft()
            if process.slot.serving is process:  # else it has a successor already
                self.children.replace(process.slot)
        elif settled and self._reloading:
            self._reloading = False
            self._notifier.reloaded(self._state())
            log.info("every child has been replaced")
        if not self._has_served and self.children.all_ready():
            self._has_served = True
            self._notifier.ready(self._state())
        self._tell_changes()
        return settled and self.children.all_ready() and not (self._rolling or self._reloading)

    def _reload(self, why: str) -> None:
        """Replace children one by one, each new one ready before its predecessor goes."""
        log.info("%s: replacing the children one by one; the new ones load the code anew", why)
        self._reloading = True
        self._notifier.reloading()
        # Those that are just coming as well: they may have loaded half of a change.
        self._rolling = deque([*self.children.serving(), *self.children.coming()])

    def _look_at_files(self) -> None:
        changed = self._reloader.look()
        if changed is not None and self._stopping_since is None:
            for slot in self.children.slots:
                slot.due_at = 0.0
            self._reload(f"{os.path.relpath(changed)} changed")
            self._signals.wake()

    def _look_at_cpu(self) -> None:
        self._vitals.look(process.pid for process in self.children.serving())

    def _find_tired(self) -> None:
        """Children that have run enough tasks, or grown too large, are replaced."""
        most_tasks, most_mb = self.config.max_tasks, self.config.max_rss
        for slot in self.children.slots:
            process = slot.serving
            if process is None or process.tired or not process.ready:
                continue
            if most_tasks and process.board.finished >= most_tasks * process.patience:
                process.tired = f"it has run {process.board.finished:.0f} tasks"
            elif most_mb and (rss := resident(process.pid) or 0) > most_mb * 2**20:
                process.tired = f"it holds {rss / 2**20:.0f} MB"
            if process.tired:
                log.info("pool %s: pid %d is replaced: %s", slot.pool.name, process.pid,
                         process.tired)
                self._rolling.append(process)

    def _state(self) -> str:
        pools = ", ".join(str(pool) for pool in self.children.pools()) or "no pool"
        return f"{pools} at node {self.node}"

    # Sizes

    def _follow_sizes(self) -> None:
        """Give every pool the size that is stored for it, else what the leader says, else the
        configuration's."""
        stored = self._sizes.stored
        configured = self.config.pools if self.config.modules else ()
        for pool in configured:
            size = stored.get(pool.name)
            if size is not None:
                self._resize(pool.name, size.workers)
            elif not pool.tuned:
                self._resize(pool.name, pool.minimum)
            else:
                self._resize_tuned(pool)
        known = {pool.name for pool in configured}
        served = {pool.name for pool in self.children.pools()}
        for name, size in stored.items():
            if name in known or not size.created or not self.config.modules:
                continue
            if name not in served:
                self.children.plan([PoolSpec(name, max(1, size.workers), max(1, size.workers))])
                log.info("pool %s: served from now on, as scale_pool asked", name)
            self._resize(name, size.workers)
        for name in served - known - stored.keys():
            log.info("pool %s: served no more, its size was reset", name)
            self.children.retire(name)

    @property
    def drained(self) -> bool:
        """Whether an operator has this node claim nothing."""
        return self.node in self._sizes.drained

    def _resize_tuned(self, pool: PoolSpec) -> None:
        """Its share of what the leader published. A node that is new, and so not among those that
        were counted, has its least size until it is."""
        published = self._sizes.tuned.get(pool.name)
        if published is None and self._tuned_once:
            return  # Redis lost it: the size it has is a better guess than the least
        shares = shares_of(published) or {}
        self._tuned_once = self._tuned_once or self.node in shares
        for_each = shares.get(self.node) or [pool.minimum] * pool.processes
        self._resize(pool.name, [max(pool.minimum, min(pool.maximum, n)) for n in for_each])

    def _resize(self, pool: str, workers: int | list[int]) -> None:
        each = [workers] if isinstance(workers, int) else workers
        if self.drained:
            self.children.resize(pool, 0)
            return
        wanted = [min(MOST_WORKERS, max(0, one + self._more_workers)) for one in each]
        self.children.resize(pool, wanted[0] if isinstance(workers, int) else wanted)

    # Deaths

    def _after(self, death: Death) -> None:
        process, pool = death.process, death.process.slot.pool.name
        asked_for = self._stopping_since is not None
        if death.status == CANNOT_BOOT and not process.ready:
            self._cannot_boot(death)
            return
        if death.was == "coming" and not asked_for:
            log.error("pool %s: the successor, pid %d, died before it was ready, %s", pool,
                      process.pid, death.how)
        elif death.status not in (DRAINED, GONE) and not asked_for:
            log.error("pool %s: pid %d died after %.1f s, %s", pool, process.pid, death.lived_s,
                      death.how)
            if death.slot_is_hopeless:
                self._give_up(f"pool {pool} can not start")
        if death.last_words and not asked_for:
            log.error("pool %s: what pid %d was doing", pool, process.pid,
                      extra={"stack": death.last_words})
        # Also after a drain: what it could not give back itself is given back now.
        self._releasing = [one for one in self._releasing if not one.dead]
        self._releasing.append(gevent.spawn(
            self._estates.release, death, asked_for=asked_for, is_over=self._is_over
        ))

    def _cannot_boot(self, death: Death) -> None:
        pool = death.process.slot.pool.name
        if death.was == "coming":
            log.error("pool %s: the new code can not start, see the error above; the old goes on",
                      pool)
            self._rolling.clear()
            self._reloading = False
            self._notifier.reloaded(self._state())
        elif self.config.reload:
            log.error("pool %s can not start, see the error above; waiting for a change", pool)
            death.process.slot.due_at = float("inf")
        elif self._stopping_since is None or self._status != CANNOT_BOOT:
            log.error("pool %s can not start: see the error above", pool)
            self._status = CANNOT_BOOT
            self._stop("a child can not boot")

    def _give_up(self, why: str) -> None:
        """Stop with a failure: what can not work is not tried for ever."""
        log.error("%s: its children die again and again before they are ready", why)
        self._status = FAILED
        self._stop("giving up")

    def _renew(self, process: Process) -> None:
        gevent.spawn(self._estates.renew, process)

    # The node's record

    def _tell_changes(self) -> None:
        """Write the record at once where children or their sizes have changed."""
        looks = tuple(
            (process.pid, process.ready, process.board.workers,
             self._vitals.cpu.get(process.pid, 0.0) >= FULL)
            for process in self.children.serving()
        )
        if looks != self._told:
            self._told = looks
            gevent.spawn(self._election.tell)

    def _record(self) -> tuple[bytes, list[str]]:
        children = self.nodes_children()
        record = {
            "id": self.node, "host": socket.gethostname(), "pid": os.getpid(),
            "version": __version__, "started_at": self.started_at, "beat_at": time.time(),
            "leader": self._election.leads, "drained": self.drained, "children": children,
            "free_cores": self._vitals.free_cores(), "free_memory": self._vitals.free_memory(),
            "target_wait": list(self.config.target_wait),
            "pools": [self._pool_view(pool, children) for pool in self.children.pools()],
        }
        packed: bytes = msgpack.packb(record)
        return packed, [pool.name for pool in self.children.pools()]

    def _pool_view(self, pool: PoolSpec, children: list[dict[str, Any]]) -> dict[str, Any]:
        """A pool as the leader is to know it; ``short``: no more workers for want of memory."""
        rss = max((child["rss"] or 0 for child in children if child["pool"] == pool.name),
                  default=0)
        near = self.config.max_rss is not None and rss > NEAR_MAX_RSS * self.config.max_rss * 2**20
        return {
            "name": pool.name, "min": pool.minimum, "max": pool.maximum,
            "processes": pool.processes, "short": near or self._vitals.short_of_memory,
        }

    def _on_beat(self, beat: Beat) -> None:
        """What else is to be done about what a beat brought."""
        if self._stopping_since is not None:
            return
        known = self._sizes.version, self._sizes.tuned_version
        if (beat.sizes, beat.tuning) != known:
            self._sizes.look()
        if not self._election.leads:
            self._tuner.forget()
            return
        try:
            if beat.watched:
                self._tuner.look(beat)
            self._teller.look(beat)
        except WireError as error:
            # Nobody is sized for a moment, nothing more.
            log.debug("can not look after the cluster: %s", error)

    def _forget_lost_nodes(self) -> None:
        """Remove the records of nodes that were killed long ago: nobody else does."""
        try:
            flat = self._wire.call("HGETALL", self._space.nodes)
            for name, packed in zip(flat[::2], flat[1::2], strict=True):
                beat_at = float(msgpack.unpackb(packed).get("beat_at", 0))
                if time.time() - beat_at > LOST_S:
                    self._wire.call("HDEL", self._space.nodes, name)
        except WireError as error:
            log.debug("can not look for lost nodes: %s", error)

    def _finish(self) -> None:
        gevent.joinall(self._releasing, timeout=LAST_RELEASES_S)
        self._election.stop()
        self._driver.stop()
        try:
            self._wire.call("HDEL", self._space.nodes, self.node)
        except WireError as error:
            log.debug("can not remove the node's record: %s", error)
        self._wire.close()
        self._estates.close()
        self._signals.close()
        log.info("stopped")


def resident(pid: int) -> int | None:
    """Bytes of memory a process holds, or None where it is gone."""
    try:
        rss: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
    return rss


def sockets(pid: int) -> int | None:
    """Connections a process has open, or None where that can not be told."""
    folder, count = f"/proc/{pid}/fd", 0
    try:
        for name in os.listdir(folder):
            with suppress(OSError):  # closed meanwhile
                count += os.readlink(f"{folder}/{name}").startswith("socket:")
    except OSError:
        return None
    return count


def _child_view(process: Process, manual: bool, vitals: Vitals) -> dict[str, Any]:
    board, pool = process.board, process.slot.pool
    workers = process.slot.workers
    return {
        "pool": pool.name, "pid": process.pid, "workers": int(board.workers),
        "busy": int(board.busy), "lag_ms": board.lag_ms, "rss": resident(process.pid),
        "sockets": sockets(process.pid),
        "cpu": round(vitals.cpu.get(process.pid, 0.0), 3),
        "min": workers if manual else pool.minimum, "max": workers if manual else pool.maximum,
    }
