"""The Flask extension, in real Flask applications."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

flask = pytest.importorskip("flask")

from flask import Flask, current_app, g, has_app_context  # noqa: E402

import skedulr  # noqa: E402
from skedulr import testing  # noqa: E402
from skedulr.integrations.flask import FlaskSkedulr  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "flask_app"


def make(**config: Any) -> tuple[Flask, FlaskSkedulr]:
    app = Flask("shop")
    app.config.update(config)
    return app, FlaskSkedulr(app)


def test_the_extension_is_where_extensions_are_and_takes_the_applications_settings() -> None:
    app, tasks = make(
        SKEDULR_REDIS_URL="redis://cache:6379/3", SKEDULR_NAMESPACE="shop",
        SKEDULR_SUBMIT_TIMEOUT=2, SECRET_KEY="x",
    )
    assert app.extensions["skedulr"] is tasks
    assert tasks.settings == {
        "redis": "redis://cache:6379/3", "namespace": "shop", "submit_timeout": 2,
    }


def test_it_may_be_made_before_the_application() -> None:
    tasks = FlaskSkedulr(namespace="early")
    app = Flask("shop")
    app.config["SKEDULR_NAMESPACE"] = "late"
    tasks.init_app(app)
    assert (tasks.flask, tasks.settings["namespace"]) == (app, "late")


@pytest.mark.parametrize(("key", "value", "said"), [
    ("SKEDULR_NAMESAPCE", "x", "did you mean 'SKEDULR_NAMESPACE'"),
    ("SKEDULR_NAMESPACE", "a b", "a b"),
])
def test_a_wrong_setting_is_refused_by_name(key: str, value: str, said: str) -> None:
    with pytest.raises(skedulr.ConfigError, match=said):
        make(**{key: value})


def test_a_task_runs_in_the_applications_context_and_each_in_its_own() -> None:
    app, tasks = make(GREETING="Hello")

    @tasks.task(name="greet")
    def greet(name: str) -> list[Any]:
        g.seen = g.get("seen", 0) + 1
        return [f"{current_app.config['GREETING']}, {name}", g.seen]

    @app.post("/greet/<name>")
    def view(name: str) -> dict[str, Any]:
        g.seen = 100
        return {"result": greet.submit(name).result(timeout=0)}

    with testing.inline(served=tasks):
        assert app.test_client().post("/greet/ann").json == {"result": ["Hello, ann", 1]}
        assert app.test_client().post("/greet/bob").json == {"result": ["Hello, bob", 1]}
    assert not has_app_context()


def test_what_is_torn_down_after_a_request_is_after_a_task() -> None:
    app, tasks = make()
    closed = []
    app.teardown_appcontext(lambda error: closed.append(repr(error)))

    @tasks.task(name="fails", max_retries=0)
    def fails() -> None:
        raise ValueError("no")

    with testing.app(served=tasks) as driven:
        handle = fails.submit()
        driven.drain()
        assert handle.state == "dead"
    assert closed == ["ValueError('no')"]


def test_other_middleware_finds_the_context() -> None:
    _, tasks = make()
    names = []

    def look(call_next: Any) -> Any:
        def run(context: Any) -> Any:
            names.append(current_app.name)
            return call_next(context)

        return run

    tasks.use(look)
    tasks.task(name="t")(_nothing)
    with testing.app(served=tasks) as driven:
        driven.submit("t")
        driven.drain()
    assert names == ["shop"]


def test_a_worker_without_the_application_says_what_is_missing() -> None:
    tasks = FlaskSkedulr()
    tasks.task(name="t", max_retries=0)(_nothing)
    with testing.app(served=tasks) as driven:
        handle = driven.submit("t")
        driven.drain()
        assert "name a module for the workers" in handle.info()["error"]["message"]


def _nothing() -> None: ...


def test_the_dashboard_is_for_those_who_are_let_in() -> None:
    app = Flask("shop")
    app.config["SKEDULR_DASHBOARD"] = "/jobs"
    tasks = FlaskSkedulr(dashboard_auth=lambda environ: environ.get("HTTP_X_STAFF") == "yes")
    tasks.init_app(app)
    app.get("/")(lambda: "the shop")
    with testing.app(served=tasks):
        client = app.test_client()
        assert client.get("/").text == "the shop"
        assert client.get("/jobsearch").status_code == 404
        assert client.get("/jobs/api/stats").status_code in (401, 403)
        stats = client.get("/jobs/api/stats", headers={"X-Staff": "yes"})
        assert (stats.status_code, stats.json["queued"]) == (200, 0)


def test_a_dashboard_for_everybody_is_refused() -> None:
    with pytest.raises(skedulr.ConfigError, match="dashboard_auth"):
        make(SKEDULR_DASHBOARD="/jobs")


# The example


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.db"))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import flask_shop  # type: ignore[import-not-found]

    yield flask_shop
    del sys.modules["flask_shop"]


def test_the_example_on_a_real_server_with_a_real_master(shop: ModuleType) -> None:
    with testing.server(served=shop.tasks) as served:
        served.work("flask_shop:tasks", directory=EXAMPLE)
        client = shop.app.test_client()
        placed = client.post("/orders", data={"item": "tea"}).json
        handle = served.get(placed["task"])
        assert handle.result(timeout=10) == f"order {placed['order']} is packed"
        assert client.get(f"/orders/{placed['order']}").json == {"item": "tea", "state": "packed"}
