"""A Redis inside the process: fakeredis, which runs the real scripts, with a clock of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigError
from ..wire import Wire
from ..wires import SharedWire, Wires
from .standing import Clock

try:
    import fakeredis
except ImportError as error:
    raise ConfigError(
        "skedulr.testing needs fakeredis with Lua: pip install 'skedulr[test]'"
    ) from error


class FakeWire(SharedWire):
    """One connection to a fake server, shared by all; ``clock`` is what TIME answers."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("redis://fake", name="fake")
        self._clock = clock
        self._pool = fakeredis.FakeRedis(
            server=fakeredis.FakeServer(version=(7,)), protocol=2
        ).connection_pool

    def _connect(self) -> Any:
        connection: Any = self._pool.get_connection()
        # The server's command, found by its name: scripts and callers alike ask this one.
        connection.get_socket().time = self._time
        self._connection = connection
        return connection

    def _time(self) -> list[bytes]:
        seconds, ms = divmod(self._clock.ms, 1000)
        return [b"%d" % seconds, b"%d" % (ms * 1000)]


class OneWire(Wires):
    """Lends one wire to everybody: nothing on a fake server ever waits."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire.url, name=wire.name, size=0)
        self._wire = wire

    @contextmanager
    def lend(self, timeout_s: float | None = None) -> Iterator[Wire]:
        """The wire; never waits."""
        yield self._wire
