"""Random faults, one after another and several at once, while producers go on submitting.

    python -m tests.faults.chaos --minutes 30 --seed 7

Two nodes and a server with a replica are started in a temporary folder. Faults are drawn from a
generator with the seed (printed first): the same seed draws the same faults with the same pauses,
though not the same interleaving of processes. At the end all is healed, everything that was
acknowledged must end, and the history checker has the last word. The report is in figures; the exit
status is 1 where anything was violated.

What is done: SIGKILL, SIGSTOP past the lease and SIGCONT for child, master and both; drains;
SCRIPT FLUSH; CLIENT KILL; the server killed and started again from its append-only file, frozen,
filled up; a replica promoted; and on the way to the server replies lost, connections reset,
refused, stalled and slowed down, for nodes and producers. Writes are on disk before
they are answered (``appendfsync always``), and a replica is promoted once it has everything, so the
check is exact.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).resolve().parent
# Run by ``python -m tests.faults.chaos``, as pytest's own rules would have it.
sys.path[:0] = [str(HERE), str(HERE.parent)]

import redis  # noqa: E402
from flow_rules import Flow  # noqa: E402
from flows import FlowMaker  # noqa: E402
from harness import Node, gone  # noqa: E402
from history import MOST_IDLE_S, History, Violation  # noqa: E402
from proxy import Proxy  # noqa: E402
from servers import Server, leaks, wait_until  # noqa: E402
from world import World  # noqa: E402

from skedulr.errors import SkedulrError, StorageUnavailable  # noqa: E402
from skedulr.redis_scripts import script  # noqa: E402

T = TypeVar("T")

#: The nodes' lease: long enough for a loaded machine to renew it in time, seconds.
LEASE_S = 4.0
GRACE_S = 2.0
#: Faults that go on at the same time, at most.
AT_ONCE = 2
SCRIPTS = ("claim", "finish", "retry", "renew", "release", "recover", "promote")
#: Of workflows: what a child calls, and what a producer does.
FLOW_SCRIPTS = ("attach", "take", "resolve", "suspend", "reopen", "submit")
PRODUCER_SCRIPTS = ("submit", "attach", "begin", "cancel", "resubmit")
POOLS = ("default", "other")
#: A workflow that failed is put back after so long, seconds.
PUT_BACK_S = 2.0


@dataclass
class Report:
    """A run in figures."""

    seed: int
    seconds: float
    faults: Counter[str]
    history: History
    violations: list[Violation]
    leaked: list[str] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return not self.violations and not self.leaked

    def __str__(self) -> str:
        answers = Counter(one.answer for one in self.history.submitted)
        states = Counter(final.state or "unfinished" for final in self.history.finals.values())
        runs = self.history.runs()
        began = sum(len(of) for of in runs.values())
        again = began - len(runs) - sum(
            1 for of in runs.values() for run in of if run.phase == "failed" and run is not of[-1]
        )
        broken = Counter(one.rule for one in self.violations)
        steps = sum(len(flow.steps) for flow in self.history.flows)
        lines = [
            f"seed {self.seed}: {self.seconds:.0f} s",
            f"submits: {answers['stored']} acknowledged, {answers['maybe']} may have been stored, "
            f"{answers['refused']} certainly not",
            f"workflows: {len(self.history.flows)} of {steps} steps, "
            f"{sum(one.cancel for one in self.history.flows)} cancelled",
            f"faults: {sum(self.faults.values())} ({_counted(self.faults)})",
            f"ends: {_counted(states)}",
            f"runs: {began}, of them {again} because of a crash, a drain or a lost lease",
            f"lost = {broken['lost'] + broken['unfinished']}, doubled = {broken['doubled']}, "
            f"stale = {broken['stale']}, other violations = "
            f"{len(self.violations) - sum(broken[one] for one in _NAMED)}",
        ]
        lines += [f"  {one}" for one in self.violations[:40]]
        lines += [f"  key left behind: {one}" for one in self.leaked]
        return "\n".join(lines)


_NAMED = ("lost", "unfinished", "doubled", "stale")


class Errand:
    """Something that the main thread does for another one. Starting processes is: Linux ends a
    process with the *thread* that made it, where it is told to end it with its parent."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self._done = act, threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._act()
        except Exception as error:
            self._error = error
        self._done.set()

    def wait(self) -> None:
        self._done.wait()
        if self._error is not None:
            raise self._error


class Chaos:
    """One run. ``say`` is called with a line for each fault; ``quiet`` is how often, of all times
    between two faults, nothing is done for so long that nothing is excused."""

    def __init__(
        self, *, seed: int, seconds: float, folder: Path, say: Callable[[str], None] = print,
        rate: float = 15.0, pause_s: tuple[float, float] = (0.3, 4.0), quiet: float = 0.08,
        idle_s: float = MOST_IDLE_S, variant: str | None = None, lease_s: float = LEASE_S,
        streams: bool = False, flows: int = 10,
    ) -> None:
        """``flows``: how many of a hundred submits are workflows, about."""
        self._streams, self._flows = streams, flows
        self.seed, self._seconds, self._say = seed, seconds, say
        self._rate, self._pause_s, self._quiet, self._idle_s = rate, pause_s, quiet, idle_s
        self._draw = random.Random(seed)
        self._variant, self._lease_s = variant, lease_s
        self.faults: Counter[str] = Counter()
        durable = {"appendonly": "yes", "appendfsync": "always"}
        self._servers = [Server("redis", tcp=True, **durable) for _ in range(2)]
        self._server_turn = threading.Lock()
        self._stop = threading.Event()
        self._errands: queue.Queue[Errand] = queue.Queue()
        self._folder = folder
        self._node_turns: dict[Node, threading.Lock] = {}
        self._kinds: list[tuple[str, int, Callable[[random.Random], None]]] = [
            ("child killed", 6, self._kill_child),
            ("child killed at a script", 6, self._kill_child_at_a_script),
            ("child frozen", 5, self._freeze_child),
            ("master killed", 2, self._kill_master),
            ("master frozen", 2, self._freeze_master),
            ("node killed", 3, self._kill_node),
            ("node frozen", 3, self._freeze_node),
            ("node drained", 3, self._drain_node),
            ("scripts flushed", 3, self._flush_scripts),
            ("clients killed", 3, self._kill_clients),
            ("server restarted", 4, self._restart_server),
            ("server frozen", 3, self._freeze_server),
            ("server full", 4, self._fill_server),
            ("replica promoted", 3, self._promote_replica),
            ("node's link", 10, self._disturb_node),
            ("producers' link", 6, self._disturb_producers),
        ]

    def run(self) -> Report:
        """All of it; takes the time that was asked for, and what it takes to settle."""
        began = time.monotonic()
        with ExitStack() as stack:
            for server in self._servers:
                stack.callback(server.close)
                server.start()
            self._world = stack.enter_context(
                World(self._servers[0], self._folder, lease_s=self._lease_s, idle_s=self._idle_s,
                      names=POOLS)
            )
            self._follow(self._servers[1], self._servers[0])
            self._producers_link = Proxy(self._servers[0].url).start()
            stack.callback(self._producers_link.stop)
            kept = ":streams" if self._streams else ""
            for name, pools in (
                ("a", f"default=3x2{kept},other=2{kept}"), ("b", f"default=4{kept},other=3{kept}")
            ):
                node = self._world.node(
                    name, "--grace", f"{GRACE_S:g}", proxied=True, pools=pools,
                    variant=self._variant,
                )
                self._node_turns[node] = threading.Lock()
            self._world.sampling()
            producers = [
                threading.Thread(target=self._produce, args=(self.seed * 100 + n,), daemon=True)
                for n in range(2)
            ]
            for producer in producers:
                producer.start()
            self._disturb(time.monotonic() + self._seconds)
            self._heal()
            self._stop.set()
            for producer in producers:
                producer.join(30)
            history = self._world.settle(120)
            # A cancel that came too late for its task leaves nothing behind, nor does a dead owner
            # for longer than a day.
            left = leaks(self._world.server.client)
            return Report(
                self.seed, time.monotonic() - began, self.faults, history, history.verdict(), left
            )

    # Producers

    def _produce(self, seed: int) -> None:
        draw = random.Random(seed)
        app = self._world.app(self._producers_link.url, submit_timeout=3.0)
        maker = FlowMaker(self._world.history, app, draw, pools=POOLS)
        failed: list[tuple[float, Flow]] = []

        def submit(name: str, *args: object, **options: object) -> str:
            return self._world.submit(name, *args, app=app, **options)  # type: ignore[arg-type]

        kinds: list[tuple[int, Callable[[], object]]] = [
            (26, lambda: submit("plain")),
            (5, lambda: submit("plain", priority=0 if self._streams else draw.randint(-5, 5))),
            (12, lambda: submit("plain", delay=draw.uniform(0.05, 3))),
            (22, lambda: submit("hold", draw.uniform(0, 0.5))),
            (10, lambda: submit("hold", draw.uniform(0.5, 2))),
            (1, lambda: submit("hold", 1.2 * self._lease_s)),
            (3, lambda: submit("burn", draw.uniform(0.01, 0.3))),
            (10, lambda: submit("flaky", draw.randint(1, 2))),
            (5, lambda: submit("doomed", ends=("dead",))),
            (1, lambda: submit("deadly", draw.choice(("start", "middle", "end")), 1)),
            (5, lambda: self._submit_and_cancel(app, submit, draw)),
            (self._flows, lambda: self._submit_flow(maker, failed, draw)),
        ]
        while not self._stop.wait(draw.expovariate(self._rate / 2)):
            _pick(draw, kinds)()
            if failed and time.monotonic() - failed[0][0] > PUT_BACK_S:
                maker.resubmit(failed.pop(0)[1])

    @staticmethod
    def _submit_flow(
        maker: FlowMaker, failed: list[tuple[float, Flow]], draw: random.Random
    ) -> None:
        flow = maker.submit()
        if flow is None:
            return
        if draw.random() < 0.2:
            time.sleep(draw.uniform(0, 0.4))
            maker.cancel(flow)
        elif draw.random() < 0.5:
            failed.append((time.monotonic(), flow))

    @staticmethod
    def _submit_and_cancel(
        app: object, submit: Callable[..., str], draw: random.Random
    ) -> None:
        options = {"delay": 1.0} if draw.random() < 0.5 else {}
        uid = submit("hold", 0.5, ends=("cancelled", "succeeded"), **options)
        time.sleep(draw.uniform(0, 0.3))
        try:
            app.cancel(f"default/{uid}")  # type: ignore[attr-defined]
        except (StorageUnavailable, SkedulrError):
            pass  # either end is right

    # Faults

    def _disturb(self, until: float) -> None:
        running: list[threading.Thread] = []
        while time.monotonic() < until:
            self._serve(self._draw.uniform(*self._pause_s))
            name, act = _pick(
                self._draw, [(weight, (name, act)) for name, weight, act in self._kinds]
            )
            own = random.Random(self._draw.random())
            running = [one for one in running if one.is_alive()]
            if len(running) >= AT_ONCE:
                self._join(running[:1])
            thread = threading.Thread(target=self._one, args=(name, act, own), daemon=True)
            thread.start()
            running.append(thread)
            # A time without faults once in a while: then nothing excuses a task that waits.
            if self._draw.random() < self._quiet:
                self._join(running)
                time.sleep(min(self._lease_s * 3 + 8, max(0.0, until - time.monotonic())))
        self._join(running)

    def _serve(self, seconds: float) -> None:
        """Run errands for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self._errands.get(timeout=left).run()
            except queue.Empty:
                return

    def _join(self, threads: list[threading.Thread]) -> None:
        while any(one.is_alive() for one in threads):
            self._serve(0.1)

    def _on_main(self, act: Callable[[], object]) -> None:
        errand = Errand(act)
        self._errands.put(errand)
        errand.wait()

    def _start_node(self, node: Node) -> None:
        before = node.log.count("workers ready")
        self._on_main(lambda: node.start(None))
        # While Redis is away they are not ready, and that is no fault of theirs.
        wait_until(lambda: node.log.count("workers ready") > before, 40, "the node is ready again")

    def _one(
        self, name: str, act: Callable[[random.Random], None], draw: random.Random
    ) -> None:
        began = time.monotonic()
        try:
            act(draw)
        except Exception as error:
            self._say(f"{began:.1f} {name}: the fault itself failed: {error!r}")
            self.faults["failed to inject"] += 1
            return
        self.faults[name] += 1
        self._say(f"{began:.1f} {name}, {time.monotonic() - began:.1f} s")

    def _heal(self) -> None:
        for node in self._world.nodes:
            self._world.proxy(node).set("pass")
            self._world.proxy(node).start()
            if node.process is None or node.process.poll() is not None:
                node.start()
        self._producers_link.set("pass")
        self._world.server.thaw()

    @contextmanager
    def _a_node(self, draw: random.Random) -> Iterator[Node]:
        """One that runs, for this fault alone."""
        node = draw.choice(self._world.nodes)
        with self._node_turns[node]:
            if node.process is None or node.process.poll() is not None:
                self._start_node(node)
            yield node

    def _kill_child(self, draw: random.Random) -> None:
        with self._a_node(draw) as node:
            for pid in node.children():
                self._world.kill(pid)

    def _kill_child_at_a_script(self, draw: random.Random) -> None:
        """With the request on its way: it is dropped, or it is applied and nobody hears of it."""
        called, then = draw.choice(SCRIPTS + FLOW_SCRIPTS), draw.choice(("drop_request", "pass"))
        with self._a_node(draw) as node:
            children = node.children()

            def kill() -> None:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)

            with self._world.fault("killed", *children):
                # Not by the world: the server may be away. A call that it answers NOSCRIPT will do.
                trap = self._world.proxy(node)
                trap.set_trap(called, then, act=kill)
                end = time.monotonic() + 4
                while not trap.sprung and time.monotonic() < end:
                    time.sleep(0.02)
                trap.disarm()

    def _freeze_child(self, draw: random.Random) -> None:
        with self._a_node(draw) as node, self._world.frozen(*node.children()):
            time.sleep(self._a_while(draw))

    def _kill_master(self, draw: random.Random) -> None:
        with self._a_node(draw) as node:
            children = node.children()
            with self._world.fault("stopped", *children):
                node.signal(signal.SIGKILL)
                node.wait()
                wait_until(
                    lambda: all(gone(pid) for pid in children), GRACE_S + 20, "the children go"
                )
            self._start_node(node)

    def _freeze_master(self, draw: random.Random) -> None:
        with self._a_node(draw) as node:
            node.signal(signal.SIGSTOP)
            time.sleep(self._a_while(draw))
            node.signal(signal.SIGCONT)

    def _kill_node(self, draw: random.Random) -> None:
        with self._a_node(draw) as node:
            self._world.kill_node(node)
            time.sleep(draw.choice((0.0, 1.0, self._lease_s + 6)))
            self._start_node(node)

    def _freeze_node(self, draw: random.Random) -> None:
        with self._a_node(draw) as node, self._world.frozen(node.pid, *node.children()):
            time.sleep(self._a_while(draw))

    def _drain_node(self, draw: random.Random) -> None:
        with self._a_node(draw) as node:
            with self._world.fault("stopped", *node.children()):
                node.signal(signal.SIGTERM)
                node.wait(GRACE_S + 20)
            self._start_node(node)

    def _flush_scripts(self, draw: random.Random) -> None:
        with self._server_turn, self._world.fault("blip"):
            self._world.server.client.script_flush()

    def _kill_clients(self, draw: random.Random) -> None:
        with self._server_turn, self._world.fault("blip"):
            client = self._world.server.client
            for one in client.client_list():
                if one["name"].startswith("skedulr") and draw.random() < 0.7:
                    client.execute_command("CLIENT", "KILL", "ID", one["id"])

    def _restart_server(self, draw: random.Random) -> None:
        with self._server_turn, self._world.fault("outage"):
            self._world.server.kill()
            time.sleep(draw.choice((0.0, 1.0, *(n * self._lease_s for n in (0.8, 1.5, 2.5)))))
            self._on_main(self._world.server.start)
            wait_until(self._answers, 20, "the server has read its file")

    def _freeze_server(self, draw: random.Random) -> None:
        with self._server_turn, self._world.fault("outage"):
            self._world.server.freeze()
            time.sleep(self._a_while(draw))
            self._world.server.thaw()

    def _fill_server(self, draw: random.Random) -> None:
        with self._server_turn, self._world.fault("outage"):
            self._world.server.fill()
            time.sleep(self._a_while(draw))
            self._world.server.client.config_set("maxmemory", "0")

    def _promote_replica(self, draw: random.Random) -> None:
        with self._server_turn, self._world.fault("outage"):
            old = self._world.server
            [new] = [server for server in self._servers if server is not old]
            old.client.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
            wait_until(lambda: _offset(old) == _offset(new), 20, "the replica has everything")
            # Clients are led to it while it is a replica still: it says READONLY for a while.
            self._point_to(new)
            self._world.server = new
            time.sleep(draw.choice((0.0, 0.5, 2.0)))
            new.client.execute_command("REPLICAOF", "NO", "ONE")
            old.kill()
        self._on_main(old.start)
        self._follow(old, new)

    def _point_to(self, server: Server) -> None:
        for proxy in (*map(self._world.proxy, self._world.nodes), self._producers_link):
            proxy.upstream = server.url
            proxy.cut()

    def _follow(self, replica: Server, primary: Server) -> None:
        replica.client.execute_command("REPLICAOF", "127.0.0.1", str(primary.port))
        wait_until(
            lambda: replica.client.info("replication").get("master_link_status") == "up", 30,
            "the replica follows",
        )

    def _disturb_node(self, draw: random.Random) -> None:
        with self._a_node(draw) as node:
            proxy = self._world.proxy(node)
            with self._world.fault("cut off", node=node):
                self._disturb_link(proxy, draw)

    def _disturb_producers(self, draw: random.Random) -> None:
        # Nothing of this touches what the nodes do.
        self._disturb_link(self._producers_link, draw, PRODUCER_SCRIPTS)

    def _disturb_link(
        self, proxy: Proxy, draw: random.Random, scripts: tuple[str, ...] = SCRIPTS + FLOW_SCRIPTS
    ) -> None:
        how = draw.choice(("drop_reply", "drop_reply", "reset", "delay", "stall", "refuse", "cut"))
        if how in ("drop_reply", "reset"):
            called = script(draw.choice(scripts)).sha.encode()
            proxy.set(how, times=draw.randint(1, 3), only=called)
            time.sleep(draw.uniform(0.5, 2))
        elif how == "delay":
            proxy.set("delay", delay_s=draw.uniform(0.01, 0.3))
            time.sleep(draw.uniform(0.5, 3))
        elif how == "stall":
            proxy.set("stall")
            time.sleep(self._a_while(draw))
        elif how == "refuse":
            proxy.refuse()
            time.sleep(self._a_while(draw))
            proxy.start()
        else:
            proxy.cut()
        proxy.set("pass")

    def _a_while(self, draw: random.Random) -> float:
        return self._lease_s * draw.choice((0.1, 0.4, 0.8, 1.2, 1.7, 2.5))

    def _answers(self) -> bool:
        try:
            return bool(self._world.server.client.info("persistence")["loading"] == 0)
        except redis.RedisError:
            return False


def _pick(draw: random.Random, weighted: list[tuple[int, T]]) -> T:
    return draw.choices([one for _, one in weighted], [weight for weight, _ in weighted])[0]


def _offset(server: Server) -> int:
    info = server.client.info("replication")
    return int(info["master_repl_offset"])


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def main() -> int:
    """Run it by hand; 0 if nothing was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rate", type=float, default=15.0, help="submits a second")
    parser.add_argument("--flows", type=int, default=10, help="workflows in 100 submits, about")
    parser.add_argument("--streams", action="store_true", help="ready work in a stream")
    parser.add_argument("--variant", help="break this on purpose: see variants.py")
    parser.add_argument("--folder", type=Path, help="keep logs and the effect log here")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    report = Chaos(
        seed=given.seed, seconds=given.minutes * 60, folder=folder, rate=given.rate,
        variant=given.variant, streams=given.streams, flows=given.flows,
        say=lambda line: print(line, flush=True),
    ).run()
    print(report)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"largest process: {peak} MiB; logs in {folder}")
    if report.well and given.folder is None:
        shutil.rmtree(folder)
    return 0 if report.well else 1


if __name__ == "__main__":
    sys.exit(main())
