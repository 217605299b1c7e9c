"""Telling systemd: ready, reloading, stopping, alive (``Type=notify``, ``WatchdogSec=``).

The protocol is one datagram of text to the socket that NOTIFY_SOCKET names; without it nothing is
sent. Children do not inherit the variables: the master speaks for all.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import MutableMapping

from gevent import monkey

log = logging.getLogger("skedulr.master")


class Notifier:
    """Speaks to systemd, if it asked for that. Takes its variables out of ``environ``."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        usec, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        ours = not pid or pid == str(os.getpid())
        #: Seconds between two signs of life, or None where nobody watches.
        self.period_s = int(usec) / 2e6 if usec.isdecimal() and int(usec) and ours else None
        self._alive_at = 0.0
        self._ready = False

    def ready(self, status: str) -> None:
        """The children take work. Said once."""
        if not self._ready:
            self._ready = True
            self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Children are being replaced; ``reloaded`` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self, status: str) -> None:
        """The new children take work."""
        self._ready = True
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self, grace_s: float) -> None:
        """It drains; more time is asked for than systemd may have given."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={round((grace_s + 5) * 1e6)}")

    def alive(self, now: float) -> None:
        """A sign of life, twice in the time that the watchdog allows."""
        if self.period_s is not None and now - self._alive_at >= self.period_s:
            self._alive_at = now
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # gevent's own would be as good, but it must not switch greenlets here.
        plain = monkey.get_original("socket", "socket")
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with plain(1, 2 | os.O_CLOEXEC) as out:  # AF_UNIX, SOCK_DGRAM
                out.setblocking(False)
                out.sendto(text.encode(), address)
        except OSError as error:
            log.debug("can not notify the service manager: %s", error)
