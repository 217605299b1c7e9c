"""The main job in figures: drain, idle latency, delayed precision, idle cost, start.

    python tests/benchmarks/main_job.py [--runs 3] [--tasks 100000] [--huey PYTHON] [PART ...]

Everything runs on a private redis-server without persistence, one child of 100 workers, tokens,
leases and records on. With --huey (an interpreter that has huey) huey drains the same number of
no-op tasks in the same run, alternating. Medians are reported; it ends with status 1 where a limit
is broken. Figures hold for one machine and moment: compare what stands in one run only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import meter

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent.parent))

from tests.servers import Server  # noqa: E402

#: name -> (limit, whether the figure must be at least or at most that)
LIMITS = {
    "drain_per_s": (12_000, "at least"),
    "times_huey": (5, "at least"),
    "latency_p50_ms": (2, "at most"),
    "early": (0, "at most"),
    "late_p50_ms": (12, "at most"),
    "late_p99_ms": (30, "at most"),
    "late_crowded_p50_ms": (12, "at most"),
    "late_crowded_p99_ms": (30, "at most"),
    "idle_cpu_percent": (1, "at most"),
    "idle_commands_per_s": (5, "at most"),
    "second_start_s": (2, "at most"),
}


class Bench:
    """One server, one folder for the meter, and what is measured on them."""

    def __init__(self, folder, arguments):
        self.folder = folder
        self.arguments = arguments
        self.server = Server("redis", tcp=True).start()
        self.env = dict(
            os.environ, METER=str(folder), SKEDULR_REDIS_URL=self.server.url,
            PYTHONPATH=str(HERE),
        )

    def call(self, code):
        """Run code in a process of its own, with the tasks imported; its last line as JSON."""
        prelude = "import json, time, skedulr, meter_tasks\nnoop = meter_tasks.noop\n"
        done = subprocess.run(
            [sys.executable, "-c", prelude + code], env=self.env, cwd=self.folder.parent,
            capture_output=True, text=True, check=True,
        )
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None

    @contextmanager
    def worker(self, pools="default=100", command=None):
        """A master (or another system's worker) for the length of the block; its process."""
        command = command or [
            sys.executable, "-m", "skedulr", "master", "--pools", pools, "--no-ui",
            "--log-level", "error", "meter_tasks",
        ]
        process = subprocess.Popen(command, env=self.env, cwd=self.folder.parent)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def fresh(self):
        """Empty server, empty meter."""
        self.server.flush()
        meter.reset(self.folder)

    def wait_count(self, count, limit_s=300):
        """Until that many tasks have started."""
        ends = time.monotonic() + limit_s
        while meter.count(self.folder) < count:
            if time.monotonic() > ends:
                raise SystemExit(f"only {meter.count(self.folder)} of {count} tasks ran")
            time.sleep(0.01)

    def rate(self):
        """Tasks a second between the first and the last start."""
        starts = [started for _, started in meter.read(self.folder)]
        return (len(starts) - 1) / (starts[-1] - starts[0])

    def drain(self):
        count = self.arguments.tasks
        self.fresh()
        self.call(f"skedulr.submit_many(noop.bind() for _ in range({count}))")
        with self.worker():
            self.wait_count(count)
            return self.rate()

    def drain_huey(self):
        count = self.arguments.tasks // 5
        self.fresh()
        python = self.arguments.huey
        subprocess.run(
            [python, "-c", f"import huey_tasks\nfor _ in range({count}): huey_tasks.noop()"],
            env=self.env, check=True,
        )
        consumer = str(Path(python).parent / "huey_consumer")
        command = [consumer, "huey_tasks.huey", "-k", "greenlet", "-w", "100", "-q"]
        with self.worker(command=command):
            self.wait_count(count)
            return self.rate()

    def latency(self):
        self.fresh()
        with self.worker():
            time.sleep(2)
            self.call(
                "for _ in range(300):\n noop.submit(time.time()); time.sleep(0.02)"
            )
            self.wait_count(300)
        waits = [1000 * (started - asked) for asked, started in meter.read(self.folder)][50:]
        return quantile(waits, 0.5), quantile(waits, 0.99)

    def precision(self, others):
        """Lateness of 2,000 tasks due over 5 s, with ``others`` more that are due in a day."""
        self.fresh()
        if others:
            self.call(
                f"skedulr.submit_many(noop.using(delay=86400 + i % 1000).bind() "
                f"for i in range({others}))"
            )
        with self.worker():
            time.sleep(1)
            self.call(
                "begin = time.time() + 2\n"
                "dues = [begin + i * 5 / 2000 for i in range(2000)]\n"
                "skedulr.submit_many(noop.using(at=due).bind(due) for due in dues)"
            )
            self.wait_count(2000)
        late = [1000 * (started - due) for due, started in meter.read(self.folder)]
        early = sum(1 for one in late if one < 0)
        return quantile(late, 0.5), quantile(late, 0.99), early

    def idle(self, seconds=20):
        self.fresh()
        with self.worker("critical=4,default=10") as process:
            time.sleep(3)
            cpu = cpu_seconds(process.pid)
            commands = commands_sent(self.server.url, seconds)
            return 100 * (cpu_seconds(process.pid) - cpu) / seconds, commands / seconds

    def start(self):
        """Seconds from the command to its first task run, with everything cached."""
        self.fresh()
        self.call("noop.submit(time.time())")
        began = time.time()
        with self.worker("critical=4,default=10"):
            self.wait_count(1)
        return meter.read(self.folder)[0][1] - began


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def cpu_seconds(pid):
    """CPU of a process and its children so far, seconds."""
    import psutil

    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return sum(sum(one.cpu_times()[:2]) for one in family)


def commands_sent(url, seconds):
    """Commands that clients send for a while; what scripts call inside is not counted."""
    seen = subprocess.run(
        ["timeout", str(seconds), "redis-cli", "-u", url, "monitor"], capture_output=True, text=True
    )
    return sum(1 for line in seen.stdout.splitlines()[1:] if " lua] " not in line)


def run(bench, parts):
    """All figures, each a list with one value a run."""
    figures = {}

    def note(name, value):
        figures.setdefault(name, []).append(value)
        print(f"  {name:24} {value:12,.2f}", file=sys.stderr, flush=True)

    for number in range(bench.arguments.runs):
        print(f"run {number + 1}", file=sys.stderr)
        if "drain" in parts:
            note("drain_per_s", bench.drain())
            if bench.arguments.huey:
                note("huey_per_s", bench.drain_huey())
        if "latency" in parts:
            for name, value in zip(("latency_p50_ms", "latency_p99_ms"), bench.latency(),
                                   strict=True):
                note(name, value)
        if "precision" in parts:
            for others, prefix in ((0, "late"), (200_000, "late_crowded")):
                p50, p99, early = bench.precision(others)
                note(f"{prefix}_p50_ms", p50)
                note(f"{prefix}_p99_ms", p99)
                note("early", early)
        if "idle" in parts:
            cpu, commands = bench.idle()
            note("idle_cpu_percent", cpu)
            note("idle_commands_per_s", commands)
        if "start" in parts:
            note("second_start_s", bench.start())
    return figures


def main():
    parts = ("drain", "latency", "precision", "idle", "start")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--huey", metavar="PYTHON", help="an interpreter that has huey")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meter_folder = Path(folder) / "meter"
        meter_folder.mkdir()
        bench = Bench(meter_folder, arguments)
        try:
            figures = run(bench, arguments.parts or parts)
        finally:
            bench.server.close()
    medians = {name: statistics.median(values) for name, values in figures.items()}
    if "early" in figures:
        medians["early"] = max(figures["early"])  # one too early is one too many
    if "huey_per_s" in medians:
        medians["times_huey"] = medians["drain_per_s"] / medians["huey_per_s"]
    broken = [
        name for name, (limit, sense) in LIMITS.items()
        if name in medians and (medians[name] < limit if sense == "at least"
                                else medians[name] > limit)
    ]
    report(medians, broken, arguments.json)
    return 1 if broken else 0


def report(medians, broken, as_json):
    if as_json:
        print(json.dumps({"medians": medians, "broken": broken}))
        return
    print(f"{'figure (median)':26} {'value':>12}   limit")
    for name, value in medians.items():
        limit = LIMITS.get(name)
        text = f"{limit[1]} {limit[0]:,}" if limit else ""
        print(f"{name:26} {value:12,.2f}   {text}{'   BROKEN' if name in broken else ''}")


if __name__ == "__main__":
    sys.exit(main())
