"""Waiting for results: before, while and after the end; messages that are lost; many at once."""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import snippets
from proxy import Proxy
from servers import Server, wait_until
from stand_in import StandIn

import skedulr
from skedulr import ResultTimeout, Skedulr, TaskFailed, context, waiting
from skedulr.client import _warned
from skedulr.keys import PoolKeys

KEYS = PoolKeys("skedulr", "default")


def add(a: int, b: int = 1) -> int:
    return a + b


class World:
    """An app, and a stand-in for the child that ends its tasks."""

    def __init__(self, url: str, server: Server) -> None:
        self.app = Skedulr(url=url, submit_timeout=5)
        self.task: skedulr.Task[..., Any] = self.app.task(name="add")(add)
        self.worker, self.server = StandIn(server.url), server

    def submit(self, count: int = 1) -> list[skedulr.Handle[Any]]:
        handles = self.app.submit_many(self.task.bind(n) for n in range(count))
        self.worker.claim()
        return handles

    def watched(self) -> dict[bytes, bytes]:
        return self.server.client.hgetall(KEYS.watch)

    def wait_watched(self, count: int = 1) -> None:
        wait_until(lambda: len(self.watched()) == count, what="they wait")

    def subscribers(self) -> list[dict[str, str]]:
        return [c for c in self.server.client.client_list() if c["name"].endswith(":listen")]

    def close(self) -> None:
        self.app.close()
        self.worker.close()


@pytest.fixture
def worlds() -> Iterator[Callable[[str, Server], World]]:
    made: list[World] = []

    def make(url: str, server: Server) -> World:
        made.append(World(url, server))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(worlds: Callable[[str, Server], World], server: Server) -> World:
    return worlds(server.url, server)


@pytest.fixture
def one_server(fresh_server: Callable[..., Server]) -> Server:
    """In this file a server that no other test knows: subscriptions are counted."""
    return fresh_server()


@pytest.fixture
def one(worlds: Callable[[str, Server], World], one_server: Server) -> World:
    return worlds(one_server.url, one_server)


class Waiting:
    """A call in a thread: its outcome once it returned."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:
            self.error = error

    def get(self) -> Any:
        self._thread.join(15)
        assert not self._thread.is_alive(), "it waits still"
        if self.error is not None:
            raise self.error
        return self.outcome


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again unasked: what is found, a message or a new subscription brought."""
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 3600.0)


# --- one task -------------------------------------------------------------------------------------


def test_a_result_that_is_there_is_given_at_once_without_a_subscription(world: World) -> None:
    (handle,) = world.submit()
    world.worker.succeed(handle.uid, {"a": [1, None]})
    assert handle.result(0) == handle.result() == {"a": [1, None]}
    assert world.subscribers() == []
    assert world.watched() == {}


@pytest.mark.usefixtures("patient")
def test_a_result_wakes_who_waits_for_it(world: World) -> None:
    (handle,) = world.submit()
    result = Waiting(lambda: handle.result(30))
    world.wait_watched()
    world.worker.succeed(handle.uid, 42)
    assert result.get() == 42
    assert world.watched() == {}


@pytest.mark.usefixtures("patient")
def test_an_end_between_the_look_and_the_sleep_is_not_missed(
    one: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (handle,) = one.submit()
    asleep = waiting.Waiter.sleep

    def end_first(self: waiting.Waiter, seconds: float) -> list[str | None]:
        if handle.uid in one.worker.claimed:
            one.worker.succeed(handle.uid, 1)
        return asleep(self, seconds)

    monkeypatch.setattr(waiting.Waiter, "sleep", end_first)
    assert Waiting(lambda: handle.result(30)).get() == 1


def test_a_bad_end_is_a_task_failed_with_type_and_message(world: World) -> None:
    (handle,) = world.submit()
    result = Waiting(lambda: handle.result(30))
    world.wait_watched()
    world.worker.fail(handle.uid, "ZeroDivisionError", "division by zero")
    with pytest.raises(TaskFailed, match="is dead: ZeroDivisionError: division by zero") as caught:
        result.get()
    error = caught.value
    assert (error.id, error.state, error.type, error.message) == (
        handle.id, "dead", "ZeroDivisionError", "division by zero",
    )


@pytest.mark.usefixtures("patient")
def test_a_cancel_wakes_who_waits(world: World) -> None:
    handle = world.task.submit(1)
    result = Waiting(lambda: handle.result(30))
    world.wait_watched()
    assert handle.cancel()
    with pytest.raises(TaskFailed, match="is cancelled"):
        result.get()


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_wait_that_is_over_says_so_and_leaves_no_key(world: World, timeout: float) -> None:
    (handle,) = world.submit()
    with pytest.raises(ResultTimeout, match=f"had not ended after {timeout} s"):
        handle.result(timeout)
    assert world.watched() == {}


def test_one_that_gives_up_leaves_the_others_their_promise(one: World) -> None:
    (handle,) = one.submit()
    result = Waiting(lambda: handle.result(30))
    one.wait_watched()
    for _ in range(3):
        with pytest.raises(ResultTimeout):
            handle.result(0.02)
    assert len(one.watched()) == 1
    one.worker.succeed(handle.uid, 1)
    assert result.get() == 1


@pytest.mark.parametrize("timeout", [-1, "5", float("nan"), True])
def test_an_unusable_time_out_is_refused(one: World, timeout: Any) -> None:
    (handle,) = one.submit()
    with pytest.raises(skedulr.ConfigError, match="timeout="):
        handle.result(timeout)


def test_tuples_come_back_as_lists_and_the_rest_as_it_was(one: World) -> None:
    (handle,) = one.submit()
    one.worker.succeed(handle.uid, (1, {"a": (2,)}, b"x", {3}))
    assert handle.result(5) == [1, {"a": [2]}, b"x", {3}]


# --- messages that do not come --------------------------------------------------------------------


def test_a_message_that_was_lost_is_made_up_for_by_a_look(
    one: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.1)
    (handle,) = one.submit()
    result = Waiting(lambda: handle.result(30))
    one.wait_watched()
    one.server.client.delete(KEYS.watch)
    one.worker.succeed(handle.uid, 1)
    assert result.get() == 1


@pytest.mark.usefixtures("patient")
def test_after_a_new_subscription_everyone_looks(world: World) -> None:
    (handle,) = world.submit()
    result = Waiting(lambda: handle.result(30))
    world.wait_watched()
    wait_until(lambda: world.subscribers(), what="it listens")
    world.server.client.client_kill_filter(_type="pubsub")
    world.worker.succeed(handle.uid, 1)  # nobody listens: this message is lost
    assert result.get() == 1


def test_it_works_where_the_subscription_can_not_be_made(
    worlds: Callable[[str, Server], World], one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.1)
    with Proxy(one_server.url) as proxy:
        proxy.set("reset", only=b"SUBSCRIBE")
        world = worlds(proxy.url, one_server)
        (handle,) = world.submit()
        result = Waiting(lambda: handle.result(30))
        world.wait_watched()
        world.worker.succeed(handle.uid, 1)
        assert result.get() == 1
        world.close()


def test_a_restart_of_the_server_is_waited_through(
    worlds: Callable[[str, Server], World], fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server(appendonly="yes", appendfsync="always")
    world = worlds(server.url, server)
    (handle,) = world.submit()
    result = Waiting(lambda: handle.result())
    world.wait_watched()
    server.kill()
    server.start()
    world.worker.close()
    world.worker.succeed(handle.uid, 1)
    assert result.get() == 1


# --- many -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_however_many_wait_there_is_one_subscription(world: World) -> None:
    handles = world.submit(40)
    results = [Waiting(lambda handle=handle: handle.result(30)) for handle in handles]
    world.wait_watched(40)
    wait_until(lambda: world.subscribers(), what="it listens")
    assert [each["sub"] for each in world.subscribers()] == ["1"]
    for n, handle in enumerate(handles):
        world.worker.succeed(handle.uid, n)
    assert [result.get() for result in results] == list(range(40))
    assert world.watched() == {}


@pytest.mark.usefixtures("patient")
def test_several_that_wait_for_the_same_task_all_wake(one: World) -> None:
    (handle,) = one.submit()
    results = [Waiting(lambda: handle.result(30)) for _ in range(10)]
    one.wait_watched()
    wait_until(lambda: len(threading.enumerate()) > 10, what="all have come")
    one.worker.succeed(handle.uid, 7)
    assert [result.get() for result in results] == [7] * 10


@pytest.mark.usefixtures("patient")
def test_wait_ends_when_the_last_of_all_has(world: World) -> None:
    handles = world.submit(5)
    waited = Waiting(lambda: world.app.wait(handles, 30))
    world.wait_watched(5)
    for handle in handles[1:]:
        world.worker.succeed(handle.uid)
    world.worker.fail(handles[0].uid)
    assert waited.get() is True
    assert world.watched() == {}


def test_wait_is_false_when_the_time_is_over(world: World) -> None:
    handles = world.submit(3)
    world.worker.succeed(handles[1].uid)
    assert world.app.wait(handles, 0) is False
    assert world.app.wait(handles, 0.05) is False
    assert world.watched() == {}


def test_wait_for_none_is_over_at_once(one: World) -> None:
    assert one.app.wait([]) is True
    assert list(one.app.as_completed([])) == []


def test_a_task_that_is_named_twice_counts_once(one: World) -> None:
    (handle,) = one.submit()
    one.worker.succeed(handle.uid)
    assert one.app.wait([handle, handle, one.app.client.handle(handle.uid)], 5)


def test_ids_are_waited_for_as_handles_are(one: World) -> None:
    handle = one.submit()[0]
    one.worker.succeed(handle.uid)
    assert one.app.wait([handle.id, handle.uid], 5)
    assert list(one.app.as_completed([handle.id], 5)) == [handle]


@pytest.mark.usefixtures("patient")
def test_as_completed_gives_each_as_it_ends(world: World) -> None:
    handles = world.submit(4)
    order: list[skedulr.Handle[Any]] = []
    done = Waiting(lambda: order.extend(world.app.as_completed(handles, 30)))
    world.wait_watched(4)
    expected = [handles[n] for n in (2, 0, 3, 1)]
    for n, handle in enumerate(expected):
        world.worker.succeed(handle.uid)
        wait_until(lambda count=n + 1: len(order) == count, what="it was given")
    done.get()
    assert order == expected


def test_as_completed_says_what_had_not_ended_in_time(one: World) -> None:
    handles = one.submit(3)
    one.worker.succeed(handles[2].uid)
    given: list[skedulr.Handle[Any]] = []
    ends = one.app.as_completed(handles, 0.05)
    given.append(next(ends))
    with pytest.raises(ResultTimeout, match=r"2 tasks had not ended after 0.05 s"):
        next(ends)
    assert given == [handles[2]]
    assert one.watched() == {}


def test_as_completed_that_is_left_early_leaves_no_key(one: World) -> None:
    handles = one.submit(3)
    one.worker.succeed(handles[0].uid)
    for _ in one.app.as_completed(handles, 30):
        break
    wait_until(lambda: one.watched() == {}, what="its promises are taken back")


@pytest.mark.usefixtures("patient")
def test_a_message_makes_one_look_however_many_are_waited_for(one: World) -> None:
    handles = one.submit(200)
    one.server.client.config_resetstat()
    waited = Waiting(lambda: one.app.wait(handles, 30))
    one.wait_watched(200)
    wait_until(lambda: one.subscribers(), what="it listens")
    for handle in handles[:-1]:
        one.worker.succeed(handle.uid)
    wait_until(lambda: len(one.watched()) == 1)
    one.worker.succeed(handles[-1].uid)
    assert waited.get()
    looks = one.server.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    # The ends themselves, two looks at the start, one for each that ended: not hundreds for each.
    assert looks < 4 * 200 + 10


def test_waiting_takes_no_processor(one: World) -> None:
    (handle,) = one.submit()
    result = Waiting(lambda: handle.result(30))
    one.wait_watched()

    def used() -> tuple[float, int]:
        found = resource.getrusage(resource.RUSAGE_SELF)
        return found.ru_utime + found.ru_stime, found.ru_nvcsw

    before_s, before = used()
    time.sleep(1)  # what is looked at is what happens when nothing does
    after_s, after = used()
    assert after - before < 100
    assert after_s - before_s < 0.2
    one.worker.succeed(handle.uid, 1)
    assert result.get() == 1


# --- threads, greenlets, forks --------------------------------------------------------------------

MODES = """
import threading, time
import skedulr
from stand_in import StandIn

app = skedulr.Skedulr(url=ARGS[0])

@app.task(name="t")
def t(n): ...

worker = StandIn(ARGS[0])
handles = app.submit_many(t.bind(n) for n in range(30))
worker.claim()
results = {}

def wait(n):
    results[n] = handles[n].result(30)

threads = [threading.Thread(target=wait, args=(n,)) for n in range(30)]
for one in threads: one.start()
import redis
server = redis.Redis.from_url(ARGS[0])
while server.hlen("{skedulr:default}:watch") < 30: time.sleep(0.01)
for n in reversed(range(30)):
    worker.succeed(handles[n].uid, n * n)
for one in threads: one.join(20)
names = [c["name"] for c in server.client_list() if c["name"].endswith(":listen")]
report([results == {n: n * n for n in range(30)}, len(names)])
"""


@pytest.mark.parametrize("patched", [True, False], ids=["greenlets", "threads"])
def test_results_reach_greenlets_and_threads(one_server: Server, patched: bool) -> None:
    assert snippets.run(MODES, one_server.url, patched=patched) == [True, 1]


LEFT = """
import gevent, skedulr
from stand_in import StandIn
app = skedulr.Skedulr(url=ARGS[0])

@app.task(name="t")
def t(n): ...

handle = t.submit(1)
for _ in range(20):
    with gevent.Timeout(0.01, False):
        handle.result(30)
    one = gevent.spawn(handle.result, 30)
    gevent.sleep(0.01)
    one.kill()
listener = next(iter(app.client._processes.values())).listener
worker = StandIn(ARGS[0])
worker.run(lambda *call: 9)
report([len(listener._waiters), handle.result(10)])
"""


def test_those_who_are_killed_while_they_wait_leave_nothing(one_server: Server) -> None:
    assert snippets.run(LEFT, one_server.url, patched=True) == [0, 9]
    assert one_server.client.hlen(KEYS.watch) == 0


FORKED = """
import os, threading, time
import skedulr
from stand_in import StandIn
app = skedulr.Skedulr(url=ARGS[0])

@app.task(name="t")
def t(n): ...

first, second = t.submit(1), t.submit(2)
worker = StandIn(ARGS[0])
worker.claim()
got = []
waits = [threading.Thread(target=lambda: got.append(first.result(60)))]
waits[0].start()
import redis
server = redis.Redis.from_url(ARGS[0])
while server.hlen("{skedulr:default}:watch") < 1: time.sleep(0.01)
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    try:
        # Copies of the parent's greenlets may run here now; they must not take its messages.
        time.sleep(0.3)
        os.write(writing, repr(app.wait([second], 0.2)).encode())
        time.sleep(0.7)
    finally:
        os._exit(0)
os.read(reading, 99)
began = time.monotonic()
for n in range(2):
    worker.succeed([first, second][n].uid, n + 5)
waits[0].join(30)
took = time.monotonic() - began
os.waitpid(pid, 0)
report([got, took])
"""


@pytest.mark.parametrize("patched", [True, False], ids=["patched", "unpatched"])
def test_a_forked_child_takes_no_message_of_its_parent(one_server: Server, patched: bool) -> None:
    got, took_s = snippets.run(FORKED, one_server.url, patched=patched)
    assert got == [5]
    # A message that was taken would be made up for by the next look, after five seconds.
    assert took_s < waiting.LOOK_AGAIN_S / 2


# --- waiting inside of a task ---------------------------------------------------------------------


@pytest.fixture
def inside(one: World) -> Iterator[None]:
    here = context.Context(
        uid="me", pool="default", name="parent", args=[], kwargs={}, attempt=1, max_retries=3,
        token="t", due_at=None, headers={},
    )
    token = context.running.set(here)
    yield
    context.running.reset(token)
    _warned.discard("parent")


@pytest.mark.usefixtures("inside")
def test_waiting_for_one_s_own_pool_inside_of_a_task_is_warned_of_once(
    one: World, caplog: pytest.LogCaptureFixture
) -> None:
    (handle,) = one.submit()
    one.worker.succeed(handle.uid, 1)
    with caplog.at_level(logging.WARNING, "skedulr.client"):
        assert handle.result(5) == handle.result(5) == 1
    (line,) = caplog.messages
    assert "task default/me waits for a task of its own pool 'default'" in line


@pytest.mark.usefixtures("inside")
def test_waiting_for_another_pool_is_not(one: World, caplog: pytest.LogCaptureFixture) -> None:
    handle = one.task.using(pool="other").submit(1)
    with caplog.at_level(logging.WARNING, "skedulr.client"), pytest.raises(ResultTimeout):
        handle.result(0)
    assert caplog.messages == []
