"""One connection to Redis: send a command, read its answer, bounded in time, repeating nothing.

What may be repeated is known only by the caller (numbered calls, submits by id), so a connection
never repeats by itself. Errors come by what the caller does about them (``wire_errors.py``);
anything else Redis says is a fault of ours and comes as redis-py's own ``ResponseError``.

With sentinels in its address a wire asks them for the master each time it connects. In a Cluster it
is one connection to each node that is needed (``cluster.py``).
"""

from __future__ import annotations

import _socket
import os
import socket
import stat
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, Protocol

from hiredis import pack_command
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, UnixDomainSocketConnection
from redis.retry import Retry

from .addresses import CLUSTER, SENTINEL, Node, kind_of, read_address
from .cluster import Router, slot_map, slot_of
from .exchange import Exchange
from .lookout import Lookout
from .redis_scripts import Script
from .sentinels import ASK_S, connect_to_master
from .whereabouts import Whereabouts
from .wire_errors import ROLE_CHANGED, barred_by, break_off, judge
from .wire_errors import Barred as Barred
from .wire_errors import Gone as Gone
from .wire_errors import NotAnswered as NotAnswered
from .wire_errors import NotRedis as NotRedis
from .wire_errors import Refused as Refused
from .wire_errors import WireError as WireError


class Runner(Protocol):
    """What the store needs of a connection: one command or one script."""

    def call(self, *command: Any) -> Any: ...

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any: ...


class Sleeper(Runner, Protocol):
    """A connection on which one may wait."""

    def run_after(
        self, wait: tuple[Any, ...], wait_s: float, script: Script, keys: list[str],
        args: list[Any],
    ) -> Any: ...


class Wire:
    """One connection, made at the first call and again after it was lost.

    ``name`` shows in ``CLIENT LIST``; ``timeout_s`` bounds connecting and each answer; ``at`` is
    the one node of a Cluster that is meant; ``whereabouts`` knows better than ``url`` where the
    server is. Not for use by two greenlets or threads at once.
    """

    def __init__(
        self, url: str, *, name: str, timeout_s: float = 5.0, at: Node | None = None,
        whereabouts: Whereabouts | None = None,
    ) -> None:
        self.url, self.name, self.timeout_s, self.place = url, name, timeout_s, at
        self._whereabouts = whereabouts
        self._connection: Connection | None = None
        #: What is said on that connection; None where there is none.
        self._exchange: Exchange | None = None
        self._thread = 0
        #: Looks for answers before this greenlet or thread gives way, but for those that were given
        #: a bound of their own, which take their time; None: it gives way at once.
        self.lookout: Lookout | None = None
        #: In a Cluster all goes through it, and this wire has no connection itself.
        self._router: Router[Wire] | None = None
        if at is None and kind_of(url) == CLUSTER:
            self._router = Router(url, self, self._line)

    def call(self, *command: Any, timeout_s: float | None = None) -> Any:
        """Send one command and return its answer (bytes, int, list or None).

        ``timeout_s`` replaces the usual bound for this answer. Raises the errors named above.
        """
        if self._router is not None:
            return self._router.call(*command, timeout_s=timeout_s)
        return self._ask(pack_command(command), timeout_s)

    def _ask(self, packed: bytes, timeout_s: float | None = None) -> Any:
        exchange = self._exchange or self._connect()
        sent = False
        try:
            exchange.send(packed)
            sent = True
            if self.lookout and timeout_s is None:
                self.lookout.look(exchange.socket)
            return exchange.read(timeout_s or self.timeout_s)
        except exceptions.ResponseError as error:
            raise self._judged(error) from error
        except BaseException as error:
            self._give_up(error, sent)

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send harmless commands in one go and return their answers, in order.

        For looking only: after an error nothing is known of the commands behind it. Raises the
        errors named above.
        """
        if self._router is not None:
            return self._router.calls(commands)
        exchange = self._exchange or self._connect()
        sent = False
        try:
            exchange.send(b"".join(map(pack_command, commands)))
            sent = True
            return [exchange.read(self.timeout_s) for _ in commands]
        except exceptions.ResponseError as error:
            # The answers behind this one are still to come: they must not be taken for others.
            self.close()
            raise self._judged(error) from error
        except BaseException as error:
            self._give_up(error, sent)

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Run a script by its SHA1; where the server does not know it (any more), by its text."""
        try:
            if self._router is not None:
                return self._router.call("EVALSHA", script.sha, len(keys), *keys, *args)
            return self._ask(_pack_script(script, keys, args))
        except exceptions.NoScriptError:
            return self.call("EVAL", script.text, len(keys), *keys, *args)

    def run_after(
        self, wait: tuple[Any, ...], wait_s: float, script: Script, keys: list[str],
        args: list[Any],
    ) -> Any:
        """Send a command that blocks for up to ``wait_s`` and a script behind it, in one go; the
        script's answer. The server runs it the moment the command is through, so that nothing has
        to travel in between. After an error nobody knows whether it ran."""
        if self._router is not None:
            self._router.call(*wait, timeout_s=wait_s + self.timeout_s)
            return self.run(script, keys, args)
        exchange = self._exchange or self._connect()
        sent = waiting = False
        try:
            exchange.send(pack_command(wait) + _pack_script(script, keys, args))
            sent = waiting = True
            exchange.read(wait_s + self.timeout_s)
            waiting = False
            return exchange.read(self.timeout_s)
        except exceptions.NoScriptError:
            return self.call("EVAL", script.text, len(keys), *keys, *args)
        except exceptions.ResponseError as error:
            if waiting:
                # The script's answer is still to come: it must not be taken for another one.
                self.close()
            raise self._judged(error) from error
        except BaseException as error:
            self._give_up(error, sent)

    def replicated(self, key: str, count: int, wait_ms: int) -> int:
        """How many replicas have all that was written here, for the node that has ``key``; waits
        up to ``wait_ms`` for ``count`` of them."""
        line = self if self._router is None else self._router.line_of(key)
        reached: int = line.call("WAIT", count, wait_ms, timeout_s=wait_ms / 1000 + self.timeout_s)
        return reached

    def every_node(self) -> list[Wire]:
        """A wire to each node that has keys; this one itself, without a Cluster."""
        return [self] if self._router is None else self._router.every_line()

    @property
    def connected(self) -> bool:
        """Whether a connection is there already. It may turn out to be dead."""
        if self._router is not None:
            return any(line.connected for line in self._router.lines)
        return self._connection is not None

    @property
    def usable_here(self) -> bool:
        """Whether it is, and this native thread may use it; see ``socket_thread``."""
        if self._router is not None:
            open_ = [line for line in self._router.lines if line.connected]
            return bool(open_) and all(line.usable_here for line in open_)
        return self._connection is not None and self._thread == socket_thread()

    def connect(self) -> None:
        """Make the connection now, if there is none. Raises the errors named above."""
        if self._router is not None:
            if not self.connected:
                self._router.any_line().connect()
        elif self._connection is None:
            self._connect()

    def close(self) -> None:
        """Drop the connection, if there is one; the next call makes a new one."""
        if self._router is not None:
            self._router.close()
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            connection.disconnect()

    def leave(self) -> None:
        """Right after a fork, in the child: the connection is the parent's alone from now on."""
        if self._router is not None:
            for line in self._router.lines:
                line.leave()
        connection, self._connection, self._exchange = self._connection, None, None
        leave_connection(connection)

    def _give_up(self, error: BaseException, sent: bool) -> NoReturn:
        """Raise what a broken-off call comes to. The connection may hold half a reply: it goes."""
        self.close()
        break_off(error, sent=sent)

    def _judged(self, error: exceptions.ResponseError) -> Exception:
        judged = judge(error)
        if judged is None:
            return error
        if str(judged).partition(" ")[0] in ROLE_CHANGED:
            self.close()
        return judged

    def _connect(self) -> Exchange:
        connection = self._connection = open_connection(
            self.url, name=self.name, timeout_s=self.timeout_s, at=self.place,
            whereabouts=self._whereabouts,
        )
        self._thread = socket_thread()
        exchange = self._exchange = Exchange(connection._sock, self.timeout_s)
        return exchange

    def _line(self, node: Node) -> Wire:
        return Wire(self.url, name=self.name, at=node)


def _pack_script(script: Script, keys: list[str], args: list[Any]) -> bytes:
    """An EVALSHA as Redis' protocol has it."""
    parts, head = _pack_head(script, tuple(keys))
    own = pack_command(tuple(args))
    return b"*%d\r\n%b%b" % (parts + len(args), head, own[own.index(b"\n") + 1:])


@lru_cache(maxsize=512)
def _pack_head(script: Script, keys: tuple[str, ...]) -> tuple[int, bytes]:
    """What all calls of a script with these keys have in common, thirty keys and more: how many
    parts, and they themselves."""
    command: tuple[Any, ...] = ("EVALSHA", script.sha, len(keys), *keys)
    packed = pack_command(command)
    return 3 + len(keys), packed[packed.index(b"\n") + 1:]


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


def open_connection(
    url: str, *, name: str, timeout_s: float, key: str = "", at: Node | None = None,
    whereabouts: Whereabouts | None = None,
) -> Connection:
    """A connection to the server, or to the master that the sentinels name, or in a Cluster to the
    node ``at``, by default the one that has ``key``; where its ``whereabouts`` are to be asked, to
    where it is now. Raises the errors of a wire."""
    if whereabouts is not None:
        url = whereabouts.url
        try:
            return open_connection(url, name=name, timeout_s=timeout_s, key=key, at=at)
        except NotAnswered as error:
            # One that does not let us in is there.
            if isinstance(error, Barred) or not whereabouts.look_again(url):
                raise
            url = whereabouts.url
    address = read_address(url)

    def connect(options: Mapping[str, Any]) -> Connection:
        return _connected(options, name=name, timeout_s=timeout_s)

    def connect_to_a_master(options: Mapping[str, Any]) -> Connection:
        connection = connect(options)
        try:
            _check_role(connection)
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def ask(options: Mapping[str, Any], command: tuple[str, ...]) -> Any:
        connection = _connected(options, name=name, timeout_s=min(ASK_S, timeout_s))
        try:
            return _answer(connection, command)
        finally:
            connection.disconnect()

    if at is not None:
        return connect(address.at(at))
    if address.kind == SENTINEL:
        return connect_to_master(address, ask, connect_to_a_master)
    if address.kind == CLUSTER:
        node = slot_map(url).node_of(
            slot_of(key), lambda node: ask(address.at(node), ("CLUSTER", "SLOTS"))
        )
        try:
            return connect(address.at(node))
        except WireError:
            slot_map(url).mistrust(node)
            raise
    return connect(address.options)


def _connected(options: Mapping[str, Any], *, name: str, timeout_s: float) -> Connection:
    connection = make_connection(options, name=name, timeout_s=timeout_s)
    try:
        connection.connect()
    except BaseException as error:
        connection.disconnect()
        # The one is no kind of the other in redis-py.
        if isinstance(error, (exceptions.ResponseError, exceptions.AuthenticationError)):
            barred = barred_by(str(error))
            if barred is not None:
                raise barred from error
        break_off(error, sent=False)
    return connection


def _answer(connection: Connection, command: tuple[Any, ...]) -> Any:
    try:
        connection.send_packed_command((pack_command(command),), check_health=False)
        return connection.read_response()
    except exceptions.ResponseError as error:
        raise judge(error) or error from error
    except BaseException as error:
        break_off(error, sent=False)


def _check_role(connection: Connection) -> None:
    """What a sentinel takes for the master may have become a replica, or be one still."""
    try:
        role = _answer(connection, ("ROLE",))[0]
    except exceptions.ResponseError:
        return  # forbidden: its first write will tell
    if role != b"master":
        raise Refused(f"READONLY it is a {role.decode()}")


def make_connection(options: Mapping[str, Any], *, name: str, timeout_s: float) -> Connection:
    """A redis-py connection with these options that neither retries nor checks its own health.

    Connects nothing.
    """
    chosen = dict(options)
    kind = chosen.pop("connection_class", Connection)
    chosen.setdefault("socket_connect_timeout", timeout_s)
    if issubclass(kind, UnixDomainSocketConnection):
        chosen.pop("socket_keepalive", None)
    else:
        chosen.setdefault("socket_keepalive", True)
    chosen.update(
        client_name=name, socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0), protocol=2,
        health_check_interval=0, driver_info=None,
    )
    connection: Connection = kind(**chosen)
    return connection
