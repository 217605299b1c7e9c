"""Bottle: a plugin that hands the app to the routes that ask for it, and can mount the UI.

    import bottle, skedulr
    from skedulr.integrations.bottle import SkedulrPlugin

    application = bottle.Bottle()
    application.config["skedulr.redis_url"] = "redis://cache:6379/0"
    application.install(SkedulrPlugin())

    @application.post("/orders")
    def order(tasks):                           # named by keyword=, "tasks" by default
        return {"id": tasks.submit("pack_order", 42).id}

Settings are the application's own, spelled as in the file, after ``skedulr.``:
``skedulr.namespace``, ``skedulr.submit_timeout``, ...; what is not there comes from the environment
and the file as ever.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import bottle

from ..app import Skedulr
from ..app import default as default_app
from ..errors import ConfigError
from .settings import PREFIX, settings_in

#: Who may use the UI: takes the WSGI environ.
Auth = Callable[[dict[str, Any]], bool]


class SkedulrPlugin:
    """The plugin. ``served`` is the app that routes get (by default the default app).

    ``dashboard="/jobs"`` mounts the UI there, for whoever ``auth(environ)`` lets in.
    """

    name = "skedulr"
    api = 2

    def __init__(
        self, served: Skedulr | None = None, *, keyword: str = "tasks",
        dashboard: str | None = None, auth: Auth | None = None,
    ) -> None:
        if dashboard is not None and auth is None:
            raise ConfigError("dashboard= shows everything to everybody: give auth= as well")
        self.app = served or default_app
        self.keyword, self._dashboard, self._auth = keyword, dashboard, auth

    def setup(self, application: bottle.Bottle) -> None:
        """Called by ``install``: take the application's settings.

        Raises ConfigError for unknown or unusable ones, and where another plugin of this kind
        takes the same keyword.
        """
        for other in application.plugins:
            if isinstance(other, SkedulrPlugin) and other.keyword == self.keyword:
                raise ConfigError(f"another SkedulrPlugin takes {self.keyword!r}: give keyword=")
        given = settings_in({
            PREFIX + key.partition(".")[2].upper(): value
            for key, value in application.config.items() if key.startswith("skedulr.")
        })
        if given:
            self.app.configure(given.pop("redis", None), **given)
        if self._dashboard is not None:
            path = "/" + self._dashboard.strip("/") + "/"
            application.mount(path, self.app.dashboard(auth=self._auth))

    def apply(self, callback: Callable[..., Any], route: bottle.Route) -> Callable[..., Any]:
        """Called for each route: one whose function takes the keyword gets the app."""
        if self.keyword not in inspect.signature(route.callback).parameters:
            return callback

        def with_app(*args: Any, **kwargs: Any) -> Any:
            kwargs[self.keyword] = self.app
            return callback(*args, **kwargs)

        return with_app
