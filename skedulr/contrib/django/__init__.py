"""Django: tasks that are found, use the database safely, and wait for the commit.

    # settings.py
    INSTALLED_APPS = [..., "skedulr.contrib.django"]
    SKEDULR = {"REDIS_URL": "redis://cache:6379/0", "NAMESPACE": "shop"}

    # orders/tasks.py: found by itself, as in every installed app
    @skedulr.task(retry=skedulr.ExponentialBackoff(base=1, cap=60))
    def send_receipt(order_id):
        order = Order.objects.get(pk=order_id)
        ...

    # orders/views.py
    with transaction.atomic():
        order.save()
        submit_on_commit(send_receipt, order.pk)

    $ python manage.py skedulr --pools default=10

``SKEDULR`` takes every setting by its name, in capitals, and ``APP``: the dotted path of the
``Skedulr`` that is meant, where it is not the default app.

Around each task connections that are broken or too old (``CONN_MAX_AGE``) are closed, as around a
request. Each worker has connections of its own, so a pool of 10 may hold 10 to each database;
database drivers in C that do not let greenlets switch (mysqlclient) hold up their process's others.

Tests: inside of ``TestCase`` a submit on commit waits, as everything on commit does, for
``captureOnCommitCallbacks(execute=True)``.

Django 6's own tasks: see ``skedulr.contrib.django.backend``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from ...handles import Handle
    from ...tasks import Task

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["submit_on_commit"]


def submit_on_commit(task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
    """Queue a call once the current transaction is committed, at once outside of one.

    The arguments are taken as they are now. The handle is there at once; its task is not found
    before the commit, nor after a rollback. For another database than the default one:
    ``task.using(on_commit="alias").submit(...)``.
    """
    on_commit: Any = task.using(on_commit=True)
    handle: Handle[R] = on_commit.submit(*args, **kwargs)
    return handle
