"""Sentinel: where the master of a service is, asked at each connection that is made.

Several sentinels may say different things while a failover goes on, and a server may not have
learned yet that it is a replica. So each one that is named is tried, until one says itself that it
is a master.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .addresses import Address, Node
from .wire_errors import NotAnswered

T = TypeVar("T")

#: An answer of a sentinel is waited for no longer than this, seconds: there are others.
ASK_S = 1.0


def connect_to_master(
    address: Address, ask: Callable[[Mapping[str, Any], tuple[str, ...]], Any],
    connect: Callable[[Mapping[str, Any]], T],
) -> T:
    """What ``connect(options)`` makes of the master's place. It raises for what is no master.

    ``ask(options, command)`` is the answer of a sentinel. Raises NotAnswered, which says
    why, sentinel by sentinel.
    """
    question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
    problems: dict[str, str] = {}
    tried: set[Node] = set()
    for sentinel in address.nodes:
        try:
            answer = ask(address.at_sentinel(sentinel), question)
        except Exception as error:
            problems[f"sentinel {sentinel}"] = str(error) or type(error).__name__
            continue
        if not answer:
            problems[f"sentinel {sentinel}"] = f"it knows no service {address.service!r}"
            continue
        node = Node(answer[0].decode(), int(answer[1]))
        if node in tried:
            continue
        tried.add(node)
        try:
            return connect(address.at(node))
        except Exception as error:
            problems[str(node)] = str(error) or type(error).__name__
    raise NotAnswered(
        "; ".join(f"{place}: {why}" for place, why in problems.items()), sent=False
    )
