"""The old WSGI app of examples/legacy_wsgi on two gevent servers: tasks are awaited inside requests
while other requests go on, and the hub is never held up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from harness import Node, wait_until
from servers import Server, free_port

pytestmark = pytest.mark.server

EXAMPLE = Path(__file__).parents[2] / "examples" / "legacy_wsgi"

#: How long the task of each request takes. Were the hub held up while a request waits for it, the
#: ticker would stand still as long.
TASK_S = 1.5

#: The example's app and a greenlet beside it that ticks, in the same process.
TICKING = '''
import time

import gevent
from shop import app

largest = 0.0


def tick():
    global largest
    before = time.monotonic()
    while True:
        gevent.sleep(0.005)
        now = time.monotonic()
        largest, before = max(largest, now - before - 0.005), now


gevent.spawn(tick)


@app.get("/gap")
def gap():
    """The largest gap since the last look."""
    global largest
    answer, largest = {"largest_s": largest}, 0.0
    return answer
'''

SERVERS = {
    "pywsgi": lambda port: [sys.executable, "serve_pywsgi.py", "ticking:app", str(port)],
    "gunicorn": lambda port: [
        sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "ticking:app",
    ],
}


class Supplier(BaseHTTPRequestHandler):
    """Another company's slow service."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"item": self.path[1:], "left": 12}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def supplier() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Supplier)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Shop:
    """The web server as a process."""

    def __init__(self, folder: Path, command: list[str], port: int, env: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "web.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log
            )
        wait_until(self._answers, lambda: f"it answers:\n{self._log.read_text()}")

    def get(self, path: str, given: object = None) -> Any:
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        try:
            return bool(self.get("/"))
        except OSError:
            return False


@pytest.fixture(params=list(SERVERS))
def shop(
    request: pytest.FixtureRequest, tmp_path: Path, one_server: Server, supplier: str
) -> Iterator[Shop]:
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder)
    (folder / "ticking.py").write_text(TICKING)
    slow = (folder / "jobs.py").read_text().replace("time.sleep(0.5)", f"time.sleep({TASK_S})")
    (folder / "jobs.py").write_text(slow)
    port = free_port()
    shop = Shop(folder, SERVERS[request.param](port), port, {
        "SKEDULR_REDIS_URL": one_server.url, "SUPPLIER_URL": supplier,
    })
    yield shop
    shop.close()


def at_once(count: int, run: Callable[[int], object]) -> list[Any]:
    """Run it in so many threads at once; what each gave back, or its error."""
    found: list[Any] = [None] * count

    def one(number: int) -> None:
        try:
            found[number] = run(number)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_requests_wait_for_tasks_while_others_go_on(
    shop: Shop, nodes: Callable[..., Node], one_server: Server,
    record_property: Callable[[str, object], None],
) -> None:
    nodes(
        one_server.url, pools="default=40", work=(shop._log.parent / "jobs.py").read_text(),
    ).start()
    shop.get("/orders", {"item": "cake", "count": 0})
    first_s = shop.get("/gap")["largest_s"]
    done: list[Any] = []
    # 60 orders on 40 workers: some wait for two rounds of the task.
    ordering = threading.Thread(target=lambda: done.extend(at_once(
        60, lambda n: shop.get("/orders", {"item": "tea", "count": n})
    )))
    ordering.start()
    others = 0
    while ordering.is_alive():
        assert shop.get("/stock/cake") == {"item": "cake", "left": 12}
        assert shop.get("/")["visits"] > 0
        others += 2
    assert sorted(one["price"] for one in done) == [4 * n for n in range(60)]
    assert sorted(one["number"] for one in done) == list(range(2, 62)), "one state, in one process"
    largest_s = shop.get("/gap")["largest_s"]
    record_property("largest_gap_s", largest_s)
    print(f"{others} other requests meanwhile; the ticker's largest gap {1000 * largest_s:.0f} ms; "
          f"at the first submit, which loads the client, {1000 * first_s:.0f} ms")
    assert others > 20
    assert largest_s < TASK_S / 2, "nothing that waits for a task holds up the hub"
