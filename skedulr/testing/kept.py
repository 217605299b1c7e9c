"""Keeping an app as it is: whatever a test does to it is undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..app import Skedulr


@contextmanager
def kept(app: Skedulr) -> Iterator[None]:
    """After the block the app has the client, settings, tasks, schedules, hooks and
    middleware of before."""
    clients, maker = dict(app._clients), app.client_maker
    settings, middleware = dict(app._settings), list(app.middleware)
    tasks, declared = dict(app.tasks._tasks), dict(app.declared)
    hooks = {event: list(several) for event, several in app.hooks._hooks.items()}
    before_submit, transactions = list(app.hooks.before_submit), app.transactions
    shared = app.shared
    app._clients.clear()
    try:
        yield
    finally:
        app.client_maker, app.transactions, app.shared = maker, transactions, shared
        app.hooks.before_submit[:] = before_submit
        app._clients.clear()
        app._clients.update(clients)
        app._settings, app.middleware[:] = settings, middleware
        app.tasks._tasks.clear()
        app.tasks._tasks.update(tasks)
        app.declared.clear()
        app.declared.update(declared)
        app.hooks._hooks.clear()
        app.hooks._hooks.update(hooks)
