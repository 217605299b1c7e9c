"""The testing kit: the same behaviour inline, on the fake Redis, and with a real master."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import kit_tasks as tasks
import pytest

import skedulr
from skedulr import Handle, Skedulr, testing
from skedulr.keys import PoolKeys
from skedulr.store import Store
from skedulr.testing import DrivenApp

WORLDS = ("inline", "app", "server")


@dataclass
class World:
    """Where a test's tasks run: ``end`` sees to it that what was submitted has ended."""

    name: str
    end: Callable[..., None]


@pytest.fixture(scope="module")
def _real() -> Iterator[testing.ServedApp]:
    with testing.server(served=tasks.app) as served:
        served.work("kit_tasks", pools="default=6,single=1", directory=Path(__file__).parent)
        yield served


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "server":
        served: testing.ServedApp = request.getfixturevalue("_real")
        # Inside of its block another one may have driven the app: this puts the real one back.
        yield World("server", lambda *handles: _end(served, handles))
    elif request.param == "inline":
        with testing.inline(served=tasks.app):
            yield World("inline", lambda *handles: None)
    else:
        with testing.app(served=tasks.app, workers={"single": 1}) as driven:
            yield World("app", lambda *handles: _advance(driven))


def _end(served: Skedulr, handles: tuple[Handle[Any], ...]) -> None:
    assert served.wait(handles, timeout=20)


def _advance(driven: DrivenApp) -> None:
    driven.advance(60)


# Encoding


def test_arguments_and_results_travel_encoded(world: World) -> None:
    handle = tasks.echo.submit(*tasks.SENT, key=(3, 4))
    world.end(handle)
    back = list(tasks.SENT)
    back[6] = [1, 2]
    assert handle.result(timeout=5) == [back, {"key": [3, 4]}]


def test_a_handler_gets_what_it_gets_in_production(world: World) -> None:
    handle = tasks.types.submit((1, 2), {3}, Decimal(1), timedelta(1), datetime(2025, 1, 1))
    world.end(handle)
    assert handle.result(timeout=5) == ["list", "set", "Decimal", "timedelta", "datetime"]


def test_what_the_caller_changes_later_is_not_seen(world: World) -> None:
    words = ["a"]
    handle = tasks.echo.submit(words)
    words.append("b")
    world.end(handle)
    assert handle.result(timeout=5) == [[["a"]], {}]


@pytest.mark.parametrize("wrong", [object(), {1: 2}, lambda: 1])
def test_what_can_not_travel_is_refused_in_the_caller(world: World, wrong: Any) -> None:
    with pytest.raises(skedulr.PayloadError):
        tasks.echo.submit(wrong)


def test_a_result_that_can_not_travel_kills_the_task_at_once(world: World) -> None:
    handle = tasks.unsendable.submit()
    world.end(handle)
    assert (handle.state, handle.info()["attempt"]) == ("dead", 1)
    assert handle.info()["error"]["type"] == "PayloadError"


# Options


def test_a_task_is_retried_until_it_succeeds(world: World) -> None:
    handle = tasks.flaky.submit(2)
    world.end(handle)
    assert (handle.state, handle.result(timeout=5)) == ("succeeded", 3)


def test_retries_run_out_and_the_last_error_is_stored(world: World) -> None:
    handle = tasks.flaky.using(max_retries=1).submit(9)
    world.end(handle)
    with pytest.raises(skedulr.TaskFailed) as failed:
        handle.result(timeout=5)
    assert (failed.value.state, failed.value.type, failed.value.message) == (
        "dead", "ValueError", "attempt 2"
    )
    assert "raise ValueError" in handle.info()["error"]["traceback"]


@pytest.mark.parametrize(("kind", "attempts"), [("key", 3), ("value", 1)])
def test_only_errors_worth_a_retry_are_retried(world: World, kind: str, attempts: int) -> None:
    handle = tasks.choosy.submit(kind)
    world.end(handle)
    assert (handle.state, handle.info()["attempt"]) == ("dead", attempts)


def test_a_rejected_task_is_dead_at_once(world: World) -> None:
    handle = tasks.reject.submit()
    world.end(handle)
    assert (handle.state, handle.info()["attempt"]) == ("dead", 1)
    assert handle.info()["error"]["message"] == "never"


def test_a_handler_may_ask_for_a_retry(world: World) -> None:
    handle = tasks.again.submit()
    world.end(handle)
    assert handle.result(timeout=5) == 2


def test_a_time_limit_interrupts_a_handler_that_waits(world: World) -> None:
    handle = tasks.slow.submit()
    world.end(handle)
    assert (handle.state, handle.info()["error"]["type"]) == ("dead", "skedulr.errors.TaskTimeout")


def test_the_context_is_what_it_is_in_production(world: World) -> None:
    handle = tasks.about.using(headers={"h": 1}, max_retries=7).submit()
    world.end(handle)
    assert handle.result(timeout=5) == {
        "id": handle.id, "attempt": 1, "max_retries": 7, "name": "about", "headers": {"h": 1},
        "pool": "default",
    }


def test_middleware_is_around_every_run(world: World) -> None:
    handle = tasks.flaky.using(headers={"loud": True}).submit(1)
    world.end(handle)
    assert handle.result(timeout=5) == "2!"


def test_an_id_names_one_task(world: World) -> None:
    echo = tasks.echo.using(id=f"mine-{world.name}")
    handle = echo.submit(1)
    assert echo.submit(1) == handle
    with pytest.raises(skedulr.DuplicateTask):
        echo.submit(2)


def test_options_are_checked(world: World) -> None:
    with pytest.raises(skedulr.ConfigError, match="did you mean 'priority'"):
        tasks.echo.using(prioritty=1)  # type: ignore[call-arg]


def test_a_result_that_is_not_kept_is_none(world: World) -> None:
    handle = tasks.flaky.using(keep_result=False).submit(0)
    world.end(handle)
    assert handle.result(timeout=5) is None


# Order


def test_what_a_task_submits_runs_after_it_by_priority(world: World, tmp_path: Path) -> None:
    file = tmp_path / "order"
    handle = tasks.brood.submit(str(file))
    world.end(handle)
    # The last of the queue, so the others have ended with it.
    last = tasks.note.using(priority=-100).submit(str(file), "last")
    world.end(last)
    assert file.read_text().split() == ["parent", "high", "middle", "low", "last"]


def test_a_batch_runs_in_its_order(world: World, tmp_path: Path) -> None:
    file = tmp_path / "order"
    handles = tasks.app.submit_many(tasks.note.bind(str(file), str(i)) for i in range(20))
    world.end(*handles)
    assert file.read_text().split() == [str(i) for i in range(20)]


def test_tasks_may_wait_for_tasks_while_workers_are_free(world: World) -> None:
    handle = tasks.depth.submit(4)
    world.end(handle)
    assert handle.result(timeout=20) == 4


def test_by_name_the_task_of_that_name_is_submitted(world: World) -> None:
    handle = tasks.app.submit("about")
    world.end(handle)
    assert handle.result(timeout=5)["name"] == "about"


SHOWN = ("name", "state", "attempt", "crashes", "priority", "key", "tags", "result", "args",
         "kwargs", "pool", "progress", "note")


def test_a_task_looks_the_same_afterwards(world: World) -> None:
    handle = tasks.echo.using(priority=3, key="k{0}", tags=["t"], expires=60).submit(1, a=[2])
    world.end(handle)
    info = handle.info()
    assert {name: info[name] for name in SHOWN} == {
        "name": "echo", "state": "succeeded", "attempt": 1, "crashes": 0, "priority": 3,
        "key": "k1", "tags": ["t"], "result": [[1], {"a": [2]}], "args": [1], "kwargs": {"a": [2]},
        "pool": "default", "progress": None, "note": None,
    }


# Where inline is another matter


@pytest.fixture(params=("app", "server"))
def queue(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world in which a submitted task waits for its turn."""
    if request.param == "server":
        served: testing.ServedApp = request.getfixturevalue("_real")
        yield World("server", lambda *handles: _end(served, handles))
        return
    with testing.app(served=tasks.app, workers={"single": 1}) as driven:
        yield World("app", lambda *handles: _advance(driven))


def test_a_delayed_task_is_scheduled_and_can_be_cancelled(queue: World) -> None:
    handle = tasks.echo.using(delay=30).submit(1)
    assert handle.state == "scheduled"
    assert handle.cancel() is True
    assert handle.cancel() is False
    with pytest.raises(skedulr.TaskFailed) as failed:
        handle.result(timeout=5)
    assert failed.value.state == "cancelled"


def test_a_unique_task_is_taken_until_it_is_done(queue: World) -> None:
    only = tasks.echo.using(unique="until_done", key=f"only-{queue.name}")
    first = only.using(delay=0.2).submit(1)
    with pytest.raises(skedulr.DuplicateTask) as duplicate:
        only.submit(1)
    assert duplicate.value.id == first.id
    assert only.using(on_duplicate="return").submit(1) == first
    queue.end(first)
    second = only.submit(1)
    queue.end(second)
    assert second.state == "succeeded"


def test_a_task_that_expired_is_not_run(queue: World, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    # It waits behind a task that takes the pool's only worker for longer than it is good for.
    blocking = tasks.patient.submit()
    late = tasks.note.using(expires=0.05).submit(str(file), "ran")
    queue.end(blocking, late)
    assert blocking.result(timeout=5) == "ResultTimeout"
    assert late.state == "expired"
    assert not file.exists()


def test_a_wait_that_no_worker_can_serve_times_out(queue: World) -> None:
    handle = tasks.patient.submit()
    queue.end(handle)
    assert handle.result(timeout=5) == "ResultTimeout"


def test_an_unknown_id_is_not_found(queue: World) -> None:
    with pytest.raises(skedulr.TaskNotFound):
        tasks.app.get("nobody")
    with pytest.raises(skedulr.TaskNotFound):
        tasks.app.cancel("nobody")


# Time


@pytest.fixture
def driven() -> Iterator[DrivenApp]:
    with testing.app(testing.Clock(1_700_000_000), served=tasks.app) as driven:
        yield driven


def test_three_hours_pass_at_once(driven: DrivenApp) -> None:
    handle = tasks.echo.using(delay=timedelta(hours=3)).submit(1)
    assert driven.drain() == 0
    assert driven.advance(3 * 3600 - 0.001) == 0
    assert handle.state == "scheduled"
    assert driven.advance(0.001) == 1
    assert handle.state == "succeeded"
    assert driven.clock.time() == 1_700_000_000 + 3 * 3600


def test_each_thing_runs_at_its_own_time(driven: DrivenApp) -> None:
    late = tasks.echo.using(at=datetime(2023, 11, 15, tzinfo=UTC)).submit()
    soon = tasks.flaky.using(delay=10).submit(1)
    driven.advance(timedelta(days=1))
    assert soon.info()["finished_at"] == 1_700_000_010.05
    assert late.info()["finished_at"] == datetime(2023, 11, 15, tzinfo=UTC).timestamp()
    assert driven.clock.time() == 1_700_000_000 + 86400


def test_draining_leaves_retries_for_later(driven: DrivenApp) -> None:
    handle = tasks.flaky.submit(1)
    assert driven.drain() == 1
    assert handle.state == "scheduled"
    assert driven.advance(0.05) == 1
    assert handle.state == "succeeded"


def test_waiting_lets_time_pass_up_to_the_time_out(driven: DrivenApp) -> None:
    handle = tasks.echo.using(delay=60).submit(1)
    with pytest.raises(skedulr.ResultTimeout):
        handle.result(timeout=59)
    assert driven.clock.time() == 1_700_000_059
    assert handle.result() == [[1], {}]
    assert driven.clock.time() == 1_700_000_060


def test_waiting_for_what_can_not_come_says_so_at_once(driven: DrivenApp) -> None:
    pool = Store(PoolKeys(driven.client.config.namespace, "default"))
    driven.client.ask(lambda wire: pool.pause(wire, True))
    handle = tasks.echo.submit(1)
    with pytest.raises(skedulr.ResultTimeout, match="nothing is left to run"):
        handle.result()


def test_several_waits_end_in_the_order_of_their_tasks(driven: DrivenApp) -> None:
    second = tasks.echo.using(delay=20).submit(2)
    first = tasks.echo.using(delay=10).submit(1)
    assert list(driven.as_completed([second, first])) == [first, second]
    assert driven.wait([first, second], timeout=0)


def test_progress_is_there_while_a_task_runs(driven: DrivenApp) -> None:
    seen = []

    @driven.task(name="looks")
    def looks() -> None:
        skedulr.report_progress(25, "a quarter")
        seen.append(driven.get(skedulr.task_id() or "").info())

    looks.submit()
    driven.drain()
    assert [(one["state"], one["progress"], one["note"]) for one in seen] == [
        ("running", 25, "a quarter")
    ]


def test_a_running_task_is_told_of_its_cancel(driven: DrivenApp) -> None:
    @driven.task(name="cancels")
    def cancels() -> None:
        import gevent

        driven.cancel(skedulr.task_id() or "")
        gevent.sleep(5)

    handle = cancels.submit()
    driven.drain()
    assert handle.state == "cancelled"


def test_draining_may_raise_what_a_dead_task_raised(driven: DrivenApp) -> None:
    tasks.flaky.using(max_retries=0).submit(5)
    done = tasks.echo.submit(1)
    with pytest.raises(ValueError, match="attempt 1"):
        driven.drain(raise_errors=True)
    assert done.state == "succeeded"


def test_a_handler_that_waits_for_nothing_is_an_error_not_a_hang(driven: DrivenApp) -> None:
    @driven.task(name="forever")
    def forever() -> None:
        from gevent.event import Event

        Event().wait()

    forever.submit()
    with pytest.raises(skedulr.SkedulrError, match=r"forever default/.* waits for something"):
        driven.drain()


def test_a_task_that_submits_itself_for_ever_is_an_error_not_a_hang(
    driven: DrivenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skedulr.testing.driven.MOST_ATTEMPTS", 20)

    @driven.task(name="again and again")
    def endless() -> None:
        endless.submit()

    endless.submit()
    with pytest.raises(skedulr.SkedulrError, match="a task that submits itself"):
        driven.drain()


def test_drain_is_not_for_tasks(driven: DrivenApp) -> None:
    @driven.task(name="drains", max_retries=0)
    def drains() -> None:
        driven.drain()

    handle = drains.submit()
    driven.drain()
    assert "drain() and advance() are the test's" in handle.info()["error"]["message"]


def test_an_unknown_name_is_dead_with_the_reason(driven: DrivenApp) -> None:
    handle = driven.submit("ekho", 1)
    driven.drain()
    assert "did you mean 'echo'" in handle.info()["error"]["message"]


# Inline


def test_inline_delays_and_retries_take_no_time() -> None:
    with testing.inline(testing.Clock(1_700_000_000), served=tasks.app) as driven:
        handle = tasks.flaky.using(delay=3600, retry=skedulr.LinearRetry(base=600)).submit(1)
        assert handle.result(timeout=0) == 2
        assert driven.clock.time() == 1_700_000_000 + 3600 + 600


def test_inline_may_raise_what_the_handler_raised() -> None:
    with testing.inline(served=tasks.app, raise_errors=True):
        with pytest.raises(ValueError, match="attempt 4"):
            tasks.flaky.submit(9)
        assert tasks.flaky.submit(2).result(timeout=0) == 3


def test_inline_a_bulk_submit_runs_all() -> None:
    with testing.inline(served=tasks.app):
        ids = list(tasks.app.submit_iter(tasks.echo.bind(i) for i in range(3)))
        assert [tasks.app.get(id).state for id in ids] == ["succeeded"] * 3


# The app before and after


def test_the_app_is_put_back_as_it_was() -> None:
    app = Skedulr(namespace="before")
    hook, before = app.on("success")(lambda context, result: None), app.client
    with testing.app(served=app) as driven:
        @driven.task(name="of the test")
        def of_the_test() -> None: ...

        driven.use(tasks.louder)
        driven.on("success")(lambda context, result: None)
        driven.configure(namespace="inside")
        of_the_test.submit()
        assert driven.drain() == 1
        assert app.client is not before
    assert app.client is before
    assert app.settings["namespace"] == "before"
    assert (list(app.tasks), app.middleware) == ([], [])
    assert app.hooks._hooks == {"success": [hook]}


def test_configuring_an_address_inside_changes_nothing() -> None:
    app = Skedulr()
    with testing.app(served=app):
        app.configure(url="redis://nowhere.invalid:1/0")
        task = app.task(name="t")(lambda_like)
        assert task.submit().state == "queued"


def lambda_like() -> None: ...


def test_the_default_app_is_served_unless_another_is_given(skedulr_app: DrivenApp) -> None:
    @skedulr.task(name="of the default app")
    def double(number: int) -> int:
        return 2 * number

    handle = double.submit(4)
    assert skedulr.stats()["queued"] == 1
    skedulr_app.drain()
    assert handle.result(timeout=0) == 8


def test_the_inline_fixture_runs_at_once(skedulr_inline: DrivenApp) -> None:
    @skedulr_inline.task(name="at once")
    def at_once() -> str:
        return "done"

    assert at_once.submit().result(timeout=0) == "done"


def test_the_server_fixture_starts_real_masters(
    skedulr_server: testing.ServedApp, tmp_path: Path
) -> None:
    (tmp_path / "pool_tasks.py").write_text(
        "import os, skedulr\n@skedulr.task(name='pid')\ndef pid(): return os.getpid()\n"
    )
    skedulr_server.work("pool_tasks", directory=tmp_path)
    import os

    assert skedulr_server.submit("pid").result(timeout=10) != os.getpid()


def test_loading_the_plugin_loads_neither_gevent_nor_redis() -> None:
    code = (
        "import sys, skedulr.testing.pytest_plugin\n"
        "print([m for m in ('gevent', 'redis', 'ssl', 'fakeredis') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
