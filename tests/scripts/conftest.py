"""``runner``: fakeredis and each real server in turn; ``pool``: the scripts on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lead_driver import Leads
from script_driver import FakeRunner, RealRunner, Scripts
from servers import Server, selected


@pytest.fixture(params=["fakeredis", *selected()])
def runner(
    request: pytest.FixtureRequest, _running: Callable[[str], Server]
) -> Iterator[FakeRunner | RealRunner]:
    """Something with the ``call`` and ``run`` of a Wire, and a redis-py ``client``; empty."""
    if request.param == "fakeredis":
        yield FakeRunner()
        return
    server = _running(request.param)
    server.flush()
    wire = RealRunner(server)
    yield wire
    wire.close()


@pytest.fixture
def pool(runner: FakeRunner | RealRunner) -> Scripts:
    """The scripts of pool ``default`` on each kind of server."""
    return Scripts(runner)


@pytest.fixture
def leads(runner: FakeRunner | RealRunner) -> Leads:
    """The scripts of the namespace's lead on each kind of server."""
    return Leads(runner)


@pytest.fixture
def real(server: Server) -> Iterator[Scripts]:
    """The same, on the real servers only."""
    wire = RealRunner(server)
    yield Scripts(wire)
    wire.close()
