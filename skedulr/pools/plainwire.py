"""A connection to Redis for native threads: a raw socket and hiredis, nothing of gevent in it.

The heart uses it. Its thread has no hub, so neither a patched socket nor a patched lock may be
touched here; ``_socket`` is the C module that patching leaves alone.
"""

from __future__ import annotations

import _socket
from collections.abc import Mapping, Sequence
from typing import Any

import hiredis
from redis import exceptions
from redis.connection import SSLConnection

from ..addresses import CLUSTER, SENTINEL, Node, kind_of, read_address
from ..cluster import Router
from ..exchange import Exchange
from ..redis_scripts import Script
from ..sentinels import ASK_S, connect_to_master
from ..wire_errors import Barred, NotAnswered, Refused, barred_by, break_off, judge
from .tls import TlsSocket, context_of


class PlainWire:
    """One blocking connection; the same calls and errors as ``Wire``, sentinels and Cluster too."""

    def __init__(
        self, url: str, *, name: str, timeout_s: float = 5.0,
        to: Mapping[str, Any] | None = None,
    ) -> None:
        self.url, self.name, self.timeout_s, self._to = url, name, timeout_s, to
        self._exchange: Exchange | None = None
        self._router: Router[PlainWire] | None = None
        if to is None and kind_of(url) == CLUSTER:
            self._router = Router(url, self, self._line)

    def call(self, *command: Any, timeout_s: float | None = None) -> Any:
        """Send one command and return its answer; raises NotAnswered, Refused, ResponseError."""
        if self._router is not None:
            return self._router.call(*command)
        if self._exchange is None:
            self._connect()
        return self._say(command)

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers to several commands, one after the other."""
        if self._router is not None:
            return self._router.calls(commands)
        return [self.call(*command) for command in commands]

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Run a script by its SHA1; where the server does not know it (any more), by its text."""
        try:
            return self.call("EVALSHA", script.sha, len(keys), *keys, *args)
        except exceptions.NoScriptError:
            return self.call("EVAL", script.text, len(keys), *keys, *args)

    def close(self) -> None:
        """Drop the connection; safe twice."""
        if self._router is not None:
            self._router.close()
        held, self._exchange = self._exchange, None
        if held is not None:
            held.socket.close()

    def _say(self, command: tuple[Any, ...]) -> Any:
        exchange = self._exchange
        assert exchange is not None
        sent = False
        try:
            exchange.send(hiredis.pack_command(command))
            sent = True
            return exchange.read(self.timeout_s)
        except exceptions.ResponseError as error:
            judged = judge(error) or barred_by(str(error))
            if isinstance(judged, Refused):
                self.close()
            raise judged or error from error
        except BaseException as error:
            self.close()
            break_off(error, sent=sent)

    def _connect(self) -> None:
        address = read_address(self.url)
        if self._to is None and address.kind == SENTINEL:
            connect_to_master(address, self._ask, self._connect_to_a_master)
        else:
            self._connect_to(self._to or address.options)

    def _line(self, node: Node) -> PlainWire:
        return PlainWire(self.url, name=self.name, to=read_address(self.url).at(node))

    def _ask(self, options: Mapping[str, Any], command: tuple[str, ...]) -> Any:
        sentinel = PlainWire(
            self.url, name=self.name, timeout_s=min(ASK_S, self.timeout_s), to=options
        )
        try:
            return sentinel.call(*command)
        finally:
            sentinel.close()

    def _connect_to_a_master(self, options: Mapping[str, Any]) -> None:
        self._connect_to(options)
        try:
            role = self._say(("ROLE",))[0]
        except (Barred, exceptions.ResponseError):
            return  # forbidden: its first write will tell
        if role != b"master":
            self.close()
            raise Refused(f"READONLY it is a {role.decode()}")

    def _connect_to(self, options: Mapping[str, Any]) -> None:
        try:
            self._exchange = Exchange(self._open(options), self.timeout_s)
        except OSError as error:
            raise NotAnswered(str(error), sent=False) from error
        try:
            if options.get("password"):
                who = [options["username"]] if options.get("username") else []
                self._say(("AUTH", *who, options["password"]))
            self._say(("CLIENT", "SETNAME", self.name))
            if options.get("db"):
                self._say(("SELECT", options["db"]))
        except BaseException:
            # Half introduced, it would be used as somebody else the next time.
            self.close()
            raise

    def _open(self, options: Mapping[str, Any]) -> Any:
        if "path" in options:
            return self._dial(_socket.AF_UNIX, options["path"], self.timeout_s)
        connect_s = min(self.timeout_s, options.get("socket_connect_timeout", self.timeout_s))
        host, port = options.get("host", "localhost"), int(options.get("port", 6379))
        failure: OSError = OSError(f"{host} has no address")
        for family, _, _, _, address in _socket.getaddrinfo(host, port, 0, _socket.SOCK_STREAM):
            try:
                raw = self._dial(family, address, connect_s)
            except OSError as error:
                failure = error
            else:
                return self._secured(raw, options, host)
        raise failure

    def _secured(self, raw: Any, options: Mapping[str, Any], host: str) -> Any:
        if not issubclass(options.get("connection_class", object), SSLConnection):
            return raw
        try:
            secured = TlsSocket(raw, context_of(options), host)
            secured.handshake()
        except OSError:
            raw.close()
            raise
        return secured

    def _dial(self, family: int, address: Any, connect_s: float) -> Any:
        made = _socket.socket(family, _socket.SOCK_STREAM)
        made.settimeout(connect_s)
        try:
            made.connect(address)
            made.settimeout(self.timeout_s)
            if family != _socket.AF_UNIX:
                made.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        except OSError:
            made.close()
            raise
        return made
