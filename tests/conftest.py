"""Fixtures for all tests: real servers, each started once a run and empty for each test.

``server``        a running server (once for Redis, once for Valkey), flushed before the test
``one_server``    the first of them, for tests whose point is not the server
``fresh_server``  a factory for tests that kill, restart, freeze or fill their own server
``cluster``       a Redis Cluster of three masters with a replica each, empty for each test
``no_leaks``      with ``server``: after the test every key left is a known one with its expiry
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from clusters import Cluster
from servers import MissingServer, Server, leaks, selected


def _selected() -> tuple[str, ...]:
    try:
        return selected()
    except MissingServer as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def _running() -> Iterator[Callable[[str], Server]]:
    servers: dict[str, Server] = {}

    def running(name: str) -> Server:
        if name not in servers:
            try:
                servers[name] = Server(name)
            except MissingServer as error:
                pytest.fail(str(error))
        return servers[name].start()

    yield running
    for server in servers.values():
        server.close()


@pytest.fixture(params=_selected())
def server(request: pytest.FixtureRequest, _running: Callable[[str], Server]) -> Iterator[Server]:
    """An empty server, shared by the run's tests one after the other; on each server in turn."""
    shared = _running(request.param)
    shared.flush()
    shared.disconnect()
    yield shared
    # A test that failed half-way must not leave the next one a frozen or full server.
    shared.thaw()


@pytest.fixture
def one_server(_running: Callable[[str], Server]) -> Iterator[Server]:
    """An empty server of the first kind selected."""
    shared = _running(_selected()[0])
    shared.flush()
    shared.disconnect()
    yield shared
    shared.thaw()


@pytest.fixture(scope="session")
def _cluster() -> Iterator[Callable[[], Cluster]]:
    made: list[Cluster] = []

    def running() -> Cluster:
        if not made:
            try:
                # The last one selected: what runs on one server alone runs on the first.
                made.append(Cluster(_selected()[-1]))
            except MissingServer as error:
                pytest.fail(str(error))
        return made[0].start()

    yield running
    for one in made:
        one.close()


@pytest.fixture
def cluster(_cluster: Callable[[], Cluster]) -> Cluster:
    """An empty Cluster, shared by the run's tests one after the other; killed nodes come back."""
    shared = _cluster()
    shared.flush()
    return shared


@pytest.fixture
def fresh_server() -> Iterator[Callable[..., Server]]:
    """``fresh_server(name=None, *, tcp=False, **options)``: started, closed after the test.

    Options are the server's settings: ``fresh_server("redis", appendonly="yes", maxmemory="2mb")``.
    """
    made: list[Server] = []

    def make(name: str | None = None, *, tcp: bool = False, **options: str) -> Server:
        try:
            made.append(Server(name or _selected()[0], tcp=tcp, **options))
        except MissingServer as error:
            pytest.fail(str(error))
        return made[-1].start()

    yield make
    for own in made:
        own.close()


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Call it, or let it check after the test: no unknown keys, no owner's key without an expiry.

    It looks at the test's ``server`` or ``one_server``.
    """
    name = "server" if "server" in request.fixturenames else "one_server"
    watched: Server = request.getfixturevalue(name)

    def check() -> None:
        found = leaks(watched.client)
        assert not found, f"keys that stay for ever: {found}"

    yield check
    check()
