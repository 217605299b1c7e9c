"""The master as a service: systemd's protocol, the pid file, process 1 of a container, patching."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from harness import WORK, Node, gone, wait_until
from servers import Server, free_port

from skedulr.config import SETTINGS, Config
from skedulr.errors import ConfigError
from skedulr.pools.notify import Notifier
from skedulr.pools.pidfile import PidFile
from skedulr.pools.reloader import Reloader
from skedulr.ui.security import OPEN_PATHS

Start = Callable[..., Node]


class Systemd:
    """The socket on which systemd listens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)
        self._socket.settimeout(15)
        self.heard: list[str] = []

    def wait(self, field: str) -> str:
        """The next message with this field."""
        while True:
            text = self._socket.recv(4096).decode()
            self.heard.append(text)
            if field in text.splitlines():
                return text

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    name = "@skedulr-test-" + tmp_path.name if request.param == "abstract" else "notify"
    listening = Systemd(name if name[0] == "@" else str(tmp_path / name))
    yield listening
    listening.close()


@pytest.mark.server
def test_systemd_hears_of_ready_alive_reloading_and_stopping(
    start: Start, systemd: Systemd
) -> None:
    node = start(env={"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "500000"})
    ready = systemd.wait("READY=1")
    assert "STATUS=default=4 at node" in ready
    systemd.wait("WATCHDOG=1")
    systemd.wait("WATCHDOG=1")
    node.signal(signal.SIGHUP)
    assert "MONOTONIC_USEC=" in systemd.wait("RELOADING=1")
    systemd.wait("READY=1")
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    node.signal(signal.SIGTERM)
    systemd.wait("STOPPING=1")
    systemd.wait("WATCHDOG=1")
    (node.folder / "open").touch()
    assert node.wait() == 0


@pytest.mark.server
def test_it_is_not_ready_before_its_children_are(nodes: Start, one_server: Server,
                                                 tmp_path: Path) -> None:
    listening = Systemd(str(tmp_path / "notify"))
    node = nodes(
        one_server.url, work="import nothing_here\n", env={"NOTIFY_SOCKET": listening.address}
    ).start(ready=None)
    assert node.wait() == 3
    listening.wait("STOPPING=1")
    assert not [text for text in listening.heard if "READY=1" in text]
    listening.close()


def test_a_watchdog_that_is_meant_for_another_process_is_not_fed() -> None:
    assert Notifier({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}).period_s is None
    assert Notifier({"WATCHDOG_USEC": "1000000"}).period_s == 0.5
    environ = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "no number", "OTHER": "stays"}
    notifier = Notifier(environ)
    assert notifier.period_s is None
    assert environ == {"OTHER": "stays"}
    notifier.ready("nobody listens, and that is no error")


# Probes


def probe(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.server
def test_a_node_is_ready_when_its_children_are_and_not_while_one_hangs_or_drains(
    start: Start,
) -> None:
    port = free_port()
    work = WORK + "\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    node = start("--ui", f"127.0.0.1:{port}", "--hang-timeout", "3", work=work, ready=0)
    node.wait_log("the UI is at")
    status, said = probe(port, "/readyz")
    assert (status, probe(port, "/livez")[0]) == (503, 200)
    assert "pool default has a child that is not ready" in said
    (node.folder / "go").touch()
    wait_until(lambda: probe(port, "/readyz")[0] == 200, "it is ready")
    hung = node.submit("burn", 60)
    node.effects.wait("began", hung)
    wait_until(lambda: "does not yield" in probe(port, "/readyz")[1], "it is not while one hangs")
    wait_until(lambda: probe(port, "/readyz")[0] == 200, "its successor is")
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    node.signal(signal.SIGTERM)
    wait_until(lambda: "it is stopping" in probe(port, "/healthz")[1], "it is not while it drains")
    (node.folder / "open").touch()
    assert node.wait() == 0


# The pid file


@pytest.mark.server
def test_the_pid_file_names_the_master_and_a_second_one_is_refused(
    start: Start, nodes: Start, one_server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "master.pid"
    node = start("--pid-file", str(file))
    assert file.read_text() == f"{node.pid}\n"
    second = nodes(one_server.url, "--pid-file", str(file), folder="second").start(ready=None)
    assert second.wait() == 2
    assert f"a master runs already, pid {node.pid}" in second.log
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert not file.exists()


@pytest.mark.server
def test_a_pid_file_of_a_killed_master_hinders_nobody_even_while_its_children_drain(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "master.pid"
    node = start("--pid-file", str(file))
    uid = node.submit("gate", "open")
    [began] = node.effects.wait("began", uid)
    node.signal(signal.SIGKILL)
    node.wait()
    assert not gone(began.pid)
    heir = start("--pid-file", str(file), folder="heir")
    assert file.read_text() == f"{heir.pid}\n"
    (node.folder / "open").touch()


@pytest.mark.parametrize("content", ["1\n", "99999999\n", "garbage", ""])
def test_what_stands_in_a_stale_pid_file_does_not_matter(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pid"
    path.write_text(content)
    file = PidFile(path)
    file.take()
    assert path.read_text() == f"{os.getpid()}\n"
    with pytest.raises(ConfigError, match="a master runs already"):
        PidFile(path).take()
    file.release()
    file.release()
    assert not path.exists()


def test_a_pid_file_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/pid can not be written: No such file"):
        PidFile(tmp_path / "nowhere" / "pid").take()


# A container


def can_unshare() -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and not subprocess.run(
        [unshare, "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False
    ).returncode


ORPHANS = WORK + '''
import subprocess

@task(name="orphan")
def orphan():
    """Leaves a process behind whose parent ends at once: the first process gets it."""
    subprocess.run(["sh", "-c", "sleep 0.05 & sleep 0.05 & exit 0"])
'''


@pytest.mark.server
@pytest.mark.skipif(not can_unshare(), reason="no right to make a process id namespace here")
def test_as_the_first_process_of_a_container_it_leaves_no_zombies_and_stops_on_term(
    start: Start,
) -> None:
    command = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    node = start(command=command, work=ORPHANS)
    [master] = psutil.Process(node.pid).children()
    uids = [node.submit("orphan") for _ in range(3)]
    for uid in uids:
        node.wait_state(uid, "succeeded")

    def zombies() -> list[psutil.Process]:
        return [one for one in master.children() if one.status() == psutil.STATUS_ZOMBIE]

    wait_until(
        lambda: len(master.children()) == 1 and not zombies(),
        lambda: f"only its child is left: {master.children()}",
    )
    [child] = master.children()
    child.kill()
    node.wait_ready(2)
    os.kill(master.pid, signal.SIGTERM)
    assert node.wait() == 0


# Patching


def master_with(before: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the master's entry point after other code, as a wrapper or sitecustomize does."""
    code = f"import sys\n{before}\nfrom skedulr.__main__ import master\nsys.exit(master())"
    return subprocess.run(
        [sys.executable, "-c", code, *flags], capture_output=True, text=True, timeout=30,
        check=False,
    )


def test_ssl_that_was_imported_before_patching_is_named_with_who_did_it() -> None:
    early = "import types\nmine = types.ModuleType('early_bird')\nimport ssl\nmine.ssl = ssl\n"
    early += "sys.modules['early_bird.inner'] = mine"
    ended = master_with(early, "--version")
    assert ended.returncode == 2
    assert "ssl was imported before gevent could patch it" in ended.stderr
    assert "early_bird" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("before", "flags"),
    [
        ("", ()),
        ("import json, logging, threading, queue, subprocess", ()),
        ("from gevent import monkey; monkey.patch_all(); import ssl", ()),
        ("import ssl", ("--no-patch", "ssl")),
    ],
    ids=["nothing", "harmless", "patched", "unpatched"],
)
def test_what_harms_nothing_is_let_pass(before: str, flags: tuple[str, ...]) -> None:
    ended = master_with(before, *flags, "--version")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


# Files that change


def test_the_reloader_sees_python_files_alone_and_no_installed_ones(tmp_path: Path) -> None:
    for folder in ("app", ".git", "env", "node_modules", "app/__pycache__"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("1")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    reloader = Reloader(tmp_path)
    assert reloader.look() is None
    for quiet in (".git/a.py", "env/a.py", "node_modules/a.py", "app/__pycache__/a.py"):
        os.utime(tmp_path / quiet, (1, 1))
    (tmp_path / "app" / "notes.txt").write_text("hello")
    assert reloader.look() is None
    os.utime(tmp_path / "app" / "a.py", (1, 1))
    assert reloader.look() == str(tmp_path / "app" / "a.py")
    assert reloader.look() is None
    (tmp_path / "app" / "new.py").touch()
    assert reloader.look() == str(tmp_path / "app" / "new.py")
    (tmp_path / "app" / "new.py").unlink()
    assert reloader.look() == str(tmp_path / "app" / "new.py")


# The files in examples/deploy

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def test_the_files_for_deploying_give_a_drain_the_time_it_takes() -> None:
    longest_s = Config().grace + 4
    unit = (DEPLOY / "skedulr.service").read_text()
    manifest = (DEPLOY / "kubernetes.yaml").read_text()
    stops = re.findall(r"TimeoutStopSec=(\d+)", unit)
    stops += re.findall(r"terminationGracePeriodSeconds: (\d+)", manifest)
    assert len(stops) == 2 and all(int(one) > longest_s for one in stops)
    assert "KillMode=mixed" in unit, "or the children are told by systemd and by the master"


def test_the_files_for_deploying_use_settings_and_probes_that_exist() -> None:
    text = "".join(file.read_text() for file in DEPLOY.iterdir())
    for name in set(re.findall(r"SKEDULR_([A-Z_]+)", text)) - {"REDIS_URL", "REDIS_URL_FILE"}:
        assert name.lower() in {setting.name for setting in SETTINGS}
    for flag in set(re.findall(r'"--([a-z-]+)"', text)):
        assert flag.replace("-", "_") in {setting.name for setting in SETTINGS}
    assert set(re.findall(r"path: (/\w+)", text)) <= set(OPEN_PATHS)
