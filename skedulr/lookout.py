"""The lookout: looks for an answer that is about to come, before its greenlet or thread gives way.

Giving way to an event loop that sleeps, and being woken, takes longer than a server nearby takes to
answer, and more of the CPU than looking for that long: see examples/docs/speed.md. So who waits for
one answer and nothing else looks for it for a moment. Where answers do not come that soon (a server
far away, or busy) it gives way at once, and only now and then finds out whether that has changed.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any

#: For how long it looks, seconds: greenlets that are ready wait for so long.
LOOK_S = 0.000_2
#: A greenlet that looks again and again lets others have a turn after so long, seconds.
ALONE_S = 0.000_5
#: So many looks in vain, one after the other, may be chance: a server has other things to do now
#: and then. After each one more it leaves out twice as many, up to so many.
CHANCE, MOST_LEFT_OUT = 3, 1024
#: Something can be read; the name is not there where poll is not.
_POLLIN = 1


class Lookout:
    """Looks at one socket after the other."""

    def __init__(self) -> None:
        self._socket: Any = None
        #: None where the system has none.
        self._poll: Any = None
        self._in_vain = self._left_out = self._next_left_out = 0
        self._gave_way_at, self._among_greenlets = 0.0, False

    def look(self, at: Any) -> None:
        """Return when a socket has something to read, or soon.

        >>> Lookout().look(socket.create_connection(("127.0.0.1", 6379)))    # doctest: +SKIP
        """
        if self._left_out:
            self._left_out -= 1
            return
        if at is not self._socket:
            self._watch(at)
        if self._poll is None:
            return
        now = time.monotonic()
        if self._among_greenlets and now - self._gave_way_at > ALONE_S:
            # Whoever is ready goes first: a loop of submits lets others live, and what they submit
            # meanwhile shares the next call. The answer is not there yet anyway.
            time.sleep(0)
            now = self._gave_way_at = time.monotonic()
        ends_at = now + LOOK_S
        while not self._poll.poll(0):
            if time.monotonic() >= ends_at:
                self._give_up()
                return
            # On a machine with one CPU the server needs it to answer.
            os.sched_yield()
        self._in_vain = self._next_left_out = 0

    def _give_up(self) -> None:
        self._in_vain += 1
        if self._in_vain > CHANCE:
            self._next_left_out = min(2 * self._next_left_out + 1, MOST_LEFT_OUT)
            self._left_out = self._next_left_out

    def _watch(self, at: Any) -> None:
        """Have the system's own poll, for gevent's gives way."""
        self._socket, self._poll, number = at, None, at.fileno()
        # Threads take their turns by themselves, and a sleep of nothing takes one 100 us.
        self._among_greenlets = time.sleep.__module__ != "time"
        make, patched = getattr(select, "poll", None), sys.modules.get("gevent.monkey")
        if make is not None and patched is not None:
            make = patched.get_original("select", "poll")
        # One that was closed meanwhile has no number: who reads from it will say so.
        if make is not None and hasattr(os, "sched_yield") and number >= 0:
            self._poll = make()
            self._poll.register(number, _POLLIN)
