"""Where the bench works: a namespace that nobody else has, and a master of its own in it.

Keys of others are neither read nor written: a namespace that has keys is refused, and what is
removed afterwards has this namespace's hash tag. Whoever uses a ``Ground`` closes it, however the
run ends; the master and the producers are this process's children and end with it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

import skedulr

from ..errors import ConfigError, SkedulrError
from ..keys import PoolKeys, check_name
from ..wire import Wire
from . import meter
from .server import Server

POOL = "default"
#: What has not moved for so long does not move any more, seconds.
STALLED_S = 30.0
_LOOK_S = 0.02
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_PAGE = 1000


class Stalled(SkedulrError):
    """Tasks do not start, or the master has ended."""


class Ground:
    """One run's namespace on the server at ``url``. ``namespace`` None: a name made up for it.

    ``workers`` and ``processes`` are of the master's only pool, ``payload`` the bytes of arguments
    of each task, ``on_tasks`` hears how many more tasks have been run. Raises ConfigError where the
    namespace has keys.
    """

    def __init__(
        self, url: str, *, namespace: str | None = None, workers: int = 100, processes: int = 1,
        payload: int = 100, on_tasks: Callable[[int], None] = lambda more: None,
    ) -> None:
        self.url, self.workers, self.processes, self.payload = url, workers, processes, payload
        self.namespace = check_name("namespace", namespace or f"bench-{secrets.token_hex(4)}")
        self.keys = PoolKeys(self.namespace, POOL)
        self.wire = Wire(url, name="skedulr:bench", timeout_s=30.0)
        self.server = Server(self.wire)
        self._on_tasks = on_tasks
        self._processes: list[subprocess.Popen[str]] = []
        self._master: subprocess.Popen[str] | None = None
        self._claimed = False

    def open(self) -> Ground:
        """Make sure of the namespace, and make the folder that tasks are counted in."""
        if next(self._own_keys(), None) is not None:
            raise ConfigError(
                f"namespace {self.namespace!r} has keys on this server: the bench wants one of its "
                "own (without --namespace it makes one up)"
            )
        self._claimed = True
        self._folder = tempfile.TemporaryDirectory(prefix="skedulr-bench-")
        self.meter = Path(self._folder.name, "meter")
        self.meter.mkdir()
        return self

    def close(self) -> None:
        """End what was started and remove every key of the namespace. Safe twice."""
        self.stop_master()
        for process in self._processes:
            _end(process)
        self._processes = []
        if self._claimed:
            self._claimed = False
            try:
                self.remove_keys()
            finally:
                self._folder.cleanup()
        self.wire.close()

    def remove_keys(self) -> None:
        """Remove what the namespace holds."""
        page = []
        for key in self._own_keys():
            page.append(key)
            if len(page) == _PAGE:
                self.wire.call("UNLINK", *page)
                page = []
        if page:
            self.wire.call("UNLINK", *page)

    def _own_keys(self) -> Iterator[bytes]:
        """By a scan: keys of owners have names that only their masters know."""
        for pattern in (f"{{{self.namespace}}}:*", f"{{{self.namespace}:*"):
            cursor: Any = b"0"
            while True:
                cursor, keys = self.wire.call("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
                yield from keys
                if int(cursor) == 0:
                    break

    # Processes

    def start_master(self) -> None:
        """A real master with one pool, as its users start it; returns when it runs tasks. Does
        nothing where one runs."""
        if self._master is not None:
            return
        pool = f"{POOL}={self.workers}" + (f"x{self.processes}" if self.processes > 1 else "")
        self._master = self._spawn(
            "-m", "skedulr", "master", "--pools", pool, "--no-ui", "--log-level", "error",
            "skedulr.bench.work", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )
        self.forget_starts()
        self.produce("bulk", count=self.processes)
        self.wait_starts(self.processes + 1, told=False)
        self.forget_starts()

    def stop_master(self) -> None:
        """End it in good order; safe twice."""
        master, self._master = self._master, None
        if master is not None:
            self._processes.remove(master)
            _end(master)

    def produce(self, job: str, **options: Any) -> dict[str, float]:
        """Have a producer do a job to its end; its figures."""
        return self.end(self.begin(job, **options))

    def begin(self, job: str, **options: Any) -> subprocess.Popen[str]:
        """Start a producer on a job."""
        text = json.dumps({"job": job, "to": {
            "url": self.url, "namespace": self.namespace, "payload": self.payload,
        }, **options})
        process = self._spawn("-m", "skedulr.bench.producer", stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        return process

    def end(self, process: subprocess.Popen[str]) -> dict[str, float]:
        """What a producer found, once it is done."""
        assert process.stdout is not None
        with process.stdout:
            said = process.stdout.read()
        status = process.wait()
        self._processes.remove(process)
        if status:
            raise SkedulrError(f"a process of the bench ended with status {status}")
        figures: dict[str, float] = json.loads(said)
        return figures

    def _spawn(self, *arguments: str, stdin: int, stdout: int) -> subprocess.Popen[str]:
        # The address by the environment: it may hold a password, and commands are seen by all.
        env = {name: value for name, value in os.environ.items() if not name.startswith("SKEDULR_")}
        source = str(Path(skedulr.__file__).parent.parent)
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (source, env.get("PYTHONPATH"))))
        env |= {"SKEDULR_REDIS_URL": self.url, "SKEDULR_NAMESPACE": self.namespace,
                meter.FOLDER: str(self.meter)}
        with interrupts_held():
            process = subprocess.Popen(
                [sys.executable, *arguments], env=env, cwd=self._folder.name, text=True,
                stdin=stdin, stdout=stdout,
                # Ctrl-C is this process's to act on: it ends them in order.
                start_new_session=True,
            )
            self._processes.append(process)
        return process

    # Looking at the tasks

    def forget_starts(self) -> None:
        """Count from 0 again."""
        meter.reset(self.meter)

    def wait_starts(self, count: int, *, told: bool = True) -> None:
        """Until that many tasks have started since they were last forgotten. Raises Stalled."""
        seen, moved_at = 0, time.monotonic()
        while (now_seen := meter.count(self.meter)) < count:
            self._watch(now_seen - seen, moved_at, f"{now_seen:,} of {count:,} tasks have started")
            if now_seen > seen:
                if told:
                    self._on_tasks(now_seen - seen)
                seen, moved_at = now_seen, time.monotonic()
            time.sleep(_LOOK_S)
        if told:
            self._on_tasks(now_seen - seen)

    def wait_settled(self) -> None:
        """Until nothing waits or is claimed: every outcome is written. Raises Stalled."""
        left, moved_at = -1, time.monotonic()
        while now_left := self.wire.call("HLEN", self.keys.claims) + self.waiting():
            self._watch(int(now_left != left), moved_at, f"{now_left:,} tasks have not ended")
            if now_left != left:
                left, moved_at = now_left, time.monotonic()
            time.sleep(_LOOK_S)

    def waiting(self) -> int:
        """How many tasks are ready for a worker."""
        count: int = self.wire.call("ZCARD", self.keys.ready)
        return count

    def cpu_s(self) -> float:
        """What the master and its children have used so far, seconds."""
        assert self._master is not None
        master = psutil.Process(self._master.pid)
        return sum(
            sum(one.cpu_times()[:2]) for one in (master, *master.children(recursive=True))
        )

    def _watch(self, moved: int, moved_at: float, how_far: str) -> None:
        if self._master is not None and self._master.poll() is not None:
            raise Stalled(f"the bench's own master ended with status {self._master.returncode}")
        if not moved and time.monotonic() - moved_at > STALLED_S:
            raise Stalled(f"nothing has moved for {STALLED_S:.0f} s: {how_far}")


@contextmanager
def interrupts_held() -> Iterator[None]:
    """A Ctrl-C or TERM that comes in the block counts at its end: what was begun is known by then.

    A second one does not keep what cleans up from ending."""
    came: list[int] = []
    before = [
        signal.signal(number, lambda number, frame: came.append(number)) for number in _INTERRUPTS
    ]
    try:
        yield
    finally:
        for number, handler in zip(_INTERRUPTS, before, strict=True):
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
