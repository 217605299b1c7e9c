"""The pytest plugin: ``skedulr_app``, ``skedulr_inline`` and ``skedulr_server``.

All three serve the default app. For one of your own, say so in a conftest.py:

    @pytest.fixture
    def skedulr_served():
        return shop.app
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from skedulr import testing

if TYPE_CHECKING:
    from skedulr import Skedulr


@pytest.fixture
def skedulr_served() -> Skedulr | None:
    """The app that the other fixtures serve; None: the default app."""
    return None


@pytest.fixture
def skedulr_app(skedulr_served: Skedulr | None) -> Iterator[testing.DrivenApp]:
    """The app on a fake Redis whose clock stands still: ``drain()``, ``advance(seconds)``."""
    with testing.app(served=skedulr_served) as driven:
        yield driven


@pytest.fixture
def skedulr_inline(skedulr_served: Skedulr | None) -> Iterator[testing.DrivenApp]:
    """Every submit runs at once, retries and all, before it returns."""
    with testing.inline(served=skedulr_served) as driven:
        yield driven


@pytest.fixture(scope="session")
def skedulr_redis() -> Iterator[str]:
    """The address of the server for ``skedulr_server``: an embedded one, started once a run."""
    with testing.embedded() as url:
        yield url


@pytest.fixture
def skedulr_server(
    skedulr_redis: str, skedulr_served: Skedulr | None
) -> Iterator[testing.ServedApp]:
    """The app on a real server; ``skedulr_server.work("shop.tasks")`` starts a real master."""
    with testing.server(skedulr_redis, served=skedulr_served) as served:
        yield served
