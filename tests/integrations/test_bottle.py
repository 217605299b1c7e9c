"""The Bottle plugin, in real Bottle applications."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import bottle
import pytest

import skedulr
from skedulr import Skedulr, app, testing
from skedulr.integrations.bottle import SkedulrPlugin
from skedulr.testing.kept import kept

EXAMPLE = Path(__file__).parents[2] / "examples" / "bottle_app"


def call(
    application: bottle.Bottle, path: str, method: str = "GET", **environ: Any
) -> tuple[int, Any]:
    """One request in; status and body out."""
    status: list[str] = []
    body = b"".join(application({
        "REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": "", "QUERY_STRING": "",
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost", "REMOTE_ADDR": "127.0.0.1", "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr, "wsgi.url_scheme": "http", "CONTENT_LENGTH": "0", **environ,
    }, lambda line, headers, exc_info=None: status.append(line)))
    return int(status[0].split()[0]), json.loads(body) if body[:1] in b"{[" else body.decode()


def test_a_route_that_asks_for_the_app_gets_it_and_no_other() -> None:
    application, app = bottle.Bottle(), Skedulr()
    application.install(SkedulrPlugin(app))
    application.get("/with")(lambda tasks: str(tasks is app))
    application.get("/without/<name>")(lambda name: name)
    assert call(application, "/with") == (200, "True")
    assert call(application, "/without/ann") == (200, "ann")


def test_the_keyword_may_be_another() -> None:
    application, app = bottle.Bottle(), Skedulr()
    application.install(SkedulrPlugin(app, keyword="queue"))
    application.get("/<tasks>")(lambda tasks, queue: f"{tasks} {queue is app}")
    assert call(application, "/x") == (200, "x True")


def test_the_settings_are_the_applications() -> None:
    application, app = bottle.Bottle(), Skedulr()
    application.config.update(
        {"skedulr.redis_url": "redis://cache:6379/3", "skedulr.namespace": "shop", "other.x": 1}
    )
    application.install(SkedulrPlugin(app))
    assert app.settings == {"redis": "redis://cache:6379/3", "namespace": "shop"}


def test_a_wrong_setting_is_refused_by_name() -> None:
    application = bottle.Bottle()
    application.config["skedulr.namesapce"] = "x"
    with pytest.raises(skedulr.ConfigError, match="did you mean 'SKEDULR_NAMESPACE'"):
        application.install(SkedulrPlugin(Skedulr()))


def test_two_plugins_for_one_keyword_are_refused() -> None:
    application = bottle.Bottle()
    application.install(SkedulrPlugin(Skedulr()))
    application.install(SkedulrPlugin(Skedulr(), keyword="others"))
    with pytest.raises(skedulr.ConfigError, match="give keyword="):
        application.install(SkedulrPlugin(Skedulr()))


def test_the_dashboard_is_for_those_who_are_let_in() -> None:
    application, app = bottle.Bottle(), Skedulr()
    application.install(SkedulrPlugin(
        app, dashboard="/jobs", auth=lambda environ: environ.get("HTTP_X_STAFF") == "yes"
    ))
    application.get("/")(lambda: "the shop")
    with testing.app(served=app):
        assert call(application, "/") == (200, "the shop")
        assert call(application, "/jobs/api/stats")[0] in (401, 403)
        status, stats = call(application, "/jobs/api/stats", HTTP_X_STAFF="yes")
        assert (status, stats["queued"]) == (200, 0)


def test_a_dashboard_for_everybody_is_refused() -> None:
    with pytest.raises(skedulr.ConfigError, match="auth="):
        SkedulrPlugin(dashboard="/jobs")


# The example


@pytest.fixture
def greeter(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    with kept(app.default):
        import greeter  # type: ignore[import-not-found]

        yield greeter
    del sys.modules["greeter"]


def test_the_example_on_a_real_server_with_a_real_master(greeter: ModuleType) -> None:
    with testing.server() as served:
        served.work("greeter", directory=EXAMPLE)
        status, placed = call(greeter.application, "/greet/ann", "POST")
        assert status == 200
        assert served.get(placed["id"]).result(timeout=10) == "Hello, ann!"
        assert call(greeter.application, f"/result/{placed['id']}") == (
            200, {"state": "succeeded", "result": "Hello, ann!"}
        )
        assert call(greeter.application, "/result/default/nobody")[0] == 404
