"""Events: what the pages hear while they are open, as server-sent events.

One poller a process looks once a second while anybody listens, and wakes the listeners only when
something changed; each of them is sent something at least every KEEPALIVE_S, so that proxies keep
the connection. Plain threads and generators: any WSGI server can carry it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import StorageUnavailable
from .plain import dump
from .problems import Problem

log = logging.getLogger("skedulr.ui")

#: Between two looks, seconds.
PERIOD_S = 1.0
#: The contract says 5: a little less, since a busy process is late.
KEEPALIVE_S = 4.0
#: Each listener may hold a thread of its server.
MOST_LISTENERS = 1_000
_STILL_HERE = b": still here\n\n"


class Feed:
    """Fans ``look()`` out to any number of listeners. Looks only while there are some."""

    def __init__(
        self, look: Callable[[], dict[str, Any]], *, period_s: float = PERIOD_S,
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        self._look, self._period_s, self._keepalive_s = look, period_s, keepalive_s
        self._news = threading.Condition()
        self._message = b""
        self._number = 0
        self._listeners = 0
        self._poller: threading.Thread | None = None
        self._nobody = threading.Event()

    def listen(self) -> Iterator[bytes]:
        """The events from now on, the present state first. Closing the iterator ends it."""
        with self._news:
            if self._listeners >= MOST_LISTENERS:
                raise Problem(503, "too_many_streams", "too many pages listen already")
            self._listeners += 1
            self._nobody.clear()
            if self._poller is None:
                self._poller = threading.Thread(
                    target=self._poll, name="skedulr-ui-feed", daemon=True
                )
                self._poller.start()
        return self._follow()

    def _follow(self) -> Iterator[bytes]:
        try:
            seen = 0
            # At once, so that a browser knows that the stream is open.
            yield b"retry: 2000\n\n"
            while True:
                with self._news:
                    if self._number == seen:
                        self._news.wait(self._keepalive_s)
                    fresh, seen, message = self._number != seen, self._number, self._message
                yield message if fresh else _STILL_HERE
        finally:
            with self._news:
                self._listeners -= 1
                if not self._listeners:
                    self._nobody.set()

    def _poll(self) -> None:
        last = ""
        while True:
            text = self._text()
            with self._news:
                if not self._listeners:
                    # Under the lock: a new listener either sees this poller or starts another.
                    self._poller = None
                    return
                if text != last:
                    last = text
                    self._number += 1
                    self._message = f"id: {self._number}\n{text}\n\n".encode()
                    self._news.notify_all()
            self._nobody.wait(self._period_s)

    def _text(self) -> str:
        try:
            return f"event: stats\ndata: {dump(self._look())}"
        except StorageUnavailable as error:
            return f"event: trouble\ndata: {dump({'message': str(error)})}"
        except Exception:
            log.exception("the feed can not look")
            return f"event: trouble\ndata: {dump({'message': 'see the log of the master'})}"
