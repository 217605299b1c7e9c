"""The HTTP interface: JSON in and out, as DESIGN section 11 fixes it.

Handlers are thin: they check what came, ask the client, and give back plain values. What a value
may not be in JSON is shown as text (``plain``); errors become ``{"error": {"code", "message"}}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import bottle

from .. import options
from ..keys import split_id
from ..tasks import Call, Task, check_task_name
from .plain import dump
from .problems import Problem
from .requests import OVERHEAD_BYTES, number, only, read_json

if TYPE_CHECKING:
    from .app import Site

LIST_PARAMETERS = ("state", "pool", "name", "query", "limit", "cursor")


class Api:
    """The routes below ``/api``."""

    def __init__(self, site: Site) -> None:
        self.site, self.client = site, site.client

    def install(self, app: bottle.Bottle) -> None:
        """Add the routes."""
        app.route("/api/stats", "GET", self.stats)
        app.route("/api/pools", "GET", self.pools)
        app.route("/api/nodes", "GET", self.nodes)
        app.route("/api/tasks", "GET", self.tasks)
        app.route("/api/tasks", "POST", self.submit)
        app.route("/api/tasks/<pool>/<uid>", "GET", self.task)
        app.route("/api/tasks/<pool>/<uid>/cancel", "POST", self.cancel)

    # Looking

    def stats(self) -> bottle.HTTPResponse:
        """All counts, and how long the tasks of each name take."""
        return answer(self.site.stats())

    def pools(self) -> bottle.HTTPResponse:
        """Every pool in numbers."""
        return answer(listed(self.site.overview().pools))

    def nodes(self) -> bottle.HTTPResponse:
        """Every node with its children."""
        return answer(listed(self.site.overview().nodes))

    def tasks(self) -> bottle.HTTPResponse:
        """Tasks by state, pool, name and text; newest first, by pages."""
        query = query_of()
        only(query, LIST_PARAMETERS, "this list")
        return answer(self.client.page(
            state=query.get("state") or None, pool=query.get("pool") or "default",
            limit=number(query, "limit", 50, 1, 500), cursor=query.get("cursor") or None,
        ))

    def task(self, pool: str, uid: str) -> bottle.HTTPResponse:
        """All that is known of one task."""
        return answer(self.client.get(f"{pool}/{uid}"))

    # Changing

    def submit(self) -> bottle.HTTPResponse:
        """Queue a call of a task by its name."""
        given = self._given("name", "args", "kwargs", "options")
        handle = self.site.submit(given)
        self.site.audit("submit", handle.id)
        task = self.client.get(handle.id)
        place = f"{self.site.base()}/api/tasks/{handle.id}"
        return answer(task, 201, Location=place)

    def cancel(self, pool: str, uid: str) -> bottle.HTTPResponse:
        """Cancel a task, or tell a running one to stop; 409 once it had ended."""
        self._given()
        id = "/".join(split_id(f"{pool}/{uid}"))
        if not self.client.cancel(id):
            raise Problem(409, "already_ended", f"task {id} had ended already")
        self.site.audit("cancel", id)
        return answer(self.client.get(id))

    def _given(self, *names: str) -> dict[str, Any]:
        limit = self.client.config.payload_limit + OVERHEAD_BYTES
        given = read_json(bottle.request.environ, limit)
        only(given, names, "this action")
        return given


def call_of(given: dict[str, Any]) -> Call[Any]:
    """The call that a submit's JSON describes; 400 for what describes none."""
    if not isinstance(given.get("name"), str):
        raise Problem(400, "bad_request", 'a submit needs "name": the name of a task')
    args, kwargs, own = given.get("args", []), given.get("kwargs", {}), given.get("options", {})
    wanted = (("args", args, list), ("kwargs", kwargs, dict), ("options", own, dict))
    for name, value, kind in wanted:
        if not isinstance(value, kind):
            form = "[...]" if kind is list else "{...}"
            raise Problem(400, "bad_request", f'"{name}" is to be {form}')
    task: Task[..., Any] = Task(
        app=cast(Any, None), name=check_task_name(given["name"]), function=None, defaults={},
        own=options.check(own),
    )
    return Call(task, tuple(args), kwargs)


def answer(value: Any, status: int = 200, **headers: str) -> bottle.HTTPResponse:
    """A JSON answer."""
    return bottle.HTTPResponse(
        dump(value), status, {"Content-Type": "application/json", **headers}
    )


def listed(items: list[Any], cursor: str | None = None) -> dict[str, Any]:
    """A list in the interface's form."""
    return {"items": items, "cursor": cursor}


def error_answer(problem: Problem) -> bottle.HTTPResponse:
    """A problem in the interface's form."""
    return answer({"error": {"code": problem.code, "message": problem.message}}, problem.status)


def query_of() -> dict[str, str]:
    """The query string's parameters, the last value of each."""
    return {name: bottle.request.query.getunicode(name, "") for name in bottle.request.query}
