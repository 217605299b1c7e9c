"""pause, resume, scale_pool and purge of an app, as the command line and the UI do them too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Server
from stand_in import StandIn

from skedulr import ConfigError, Skedulr, StorageUnavailable, UnknownPool
from skedulr.keys import PoolKeys, SpaceKeys

KEYS = PoolKeys("skedulr", "default")


@pytest.fixture
def app(one_server: Server) -> Iterator[Skedulr]:
    made = Skedulr(url=one_server.url)
    yield made
    made.close()


@pytest.fixture
def worker(one_server: Server) -> Iterator[StandIn]:
    made = StandIn(one_server.url)
    yield made
    made.close()


def fill(app: Skedulr, worker: StandIn) -> None:
    """Of each name, ``one`` and ``two``: a task that succeeded, a dead, a running, a scheduled and
    a queued one."""
    for name in ("one", "two"):
        done, dead = (app.submit(name).id.partition("/")[2] for _ in range(2))
        worker.claim(2)
        worker.succeed(done)
        worker.fail(dead)
        app.submit(name)
        worker.claim(1)
    for name in ("one", "two"):
        app.remote(name, delay=60).submit()
        app.submit(name)


def counts(app: Skedulr) -> tuple[int, ...]:
    stats = app.stats()
    ended = int(app.client.ask(lambda wire: wire.call("ZCARD", KEYS.done)))
    return stats["queued"], stats["scheduled"], stats["running"], stats["dead"], ended


def test_purge_takes_all_that_has_not_started(app: Skedulr, worker: StandIn) -> None:
    fill(app, worker)
    assert app.purge("default") == 4
    assert counts(app) == (0, 0, 2, 2, 2)


@pytest.mark.parametrize(("state", "left"), [
    ("queued", (0, 2, 2, 2, 2)), ("scheduled", (2, 0, 2, 2, 2)), ("dead", (2, 2, 2, 0, 2)),
    ("succeeded", (2, 2, 2, 2, 0)), ("cancelled", (2, 2, 2, 2, 2)), ("waiting", (2, 2, 2, 2, 2)),
])
def test_a_named_state_alone_is_purged(
    app: Skedulr, worker: StandIn, state: str, left: tuple[int, ...]
) -> None:
    fill(app, worker)
    assert app.purge("default", state=state) == 10 - sum(left)
    assert counts(app) == left


def test_only_the_tasks_of_a_name_are_purged(app: Skedulr, worker: StandIn) -> None:
    fill(app, worker)
    assert app.purge("default", name="one") == 2
    assert app.purge("default", state="dead", name="two") == 1
    assert counts(app) == (1, 1, 2, 1, 2)
    assert app.purge("default", name="three") == 0


def test_what_runs_is_not_purged(app: Skedulr, worker: StandIn) -> None:
    fill(app, worker)
    with pytest.raises(ConfigError, match="cancel it first"):
        app.purge("default", state="running")
    assert counts(app)[2] == 2


def test_a_large_pool_is_purged_by_steps(app: Skedulr) -> None:
    task = app.remote("one")
    for _ in app.submit_iter(task.bind() for _ in range(2300)):
        pass
    assert app.purge("default", name="one") == 2300
    assert counts(app) == (0, 0, 0, 0, 0)


def test_other_pools_and_namespaces_keep_what_they_have(app: Skedulr, one_server: Server) -> None:
    app.submit("one")
    app.remote("one", pool="other").submit()
    neighbour = Skedulr(url=one_server.url, namespace="skedulr.b")
    neighbour.submit("one")
    assert app.purge("default") == 1
    assert [pool["queued"] for pool in app.client.pools()] == [0, 1]
    assert neighbour.stats()["queued"] == 1
    neighbour.close()


@pytest.mark.parametrize("call", [
    lambda app: app.purge("defalt"), lambda app: app.pause("defalt"),
    lambda app: app.resume("defalt"),
], ids=["purge", "pause", "resume"])
def test_a_pool_that_is_not_there_is_named_with_the_nearest_one(app: Skedulr, call: object) -> None:
    app.submit("one")
    with pytest.raises(UnknownPool, match=r"no pool 'defalt' \(did you mean 'default'\?\)"):
        call(app)  # type: ignore[operator]


def test_a_state_there_is_none_of_is_named_with_the_nearest_one(app: Skedulr) -> None:
    app.submit("one")
    with pytest.raises(ConfigError, match=r"'ded' \(did you mean 'dead'\?\)"):
        app.purge("default", state="ded")


def test_a_pause_of_one_pool_or_all_is_kept_until_resume(app: Skedulr, worker: StandIn) -> None:
    app.submit("one")
    app.remote("one", pool="other").submit()
    app.pause()
    assert [pool["paused"] for pool in app.client.pools()] == [True, True]
    assert worker.claim() == []
    app.resume("default")
    assert [pool["paused"] for pool in app.client.pools()] == [False, True]
    assert len(worker.claim()) == 1
    app.resume()
    assert [pool["paused"] for pool in app.client.pools()] == [False, False]


def test_the_client_says_which_pools_a_pause_has_changed(app: Skedulr) -> None:
    app.submit("one")
    app.remote("one", pool="other").submit()
    assert app.client.pause("other", True) == ["other"]
    assert app.client.pause(None, True) == ["default"]
    assert app.client.pause(None, True) == []


def test_a_size_is_stored_with_create_and_taken_back_with_none(
    app: Skedulr, one_server: Server
) -> None:
    sizes = SpaceKeys("skedulr").sizes
    with pytest.raises(UnknownPool, match="create=True has every node fork"):
        app.scale_pool("reports", 4)
    app.scale_pool("reports", 4, create=True)
    assert one_server.client.hget(sizes, "reports") == b"4 created"
    assert app.client.scale_pool("reports", None) is True
    assert app.client.scale_pool("reports", None) is False
    assert one_server.client.hget(sizes, "reports") is None


@pytest.mark.parametrize("workers", [-1, 10_001, 2.5, "3", True])
def test_a_size_that_can_not_be_is_refused(app: Skedulr, workers: object) -> None:
    with pytest.raises(ConfigError, match="a whole number from 0 to 10,000"):
        app.scale_pool("default", workers, create=True)  # type: ignore[arg-type]


def test_without_redis_each_of_them_says_so() -> None:
    app = Skedulr(url="redis://127.0.0.1:1/0", submit_timeout=0.2)
    for call in (app.pause, app.resume, lambda: app.purge("p"), lambda: app.scale_pool("p", 1)):
        with pytest.raises(StorageUnavailable):
            call()
    app.close()
