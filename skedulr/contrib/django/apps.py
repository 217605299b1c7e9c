"""What Django calls at its start: settings, tasks, connections, transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.utils.module_loading import autodiscover_modules, import_string

from ...app import Skedulr
from ...app import default as default_app
from ...context import Context
from ...errors import ConfigError
from ...integrations.settings import PREFIX, settings_in
from ...middleware import Step


class SkedulrConfig(AppConfig):
    """``"skedulr.contrib.django"`` in INSTALLED_APPS."""

    name = "skedulr.contrib.django"
    label = "skedulr"
    verbose_name = "Skedulr"

    #: The app that is served; set when Django is ready.
    served: Skedulr

    def ready(self) -> None:
        """Configure the app and import every installed app's ``tasks`` module."""
        given = dict(getattr(settings, "SKEDULR", {}))
        try:
            self.served = _served(given.pop("APP", None))
            connect(self.served, given)
        except ConfigError as error:
            raise ImproperlyConfigured(f"SKEDULR: {error}") from error
        autodiscover_modules("tasks")


def connect(app: Skedulr, given: dict[str, Any]) -> None:
    """Make ``app`` one of this Django project, with these settings. Safe to repeat.

    Raises ConfigError for unknown or unusable settings.
    """
    found = settings_in({PREFIX + str(name).upper(): value for name, value in given.items()})
    if found:
        app.configure(found.pop("redis", None), **found)
    app.transactions = after_commit
    if with_fresh_connections not in app.middleware:
        # Outermost: other middleware may use the database, too.
        app.middleware.insert(0, with_fresh_connections)


def with_fresh_connections(call_next: Step) -> Step:
    """Middleware: what a request does before and after with its database connections.

    Inside of a transaction, as tests are, nothing is closed.
    """

    def run(context: Context) -> Any:
        close_old_connections()
        try:
            return call_next(context)
        finally:
            close_old_connections()

    return run


def close_old_connections() -> None:
    """As Django's own, save that it leaves alone what is in a transaction: a task that runs inside
    of its caller (a test) must not end the caller's."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def after_commit(store: Callable[[], None], alias: str | None) -> None:
    """Call ``store`` once the transaction of that database is committed."""
    transaction.on_commit(store, using=alias)


def _served(path: str | None) -> Skedulr:
    if path is None:
        return default_app
    try:
        served = import_string(path)
    except ImportError as error:
        raise ConfigError(f"APP={path!r}: {error}") from error
    if not isinstance(served, Skedulr):
        raise ConfigError(f"APP={path!r} is {served!r}, not a Skedulr app")
    return served
