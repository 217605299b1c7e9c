"""``skedulr top``: what the screen shows, what keys do, and a real pseudo-terminal."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_driver import Cli, Hands
from servers import Server, wait_until

import skedulr
from skedulr.cli.session import Session
from skedulr.cli.top import Screen


@pytest.fixture
def app(
    one_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[skedulr.Skedulr]:
    for name in [one for one in os.environ if one.startswith("SKEDULR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    app = skedulr.Skedulr(url=one_server.url)
    monkeypatch.setenv("SKEDULR_SUBMIT_TIMEOUT", "0.5")   # so long a silent server is waited for
    app.remote("mail").using(id="one").submit("ann")
    app.remote("mail").using(id="two").submit("bob")
    app.remote("count", pool="slow").submit()
    yield app
    app.close()


@pytest.fixture
def screen(app: skedulr.Skedulr) -> Screen:
    screen = Screen(Session(argparse.Namespace(command="top", json=False)))
    screen.look()
    return screen


def chosen(screen: Screen) -> str:
    (line,) = [line for line in screen.lines(40) if line.startswith("> ")]
    return line.split()[1]


def pool(app: skedulr.Skedulr, name: str) -> dict[str, object]:
    return next(one for one in app.stats()["pools"] if one["name"] == name)


def test_it_shows_totals_pools_and_what_runs(screen: Screen, one_server: Server) -> None:
    Hands(one_server).claim(1)
    screen.look()
    text = "\n".join(screen.lines(40))
    assert "queued 2  running 1  scheduled 0" in text
    assert "> default  unserved" in text and "  slow" in text
    assert re.search(r"RUNNING +NAME", text) and re.search(r"default/one +mail", text)


def test_it_is_as_high_as_the_terminal(screen: Screen) -> None:
    assert len(screen.lines(24)) == 24 and len(screen.lines(5)) == 5


def test_arrows_choose_a_pool_and_stop_at_the_ends(screen: Screen) -> None:
    seen = [chosen(screen)]
    for key in ("down", "down", "up", "up"):
        assert screen.press(key)
        seen.append(chosen(screen))
    assert seen == ["default", "slow", "slow", "default", "default"]


def test_p_pauses_the_chosen_pool_and_resumes_it(screen: Screen, app: skedulr.Skedulr) -> None:
    screen.press("down")
    screen.press("p")
    assert pool(app, "slow")["paused"] is True and pool(app, "default")["paused"] is False
    assert screen.lines(40)[-1] == "slow: paused"
    screen.press("p")
    assert pool(app, "slow")["paused"] is False


def test_what_can_not_be_done_is_said_at_the_bottom(screen: Screen) -> None:
    screen.press("+")
    assert "no node serves" in screen.lines(40)[-1]
    screen.press("r")
    assert screen.lines(40)[-1] == "default had no size of its own"


def test_a_server_that_goes_away_leaves_the_last_look(screen: Screen, one_server: Server) -> None:
    one_server.freeze()
    try:
        screen.look()
    finally:
        one_server.thaw()
    lines = screen.lines(40)
    assert "Redis does not answer" in lines[-1] and "> default" in "\n".join(lines)


def test_the_keys_are_told_on_demand(screen: Screen) -> None:
    screen.press("?")
    assert any("pause or resume it" in line for line in screen.lines(40))
    screen.press("?")
    assert not any("pause or resume it" in line for line in screen.lines(40))
    assert not screen.press("q")


def test_without_a_terminal_it_prints_one_look(
    app: skedulr.Skedulr, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    assert "queued 3  running 0" in cli.ok("top").out
    found = cli.ok("top", "--json").json
    assert found["queued"] == 3 and found["items"] == []


class Typed:
    """``skedulr top`` on a pseudo-terminal; ``shown`` is all that it wrote."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process, self._fd, self.shown = process, fd, ""

    def press(self, key: str) -> None:
        os.write(self._fd, key.encode())

    def wait(self, text: str) -> None:
        def seen() -> bool:
            self.shown += os.read(self._fd, 65536).decode()
            return text in self.shown

        wait_until(seen, 15, f"{text!r} is on the screen")


@contextmanager
def typed() -> Iterator[Typed]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "skedulr", "top", "--interval", "0.2"],
        stdin=theirs, stdout=theirs, stderr=theirs,
    )
    try:
        yield Typed(process, ours)
        assert process.wait(timeout=10) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_on_a_terminal_keys_steer_and_all_is_put_back(app: skedulr.Skedulr) -> None:
    with typed() as top:
        top.wait("q ends, ? tells the keys")
        assert "\x1b[?1049h" in top.shown and "> default" in top.shown
        top.press("\x1b[B")
        top.wait("> slow")
        top.press("p")
        top.wait("slow: paused")
        assert pool(app, "slow")["paused"] is True
        top.press("q")
        top.wait("\x1b[?1049l")


def test_it_stays_current(app: skedulr.Skedulr) -> None:
    with typed() as top:
        top.wait("queued 3")
        app.submit("mail", "cid")
        top.wait("queued 4")
        top.press("q")
        top.wait("\x1b[?1049l")
