"""The measurements of ``skedulr bench``, one function each; and how many tasks each takes.

They run in the order of ``PARTS`` on one ground, on one master that is started for the first that
needs it. A figure that the server does not give away is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import SkedulrError
from ..store import Store
from . import meter
from .ground import Ground

#: The first of a paced row still warm things up and are not counted.
WARM_UP = 20
GREENLETS = 100
#: Between two submits whose latency is measured, seconds.
GAP_S = 0.02


class Figure(NamedTuple):
    """One result: its name in JSON, what people read, and its value with its unit."""

    name: str
    text: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many tasks the parts use, and over how many seconds delayed ones are due."""

    submits: int = 10_000
    tasks: int = 100_000
    probes: int = 300
    delayed: int = 2_000
    over_s: float = 5.0

    def all_of(self, parts: Sequence[str]) -> int:
        """How many tasks will be run or stored, for the progress bar."""
        counts = {
            "submit": 4 * self.submits, "drain": self.tasks, "latency": 2 * self.probes,
            "delayed": self.delayed, "memory": 0 if "drain" in parts else self.tasks,
        }
        return sum(counts[part] for part in parts)


#: Of ``--quick``.
QUICK = Amounts(submits=2_000, tasks=20_000, probes=100, delayed=500, over_s=2.0)


@dataclass(slots=True)
class Run:
    """What the parts share; ``figures`` is what they have found so far."""

    ground: Ground
    amounts: Amounts
    parts: Sequence[str]
    on_tasks: Callable[[int], None]
    figures: list[Figure] = field(default_factory=list)
    drained_per_s: float = 0.0

    def note(self, name: str, text: str, value: float, unit: str) -> None:
        """Add a figure."""
        self.figures.append(Figure(name, text, value, unit))


def measure(run: Run) -> None:
    """All parts that were asked for."""
    for name, part in PARTS.items():
        if name in run.parts and not (name == "memory" and "drain" in run.parts):
            part(run)


def conditions(run: Run) -> dict[str, object]:
    """What the figures hold for, and nothing else: server, persistence, sizes, this machine."""
    ground = run.ground
    return {
        **ground.server.describe(), "payload_bytes": ground.payload, "workers": ground.workers,
        "processes": ground.processes, "cpus": os.cpu_count(), "load": os.getloadavg()[0],
        "namespace": ground.namespace,
    }


def submit(run: Run) -> None:
    """One greenlet, a hundred, and in bulk; nobody runs the tasks meanwhile."""
    count = run.amounts.submits
    ways: tuple[tuple[str, str, int, dict[str, int]], ...] = (
        ("alone", "submit, one greenlet", count, {}),
        ("crowd", f"submit, {GREENLETS} greenlets", count, {"greenlets": GREENLETS}),
        ("bulk", "submit in bulk", 2 * count, {}),
    )
    for job, text, many, options in ways:
        before = run.ground.server.costs()
        found = run.ground.produce(job, count=many, **options)
        after = run.ground.server.costs()
        run.note(f"submit_{job}_per_s", text, found["per_s"], "tasks/s")
        run.note(f"submit_{job}_cpu_us", "  CPU of the producer", found["cpu_us"], "us a task")
        if before and after:
            run.note(f"submit_{job}_server_us", "  CPU of the server",
                     1e6 * (after.cpu_s - before.cpu_s) / many, "us a task")
        run.on_tasks(many)
    run.ground.remove_keys()


def drain(run: Run) -> None:
    """Fill the queue of a master whose pool is paused, then let it go; and what a task costs."""
    ground, count = run.ground, run.amounts.tasks
    with_memory = "memory" in run.parts
    ground.start_master()
    _fill(run, count)
    cpu_s, before = ground.cpu_s(), ground.server.costs()
    _pause(ground, False)
    ground.wait_starts(count)
    ground.wait_settled()
    after = ground.server.costs()
    run.drained_per_s = meter.rate(ground.meter)
    run.note("drain_per_s", "drain", run.drained_per_s, "tasks/s")
    run.note("drain_cpu_us", "  CPU of master and children",
             1e6 * (ground.cpu_s() - cpu_s) / count, "us a task")
    if before and after:
        run.note("drain_server_us", "  CPU of the server",
                 1e6 * (after.cpu_s - before.cpu_s) / count, "us a task")
        run.note("drain_scripts", "  script calls",
                 1000 * (after.scripts - before.scripts) / count, "per 1,000 tasks")
        run.note("drain_wire_bytes", "  bytes on the wire",
                 (after.wire_bytes - before.wire_bytes) / count, "a task")
    if with_memory:
        _memory_of_ended(run, count)
    ground.forget_starts()


def latency(run: Run) -> None:
    """From submit to start: on an idle pool, and while it has half the work it can do."""
    ground = run.ground
    ground.start_master()
    _probe(run, 0, "idle", "submit to start, idle")
    if not run.drained_per_s:
        _fill(run, QUICK.tasks)
        _pause(ground, False)
        ground.wait_starts(QUICK.tasks, told=False)
        ground.wait_settled()
        run.drained_per_s = meter.rate(ground.meter)
    _probe(run, run.drained_per_s / 2, "loaded", "submit to start, half load")


def delayed(run: Run) -> None:
    """How late delayed tasks start, and whether any starts before its time."""
    ground, amounts = run.ground, run.amounts
    ground.start_master()
    ground.forget_starts()
    ground.produce("delayed", count=amounts.delayed, over_s=amounts.over_s, ahead_s=2.0,
                   clock_ms=ground.server.clock_ms())
    ground.wait_starts(amounts.delayed)
    late = meter.waits_ms(ground.meter)
    run.note("late_p50_ms", "delayed tasks, late by, p50", quantile(late, 0.5), "ms")
    run.note("late_p99_ms", "  p99", quantile(late, 0.99), "ms")
    run.note("early", "  started before their time", sum(one < 0 for one in late), "tasks")
    ground.forget_starts()


def memory(run: Run) -> None:
    """Bytes of Redis a waiting task takes, and a finished one; where ``drain`` does not say."""
    ground, count = run.ground, run.amounts.tasks
    ground.start_master()
    _fill(run, count)
    _pause(ground, False)
    ground.wait_starts(count)
    ground.wait_settled()
    _memory_of_ended(run, count)
    ground.forget_starts()


#: In this order.
PARTS: dict[str, Callable[[Run], None]] = {
    "submit": submit, "drain": drain, "latency": latency, "delayed": delayed, "memory": memory,
}


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which a part ``q`` of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


def _fill(run: Run, count: int) -> None:
    """Store that many tasks while the pool is paused, and weigh them."""
    ground = run.ground
    _pause(ground, True)
    ground.wait_settled()
    ground.forget_starts()
    ground.wire.call("UNLINK", ground.keys.records, ground.keys.done)
    keys = [ground.keys.tasks, ground.keys.ready]
    before = ground.server.sizes(keys)
    ground.produce("bulk", count=count - 1)  # and the one that connects
    after = ground.server.sizes(keys)
    if "memory" in run.parts and before is not None and after is not None:
        run.note("waiting_bytes", "memory of a waiting task", (after - before) / count, "bytes")


def _memory_of_ended(run: Run, count: int) -> None:
    keys = run.ground.keys
    size = run.ground.server.sizes([keys.records, keys.done])
    if size is not None:
        run.note("finished_bytes", "memory of a finished task", size / count, "bytes")


def _probe(run: Run, load_per_s: float, name: str, text: str) -> None:
    ground, count = run.ground, run.amounts.probes + WARM_UP
    ground.forget_starts()
    # A process of its own, or the load would hold up the submits that are timed.
    load = ground.begin("load", per_s=load_per_s, seconds=count * GAP_S + 2) if load_per_s else None
    if load is not None:
        ground.wait_starts(int(load_per_s / 4), told=False)
    ground.produce("paced", count=count, gap_s=GAP_S)
    if load is not None:
        run.note(f"latency_{name}_load_per_s", f"{text}: the load", ground.end(load)["per_s"],
                 "tasks/s")
    ground.wait_settled()
    waits = meter.waits_ms(ground.meter)[WARM_UP:]
    if len(waits) != run.amounts.probes:
        raise SkedulrError(f"{len(waits)} of {run.amounts.probes} timed tasks were seen to start")
    run.on_tasks(run.amounts.probes)
    first = "  p50" if load else f"{text}, p50"
    run.note(f"latency_{name}_p50_ms", first, quantile(waits, 0.5), "ms")
    run.note(f"latency_{name}_p99_ms", "  p99", quantile(waits, 0.99), "ms")
    ground.forget_starts()


def _pause(ground: Ground, on: bool) -> None:
    Store(ground.keys).pause(ground.wire, on)

