"""Options for all tasks of an app, or of a pool: weaker than what a task or a call says."""

from __future__ import annotations

import pytest

from skedulr import testing
from skedulr.app import Skedulr
from skedulr.errors import ConfigError


@pytest.fixture
def app() -> Skedulr:
    return Skedulr(
        defaults={"max_retries": 1, "timeout": 10, "tags": ["all"]},
        pool_defaults={"critical": {"timeout": 2, "priority": 5}},
    )


def test_call_task_pool_and_app_in_this_order_of_strength(app):
    @app.task(name="plain")
    def plain(): ...

    @app.task(name="urgent", pool="critical")
    def urgent(): ...

    @app.task(name="own", pool="critical", timeout=7)
    def own(): ...

    assert [task.option("timeout") for task in (plain, urgent, own)] == [10, 2, 7]
    assert own.using(timeout=3).option("timeout") == 3
    assert [task.option("max_retries") for task in (plain, urgent, own)] == [1, 1, 1]
    assert [task.option("priority", 0) for task in (plain, urgent)] == [0, 5]
    # A call that goes to another pool goes by that pool's defaults.
    assert plain.using(pool="critical").option("timeout") == 2
    assert plain.option("keep_result", "nobody said") == "nobody said"


def test_the_default_pool_may_be_another_one():
    app = Skedulr(defaults={"pool": "mail"}, pool_defaults={"mail": {"priority": 3}})

    @app.task(name="send")
    def send(): ...

    assert (send.option("pool"), send.option("priority")) == ("mail", 3)
    assert send.using(pool="bulk").option("priority", 0) == 0


@pytest.mark.parametrize(("given", "said"), [
    ({"defaults": {"timeuot": 3}}, "timeout"),
    ({"defaults": {"id": "x"}}, "id= belongs to one task or call"),
    ({"defaults": {"redact": ("card",)}}, "redact= belongs to one task or call"),
    ({"pool_defaults": {"critical": {"pool": "x"}}}, "pool= belongs to one task or call"),
    ({"pool_defaults": {"a b": {}}}, "pool name 'a b'"),
])
def test_what_can_not_be_shared_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        Skedulr(**given)


def test_they_hold_where_the_task_runs():
    with testing.app() as app:
        app.configure(defaults={"max_retries": 1, "tags": ["all"]},
                      pool_defaults={"critical": {"max_retries": 0, "priority": 5}})
        starts = []

        @app.task(name="fails")
        def fails():
            starts.append(1)
            raise ValueError

        plain, urgent = fails.submit(), fails.using(pool="critical").submit()
        app.drain()
        app.advance(3600)
        assert (plain.state, urgent.state) == ("dead", "dead")
        assert len(starts) == 2 + 1
        assert plain.info()["tags"] == ["all"]
        assert (plain.info()["priority"], urgent.info()["priority"]) == (0, 5)


def test_an_app_without_them_pays_nothing_for_them():
    app = Skedulr()

    @app.task(name="noop")
    def noop(): ...

    assert app.shared is None and noop.plain
