"""The master's UI server: its address, and what a master says when it can not be had."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

import skedulr

#: Gevent is loaded in a process of its own: the other tests have no hub.
SERVE = """
import sys, threading, urllib.request
from gevent import monkey; monkey.patch_all()
from skedulr.errors import ConfigError
from skedulr.ui.server import UiServer

def app(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]

server = UiServer(app, ("127.0.0.1", 0))
server.listen(); server.listen()
server.start(); server.start()
print(urllib.request.urlopen(server.url + "/x").read().decode())
second = UiServer(app, ("127.0.0.1", int(server.url.rpartition(":")[2])))
try:
    second.listen()
except ConfigError as error:
    print(error)
server.stop(); server.stop()
second.listen()
second.stop()
print(UiServer(app, ("::1", 0)) and "done")
"""


def run(*arguments: str, code: str | None = None, folder: Path) -> Any:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SKEDULR_")}
    given = ["-c", code] if code else ["-m", "skedulr", "master", *arguments]
    return subprocess.run(
        [sys.executable, *given], cwd=folder, env=environ, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=30,
    )


def test_a_free_port_a_taken_port_and_a_second_stop(tmp_path: Path) -> None:
    done = run(code=SERVE, folder=tmp_path)
    assert done.stderr == ""
    served, taken, last = done.stdout.splitlines()
    assert served == "/x"
    assert "the port is taken" in taken
    assert "--ui HOST:PORT" in taken
    assert "--no-ui" in taken
    assert last == "done"


@pytest.mark.parametrize(("flags", "said"), [
    (("--ui", "0.0.0.0:0"), "--ui-auth USER:PASSWORD"),
    (("--ui", "203.0.113.7:8725", "--ui-auth", "ann:s3cret"), "no such address"),
    (("--ui", "127.0.0.1:0", "--ui-auth-file", "missing"), "missing"),
])
def test_a_master_that_can_not_serve_its_ui_ends_with_2(
    tmp_path: Path, one_server: Any, flags: tuple[str, ...], said: str
) -> None:
    done = run("--redis", one_server.url, *flags, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "s3cret" not in done.stderr


def test_the_same_application_serves_in_any_wsgi_server(one_server: Any) -> None:
    class Quiet(WSGIRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

    app = skedulr.Skedulr(url=one_server.url)
    dashboard: Callable[..., Iterable[bytes]] = app.dashboard(prefix="/jobs")
    server = make_server("127.0.0.1", 0, dashboard, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        base = f"http://127.0.0.1:{server.server_port}/jobs"
        request = urllib.request.Request(f"{base}/", headers={"Host": "any.example"})
        page = urllib.request.urlopen(request).read().decode()
        assert 'href="/jobs/tasks"' in page
        assert urllib.request.urlopen(f"{base}/api/stats").status == 200
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        app.close()
