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
        exchange: Any = _FakeExchange(connection)
        # The server's command, found by its name: scripts and callers alike ask this one.
        connection.get_socket().time = self._time
        _keep_compiled(connection.get_socket())
        self._connection, self._exchange = connection, exchange
        return exchange

    def _time(self) -> list[bytes]:
        seconds, ms = divmod(self._clock.ms, 1000)
        return [b"%d" % seconds, b"%d" % (ms * 1000)]


class _FakeExchange:
    """As ``Exchange``, where there is no socket: its own stands for one that is closed."""

    def __init__(self, connection: Any) -> None:
        self._connection, self.socket = connection, self

    def fileno(self) -> int:
        return -1

    def send(self, packed: bytes) -> None:
        self._connection.send_packed_command((packed,), check_health=False)

    def read(self, timeout_s: float) -> Any:
        return self._connection.read_response()


def _keep_compiled(socket: Any) -> None:
    """Have scripts compiled once. fakeredis does it at every call, and tidies up after each, which
    takes longer than what most scripts do; a version that is built otherwise stays as it is."""
    server: Any = getattr(socket, "_server", None)
    runtime_of = getattr(socket, "_get_server_runtime", None)
    if server is None or runtime_of is None:
        return
    runtime = runtime_of(server)
    # Where it is kept elsewhere, or not at all, there is nothing to put in its place.
    if runtime is getattr(server, "_lua_runtime", None) and not isinstance(runtime, _Compiled):
        server._lua_runtime = _Compiled(runtime)


class _Compiled:
    """A Lua runtime that keeps what it has compiled."""

    _TIDY, _TIDY_EVERY = "collectgarbage()", 100

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._made: dict[bytes, Any] = {}
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def execute(self, script: Any) -> Any:
        """Run it, as the runtime does."""
        if script == self._TIDY:
            self._calls += 1
            return None if self._calls % self._TIDY_EVERY else self._runtime.execute(script)
        made = self._made.get(script)
        if made is None:
            made = self._made[script] = self._runtime.compile(script)
        return made()


class OneWire(Wires):
    """Lends one wire to everybody: nothing on a fake server ever waits."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire.url, name=wire.name, size=0)
        self._wire = wire

    @contextmanager
    def lend(self, timeout_s: float | None = None) -> Iterator[Wire]:
        """The wire; never waits."""
        yield self._wire
