"""Real masters in temporary folders, for tests that kill, stop and start them.

- ``Node`` is one ``skedulr-master`` in a folder of its own, with a module of tasks in it, in a
  process group of its own so that a signal can go to all of it as from a terminal.
- ``Effects`` is what its tasks did: each appends a line to one file, whoever runs it.
- ``wait_until`` waits for something to become true.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil
import servers

import skedulr

T = TypeVar("T")

#: The module the tasks of most tests are in. ``note`` is what a task did and when, on the clock
#: that all processes of a machine share.
WORK = '''\
import os
import time

import skedulr
from skedulr import current_task, task


def note(phase):
    run = current_task()
    line = f"{run.uid} {run.attempt} {phase} {os.getpid()} {time.monotonic():.6f}\\n"
    end = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(end, line.encode())
    os.close(end)


@task(name="quick")
def quick():
    note("ran")


@task(name="hold")
def hold(seconds):
    """Waits, as most tasks do."""
    note("began")
    try:
        time.sleep(seconds)
    except BaseException:
        note("interrupted")
        raise
    note("ended")


@task(name="gate")
def gate(file):
    """Waits until a file is there."""
    note("began")
    while not os.path.exists(file):
        time.sleep(0.01)
    note("ended")


@task(name="burn", max_retries=0)
def burn(seconds):
    """Computes, and lets nothing else run meanwhile."""
    note("began")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    note("ended")


@task(name="exit", max_retries=0)
def exit_now(status):
    note("began")
    os._exit(status)
'''


def wait_until(
    predicate: Callable[[], T], what: str | Callable[[], object], timeout: float = 15
) -> T:
    """As ``servers.wait_until``; ``what`` may be a function, called only when it was in vain."""
    try:
        return servers.wait_until(predicate, timeout)
    except AssertionError as error:
        text = what if isinstance(what, str) else what()
        raise AssertionError(f"waited {timeout:g} s in vain until {text}") from error


class Effect(NamedTuple):
    """One line of what tasks did; ``at`` is monotonic seconds."""

    uid: str
    attempt: int
    phase: str
    pid: int
    at: float


class Effects:
    """What the tasks of a folder did so far."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "effects"

    def all(self, uid: str | None = None, phase: str | None = None) -> list[Effect]:
        """Everything, or what one task did, or one phase of it, in order."""
        text = self._file.read_text() if self._file.exists() else ""
        # The last line may be half written.
        lines = text[: text.rfind("\n") + 1].splitlines()
        found = [
            Effect(words[0], int(words[1]), words[2], int(words[3]), float(words[4]))
            for words in (line.split() for line in lines)
        ]
        return [
            one for one in found
            if uid in (None, one.uid) and phase in (None, one.phase)
        ]

    def wait(self, phase: str, uid: str | None = None, count: int = 1, timeout: float = 15) -> (
        list[Effect]
    ):
        """Wait until ``count`` such effects are there."""
        def look() -> list[Effect]:
            found = self.all(uid, phase)
            return found if len(found) >= count else []

        return wait_until(
            look, lambda: f"{count} x {phase} of {uid or 'any task'}: {self.all()}", timeout
        )


class Node:
    """One master in ``folder``. Started by ``start``; what it prints is in ``log``.

    ``url`` None: it finds or starts a server itself. ``work`` is the text of ``work.py``.
    """

    def __init__(
        self, folder: Path, url: str | None, *flags: str, pools: str = "default=4",
        work: str = WORK, modules: tuple[str, ...] = ("work",), namespace: str = "skedulr",
        env: Mapping[str, str] | None = None, command: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.url = folder, url
        folder.mkdir(exist_ok=True)
        if work:
            (folder / "work.py").write_text(work)
        # A module that a test rewrites within a second would seem unchanged to a cached one.
        self.env = {
            name: text for name, text in os.environ.items() if not name.startswith("SKEDULR_")
        } | {"PYTHONDONTWRITEBYTECODE": "1"} | dict(env or {})
        ui = () if any(flag.startswith(("--ui", "--no-ui")) for flag in flags) else ("--no-ui",)
        server = () if url is None else ("--redis", url)
        self.command = (
            *command, sys.executable, "-m", "skedulr", "master", "--pools", pools,
            "--namespace", namespace, *server, *ui, *flags, *modules,
        )
        self.effects = Effects(folder)
        self.process: subprocess.Popen[bytes] | None = None
        self.app = skedulr.Skedulr(url=url, namespace=namespace) if url else None

    # Life

    def start(self, ready: int | None = 1) -> Node:
        """Start it; returns once ``ready`` children take work (None: at once)."""
        before = self.log.count("workers ready")
        with open(self.folder / "log", "ab") as log:
            self.start_into(log.fileno())
        if ready is not None:
            self.wait_ready(before + ready)
        return self

    def start_into(self, output: int) -> None:
        """Start it with its output going to a descriptor; returns at once."""
        self.process = subprocess.Popen(
            self.command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )

    def wait_ready(self, count: int, timeout: float = 15) -> None:
        """Wait until ``count`` children have reported so, in this node's whole life."""
        def look() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the master ended, {self.process.returncode}:\n{self.log}")
            return self.log.count("workers ready") >= count

        wait_until(look, lambda: f"{count} children are ready:\n{self.log}", timeout)

    def wait(self, timeout: float = 20) -> int:
        """Wait until the master has ended; its exit status, below 0 for a signal."""
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the master did not end in {timeout} s:\n{self.log}") from None

    def signal(self, number: int) -> None:
        """To the master alone."""
        os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """To master and children at once, as a terminal or systemd does."""
        os.killpg(self.pid, number)

    def kill_all(self) -> None:
        """The host dies: SIGKILL for master and children in one step."""
        self.signal_group(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        """End whatever is left."""
        if self.process is None:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)

    # Looking

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything master and children have printed."""
        file = self.folder / "log"
        return file.read_text("utf-8", "replace") if file.exists() else ""

    def children(self) -> list[int]:
        """Process ids of the pools' children, oldest first."""
        try:
            found = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return sorted(child.pid for child in found if self._is_child(child))

    def child(self) -> int:
        """The process id of the only child."""
        found = self.children()
        assert len(found) == 1, f"{found}\n{self.log}"
        return found[0]

    def wait_log(self, text: str, timeout: float = 15) -> None:
        """Wait until it has printed this."""
        wait_until(lambda: text in self.log, lambda: f"it prints {text!r}:\n{self.log}", timeout)

    @staticmethod
    def _is_child(process: psutil.Process) -> bool:
        # A forked child shares its master's command line; the embedded server's keeper does not.
        try:
            words = {word.rpartition("/")[2] for word in process.cmdline()}
            ours = bool(words & {"skedulr", "variants.py"})
            return ours and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    # Submitting

    def submit(self, name: str, *args: object, pool: str = "default", **options: Any) -> str:
        """Queue a task by its name; its uid."""
        assert self.app is not None
        call = self.app.remote(name, pool=pool, **options).bind(*args)
        id: str = self.app.submit_call(call).id
        return id.partition("/")[2]

    def task(self, uid: str, pool: str = "default") -> dict[str, Any]:
        """What is known of a task."""
        assert self.app is not None
        return self.app.client.get(f"{pool}/{uid}")

    def wait_state(self, uid: str, state: str, pool: str = "default", timeout: float = 15) -> (
        dict[str, Any]
    ):
        """Wait until a task is in this state; all that is known of it then."""
        wait_until(
            lambda: self.task(uid, pool)["state"] == state,
            lambda: f"{uid} is {state}; it is {self.task(uid, pool)}\n{self.log}", timeout,
        )
        return self.task(uid, pool)


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def now() -> float:
    """The clock of ``Effect.at``."""
    return time.monotonic()


def _die_with_parent() -> None:
    # PR_SET_PDEATHSIG: a test run that is killed leaves no master behind.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
