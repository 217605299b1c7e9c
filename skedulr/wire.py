"""One connection to Redis: send a command, read its answer, bounded in time, repeating nothing.

What may be repeated is known only by the caller (numbered calls, submits by id), so a connection
never repeats by itself. Errors come in three kinds, by what the caller does about them:

``NotAnswered``  the connection broke or timed out; ``sent`` tells whether the server may have acted
``Refused``      Redis said "not now": read-only, loading, busy, out of memory; nothing was changed
``Gone``         this process was taken for dead and its claims are given to others

Anything else Redis says is a fault of ours and comes as redis-py's own ``ResponseError``.
"""

from __future__ import annotations

import _socket
import os
import socket
import stat
import threading
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol
from urllib.parse import parse_qsl

from hiredis import pack_command
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, UnixDomainSocketConnection, parse_url
from redis.retry import Retry

from .config import hide_password
from .errors import ConfigError, nearest
from .redis_scripts import Script

#: Replies that mean "try again later", by their first word.
NOT_NOW = frozenset((
    "READONLY", "LOADING", "BUSY", "OOM", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
    "NOREPLICAS", "UNBLOCKED",
))
#: After these the connection is dropped as well: the server may have changed its role.
ROLE_CHANGED = frozenset(("READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED"))

#: What may stand behind the ``?`` of an address.
URL_OPTIONS = ("db", "username", "password", "socket_connect_timeout", "socket_keepalive")
TLS_OPTIONS = (
    "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_certfile", "ssl_keyfile",
    "ssl_password", "ssl_check_hostname", "ssl_ciphers", "ssl_min_version",
)
#: What an address that others use as well may say, and a connection of ours decides by itself.
OWN_MATTERS = (
    "socket_timeout", "timeout", "client_name", "protocol", "health_check_interval",
    "max_connections", "retry_on_timeout", "decode_responses",
)


class WireError(Exception):
    """The root of what a wire raises for the caller to ride out."""

    sent = False


class NotAnswered(WireError):
    """No answer came. ``sent`` is False only where the command certainly was not sent whole."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Refused(WireError):
    """Redis answered that it can not do this now; nothing was changed."""


class Gone(WireError):
    """The owner was released: whatever it claimed belongs to others now."""


class Runner(Protocol):
    """What the store needs of a connection: one command or one script."""

    def call(self, *command: Any) -> Any: ...

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any: ...


def judge(error: exceptions.ResponseError) -> WireError | None:
    """The wire error that a reply of Redis stands for, or None where it is a fault of ours."""
    text = str(error)
    # redis-py cuts the code off the messages it has classes for.
    code = {
        exceptions.ReadOnlyError: "READONLY",
        exceptions.OutOfMemoryError: "OOM",
    }.get(type(error), text.partition(" ")[0])
    if code == "GONE" or "GONE this owner" in text:
        return Gone(text)
    if code in NOT_NOW or "OOM command not allowed" in text or "-READONLY" in text:
        return Refused(f"{code} {text}" if code not in text else text)
    return None


class Wire:
    """One connection, made at the first call and again after it was lost.

    ``url`` is any address redis-py takes; ``name`` shows in ``CLIENT LIST``; ``timeout_s`` bounds
    connecting and each answer. Not for use by two greenlets or threads at once.
    """

    def __init__(self, url: str, *, name: str, timeout_s: float = 5.0) -> None:
        self.url, self.name, self.timeout_s = url, name, timeout_s
        self._connection: Connection | None = None
        self._thread = 0

    def call(self, *command: Any, timeout_s: float | None = None) -> Any:
        """Send one command and return its answer (bytes, int, list or None).

        ``timeout_s`` replaces the usual bound for this answer. Raises the errors named above.
        """
        connection = self._connection or self._connect()
        sent = False
        try:
            # Packed here: redis-py looks at each part first, which took longer than the packing.
            connection.send_packed_command((pack_command(command),), check_health=False)
            sent = True
            if timeout_s is None and self.timeout_s == connection.socket_timeout:
                return connection.read_response()
            return connection.read_response(timeout=timeout_s or self.timeout_s)
        except exceptions.ResponseError as error:
            raise self._judged(error) from error
        except BaseException as error:
            self._give_up(error, sent)

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send harmless commands in one go and return their answers, in order.

        For looking only: after an error nothing is known of the commands behind it. Raises the
        errors named above.
        """
        connection = self._connection or self._connect()
        sent = False
        try:
            packed = b"".join(map(pack_command, commands))
            connection.send_packed_command((packed,), check_health=False)
            sent = True
            return [connection.read_response() for _ in commands]
        except exceptions.ResponseError as error:
            # The answers behind this one are still to come: they must not be taken for others.
            self.close()
            raise self._judged(error) from error
        except BaseException as error:
            self._give_up(error, sent)

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Run a script by its SHA1; where the server does not know it (any more), by its text."""
        try:
            return self.call("EVALSHA", script.sha, len(keys), *keys, *args)
        except exceptions.NoScriptError:
            return self.call("EVAL", script.text, len(keys), *keys, *args)

    @property
    def connected(self) -> bool:
        """Whether a connection is there already. It may turn out to be dead."""
        return self._connection is not None

    @property
    def usable_here(self) -> bool:
        """Whether it is, and this native thread may use it; see ``socket_thread``."""
        return self._connection is not None and self._thread == socket_thread()

    def connect(self) -> None:
        """Make the connection now, if there is none. Raises the errors named above."""
        if self._connection is None:
            self._connect()

    def close(self) -> None:
        """Drop the connection, if there is one; the next call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def leave(self) -> None:
        """Right after a fork, in the child: the connection is the parent's alone from now on."""
        connection, self._connection = self._connection, None
        leave_connection(connection)

    def _give_up(self, error: BaseException, sent: bool) -> NoReturn:
        """Raise what a broken-off call comes to. The connection may hold half a reply: it goes."""
        self.close()
        if isinstance(error, exceptions.BusyLoadingError):
            raise Refused(f"LOADING {error}") from error
        if isinstance(error, (exceptions.RedisError, OSError)):
            raise NotAnswered(str(error) or type(error).__name__, sent=sent) from error
        raise error  # a kill or a time-out of the greenlet in mid-command

    def _judged(self, error: exceptions.ResponseError) -> Exception:
        judged = judge(error)
        if judged is None:
            return error
        if str(judged).partition(" ")[0] in ROLE_CHANGED:
            self.close()
        return judged

    def _connect(self) -> Connection:
        connection = make_connection(self.url, name=self.name, timeout_s=self.timeout_s)
        try:
            connection.connect()
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, exceptions.AuthenticationError):
                raise NotAnswered(f"Redis refused the credentials: {error}", sent=False) from error
            self._give_up(error, sent=False)
        self._connection, self._thread = connection, socket_thread()
        return connection


def socket_thread() -> int:
    """0 where any thread may use any socket.

    Under gevent the native thread's id: a socket belongs to the hub of the thread that made it,
    and native threads are there as well (gevent's own thread pool; patching without threads).
    """
    return 0 if socket.socket.__module__ == "socket" else threading.get_native_id()


def leave_connection(connection: Connection | None) -> None:
    """Let go of a parent's connection without a word to the server.

    Not by closing: a greenlet that was copied by the fork may be waiting for its answer, and would
    take it from the parent; what the number of the socket is given to next must not be another one.
    """
    found = getattr(connection, "_sock", None)
    number = -1 if found is None else found.fileno()
    # Something else in the process may have closed the number and opened a file under it: seen as
    # a subprocess whose output went nowhere, since this runs in its fork as well.
    if number >= 0 and _is_socket(number):
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, number, inheritable=False)
        os.close(nothing)


def end_connection(connection: Connection | None) -> None:
    """Have whoever reads from this connection find its end and close it; from any thread.

    Not by closing it here: a gevent socket belongs to the hub of the thread that made it, and
    closing it from another one touches watchers of a loop that may run, or be freed, just now (a
    segmentation fault in one of thirty processes that closed their app beside native threads).
    """
    found = getattr(connection, "_sock", None)
    number = -1 if found is None else found.fileno()
    if number < 0:
        return
    try:
        # The C type, which nobody patches, on a number of its own.
        own = _socket.socket(fileno=os.dup(number))
    except OSError:
        return  # it is closed already
    try:
        own.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the server was first
    finally:
        own.close()


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def options_of(url: str) -> dict[str, Any]:
    """What an address means for a redis-py connection. ConfigError for one that can not be used.

    >>> options_of("redis://db:7000/2?socket_keepalive=no")
    {'socket_keepalive': False, 'host': 'db', 'port': 7000, 'db': 2}
    """
    scheme, _, rest = url.partition("://")
    kind = scheme.partition("+")[2]
    if kind in ("sentinel", "cluster"):
        raise ConfigError(
            f"'{hide_password(url)}': {kind.capitalize()} is not supported yet; "
            "redis://, rediss:// and unix:// are"
        )
    known = URL_OPTIONS + (TLS_OPTIONS if scheme == "rediss" else ())
    for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True):
        if name not in known + OWN_MATTERS:
            raise ConfigError(
                f"'{hide_password(url)}': no option {name!r}{nearest(name, known)}; "
                f"known are {', '.join(known)}"
            )
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        raise ConfigError(f"'{hide_password(url)}': {str(error).rstrip('.')}") from None
    return {name: value for name, value in options.items() if name not in OWN_MATTERS}


def make_connection(url: str, *, name: str, timeout_s: float) -> Connection:
    """A redis-py connection to ``url`` that neither retries nor checks its own health.

    Connects nothing. Raises ConfigError for an address that can not be used.
    """
    options = options_of(url)
    kind = options.pop("connection_class", Connection)
    options.setdefault("socket_connect_timeout", timeout_s)
    if issubclass(kind, UnixDomainSocketConnection):
        options.pop("socket_keepalive", None)
    else:
        options.setdefault("socket_keepalive", True)
    options.update(
        client_name=name, socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0), protocol=2,
        health_check_interval=0, driver_info=None,
    )
    connection: Connection = kind(**options)
    return connection
