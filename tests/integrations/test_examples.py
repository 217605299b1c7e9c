"""The examples that are one command: each is started as its first lines say, with a real master."""

from __future__ import annotations

import csv
import http.server
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Server

from skedulr import testing

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(
    script: str, *arguments: str, server: Server, folder: Path,
) -> subprocess.CompletedProcess[str]:
    """The command of an example, started in ``folder``, its master on ``server``."""
    environ = {**os.environ, "SKEDULR_REDIS_URL": server.url}
    return subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments], cwd=folder, env=environ,
        capture_output=True, text=True, timeout=60,
    )


def test_a_bulk_import_goes_on_where_it_was_stopped(one_server: Server, tmp_path: Path) -> None:
    with (tmp_path / "people.csv").open("w", newline="") as opened:
        csv.writer(opened).writerows((n, f"person {n}", "town") for n in range(1_050))
    first = run("bulk_import.py", "people.csv", server=one_server, folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "imported [##############################] 6/6" in first.stderr
    assert first.stdout == "1,050 rows in people.sqlite\n"
    again = run("bulk_import.py", "people.csv", server=one_server, folder=tmp_path)
    assert again.stdout == first.stdout
    assert one_server.client.zcard("{skedulr:imports}:done") == 6


def test_thumbnails_are_drawn_and_what_is_no_picture_is_set_aside(
    one_server: Server, tmp_path: Path,
) -> None:
    from PIL import Image

    for number in range(5):
        Image.new("RGB", (640, 480), (number, 99, 99)).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    done = run("thumbnails.py", str(tmp_path), server=one_server, folder=tmp_path)
    assert done.stdout == "5 thumbnails, 1 failed\n", done.stderr
    assert "cannot identify image file" in done.stderr
    small = sorted((tmp_path / "small").iterdir())
    assert [one.name for one in small] == [f"{n}.jpg" for n in range(5)]
    with Image.open(small[0]) as image:
        assert image.size == (160, 120)


class Site(http.server.BaseHTTPRequestHandler):
    """Ten pages, each of which leads to all."""

    def do_GET(self) -> None:
        body = "".join(f'<a href="/{n}#top">page {n}</a>' for n in range(10)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_a_crawl_fetches_each_page_once(one_server: Server, tmp_path: Path) -> None:
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{site.server_address[1]}/0"
        done = run("crawler.py", address, server=one_server, folder=tmp_path)
    finally:
        site.shutdown()
        site.server_close()
    assert done.stdout == "10 pages, 0 failed\n", done.stderr


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, testing.DrivenApp]]:
    """The module of the nightly report, and an app that runs its tasks."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("nightly_report")
    with testing.app() as driven:
        yield module, driven
    del sys.modules["nightly_report"]


def test_the_nightly_report_is_built_once_however_often_it_is_started(
    night: tuple[Any, testing.DrivenApp], capsys: pytest.CaptureFixture[str],
) -> None:
    module, driven = night
    for _ in range(2):
        module.nightly_report.submit()
        driven.drain()
    assert capsys.readouterr().out.count("Report of ") == 1


def test_a_source_that_fails_for_good_raises_the_alarm(
    night: tuple[Any, testing.DrivenApp], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, driven = night
    monkeypatch.setattr(module, "random", None)   # what the sources read from is gone
    module.nightly_report.submit()
    driven.advance(3600)
    out = capsys.readouterr().out
    assert "could not be built" in out and "Report of" not in out


def test_thumbnails_without_a_folder_say_how_they_are_called(
    one_server: Server, tmp_path: Path,
) -> None:
    done = run("thumbnails.py", server=one_server, folder=tmp_path)
    assert done.returncode == 1 and "python examples/thumbnails.py FOLDER" in done.stderr
