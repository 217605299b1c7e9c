"""The master: supervises the children of one node, and lets the UI be served beside that.

One loop on the main greenlet acts on recorded signals, reaps, releases what the dead held, forks
successors, and writes the node's record. A child that can not boot ends the master with its status;
there is no respawn loop for a mistake in the user's code.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import gevent
import msgpack

from .. import __version__
from ..config import Config
from ..keys import PoolKeys, SpaceKeys
from ..store import Judgement, Store
from ..wire import Wire, WireError
from ..wires import SharedWire
from . import poison
from .child import CANNOT_BOOT, DRAINED, GONE
from .children import Children, Death, Slot
from .signals import WATCHED, Signals

log = logging.getLogger("skedulr.master")

#: Between two looks when nothing happens, seconds.
LOOK_S = 0.5
#: Between two writes of the node's record, seconds.
RECORD_S = 5.0
#: After the grace time, and what a child needs for its own end, it is killed, seconds.
KILL_AFTER_S = 3.0
#: Between two tries to release a dead child's claims while Redis is away, seconds.
RELEASE_AGAIN_S = 0.2

STOPPED, FAILED = 0, 1


class Master:
    """Runs one node until it is told to stop. ``url`` is the server, for master and children."""

    def __init__(self, *, config: Config, url: str) -> None:
        self.config, self.url = config, url
        self.node = secrets.token_hex(4)
        self.started_at = time.time()
        self.children = Children(config=config, url=url, node=self.node)
        self._signals = Signals()
        self._wire = SharedWire(url, name=f"skedulr:{self.node}:master:node")
        self._space = SpaceKeys(config.namespace)
        self._releasing: list[gevent.Greenlet] = []
        self._stopping_since: float | None = None
        self._status = STOPPED
        self._recorded_at = 0.0

    def run(self, beside: Callable[[], None] = lambda: None) -> int:
        """Supervise; the exit status. ``beside`` is called once the children are forked."""
        self._signals.listen(WATCHED)
        self.children.plan(self.config.pools if self.config.modules else ())
        self.children.spawn_missing()
        beside()
        while not self._is_over():
            for number in self._signals.wait(LOOK_S):
                self._act_on(number)
            for death in self.children.reap():
                self._after(death)
            if self._stopping_since is None:
                self.children.spawn_missing()
                self._write_record()
            else:
                self._hurry()
        self._finish()
        return self._status

    def nodes_children(self) -> list[dict[str, Any]]:
        """What this node's children are doing, as the HTTP interface shows it."""
        return [_child_view(slot) for slot in self.children.alive()]

    # Signals

    def _act_on(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop(signal.Signals(number).name)
        elif number == signal.SIGUSR1:
            self.children.signal_all(signal.SIGUSR1)

    def _stop(self, why: str) -> None:
        if self._stopping_since is None:
            log.info("%s: draining, at most %g s; again to stop at once", why, self.config.grace)
            self._stopping_since = time.monotonic()
            self.children.signal_all(signal.SIGTERM)
        elif time.monotonic() - self._stopping_since > 0.2:
            # A terminal's Ctrl-C may reach us twice at once; only a later one means "now".
            log.warning("%s again: stopping at once", why)
            self.children.signal_all(signal.SIGKILL)

    def _hurry(self) -> None:
        """A child that ignores its own deadline is killed."""
        assert self._stopping_since is not None
        if time.monotonic() - self._stopping_since > self.config.grace + KILL_AFTER_S:
            self.children.signal_all(signal.SIGKILL)

    def _is_over(self) -> bool:
        return self._stopping_since is not None and not self.children.alive()

    # Deaths

    def _after(self, death: Death) -> None:
        pool = death.slot.pool.name
        if death.status == CANNOT_BOOT:
            log.error("pool %s can not start: see the error above", pool)
            self._status = CANNOT_BOOT
            death.slot.wanted = False
            self._stop("a child can not boot")
            return
        expected = self._stopping_since is not None and death.status == DRAINED
        if not expected and death.status not in (DRAINED, GONE):
            log.error("pool %s: pid %d died after %.1f s, %s", pool, death.pid, death.lived_s,
                      death.how)
        # Also after a drain: what it could not give back itself is given back now.
        self._releasing.append(gevent.spawn(self._release, death))

    def _release(self, death: Death) -> None:
        """Give back what a dead child held: at once, and again and again while Redis is away."""
        pool = death.slot.pool.name
        store = Store(PoolKeys(self.config.namespace, pool))
        wire = Wire(self.url, name=f"skedulr:{self.node}:{pool}:release", timeout_s=2)
        judgement = self._judge(death)
        total, more = 0, True
        try:
            while more:
                try:
                    returned = store.release_owner(wire, death.owner, judgement)
                except WireError as error:
                    if self._is_over():
                        log.warning("tasks of pid %d wait for their leases: %s", death.pid, error)
                        return
                    gevent.sleep(RELEASE_AGAIN_S)
                    continue
                more = returned.more
                total += len(returned.uids)
                for uid in returned.charged:
                    log.warning("task %s/%s had the CPU when its process died", pool, uid.decode())
                for uid in returned.dead:
                    log.error("task %s/%s killed its process too often: it is dead", pool,
                              uid.decode())
        finally:
            wire.close()
        if total:
            log.warning("pool %s: %d tasks of pid %d are back in the queue", pool, total, death.pid)

    def _judge(self, death: Death) -> Judgement | None:
        """Whom to charge with a death; None: nobody, since it was asked for or draining."""
        board = death.board
        if death.status in (DRAINED, GONE) or board is None or board.draining:
            return None
        return poison.judge(
            culprit=board.culprit(), owner=death.owner, host=socket.gethostname(), how=death.how,
            suspecting=True,
        )

    # The node's record

    def _write_record(self) -> None:
        now = time.monotonic()
        if now - self._recorded_at < RECORD_S and self._recorded_at:
            return
        self._recorded_at = now
        gevent.spawn(self._store_record)

    def _store_record(self) -> None:
        record = msgpack.packb({
            "id": self.node, "host": socket.gethostname(), "pid": os.getpid(),
            "version": __version__, "started_at": self.started_at, "beat_at": time.time(),
            "leader": False, "children": self.nodes_children(),
        })
        try:
            self._wire.call("HSET", self._space.nodes, self.node, record)
        except WireError as error:
            log.debug("can not write the node's record: %s", error)

    def _finish(self) -> None:
        gevent.joinall(self._releasing, timeout=2)
        try:
            self._wire.call("HDEL", self._space.nodes, self.node)
        except WireError as error:
            log.debug("can not remove the node's record: %s", error)
        self._signals.close()
        log.info("stopped")


def _child_view(slot: Slot) -> dict[str, Any]:
    board = slot.board
    assert board is not None
    return {
        "pool": slot.pool.name, "pid": slot.pid, "workers": int(board.workers),
        "busy": int(board.busy), "lag_ms": board.lag_ms, "rss": None,
    }
