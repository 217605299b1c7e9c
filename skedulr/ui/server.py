"""The UI's server in the master: gevent's pywsgi on one address."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

import psutil
from gevent.pywsgi import WSGIHandler, WSGIServer

from ..errors import ConfigError

log = logging.getLogger("skedulr.ui")

Wsgi = Callable[..., Iterable[bytes]]
_BACKLOG = 256
#: Words in the command line of a master, however it is started.
_COMMANDS = ({"skedulr-master"}, {"skedulr", "master"}, {"manage.py", "skedulr"})


class _Handler(WSGIHandler):  # type: ignore[misc]
    """pywsgi's handler; what a client does wrong is no line in the operator's log."""

    def log_request(self) -> None:
        log.debug("%s", self.format_request())

    def log_error(self, msg: str, *args: Any) -> None:
        log.debug(msg, *args)


class UiServer:
    """Serves ``app`` on ``address``, (host, port); port 0 takes a free one.

    ``listen`` takes the port (before any fork, so that a taken one is told at once), ``start``
    serves, ``stop`` ends; each is safe twice.
    """

    def __init__(self, app: Wsgi, address: tuple[str, int]) -> None:
        self._app, self._address = app, address
        self._server: WSGIServer | None = None

    @property
    def url(self) -> str:
        """Where the UI is, once ``listen`` was called."""
        assert self._server is not None, "listen first"
        host, port = self._server.address[:2]
        # Nobody can open 0.0.0.0: what was asked for is reached by this machine's own name too.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def listen(self) -> None:
        """Take the port. ConfigError where it can not be had."""
        if self._server is not None:
            return
        host, port = self._address
        server = WSGIServer(
            (host, port), self._app, log=log, error_log=log, handler_class=_Handler,
            backlog=_BACKLOG,
        )
        try:
            server.init_socket()
        except OSError as error:
            raise ConfigError(_why(host, port, error)) from None
        self._server = server

    def start(self) -> None:
        """Serve from now on."""
        self.listen()
        assert self._server is not None
        if not self._server.started:
            self._server.start()
            log.info("the UI is at %s/", self.url)

    def stop(self) -> None:
        """Take no more requests; those under way get half a second."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(timeout=0.5)


def _why(host: str, port: int, error: OSError) -> str:
    text = {
        errno.EADDRINUSE: "the port is taken", errno.EACCES: "this user may not use the port",
        errno.EADDRNOTAVAIL: "this machine has no such address",
    }.get(error.errno or 0, str(error))
    refused = f"the UI can not be served on {host}:{port}: {text}"
    pid = _listener(port) if error.errno == errno.EADDRINUSE else None
    folder = _folder_of_a_master(pid) if pid is not None else None
    if folder is not None:
        return (
            f"{refused} by another master, pid {pid}, which runs in {folder}; stop that one "
            f"(kill {pid}), or start this one beside it with --ui HOST:PORT or --no-ui"
        )
    by = f" by pid {pid}" if pid is not None else ""
    return f"{refused}{by}; give another address with --ui HOST:PORT, or --no-ui"


def _listener(port: int) -> int | None:
    """The process that listens on a port of this machine; None where we may not see it."""
    try:
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port:
                pid: int | None = one.pid
                return pid
    except (psutil.Error, OSError):
        pass  # macOS shows the connections of others to root alone
    return None


def _folder_of_a_master(pid: int) -> str | None:
    """The folder in which a master of ours runs; None where the process is something else."""
    try:
        process = psutil.Process(pid)
        names = {os.path.basename(word) for word in process.cmdline()[:5]}
        if any(known <= names for known in _COMMANDS):
            folder: str = process.cwd()
            return folder
    except (psutil.Error, OSError):
        pass
    return None
