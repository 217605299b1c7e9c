"""Hooks for the whole cluster with real masters: told once, also where the leader is killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import WORK, Node, wait_until

pytestmark = pytest.mark.server

HOOKS = WORK + '''

def line(text):
    end = os.open("../told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(end, text.encode() + b"\\n")
    os.close(end)


@skedulr.on_long_queue(2, pool="default")
def long(queue):
    line(f"{queue['name']} {'long' if queue['long'] else 'short'} {queue['threshold']:g}")


@skedulr.on("leader_change")
def changed(leader, before):
    line(f"leader {leader} after {before}")
'''


def test_hooks_are_called_once_in_the_cluster_whoever_leads(start: Callable[..., Node]) -> None:
    first = start(folder="first", work=HOOKS, pools="default=1,other=1", ready=2)
    app = first.app
    assert app is not None

    def leader() -> str | None:
        named: str | None = app.stats()["leader"]
        return named

    def told() -> list[str]:
        file = first.folder.parent / "told"
        return file.read_text().splitlines() if file.exists() else []

    before = wait_until(leader, "the first leads")
    second = start(folder="second", work=HOOKS, pools="default=1,other=1", ready=2)
    wait_until(lambda: told() == [f"leader {before} after None"], lambda: f"{told()}\n{first.log}")

    app.submit_many(app.remote("gate").bind("../open") for _ in range(40))
    wait_until(lambda: "default long 2" in told(), lambda: f"it is told: {told()}\n{first.log}")
    first.kill_all()
    after = wait_until(lambda: (now := leader()) != before and now, "the second leads")
    wait_until(
        lambda: f"leader {after} after {before}" in told(), lambda: f"{told()}\n{second.log}"
    )
    (first.folder.parent / "open").touch()
    wait_until(lambda: "default short 2" in told(), lambda: f"{told()}\n{second.log}", timeout=30)
    assert sorted(told()) == sorted([
        f"leader {before} after None", "default long 2", f"leader {after} after {before}",
        "default short 2",
    ])
