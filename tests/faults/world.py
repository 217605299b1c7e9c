"""A small installation under attack: a server, real nodes, what was submitted and done to them.

    with World(server, folder, lease_s=2) as world:
        node = world.node("a", proxied=True)
        uid = world.submit("gate", "open")
        world.effect("began", uid)
        world.kill(node.child())
        ...
        assert world.settle().verdict() == []

Everything a test does to it goes through here, so that the history knows of it. ``sampling`` looks
at the queue five times a second meanwhile.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import psutil
import redis
from harness import Node, gone
from history import (
    MOST_IDLE_S,
    Effect,
    Fault,
    History,
    Sample,
    Submitted,
    pools_of_pids,
    read_effects,
    read_finals,
    read_totals,
    ready_pids,
)
from proxy import Proxy, _Link, _receive, _send
from servers import Server, wait_until

import skedulr
from skedulr.errors import StorageUnavailable
from skedulr.keys import PoolKeys
from skedulr.redis_scripts import script

HERE = Path(__file__).resolve().parent
SAMPLE_S = 0.2


class Trap(Proxy):
    """A proxy that acts at one exact request: ``set_trap`` before it is sent on.

    What a process does to Redis it does by single scripts, and Redis runs each whole or not at all.
    So there are two moments to die at around a step: before its request got to the server, and
    after it was applied but before the answer came. The trap finds both exactly.
    """

    sprung = False
    _waits_for = b""
    _held: threading.Event | None = None

    def set_trap(
        self, called: str, then: str, act: Callable[[], None] = lambda: None,
        when: Callable[[], bool] = lambda: True, holds: Sequence[bytes] = (),
    ) -> None:
        """At the next call of the script ``called`` for which ``when()`` is true, and whose request
        holds all of these bytes: ``act()``, then the proxy's mode ``then`` for this request."""
        self.sprung = False
        self._then, self._act, self._when, self._holds = then, act, when, holds
        self._waits_for = script(called).sha.encode()

    def disarm(self) -> None:
        """Wait for nothing any more."""
        self._waits_for = b""

    def _spend(self, piece: bytes) -> str:
        if (
            self._waits_for and self._waits_for in piece
            and all(one in piece for one in self._holds) and self._when()
        ):
            self._waits_for = b""
            self._act()
            self.sprung = True
            if self._then != "hold_reply":
                return self._then
            self._held = threading.Event()
            return "drop_reply"
        return super()._spend(piece)

    def _replies(self, link: _Link) -> None:
        # One reply may be held back without being lost: ``then="hold_reply"``.
        while piece := _receive(link.server):
            if link.doomed:
                link.doomed = False
                held, self._held = self._held, None
                if held is None:
                    self.lost += 1
                    link.reset()
                    break
                self._let = held
                held.wait(30)
            self._hold()
            _send(link.client, piece)
        self._end(link)

    def let_go(self) -> None:
        """Send the reply that is held back."""
        self._let.set()


class World:
    """One server (its caller's), the nodes made here, and the history so far."""

    def __init__(
        self, server: Server, folder: Path, *, lease_s: float = 2.0, pools: str = "default=4",
        idle_s: float = MOST_IDLE_S, names: tuple[str, ...] = ("default",),
        namespace: str = "faults", kept: str = "",
    ) -> None:
        """``names`` are the pools that are looked at; ``keys`` is the first. ``kept`` is the
        transport of all pools that do not say theirs."""
        self.kept = kept
        self.server, self.folder, self.lease_s, self.pools = server, folder, lease_s, pools
        self.every_keys = [PoolKeys(namespace, name) for name in names]
        self.keys = self.every_keys[0]
        self.nodes: list[Node] = []
        self.history = History(lease_s=lease_s, idle_s=idle_s)
        self.log = folder / "effects.log"
        self._guard = threading.Lock()
        self._proxies: dict[Node, Trap] = {}
        self._numbers = itertools.count(1)
        self._sampler: threading.Thread | None = None
        self._stop = threading.Event()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None:
            for node in self.nodes:
                print(f"--- {node.folder.name}\n{node.log[-6000:]}")

    def close(self) -> None:
        """End nodes and proxies; safe twice."""
        self._stop.set()
        for node in self.nodes:
            node.close()
        for proxy in self._proxies.values():
            proxy.stop()
        if self._sampler is not None:
            self._sampler.join(5)

    # Nodes

    def node(
        self, name: str, *flags: str, proxied: bool = False, variant: str | None = None,
        start: bool = True, pools: str | None = None,
    ) -> Node:
        """A node in a folder of its own; ``proxied`` puts a ``Trap`` between it and the server."""
        url, proxy = self.server.url, None
        if proxied:
            proxy = Trap(self.server.url).start()
            url = proxy.url
        path = os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
        node = Node(
            self.folder / name, url, "--lease", f"{self.lease_s:g}", "--keep-records", "10000000",
            *flags, pools=self._spec(pools or self.pools), work="", modules=("effect_tasks",),
            namespace=self.keys.namespace,
            env={"EFFECT_LOG": str(self.log), "PYTHONPATH": path, **(
                {"HURRY": "yes"} if len(self.every_keys) > 1 else {}
            )},
        )
        if variant is not None:
            arguments = node.command[node.command.index("master") + 1:]
            node.command = (sys.executable, str(HERE / "variants.py"), variant, *arguments)
        self.nodes.append(node)
        if proxy is not None:
            self._proxies[node] = proxy
        return node.start(sum(self._processes(node))) if start else node

    def _spec(self, pools: str) -> str:
        return ",".join(
            one if ":" in one or not self.kept else f"{one}:{self.kept}" for one in pools.split(",")
        )

    def proxy(self, node: Node) -> Trap:
        """What is between a node and the server."""
        return self._proxies[node]

    def trap(
        self, node: Node, called: str, then: str, act: Callable[[], None] = lambda: None,
        when: Callable[[], bool] = lambda: True, holds: Sequence[bytes] = (),
    ) -> Trap:
        """Set the trap of a node's proxy. The server knows the script from now on: the first call
        of one that it does not know is answered NOSCRIPT and does nothing."""
        self.server.client.script_load(script(called).text)
        proxy = self._proxies[node]
        proxy.set_trap(called, then, act, when, holds)
        return proxy

    @staticmethod
    def _processes(node: Node) -> list[int]:
        spec = node.command[node.command.index("--pools") + 1]
        counts = (one.partition(":")[0].partition("x")[2] for one in spec.split(","))
        return [int(count or 1) for count in counts]

    # Submitting

    def app(self, url: str | None = None, **settings: object) -> skedulr.Skedulr:
        """A producer's app."""
        return skedulr.Skedulr(
            url=url or self.server.url, namespace=self.keys.namespace, **settings
        )

    def submit(
        self, name: str, *args: object, ends: tuple[str, ...] = ("succeeded",),
        app: skedulr.Skedulr | None = None, **options: object,
    ) -> str:
        """Queue a task and note what was answered; its uid."""
        if app is None:
            app = self._own
        with self._guard:
            uid = f"{name}-{next(self._numbers)}"
        answer = "stored"
        try:
            app.submit_call(app.remote(name, id=uid, **options).bind(*args))
        except StorageUnavailable as error:
            answer = "maybe" if error.maybe_submitted else "refused"
        self.history.submitted.append(Submitted(uid, answer, ends))
        return uid

    def submit_many(self, calls: Sequence[tuple[str, tuple[object, ...]]]) -> list[str]:
        """Queue (name, arguments) in one go, on a server that is well; their uids."""
        app, made, uids = self._own, [], []
        for name, args in calls:
            uids.append(f"{name}-{next(self._numbers)}")
            made.append(app.remote(name, id=uids[-1]).bind(*args))
        app.submit_many(made)
        self.history.submitted += [Submitted(uid, "stored") for uid in uids]
        return uids

    @property
    def _own(self) -> skedulr.Skedulr:
        made = self.__dict__.get("_app")
        if made is None:
            made = self.__dict__["_app"] = self.app()
        return made

    # Looking

    def effects(self, uid: str | None = None, phase: str | None = None) -> list[Effect]:
        """What the tasks did so far."""
        return [
            one for one in read_effects(self.log)
            if uid in (None, one.uid) and phase in (None, one.phase)
        ]

    def effect(
        self, phase: str, uid: str | None = None, count: int = 1, timeout: float = 20
    ) -> list[Effect]:
        """Wait until ``count`` such effects are there."""
        def look() -> list[Effect]:
            found = self.effects(uid, phase)
            return found if len(found) >= count else []

        try:
            return wait_until(look, timeout, f"{count} x {phase} of {uid or 'any task'}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def describe(self) -> str:
        """What there is, for the message of a failure."""
        finals = self.look().finals
        lines = [f"{uid}: {sorted(final.places)} {final.state}" for uid, final in finals.items()]
        lines += [str(one) for one in self.effects()[-20:]]
        lines += [f"--- {node.folder.name}\n{node.log[-3000:]}" for node in self.nodes]
        lines.append(str(self.server.client.hgetall(self.keys.meta)))
        return "\n".join(lines)

    def ended(self, uid: str) -> bool:
        """Whether a task has a record."""
        return bool(self.server.client.hexists(self.keys.records, uid))

    def queued(self) -> int:
        """How many tasks are ready."""
        client = self.server.client
        return _ready(client.zcard(self.keys.ready), client.xrange(self.keys.stream),
                      client.hgetall(self.keys.claims))

    def sampling(self) -> None:
        """Look at the queue from now on."""
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def _sample(self) -> None:
        server, client = None, None
        while not self._stop.wait(SAMPLE_S):
            if server is not self.server or client is None:
                server = self.server
                client = redis.Redis.from_url(server.url, socket_timeout=2)
            try:
                seconds, micros = client.time()
                at = time.monotonic()
                now_ms = seconds * 1000 + micros // 1000
                found = [_sampled(client, keys, now_ms) for keys in self.every_keys]
            except redis.RedisError:
                continue
            workers = self._workers()
            self.history.samples += [
                Sample(at, ready, claimed, workers[keys.pool], keys.pool)
                for keys, (ready, claimed) in zip(self.every_keys, found, strict=True)
            ]

    def _workers(self) -> Counter[str]:
        workers: Counter[str] = Counter()
        for node in list(self.nodes):
            log = node.log
            pools = pools_of_pids(log)
            self.history.pool_of |= pools
            for pid, count in ready_pids(log).items():
                if _runs(pid):
                    workers[pools[pid]] += count
        return workers

    # Faults

    @contextmanager
    def fault(self, kind: str, *pids: int, node: Node | None = None) -> Iterator[None]:
        """Note that this was done to these processes for the length of the block, or to all
        children that the node has in it."""
        begin = time.monotonic()
        met = {*pids, *(node.children() if node else ())}
        try:
            yield
        finally:
            met.update(node.children() if node else ())
            self.history.faults.append(Fault(kind, begin, time.monotonic(), frozenset(met)))

    def kill(self, *pids: int) -> None:
        """SIGKILL; returns when they are gone."""
        with self.fault("killed", *pids):
            for pid in pids:
                _signal(pid, signal.SIGKILL)
        wait_until(lambda: all(gone(pid) for pid in pids), what=f"{pids} are gone")

    def kill_node(self, node: Node) -> None:
        """The host dies: master and children in one step."""
        with self.fault("killed", *node.children()):
            node.kill_all()

    @contextmanager
    def frozen(self, *pids: int) -> Iterator[None]:
        """SIGSTOP, and SIGCONT after the block."""
        with self.fault("frozen", *pids):
            for pid in pids:
                _signal(pid, signal.SIGSTOP)
            try:
                yield
            finally:
                for pid in pids:
                    _signal(pid, signal.SIGCONT)

    # The end

    def settle(self, timeout: float = 30) -> History:
        """Wait until nothing is left to do, or no longer; the whole history."""
        client = self.server.client

        def over() -> bool:
            return not any(
                client.hlen(keys.tasks) or client.zcard(keys.ready) or client.zcard(keys.delayed)
                or client.hlen(keys.claims) or client.zcard(keys.outbox)
                for keys in self.every_keys
            )

        try:
            wait_until(over, timeout, "all tasks have ended")
        except AssertionError:
            pass  # the verdict will say what did not end
        return self.look()

    def look(self) -> History:
        """The history so far."""
        history = self.history
        history.effects = read_effects(self.log)
        history.finals, totals = {}, Counter[str]()
        for keys in self.every_keys:
            history.finals |= read_finals(self.server.client, keys)
            totals.update(read_totals(self.server.client, keys))
        history.totals = {"succeeded": totals["succeeded"], "failed": totals["failed"]}
        for node in self.nodes:
            history.pool_of |= pools_of_pids(node.log)
        return history


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it died meanwhile


def _sampled(client: redis.Redis, keys: PoolKeys, now_ms: int) -> tuple[int, int]:
    """How many tasks of a pool are ready or due, and how many are claimed."""
    pipe = client.pipeline(transaction=True)
    pipe.zcard(keys.ready)
    pipe.zcount(keys.delayed, "-inf", now_ms)
    pipe.hgetall(keys.claims)
    pipe.xrange(keys.stream)
    queued, due, claims, entries = pipe.execute()
    return _ready(queued, entries, claims) + due, len(claims)


def _ready(
    queued: int, entries: Sequence[tuple[bytes, dict[bytes, bytes]]], claims: dict[bytes, bytes]
) -> int:
    """How many tasks are ready, whichever way the pool keeps them: a stream has the claimed ones
    as well."""
    return queued + sum(1 for _, fields in entries if fields[b"t"] not in claims)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
