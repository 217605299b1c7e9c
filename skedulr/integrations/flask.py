"""Flask: an extension whose tasks run inside of the application's context.

    from skedulr.integrations.flask import FlaskSkedulr

    tasks = FlaskSkedulr()

    @tasks.task
    def send_welcome(user_id):
        mail.send(db.session.get(User, user_id))     # the app's context is there

    def create_app():
        app = Flask(__name__)
        app.config["SKEDULR_REDIS_URL"] = "redis://cache:6379/0"
        tasks.init_app(app)
        return app

Workers need the application, too: name a module that makes it, as for any WSGI server, and the
extension in it: ``skedulr-master --pools default=10 shop.wsgi:tasks``.

Settings are the application's own, spelled like the environment's variables (``SKEDULR_NAMESPACE``,
``SKEDULR_SUBMIT_TIMEOUT``, ...); what is not there comes from the environment and the file as ever.
``SKEDULR_DASHBOARD = "/jobs"`` mounts the UI there, behind ``dashboard_auth``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from ..app import Skedulr
from ..context import Context
from ..errors import ConfigError
from ..middleware import Step
from .settings import settings_in

#: Who may use the UI: takes the WSGI environ.
Auth = Callable[[dict[str, Any]], bool]


class FlaskSkedulr(Skedulr):
    """A ``Skedulr`` for one Flask application: ``FlaskSkedulr(app)``, or ``init_app(app)`` later.

    ``url`` and ``settings`` as for ``Skedulr``; the application's configuration is stronger.
    """

    def __init__(
        self, app: Flask | None = None, url: str | None = None, *,
        dashboard_auth: Auth | None = None, **settings: Any,
    ) -> None:
        super().__init__(url, **settings)
        self.flask: Flask | None = None
        self._dashboard_auth = dashboard_auth
        # First, so outermost: other middleware finds the context as handlers do.
        self.use(self._in_context)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Take the settings of ``app``, and run tasks in its context. ``app.extensions["skedulr"]``
        is this. Of several applications the last one counts.

        Raises ConfigError for unknown or unusable settings.
        """
        given = settings_in(app.config)
        self.configure(given.pop("redis", None), **given)
        self.flask = app
        app.extensions["skedulr"] = self
        path = app.config.get("SKEDULR_DASHBOARD")
        if path:
            self._mount(app, path)

    def _mount(self, app: Flask, path: str) -> None:
        if self._dashboard_auth is None:
            raise ConfigError(
                "SKEDULR_DASHBOARD shows everything to everybody: say who may see it, with "
                "FlaskSkedulr(dashboard_auth=...), which takes the WSGI environ and gives a bool"
            )
        prefix = "/" + str(path).strip("/")
        ui = self.dashboard(prefix=prefix, auth=self._dashboard_auth)
        inner = app.wsgi_app

        def routed(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            asked = environ.get("PATH_INFO", "")
            if asked == prefix or asked.startswith(prefix + "/"):
                return ui(environ, start_response)
            answer: Iterable[bytes] = inner(environ, start_response)
            return answer

        app.wsgi_app = routed  # type: ignore[method-assign]

    def _in_context(self, call_next: Step) -> Step:
        def run(context: Context) -> Any:
            if self.flask is None:
                raise ConfigError(
                    "this process has no Flask application: name a module for the workers that "
                    "makes it and calls init_app"
                )
            with self.flask.app_context():
                return call_next(context)

        return run
