"""A connection to Redis for native threads: a raw socket and hiredis, nothing of gevent in it.

The heart uses it. Its thread has no hub, so neither a patched socket nor a patched lock may be
touched here; ``_socket`` is the C module that patching leaves alone.
"""

from __future__ import annotations

import _socket
from typing import Any

import hiredis
from redis import exceptions
from redis.connection import SSLConnection

from ..redis_scripts import Script
from ..wire import NotAnswered, NotRedis, Refused, barred_by, judge, options_of
from .tls import TlsSocket, context_of


class PlainWire:
    """One blocking connection; the same calls and errors as ``Wire``."""

    def __init__(self, url: str, *, name: str, timeout_s: float = 5.0) -> None:
        self.url, self.name, self.timeout_s = url, name, timeout_s
        self._socket: Any = None
        self._reader: Any = None

    def call(self, *command: Any) -> Any:
        """Send one command and return its answer; raises NotAnswered, Refused, ResponseError."""
        if self._socket is None:
            self._connect()
        return self._exchange(command)

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Run a script by its SHA1; where the server does not know it (any more), by its text."""
        try:
            return self.call("EVALSHA", script.sha, len(keys), *keys, *args)
        except exceptions.NoScriptError:
            return self.call("EVAL", script.text, len(keys), *keys, *args)

    def close(self) -> None:
        """Drop the connection; safe twice."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()

    def _exchange(self, command: tuple[Any, ...]) -> Any:
        sent = False
        try:
            self._socket.sendall(hiredis.pack_command(command))
            sent = True
            while (reply := self._reader.gets()) is False:
                data = self._socket.recv(65536)
                if not data:
                    raise OSError("the server closed the connection")
                self._reader.feed(data)
        except OSError as error:
            self.close()
            raise NotAnswered(str(error) or type(error).__name__, sent=sent) from error
        except hiredis.ProtocolError as error:
            self.close()
            text = f"something else than Redis answers there ({error})"
            raise NotRedis(text, sent=sent) from error
        if isinstance(reply, hiredis.ReplyError):
            self._raise(str(reply))
        return reply

    def _raise(self, text: str) -> None:
        if text.startswith("NOSCRIPT"):
            raise exceptions.NoScriptError(text)
        error = exceptions.ResponseError(text)
        judged = judge(error) or barred_by(text)
        if isinstance(judged, Refused):
            self.close()
        raise judged or error

    def _connect(self) -> None:
        options = options_of(self.url)
        try:
            self._socket = self._open(options)
        except OSError as error:
            raise NotAnswered(str(error), sent=False) from error
        self._reader = hiredis.Reader()
        if options.get("password"):
            who = [options["username"]] if options.get("username") else []
            self._exchange(("AUTH", *who, options["password"]))
        self._exchange(("CLIENT", "SETNAME", self.name))
        if options.get("db"):
            self._exchange(("SELECT", options["db"]))

    def _open(self, options: dict[str, Any]) -> Any:
        if "path" in options:
            return self._dial(_socket.AF_UNIX, options["path"])
        host, port = options.get("host", "localhost"), int(options.get("port", 6379))
        failure: OSError = OSError(f"{host} has no address")
        for family, _, _, _, address in _socket.getaddrinfo(host, port, 0, _socket.SOCK_STREAM):
            try:
                raw = self._dial(family, address)
            except OSError as error:
                failure = error
            else:
                return self._secured(raw, options, host)
        raise failure

    def _secured(self, raw: Any, options: dict[str, Any], host: str) -> Any:
        if not issubclass(options.get("connection_class", object), SSLConnection):
            return raw
        try:
            secured = TlsSocket(raw, context_of(options), host)
            secured.handshake()
        except OSError:
            raw.close()
            raise
        return secured

    def _dial(self, family: int, address: Any) -> Any:
        made = _socket.socket(family, _socket.SOCK_STREAM)
        made.settimeout(self.timeout_s)
        try:
            made.connect(address)
            if family != _socket.AF_UNIX:
                made.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        except OSError:
            made.close()
            raise
        return made
