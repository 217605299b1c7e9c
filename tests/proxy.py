"""A proxy between a client and its server that loses, holds back or cuts what a test wants.

    proxy = Proxy(server.url)          # or Proxy(server.url, unix=True)
    client = Client(url=proxy.url)
    proxy.set("drop_reply", times=1, only=b"EVALSHA")

The modes:

- ``pass``          everything goes through
- ``drop_request``  what the client sends is swallowed; the connection stays open and silent
- ``drop_reply``    the server gets the request and acts on it; its reply is swallowed and the
                    client's connection is cut in its place
- ``delay``         each piece, either way, is held for ``delay_s``
- ``stall``         nothing moves, either way; what was held goes through when the mode changes
- ``reset``         connections are reset at their next request, new ones at once

A mode is judged where a request comes in, so ``times=1`` means one request, and ``only=b"EVALSHA"``
those that hold these bytes. One piece is one ``recv``: a request that fits into 64 KiB.

It runs on native threads, or on greenlets where the process is patched; it opens nothing before
``start`` (which the constructor leaves to you, or to ``with``).
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MODES = ("pass", "drop_request", "drop_reply", "delay", "stall", "reset")
_PIECE = 65_536


class Proxy:
    """Listens on a free port of 127.0.0.1 (or a unix socket) in front of ``upstream``, a URL."""

    def __init__(self, upstream: str, *, unix: bool = False) -> None:
        self.upstream = upstream
        self.url = ""
        #: Connections taken so far, and replies lost by ``drop_reply``.
        self.accepted = self.lost = 0
        self._unix = unix
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._changed = threading.Condition()
        self._mode, self._times, self._only = "pass", -1, b""
        self._delay_s = 0.0
        self._links: set[_Link] = set()
        self._listener: socket.socket | None = None
        self._stopped = False

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> Proxy:
        """Listen; safe to call again, also after ``refuse`` (then on the same address)."""
        if self._listener is None:
            self._listener = self._listen()
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Close everything; safe to call again."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.refuse()
        if self._folder is not None:
            self._folder.cleanup()

    def set(
        self, mode: str, *, times: int | None = None, only: bytes = b"", delay_s: float = 0.0
    ) -> None:
        """From now on ``mode``, for the next ``times`` requests (None: until set again)."""
        assert mode in MODES, mode
        with self._changed:
            self._mode, self._only, self._delay_s = mode, only, delay_s
            self._times = -1 if times is None else times
            self._changed.notify_all()

    def cut(self) -> None:
        """Reset every connection that is open now."""
        for link in list(self._links):
            link.reset()

    def refuse(self) -> None:
        """Stop listening and cut what is open: connecting is refused until ``start``."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Wakes the thread in accept; closing alone does not.
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            listener.close()
        self.cut()

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    # Inside

    def _listen(self) -> socket.socket:
        if self._unix:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="skp-")
            path = Path(self._folder.name, "p.sock")
            path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(path))
            self.url = f"unix://{path}"
        else:
            port = urlsplit(self.url).port if self.url else 0
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port or 0))
            self.url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.listen(128)
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._mode == "reset" and not self._only:
                self._spend(b"")
                _reset(client)
                continue
            try:
                link = _Link(client, _connect(self.upstream))
            except OSError:
                _reset(client)
                continue
            self._links.add(link)
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(link,), daemon=True).start()

    def _requests(self, link: _Link) -> None:
        while piece := _receive(link.client):
            mode = self._judge(piece)
            if mode == "reset":
                link.reset()
            elif mode != "drop_request":
                link.doomed = mode == "drop_reply"
                _send(link.server, piece)
        self._end(link)

    def _replies(self, link: _Link) -> None:
        while piece := _receive(link.server):
            if link.doomed:
                self.lost += 1
                link.reset()
                break
            self._hold()
            _send(link.client, piece)
        self._end(link)

    def _judge(self, piece: bytes) -> str:
        """The mode for a request, once it is not held back any more; counts ``times`` down."""
        self._hold(piece)
        return self._spend(piece)

    def _spend(self, piece: bytes) -> str:
        with self._changed:
            mode = self._mode
            if mode == "pass" or self._only not in piece:
                return "pass"
            if self._times > 0:
                self._times -= 1
                if self._times == 0:
                    self._mode = "pass"
            return mode

    def _hold(self, piece: bytes | None = None) -> None:
        if self._mode == "delay" and (piece is None or self._only in piece):
            time.sleep(self._delay_s)
        with self._changed:
            while self._mode == "stall" and not self._stopped and (
                piece is None or self._only in piece
            ):
                self._changed.wait()

    def _end(self, link: _Link) -> None:
        self._links.discard(link)
        link.close()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        #: The reply under way is to be lost.
        self.doomed = False

    def reset(self) -> None:
        _reset(self.client)
        _shut(self.server)

    def close(self) -> None:
        for end in (self.client, self.server):
            _shut(end)
            end.close()


def black_hole() -> tuple[str, list[socket.socket]]:
    """A URL where connecting never ends: a listener whose queue is full. Keep the sockets."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    address = listener.getsockname()
    kept = [listener]
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(address)
        kept.append(filler)
    return f"redis://127.0.0.1:{address[1]}/0", kept


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        server: socket.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.connect(parts.path)
        return server
    return socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))


def _receive(end: socket.socket) -> bytes:
    try:
        return end.recv(_PIECE)
    except OSError:
        return b""


def _send(end: socket.socket, piece: bytes) -> None:
    try:
        end.sendall(piece)
    except OSError:
        pass  # the next recv tells


def _shut(end: Any) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _reset(end: socket.socket) -> None:
    """Close so that the other side sees a reset, not an orderly end."""
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    # shutdown wakes the pump that is in recv; the close of the last reference resets.
    _shut(end)
    end.close()
