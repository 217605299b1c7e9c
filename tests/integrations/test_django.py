"""The Django app, in the real project under examples/django_app."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django")

import skedulr
from skedulr import Skedulr, app, testing
from skedulr.testing import DrivenApp
from skedulr.testing.kept import kept

EXAMPLE = Path(__file__).parents[2] / "examples" / "django_app"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Django, set up for the example on a database of its own; what to give its processes."""
    environ = {
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "SHOP_DATABASE": str(tmp_path_factory.mktemp("django") / "shop.db"),
    }
    with pytest.MonkeyPatch.context() as patch, kept(app.default):
        for name, value in environ.items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(EXAMPLE))
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        yield environ


@pytest.fixture
def driven(project: dict[str, str]) -> Iterator[DrivenApp]:
    from django.db import connection

    with testing.app() as driven:
        yield driven
    connection.close()


def orders() -> Any:
    from orders import models

    return models.Order


# What is set up


def test_tasks_of_installed_apps_are_found_and_settings_taken(project: dict[str, str]) -> None:
    assert app.default.tasks.get("send_receipt") is not None
    assert app.default.settings == {"namespace": "shop"}


@pytest.mark.parametrize(("given", "said"), [
    ({"NAMESAPCE": "x"}, "did you mean 'SKEDULR_NAMESPACE'"),
    ({"NAMESPACE": "a b"}, "a b"),
])
def test_a_wrong_setting_is_refused_by_name(
    project: dict[str, str], given: dict[str, Any], said: str
) -> None:
    from skedulr.contrib.django.apps import connect

    with pytest.raises(skedulr.ConfigError, match=said):
        connect(Skedulr(), given)


def test_another_app_may_be_served(project: dict[str, str]) -> None:
    from django.apps import apps
    from django.core.exceptions import ImproperlyConfigured
    from django.test import override_settings

    config = apps.get_app_config("skedulr")
    before = config.served
    try:
        with override_settings(SKEDULR={"APP": f"{__name__}.OTHER", "NAMESPACE": "other"}):
            config.ready()
        assert (config.served, OTHER.settings) == (OTHER, {"namespace": "other"})
        no_app = f"{__name__}.EXAMPLE"
        for path, said in ((no_app, "not a Skedulr app"), ("nowhere.app", "nowhere")):
            with (
                override_settings(SKEDULR={"APP": path}),
                pytest.raises(ImproperlyConfigured, match=said),
            ):
                config.ready()
    finally:
        config.served = before


OTHER = Skedulr()


def test_becoming_ready_twice_changes_nothing(project: dict[str, str]) -> None:
    from skedulr.contrib.django.apps import connect

    served = Skedulr()
    for _ in range(2):
        connect(served, {"namespace": "twice"})
    assert len(served.middleware) == 1


# Transactions


def test_a_submit_on_commit_waits_for_the_commit(driven: DrivenApp) -> None:
    from django.db import transaction
    from orders.tasks import send_receipt

    from skedulr.contrib.django import submit_on_commit

    with transaction.atomic():
        order = orders().objects.create(item="tea")
        handle = submit_on_commit(send_receipt, order.pk)
        other = send_receipt.using(on_commit="default").submit(order.pk)
        assert driven.stats()["queued"] == 0
        with pytest.raises(skedulr.TaskNotFound):
            handle.info()
    assert driven.stats()["queued"] == 2
    driven.drain()
    assert handle.result(timeout=0) == other.result(timeout=0) == "a receipt for tea is sent"


def test_a_rollback_takes_the_submit_with_it(driven: DrivenApp) -> None:
    from django.db import transaction
    from orders.tasks import send_receipt

    from skedulr.contrib.django import submit_on_commit

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        handle = submit_on_commit(send_receipt, 1)
        raise ZeroDivisionError
    with pytest.raises(skedulr.TaskNotFound):
        handle.info()


def test_outside_of_a_transaction_it_is_submitted_at_once(driven: DrivenApp) -> None:
    from orders.tasks import send_receipt

    from skedulr.contrib.django import submit_on_commit

    assert submit_on_commit(send_receipt, 1).state == "queued"


def test_what_can_not_travel_is_refused_inside_of_the_transaction(driven: DrivenApp) -> None:
    from django.db import transaction
    from orders.tasks import send_receipt

    from skedulr.contrib.django import submit_on_commit

    with transaction.atomic():
        order = orders().objects.create(item="tea")
        with pytest.raises(skedulr.PayloadError, match="pass its id"):
            submit_on_commit(send_receipt, order)


# Connections


def test_a_connection_that_is_too_old_is_closed_around_tasks(driven: DrivenApp) -> None:
    from django.db import connection

    seen = []

    @driven.task(name="looks")
    def looks() -> None:
        seen.append(connection.connection)
        orders().objects.count()
        # CONN_MAX_AGE is 0: it is too old the moment it is used.
        assert connection.connection is not None

    orders().objects.count()
    assert connection.connection is not None
    looks.submit()
    driven.drain()
    assert seen == [None]
    assert connection.connection is None


def test_inside_of_a_transaction_no_connection_is_closed(driven: DrivenApp) -> None:
    from django.db import connection, transaction
    from orders.tasks import send_receipt

    with transaction.atomic():
        order = orders().objects.create(item="milk")
        before = connection.connection
        with testing.inline():
            assert send_receipt.submit(order.pk).state == "succeeded"
        assert connection.connection is before
        order.refresh_from_db()
        assert order.state == "receipt sent"


def test_a_request_places_an_order_that_a_task_finds(driven: DrivenApp) -> None:
    from django.test import Client

    placed = Client().post("/orders/", {"item": "tea"}).json()
    assert Client().get(f"/orders/{placed['order']}/").json() == {"item": "tea", "state": "new"}
    assert driven.drain() == 1
    assert Client().get(f"/orders/{placed['order']}/").json()["state"] == "receipt sent"


# Django's own tasks


@pytest.fixture
def backend(driven: DrivenApp) -> Any:
    """The module with the backend, and Django's tasks, however they are called."""
    try:
        import django.tasks as tasks
    except ImportError:
        tasks = pytest.importorskip("django_tasks")
    import django_task_functions

    django_task_functions.define(tasks)
    from skedulr.contrib.django import backend

    backend.runner()
    return django_task_functions


def test_a_task_of_django_runs_in_the_pool_its_queue_names(
    driven: DrivenApp, backend: Any
) -> None:
    result = backend.add.using(queue_name="sums", priority=7).enqueue(1, b=(2, 3))
    assert (result.status, result.id.partition("/")[0]) == ("READY", "sums")
    assert (result.args, result.kwargs) == ([1], {"b": [2, 3]})
    info = driven.get(result.id).info()
    assert (info["priority"], info["tags"]) == (7, ["django_task_functions.add"])
    driven.drain()
    result.refresh()
    assert (result.status, result.return_value, result.is_finished) == ("SUCCESSFUL", 6, True)
    assert result.attempts == 1
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert backend.add.get_result(result.id).return_value == 6


def test_a_task_of_django_may_run_later(driven: DrivenApp, backend: Any) -> None:
    from datetime import timedelta

    result = backend.add.using(run_after=driven.clock.now() + timedelta(hours=3)).enqueue(1, [])
    driven.advance(3 * 3600 - 1)
    result.refresh()
    assert result.status == "READY"
    driven.advance(1)
    result.refresh()
    assert result.return_value == 1


def test_a_failed_task_of_django_shows_its_error_and_is_not_tried_again(
    driven: DrivenApp, backend: Any
) -> None:
    result = backend.fails.enqueue()
    driven.advance(3600)
    result.refresh()
    assert result.status == "FAILED"
    [error] = result.errors
    assert error.exception_class is ZeroDivisionError
    assert "ZeroDivisionError: not by that" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_task_of_django_gets_its_context(driven: DrivenApp, backend: Any) -> None:
    result = backend.about.enqueue()
    driven.drain()
    result.refresh()
    assert result.return_value == [result.id, 1, "RUNNING"]


def test_an_async_task_of_django_runs(driven: DrivenApp, backend: Any) -> None:
    result = backend.later.enqueue(4)
    driven.drain()
    result.refresh()
    assert result.return_value == 8


def test_what_is_no_json_is_refused(driven: DrivenApp, backend: Any) -> None:
    with pytest.raises(TypeError):
        backend.add.enqueue({1, 2}, [])
    result = backend.unsendable.enqueue()
    driven.drain()
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", TypeError)


def test_only_results_of_djangos_tasks_are_found(driven: DrivenApp, backend: Any) -> None:
    handle = driven.submit("send_receipt", 1)
    for id in ("default/nobody", "no id at all", handle.id):
        with pytest.raises(backend.exceptions.TaskResultDoesNotExist):
            backend.add.get_backend().get_result(id)
    result = backend.fails.enqueue()
    with pytest.raises(backend.exceptions.TaskResultMismatch):
        backend.add.get_result(result.id)


def test_djangos_signals_are_sent(driven: DrivenApp, backend: Any) -> None:
    sent: list[tuple[str, str]] = []
    receivers = {}
    for name in ("task_enqueued", "task_started", "task_finished"):
        def receive(sender: Any, task_result: Any, name: str = name, **more: Any) -> None:
            sent.append((name, str(task_result.status)))

        receivers[name] = receive
        getattr(backend.signals, name).connect(receive)
    try:
        backend.add.enqueue(1, [])
        driven.drain()
    finally:
        for name, receive in receivers.items():
            getattr(backend.signals, name).disconnect(receive)
    assert sent == [
        ("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL"),
    ]


def test_a_wrong_option_of_the_backend_is_refused(driven: DrivenApp, backend: Any) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from skedulr.contrib.django.backend import SkedulrBackend

    with pytest.raises(ImproperlyConfigured, match="did you mean 'timeout'"):
        SkedulrBackend("default", {"OPTIONS": {"timeuot": 3}})
    assert SkedulrBackend("default", {"OPTIONS": {"timeout": 3}})._task.option("timeout") == 3


# The command


def test_the_command_starts_a_master_for_this_project(project: dict[str, str]) -> None:
    from skedulr.contrib.django.management.commands.skedulr import master_arguments

    flags = ["--pools", "default=2"]
    worker = "skedulr.contrib.django.worker"
    assert master_arguments(flags) == [
        "-m", "skedulr", "master", "--namespace", "shop", *flags, worker
    ]
    flags = ["--namespace=mine"]
    assert master_arguments(flags) == ["-m", "skedulr", "master", *flags, worker]


def test_the_example_on_a_real_server_with_a_real_master(project: dict[str, str]) -> None:
    from django.db import connection
    from django.test import Client

    with testing.server() as served:
        master = subprocess.Popen(
            [sys.executable, "manage.py", "skedulr", "--redis", served.url, "--namespace",
             served.namespace, "--pools", "default=2", "--no-ui", "--grace", "2"],
            cwd=EXAMPLE, env={**os.environ, **project},
        )
        try:
            placed = Client().post("/orders/", {"item": "bread"}).json()
            result = served.get(placed["task"]).result(timeout=20)
            assert result == "a receipt for bread is sent"
            shown = Client().get(f"/orders/{placed['order']}/").json()
            assert shown == {"item": "bread", "state": "receipt sent"}
        finally:
            master.terminate()
            assert master.wait(timeout=10) == 0
    connection.close()
