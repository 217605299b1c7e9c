"""Limits under kills: several children of two masters run limited tasks, and are killed at random.

    python -m tests.faults.limits_held --minutes 5 --seed 7

Tasks of several keys with a concurrency, with a rate, and with both are submitted all the while;
children are killed with SIGKILL, and now and then a whole node, which is started again. At the end
all must have ended, and this is read from the effect log:

- ``concurrency``: how many of a key ran at once, a killed run counted until its process was killed.
  Never above the limit. A run that lost its claim (a lease ran out on a machine with too much to
  do) is not counted: its slot is another's by then. How many there were is said.
- ``rate``: starts of a limit in any window. A start is noted a little after its token was taken,
  so a window is allowed what ``LATE_S`` more would bring.
- ``stuck``: nothing is parked, no slot is taken and nothing is waited for once all has ended, and
  while it ran, no key with tasks to start stood still for longer than a kill excuses.

The doctor has the last word on what is left in Redis.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Run by ``python -m tests.faults.limits_held``, as pytest's own rules would have it.
sys.path[:0] = [str(HERE), str(HERE.parent)]

from history import FOREVER, History, Run  # noqa: E402
from servers import Server  # noqa: E402
from world import World  # noqa: E402

from skedulr import Limit  # noqa: E402
from skedulr.doctor import Doctor  # noqa: E402
from skedulr.wire import Wire  # noqa: E402

#: The nodes' lease: long enough for a loaded machine to renew it in time, seconds.
LEASE_S = 4.0
#: Between taking a token and noting the start, at most, seconds.
LATE_S = 1.0
MOST_WAITING = 40
KEYS = ("ann", "bob", "eve")
CONCURRENCY = {"ann": 1, "bob": 2, "eve": 3}
#: Starts a second, and at once.
RATE, BURST = 12, 2
_LEFT = ("parked", "queues", "slots", "releases", "ready", "claims", "leases", "info")


@dataclass
class Report:
    """A run in figures."""

    seed: int
    seconds: float
    kills: Counter[str]
    history: History
    most: dict[str, int] = field(default_factory=dict)
    fullest: dict[float, int] = field(default_factory=dict)
    lost_claims: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        runs = [run for of in self.history.runs().values() for run in of]
        killed = sum(run.phase == "vanished" for run in runs)
        lines = [
            f"seed {self.seed}: {self.seconds:.0f} s, {len(self.history.submitted)} tasks, "
            f"{len(runs)} runs, {killed} of them killed, {self.lost_claims} lost their claims",
            "kills: " + ", ".join(f"{count} {what}" for what, count in self.kills.items()),
            "most at once: " + ", ".join(
                f"{key} {most} of {CONCURRENCY[key]}" for key, most in self.most.items()
            ),
            f"rate of {RATE}/s, burst {BURST}: " + ", ".join(
                f"{most} in {window:g} s" for window, most in self.fullest.items()
            ),
            f"violations: {len(self.violations)}", *self.violations[:20],
        ]
        return "\n".join(lines)


class LimitsHeld:
    """One run; ``say`` is called with a line for each kill."""

    def __init__(
        self, *, server: Server, folder: Path, seed: int, seconds: float,
        pause_s: tuple[float, float] = (0.5, 3.0), say: Callable[[str], None] = print,
    ) -> None:
        self._seed, self._seconds, self._pause_s, self._say = seed, seconds, pause_s, say
        self._server, self._folder = server, folder
        self._draw = random.Random(seed)
        self._kills: Counter[str] = Counter()
        self._kinds: dict[str, str] = {}

    def run(self) -> Report:
        """All of it."""
        began = time.monotonic()
        with World(self._server, self._folder, lease_s=LEASE_S) as world:
            for name, pools in (("a", "default=4x2"), ("b", "default=4")):
                world.node(name, pools=pools)
            until = time.monotonic() + self._seconds
            next_kill = time.monotonic() + self._draw.uniform(*self._pause_s)
            while (now := time.monotonic()) < until:
                self._submit_some(world)
                if now >= next_kill:
                    self._kill(world)
                    next_kill = time.monotonic() + self._draw.uniform(*self._pause_s)
                time.sleep(0.1)
            history = world.settle(30 + 2 * self._seconds)
            report = Report(self._seed, time.monotonic() - began, self._kills, history)
            report.violations += [str(one) for one in history.verdict()]
            self._judge(report)
            self._look_for_leaks(world, report)
        return report

    # Doing

    def _submit_some(self, world: World) -> None:
        """More than the limits let through, but for what is left from before."""
        waiting = self._server.client.hlen(world.keys.tasks)
        for _ in range(self._draw.choice((1, 2, 3, 4)) if waiting < MOST_WAITING else 0):
            key = self._draw.choice(KEYS)
            at_once = Limit(concurrency=CONCURRENCY[key], key="{0}", name=f"once-{key}")
            rate = Limit(rate=RATE, burst=BURST, name="pace")
            kind = self._draw.choice(("once", "once", "pace", "both"))
            limits = {"once": [at_once], "pace": [rate], "both": [at_once, rate]}[kind]
            uid = world.submit(
                "keyed", key, self._draw.choice((0.02, 0.1, 0.3)), limit=limits,
                priority=self._draw.choice((0, 0, 0, 5)), headers={"kind": kind},
            )
            self._kinds[uid] = kind + " " + key

    def _kill(self, world: World) -> None:
        node = self._draw.choice(world.nodes)
        children = node.children()
        if self._draw.random() < 0.2:
            self._say(f"node {node.folder.name} killed")
            self._kills["nodes"] += 1
            world.kill_node(node)
            node.start(None)
        elif children:
            pid = self._draw.choice(children)
            self._say(f"child {pid} of {node.folder.name} killed")
            self._kills["children"] += 1
            world.kill(pid)

    # Judging

    def _judge(self, report: Report) -> None:
        runs = self._counted(report)
        for key in KEYS:
            theirs = [run for run in runs if self._is(run, "once both", key)]
            report.most[key] = most_at_once(theirs)
            if report.most[key] > CONCURRENCY[key]:
                report.violations.append(
                    f"concurrency: {report.most[key]} of {key} at once, not {CONCURRENCY[key]}"
                )
        starts = sorted(
            run.began for of in report.history.runs().values() for run in of
            if any(self._is(run, "pace both", key) for key in KEYS)
        )
        for window in (1.0, 3.0, 10.0):
            report.fullest[window] = fullest(starts, window)
            allowed = RATE * (window + LATE_S) + BURST
            if report.fullest[window] > allowed:
                report.violations.append(
                    f"rate: {report.fullest[window]} starts in {window:g} s, not {allowed:g}"
                )

    def _is(self, run: Run, kinds: str, key: str) -> bool:
        kind, theirs = self._kinds[run.uid].split(" ")
        return kind in kinds.split(" ") and theirs == key

    def _counted(self, report: Report) -> list[Run]:
        """Runs that had their slots until they were over: those that were recorded, and those that
        were killed, until that moment."""
        history, counted = report.history, []
        killed: dict[int, list[float]] = defaultdict(list)
        for fault in history.faults:
            for pid in fault.pids:
                killed[pid].append(fault.begin)
        for uid, of in history.runs().items():
            final = history.finals.get(uid)
            for run in of:
                if run.phase == "vanished":
                    later = [at for at in killed[run.pid] if at >= run.began]
                    run.over = min(later, default=run.over)
                    if run.over == FOREVER:
                        report.violations.append(f"a run of {uid} that nobody killed vanished")
                    counted.append(run)
                elif final is not None and final.token == run.token:
                    counted.append(run)
                elif any(at >= run.over for at in killed[run.pid]):
                    counted.append(run)  # its process died before it could record the outcome
                else:
                    report.lost_claims += 1
        return counted

    def _look_for_leaks(self, world: World, report: Report) -> None:
        client, prefix = self._server.client, world.keys.prefix
        left = [name for name in _LEFT if client.exists(prefix + name)]
        report.violations += [f"stuck: {name} is left" for name in left]
        wire = Wire(self._server.url, name="limits-held")
        try:
            doctor = Doctor(wire, "faults", moment_s=1)
            report.violations += [
                f"doctor: {one}" for one in doctor.examine("default")
                # What is noted of owners whose host died goes when they are mourned.
                if not one.kind.startswith("own")
            ]
        finally:
            wire.close()


def most_at_once(runs: Sequence[Run]) -> int:
    """How many of them there were at one moment, at most."""
    count = most = 0
    # One that ends as another begins does not meet it.
    steps = [(run.over, -1) for run in runs] + [(run.began, 1) for run in runs]
    for _, step in sorted(steps):
        count += step
        most = max(most, count)
    return most


def fullest(times: Sequence[float], window_s: float) -> int:
    """The most of these sorted times in any window."""
    return max(_counts(times, window_s), default=0)


def _counts(times: Sequence[float], window_s: float) -> Iterator[int]:
    for first, at in enumerate(times):
        yield bisect_left(times, at + window_s) - first


def main() -> int:
    """Run it by hand; 0 if nothing was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.limits_held", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--folder", type=Path, help="keep logs and the effect log here")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="limits-held-"))
    folder.mkdir(parents=True, exist_ok=True)
    server = Server("redis").start()
    try:
        report = LimitsHeld(
            server=server, folder=folder, seed=given.seed, seconds=given.minutes * 60,
            say=lambda line: print(line, flush=True),
        ).run()
    finally:
        server.close()
    print(report)
    if not report.violations and given.folder is None:
        shutil.rmtree(folder)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
