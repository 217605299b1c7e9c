"""What the benchmarks share: a private server, processes on it, medians over runs, limits, reports.

Figures hold for one machine and one moment: compare what stands in one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# The benchmarks are run as scripts; of the tests' modules they use those that need no pytest.
sys.path[:0] = [str(HERE.parent), str(ROOT)]

import psutil  # noqa: E402
from servers import Server  # noqa: E402

from skedulr.bench import meter  # noqa: E402

B = TypeVar("B")

#: name -> (limit, "at least" or "at most")
Limits = Mapping[str, tuple[float, str]]


class Rig:
    """One private server, a folder for the meter, and processes that use both."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.meter = folder / "meter"
        self.meter.mkdir()
        self.folder = folder
        self.server = Server("redis", tcp=True, **options).start()
        self.env = {
            **{name: value for name, value in os.environ.items()
               if not name.startswith("SKEDULR_")},
            meter.FOLDER: str(self.meter), "SKEDULR_REDIS_URL": self.server.url,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE / "peers"))),
        }

    def close(self) -> None:
        """End the server."""
        self.server.close()

    def fresh(self) -> None:
        """An empty server and an empty meter; nothing may run any more."""
        self.server.flush()
        for path in self.meter.iterdir():
            path.unlink()

    def call(self, code: str, python: str = sys.executable) -> Any:
        """Run code in a process of its own; the last line it prints, as JSON."""
        return self._told_by([python, "-c", "import json, time\n" + code])

    def floor(self, part: str, *arguments: object) -> dict[str, float]:
        """What the machine itself allows: a part of ``floor.py``."""
        found: dict[str, float] = self._told_by(
            [sys.executable, str(HERE / "floor.py"), part, *map(str, arguments)]
        )
        return found

    def _told_by(self, command: Sequence[str]) -> Any:
        done = subprocess.run(
            command, env=self.env, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None

    @contextmanager
    def running(self, command: Sequence[str]) -> Iterator[psutil.Process]:
        """A worker for the length of the block; what it says goes to a file."""
        with open(self.folder / "log", "wb") as log:
            process = subprocess.Popen(
                command, env=self.env, cwd=self.folder, stdout=log, stderr=log
            )
        try:
            yield psutil.Process(process.pid)
        finally:
            end_family(process)

    def last_words(self) -> str:
        """The last line that the last worker has said."""
        lines = (self.folder / "log").read_text("utf-8", "replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    @staticmethod
    def master(pools: str, module: str = "skedulr_app") -> list[str]:
        """The command of a Skedulr master."""
        return [sys.executable, "-m", "skedulr", "master", "--pools", pools, "--no-ui",
                "--log-level", "error", module]

    def wait_starts(self, count: int, stall_s: float = 60) -> bool:
        """Until that many tasks have started; False where nothing moved for ``stall_s``."""
        seen, moved_at = -1, time.monotonic()
        while (now_seen := meter.count(self.meter)) < count:
            if now_seen != seen:
                seen, moved_at = now_seen, time.monotonic()
            elif time.monotonic() - moved_at > stall_s:
                return False
            time.sleep(0.01)
        return True

    def must_start(self, count: int) -> None:
        """As ``wait_starts``; the benchmark ends where they do not come."""
        if not self.wait_starts(count):
            raise SystemExit(f"only {meter.count(self.meter)} of {count} tasks started")

    def server_cpu_s(self) -> float:
        """CPU seconds of the server so far."""
        return sum(psutil.Process(self.server.pid).cpu_times()[:2])


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and its children so far: to the nanosecond where the kernel says so,
    because ticks of 10 ms count much of what wakes up now and then many times over."""
    family = [process, *process.children(recursive=True)]
    return sum(_exact_cpu_s(one.pid) or sum(one.cpu_times()[:2]) for one in family)


def _exact_cpu_s(pid: int) -> float:
    try:
        files = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
        return sum(int(file.read_text().split()[0]) for file in files) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def commands_sent(url: str, seconds: float) -> int:
    """Commands that clients send for a while; what scripts call inside is not counted."""
    seen = subprocess.run(
        ["timeout", str(seconds), "redis-cli", "-u", url, "monitor"], capture_output=True, text=True
    )
    return sum(" lua] " not in line for line in seen.stdout.splitlines()[1:])


def end_family(process: subprocess.Popen[Any]) -> None:
    """TERM, and what is left of the family after a while KILL: not every system ends by itself."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for one in psutil.wait_procs(family, timeout=3)[1]:
        one.kill()


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which a part ``q`` of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


class Figures:
    """Values by name, one a run; ``note`` says each on stderr as it comes."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        """Add a run's value."""
        self.values.setdefault(name, []).append(value)
        print(f"  {name:36} {value:14,.2f}", file=sys.stderr, flush=True)

    def medians(self) -> dict[str, float]:
        """The middle one of each."""
        return {name: statistics.median(values) for name, values in self.values.items()}


def arguments(text: str, parts: Sequence[str] = (), runs: int = 3) -> argparse.ArgumentParser:
    """The options that every benchmark takes; ``text`` is its docstring."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if parts:
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--runs", type=int, default=runs, help=f"of each part ({runs})")
    parser.add_argument("--json", action="store_true", help="one document instead of a table")
    return parser


def chosen(asked: Sequence[str], parts: Mapping[str, Callable[..., None]]) -> list[str]:
    """The parts that were asked for, or all."""
    for name in asked:
        if name not in parts:
            raise SystemExit(f"there is no part {name!r}; there are {', '.join(parts)}")
    return [name for name in parts if name in asked or not asked]


def repeat(
    parts: Mapping[str, Callable[[B], None]], names: Sequence[str], runs: int, bench: B
) -> None:
    """Measure these parts, one after the other, so many times."""
    for number in range(runs):
        print(f"run {number + 1}", file=sys.stderr)
        for name in names:
            parts[name](bench)


def report(figures: Mapping[str, float], limits: Limits, as_json: bool) -> int:
    """Print them beside their limits; the exit status: 1 where one is broken."""
    broken = [
        name for name, (limit, sense) in limits.items() if name in figures
        and not (figures[name] >= limit if sense == "at least" else figures[name] <= limit)
    ]
    if as_json:
        print(json.dumps({"medians": dict(figures), "broken": broken}))
    else:
        print(f"{'figure (median)':38} {'value':>14}   limit")
        for name, value in figures.items():
            limit = f"{limits[name][1]} {limits[name][0]:,}" if name in limits else ""
            print(f"{name:38} {value:14,.2f}   {limit}{'   BROKEN' if name in broken else ''}")
    return 1 if broken else 0
