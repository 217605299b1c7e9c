"""``node``: a factory for real masters, ended after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Node
from servers import Server


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """``nodes(url, *flags, folder="node", **options)`` makes a node that is not started."""
    made: list[Node] = []

    def make(url: str | None, *flags: str, folder: str = "node", **options: Any) -> Node:
        made.append(Node(tmp_path / folder, url, *flags, **options))
        return made[-1]

    yield make
    for node in made:
        node.close()


@pytest.fixture
def start(nodes: Callable[..., Node], one_server: Server) -> Callable[..., Node]:
    """``start(*flags, **options)``: a node on the shared server, its children ready."""

    def run(*flags: str, ready: int = 1, **options: Any) -> Node:
        return nodes(one_server.url, *flags, **options).start(ready)

    return run
