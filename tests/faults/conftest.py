"""``world``: a factory of small installations on the shared server, ended after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from world import World


@pytest.fixture
def world(one_server: Server, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """``world(lease_s=..., pools=..., server=...)``."""
    made: list[World] = []

    def make(*, server: Server | None = None, **options: Any) -> World:
        made.append(World(server or one_server, tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
