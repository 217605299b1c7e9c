"""A pool whose ready work is a stream, with a real master, real children and a real server: what is
seen of it, and what is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from harness import Node, wait_until
from servers import leaks

from skedulr import lists
from skedulr.errors import ConfigError
from skedulr.keys import PoolKeys

pytestmark = pytest.mark.server

Start = Callable[..., Node]


def app_of(node: Node) -> Any:
    assert node.app is not None
    return node.app


def pool_of(node: Node) -> dict[str, Any]:
    found: list[dict[str, Any]] = app_of(node).stats()["pools"]
    return next(one for one in found if one["name"] == "default")


def listed(node: Node, **selection: Any) -> list[str]:
    """The uids of a list, page by page."""
    uids: list[str] = []
    cursor = None
    while True:
        page = app_of(node).client.ask(
            lambda wire, at=cursor: lists.page(
                wire, "skedulr", ["default"], lists.Selection(**selection), limit=3, cursor=at
            )
        )
        uids += [one["uid"] for one in page.items]
        cursor = page.cursor
        if cursor is None:
            return uids


def test_tasks_run_wait_fail_and_are_cancelled_as_in_any_pool(start: Start) -> None:
    node = start(pools="default=2:streams")
    running = [node.submit("gate", "open") for _ in range(2)]
    node.effects.wait("began", count=2)
    # Else a child would claim ahead of need.
    app_of(node).pause("default")
    queued = [node.submit("gate", "open") for _ in range(7)]
    later = node.submit("gate", "open", delay=600)
    assert app_of(node).cancel(f"default/{queued[3]}")
    assert app_of(node).cancel(f"default/{later}")
    left = [uid for uid in queued if uid != queued[3]]

    seen = pool_of(node)
    assert (seen["queued"], seen["running"], seen["scheduled"]) == (6, 2, 0)
    assert seen["oldest_age"] >= 0
    assert listed(node, state="queued") == left[::-1]
    assert sorted(listed(node, state="running")) == sorted(running)
    assert sorted(listed(node, state="cancelled")) == sorted([queued[3], later])
    assert sorted(listed(node)) == sorted([*running, *queued, later])
    assert node.task(queued[0])["state"] == "queued"
    assert node.task(queued[0])["priority"] == 0

    app_of(node).resume("default")
    (node.folder / "open").touch()
    for uid in [*running, *left]:
        node.wait_state(uid, "succeeded")
    assert node.task(queued[3])["state"] == "cancelled"
    client = one_client(node)
    keys = PoolKeys("skedulr", "default")
    wait_until(lambda: client.xlen(keys.stream) == 0, "the stream is empty")
    assert leaks(client) == []


def one_client(node: Node) -> Any:
    import redis

    assert node.url is not None
    return redis.Redis.from_url(node.url)


def test_a_dead_childs_tasks_are_back_at_once_and_its_consumer_is_gone(start: Start) -> None:
    node = start(pools="default=2:streams")
    node.submit("gate", "open")
    node.effects.wait("began", count=1)
    client, keys = one_client(node), PoolKeys("skedulr", "default")
    before = {one["name"] for one in client.xinfo_consumers(keys.stream, "workers")}
    os.kill(node.child(), signal.SIGKILL)
    node.effects.wait("began", count=2)
    after = {one["name"] for one in client.xinfo_consumers(keys.stream, "workers")}
    assert not before & after
    (node.folder / "open").touch()


def test_a_priority_is_refused_where_the_task_is_submitted(start: Start) -> None:
    node = start(pools="default=1:streams")
    with pytest.raises(ConfigError, match="has no priorities and no limits: its transport runs"):
        node.submit("gate", "open", priority=5)


def test_a_pool_that_holds_work_keeps_its_transport(
    start: Start, nodes: Callable[..., Node]
) -> None:
    node = start(pools="default=1:streams")
    node.submit("gate", "open")
    node.effects.wait("began", count=1)
    other = nodes(node.url, folder="other", pools="default=1")
    other.start(None)
    assert other.wait() == 2
    assert "pool 'default' holds work of the transport 'streams'" in other.log
