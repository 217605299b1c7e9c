"""Skedulr beside its peers: the same work for each, in turns, on one private Redis.

    python tests/benchmarks/compare.py --huey PYTHON --dramatiq PYTHON --bullmq FOLDER [--write]

PYTHON is an interpreter that has that system (and gevent), FOLDER one where ``npm install bullmq
ioredis`` was run; what is not given is left out. Each run measures every system once, one after the
other, in another order each time; medians over the runs count. One worker process with 100 slots,
no-op tasks, no persistence; Skedulr with leases, tokens and records on.

With --write the table goes into README.md and examples/docs/speed.md (between their markers), the
chart beside the latter, and every value into speed.json. Compare rows of one table only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import rig
from rig import ROOT, Figures, Rig, cpu_s, quantile

from skedulr import __version__
from skedulr.bench import meter

DOCS = ROOT / "examples" / "docs"
PAGES = (ROOT / "README.md", DOCS / "speed.md")
BEGIN, END = "<!-- compare.py: begin -->", "<!-- compare.py: end -->"
#: name -> (heading, digits after the point)
COLUMNS = {
    "submit_per_s": ("submit/s, one caller", 0), "bulk_per_s": ("bulk submit/s", 0),
    "drain_per_s": ("drain/s", 0), "worker_us": ("worker CPU, us a task", 0),
    "server_us": ("server CPU, us a task", 0), "p50_ms": ("submit to start, ms p50", 1),
    "p99_ms": ("p99", 1),
}
#: What a drain or a latency row gives up after, seconds without a start.
STALL_S = 20
PROBES, WARM_UP, GAP_S = 220, 20, 0.02
#: The part of the tasks that slower systems drain.
PEERS_SHARE = 10

#: Workers of greenlets need gevent's patches before anything else, or they block each other.
PATCHED = """
from gevent import monkey
monkey.patch_all()
import sys
from {0} import {1} as main
sys.argv = {2!r}
main()
"""
#: module and function that run a peer's worker, and its command line.
WORKERS = {
    "huey": ("huey.bin.huey_consumer", "consumer_main",
             ["huey_consumer", "huey_app.huey", "-k", "greenlet", "-w", "100", "-q"]),
    "dramatiq": ("dramatiq.cli", "main",
                 ["dramatiq-gevent", "dramatiq_app", "-p", "1", "-t", "100"]),
}


@dataclass(frozen=True, slots=True)
class System:
    """A Python system: its module in ``peers`` and how its worker is started."""

    name: str
    module: str
    python: str
    version: str
    worker: Callable[[str], list[str]]
    share: int = PEERS_SHARE
    bulk: bool = False


def skedulr_system() -> System:
    return System(
        "skedulr", "skedulr_app", sys.executable, __version__,
        lambda python: Rig.master("default=100"), share=1, bulk=True,
    )


def python_peer(name: str, python: str) -> System:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    version = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    code = PATCHED.format(*WORKERS[name])
    return System(name, f"{name}_app", python, version.stdout.strip(),
                  lambda python: [python, "-c", code])


def measure(bench: Rig, system: System, tasks: int, figures: Figures) -> None:
    """One run of one system."""
    print(system.name, file=sys.stderr)
    count = tasks // system.share

    def note(name: str, value: float) -> None:
        figures.note(f"{system.name} {name}", value)

    single = min(count, 5_000)
    bench.fresh()
    note("submit_per_s", produce(bench, system, "enqueue", single))
    if system.bulk:
        bench.fresh()
        note("bulk_per_s", produce(bench, system, "bulk", count))
    elif single < count:
        produce(bench, system, "enqueue", count - single)
    for name, value in drain(bench, system, count).items():
        note(name, value)
    for name, value in latency(bench, system).items():
        note(name, value)


def produce(bench: Rig, system: System, function: str, count: int) -> float:
    """Tasks a second that one process stores; the connection is made before."""
    code = (
        f"import {system.module} as app\n"
        "app.enqueue(1)\n"
        f"began = time.perf_counter(); app.{function}({count - 1})\n"
        f"print({count - 1} / (time.perf_counter() - began))"
    )
    return float(bench.call(code, system.python))


def drain(bench: Rig, system: System, count: int) -> dict[str, float]:
    """What lies there, from first start to last; CPU from when the first was seen to start."""
    with bench.running(system.worker(system.python)) as worker:
        bench.wait_starts(1, STALL_S)
        seen, worker_s, server_s = (
            meter.count(bench.meter), cpu_s(worker), bench.server_cpu_s()
        )
        complete = bench.wait_starts(count, STALL_S)
        time.sleep(0.3)  # the last outcomes are written
        ran = meter.count(bench.meter)
        counted = max(1, ran - seen)
        found = {
            "drain_per_s": meter.rate(bench.meter),
            "worker_us": 1e6 * (cpu_s(worker) - worker_s) / counted,
            "server_us": 1e6 * (bench.server_cpu_s() - server_s) / counted,
        }
    if not complete:
        print(f"  {system.name} ran {ran:,} of {count:,} tasks: {bench.last_words()}",
              file=sys.stderr)
    return {**found, "not_run": count - ran}


def latency(bench: Rig, system: System) -> dict[str, float]:
    """Single tasks, 20 ms apart, on an idle worker."""
    bench.fresh()
    with bench.running(system.worker(system.python)):
        bench.call(f"import {system.module} as app\napp.send(time.time())", system.python)
        bench.wait_starts(1, STALL_S)
        time.sleep(1)
        bench.call(
            f"import {system.module} as app\n"
            f"for _ in range({PROBES}): app.send(time.time()); time.sleep({GAP_S})",
            system.python,
        )
        bench.wait_starts(1 + PROBES, STALL_S)
    waits = meter.waits_ms(bench.meter)[1 + WARM_UP:]
    return {"p50_ms": quantile(waits, 0.5), "p99_ms": quantile(waits, 0.99)}


def measure_bullmq(bench: Rig, folder: Path, tasks: int, figures: Figures) -> None:
    """One run of BullMQ: its script does all of it in one process."""
    print("bullmq", file=sys.stderr)
    bench.fresh()
    script = folder / "skedulr-bench.mjs"
    # Node looks for modules from where the script lies.
    script.write_text((rig.HERE / "peers" / "bullmq.mjs").read_text())
    single, bulk = min(3_000, tasks // PEERS_SHARE), tasks // PEERS_SHARE * 2
    try:
        server_s = bench.server_cpu_s()
        done = subprocess.run(
            ["node", script.name, str(bench.server.port), str(single), str(bulk)],
            cwd=folder, stdout=subprocess.PIPE, text=True, check=True,
        )
    finally:
        script.unlink()
    for name, value in json.loads(done.stdout).items():
        figures.note(f"bullmq {name}", value)
    spent = (bench.server_cpu_s() - server_s) / (single + bulk)
    figures.note("bullmq server_us", 1e6 * spent)


def bullmq_version(folder: Path) -> str:
    package = json.loads((folder / "node_modules" / "bullmq" / "package.json").read_text())
    return str(package["version"])


# What is written


def table(medians: Mapping[str, float], versions: Mapping[str, str]) -> str:
    """As Markdown."""
    heads = ["system", *(heading for heading, _ in COLUMNS.values())]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, version in versions.items():
        cells = [f"{name} {version}"]
        for column, (_, digits) in COLUMNS.items():
            value = medians.get(f"{name} {column}")
            cells.append("-" if value is None else f"{value:,.{digits}f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def conditions(asked: argparse.Namespace, bench: Rig) -> str:
    """What the table holds for, in a sentence."""
    info = bench.server.client.info("server")
    return (
        f"Medians of {asked.runs} runs in turns, {time.strftime('%Y-%m-%d')}: no-op tasks, "
        f"{asked.tasks:,} for Skedulr, one worker process with 100 slots, Redis "
        f"{info['redis_version']} without persistence on the same machine, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}. Skedulr with leases, tokens and records on."
    )


def write(text: str) -> None:
    """Put the table between the markers of the pages."""
    for page in PAGES:
        old = page.read_text("utf-8")
        head, begin, rest = old.partition(BEGIN)
        _, end, tail = rest.partition(END)
        if not (begin and end):
            raise SystemExit(f"{page} has no {BEGIN} ... {END}")
        page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", "utf-8")


def draw(medians: Mapping[str, float], versions: Mapping[str, str], path: Path) -> None:
    """Bars: tasks a second, and CPU a task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    charts = (("drain_per_s", "No-op tasks a second"), ("submit_per_s", "Submits a second"),
              ("p50_ms", "Submit to start, ms (median)"))
    figure, all_axes = pyplot.subplots(1, len(charts), figsize=(11, 0.9 + 0.42 * len(versions)),
                                       dpi=120)
    for axes, (column, title) in zip(all_axes, charts, strict=True):
        shown = [(name, medians[f"{name} {column}"]) for name in reversed(versions)
                 if f"{name} {column}" in medians]
        names, values = [name for name, _ in shown], [value for _, value in shown]
        colours = ["#1f6feb" if name == "skedulr" else "#8a8f98" for name in names]
        axes.barh(names, values, color=colours, height=0.6)
        for at, value in enumerate(values):
            text = f"{value:,.1f}" if column == "p50_ms" else f"{value:,.0f}"
            axes.annotate(text, (value, at), xytext=(4, 0), textcoords="offset points",
                          va="center", fontsize=8)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlim(0, max(values, default=1) * 1.25)
        axes.tick_params(labelsize=8)
        axes.xaxis.set_visible(False)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    figure.tight_layout(w_pad=2)
    figure.savefig(path, metadata={"Software": None})


def main() -> int:
    parser = rig.arguments(__doc__, runs=5)
    parser.add_argument("--tasks", type=int, default=100_000, help="Skedulr drains (100,000)")
    parser.add_argument("--huey", metavar="PYTHON", help="an interpreter that has huey")
    parser.add_argument("--dramatiq", metavar="PYTHON", help="an interpreter that has dramatiq")
    parser.add_argument("--bullmq", metavar="FOLDER", type=Path, help="where npm put bullmq")
    parser.add_argument("--write", action="store_true", help="write table, chart and values")
    asked = parser.parse_args()
    systems = [skedulr_system()]
    systems += [python_peer(name, python) for name in ("huey", "dramatiq")
                if (python := getattr(asked, name))]
    turns: list[Callable[[Rig, Figures], None]] = [
        lambda bench, figures, one=system: measure(bench, one, asked.tasks, figures)  # type: ignore[misc]
        for system in systems
    ]
    versions = {system.name: system.version for system in systems}
    if asked.bullmq:
        versions["bullmq"] = bullmq_version(asked.bullmq)
        turns.append(
            lambda bench, figures: measure_bullmq(bench, asked.bullmq, asked.tasks, figures)
        )
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        bench = Rig(Path(folder))
        try:
            for number in range(asked.runs):
                print(f"run {number + 1}", file=sys.stderr)
                for turn in turns if number % 2 == 0 else reversed(turns):
                    turn(bench, figures)
            holds_for = conditions(asked, bench)
        finally:
            bench.close()
    medians = figures.medians()
    for name in versions:
        if lost := sum(figures.values.get(f"{name} not_run", [])):
            holds_for += f" {name} did not run {lost:,.0f} of its tasks."
    text = f"{table(medians, versions)}\n\n{holds_for}"
    print(json.dumps(medians) if asked.json else text)
    if asked.write:
        write(text)
        draw(medians, versions, DOCS / "speed.png")
        values = {name: [round(one, 3) for one in some] for name, some in figures.values.items()}
        (DOCS / "speed.json").write_text(
            json.dumps({"conditions": holds_for, "versions": versions, "values": values}, indent=1)
            + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
