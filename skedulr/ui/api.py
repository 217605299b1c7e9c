"""The HTTP interface: JSON in and out, as openapi.json says.

Handlers are thin: they check what came, ask the client, and give back plain values. What a value
may not be in JSON is shown as text (``plain``); errors become ``{"error": {"code", "message"}}``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bottle

from ..keys import split_id
from ..limiting import Limit
from ..lists import Selection
from .operations import ACTIONS, Record
from .plain import dump
from .problems import Problem
from .requests import OVERHEAD_BYTES, number, only, read_json
from .site import WORKFLOW_ACTIONS, Site
from .static import serve

#: What of a node's record is shown.
NODE = ("id", "host", "pid", "version", "started_at", "beat_at", "leader", "children")
SCHEDULE = (
    "name", "task", "pool", "kind", "spec", "tz", "next_due", "last_due", "last_id", "paused",
    "error",
)
SELECTION = ("pool", "state", "name", "query")
#: A purge that ends within this time is answered with the pool as it is then, seconds.
PURGE_WAIT_S = 5.0
#: What a history's span means, seconds; ``period`` is for any other.
PERIODS = {"60m": 3600, "24h": 86_400}
LIST_PARAMETERS = ("state", "pool", "name", "query", "limit", "cursor")


class Api:
    """The routes below ``/api``."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def install(self, app: bottle.Bottle) -> None:
        """Add the routes."""
        app.route("/api/stats", "GET", self.stats)
        app.route("/api/pools", "GET", self.pools)
        app.route("/api/nodes", "GET", self.nodes)
        app.route("/api/tuner", "GET", self.tuner)
        app.route("/api/leader", "GET", self.leader)
        app.route("/api/tasks", "GET", self.tasks)
        app.route("/api/tasks", "POST", self.submit)
        app.route("/api/tasks/<pool>/<uid>", "GET", self.task)
        app.route("/api/tasks/<pool>/<uid>/stack", "GET", self.stack)
        for action in ACTIONS:
            # One task, and all that a selection names.
            app.route(f"/api/tasks/<pool>/<uid>/{action}", "POST", self._on_one(action))
            app.route(f"/api/tasks/{action}", "POST", self._on_all(action))
        app.route("/api/doctor", "GET", self.doctor)
        app.route("/api/doctor", "POST", self.examine)
        app.route("/api/operations", "GET", self.operations)
        app.route("/api/operations/<id>", "GET", self.operation)
        app.route("/api/pools/<pool>/pause", "POST", lambda pool: self.pause(pool, True))
        app.route("/api/pools/<pool>/resume", "POST", lambda pool: self.pause(pool, False))
        app.route("/api/pools/<pool>/scale", "POST", self.scale)
        app.route("/api/pools/<pool>/purge", "POST", self.purge)
        app.route("/api/nodes/<node>/drain", "POST", lambda node: self.drain(node, True))
        app.route("/api/nodes/<node>/undrain", "POST", lambda node: self.drain(node, False))
        app.route("/api/pause", "POST", lambda: self.pause(None, True))
        app.route("/api/resume", "POST", lambda: self.pause(None, False))
        app.route("/api/workflows", "GET", self.workflows)
        app.route("/api/workflows/<id>", "GET", self.workflow)
        app.route("/api/workflows/<pool>/<uid>", "GET",
                  lambda pool, uid: self.workflow(f"{pool}/{uid}"))
        for action in WORKFLOW_ACTIONS:
            app.route(f"/api/workflows/<pool>/<uid>/{action}", "POST", self._on_workflow(action))
        app.route("/api/schedules", "GET", self.schedules)
        for action in ("run", "pause", "resume", "remove"):
            app.route(f"/api/schedules/<name>/{action}", "POST", self._on_schedule(action))
        app.route("/api/limits", "GET", self.limits)
        app.route("/api/limits/<name>/set", "POST", self.set_limit)
        app.route("/api/limits/<name>/reset", "POST", self.reset_limit)
        app.route("/api/history", "GET", self.history)
        app.route("/api/events", "GET", self.events)
        app.route("/api/openapi.json", "GET", lambda: serve("openapi.json"))

    # Looking

    def stats(self) -> bottle.HTTPResponse:
        """All counts, and how long the tasks of each name take."""
        return answer(self.site.stats())

    def pools(self) -> bottle.HTTPResponse:
        """Every pool in numbers."""
        return answer(listed(self.site.overview().pools))

    def nodes(self) -> bottle.HTTPResponse:
        """Every node with its children."""
        return answer(listed([
            {name: node.get(name) for name in NODE} for node in self.site.overview().nodes
        ]))

    def tuner(self) -> bottle.HTTPResponse:
        """What the leader decided of tuned pools, newest first."""
        return answer(listed(self.site.client.decisions()))

    def leader(self) -> bottle.HTTPResponse:
        """Which node leads, since when and why; null where nobody does."""
        return answer({"leader": self.site.client.leader()})

    def tasks(self) -> bottle.HTTPResponse:
        """Tasks by state, pool, name and text; newest first, by pages."""
        query = query_of()
        only(query, LIST_PARAMETERS, "this list")
        selection = Selection(**{name: query.get(name) or None for name in SELECTION})
        limit = number(query, "limit", 50, 1, 500)
        page = self.site.page(selection, limit, query.get("cursor") or None)
        return answer(listed(page.items, page.cursor))

    def task(self, pool: str, uid: str) -> bottle.HTTPResponse:
        """All that is known of one task."""
        return answer(self.site.client.get(f"{pool}/{uid}"))

    def stack(self, pool: str, uid: str) -> bottle.HTTPResponse:
        """Where a running task is in its code; null where it does not run or nobody answers."""
        id = "/".join(split_id(f"{pool}/{uid}"))
        return answer({"id": id, "stack": self.site.client.stack(id)})

    def workflows(self) -> bottle.HTTPResponse:
        """Workflows, newest first, by pages, and how far each is."""
        query = query_of()
        only(query, ("pool", "state", "limit", "cursor"), "this list")
        page = self.site.client.workflows(
            pool=query.get("pool") or None, state=query.get("state") or None,
            limit=number(query, "limit", 25, 1, 500), cursor=query.get("cursor") or None,
        )
        return answer(listed(page["items"], page["cursor"]))

    def workflow(self, id: str) -> bottle.HTTPResponse:
        """A workflow with its first 500 steps."""
        view = self.site.client.workflow(id)
        del view["ids"]
        return answer(view)

    def schedules(self) -> bottle.HTTPResponse:
        """Schedules, sorted by name, by pages."""
        query = query_of()
        only(query, ("limit", "cursor"), "this list")
        page = self.site.schedules.page(
            limit=number(query, "limit", 50, 1, 500), cursor=query.get("cursor") or None
        )
        return answer(listed([_schedule(one) for one in page["items"]], page["cursor"]))

    def history(self) -> bottle.HTTPResponse:
        """How one pool or all, or one task, did over time: rates, waits, durations."""
        query = query_of()
        only(query, ("span", "period", "step", "pool", "name"), "this list")
        span = query.get("span") or "60m"
        if span not in PERIODS:
            raise Problem(400, "config_error", f"span={span[:40]!r}: {' or '.join(PERIODS)}")
        period_s = number(query, "period", PERIODS[span], 60, 366 * 86_400)
        step_s = number(query, "step", 0, 60, 366 * 86_400) or None
        return answer(self.site.history(
            query.get("pool") or None, query.get("name") or None, period_s, step_s
        ))

    def doctor(self) -> bottle.HTTPResponse:
        """The examination that runs, or the last one; null where there was none."""
        return answer({"checkup": self.site.checkup.last()})

    def operations(self) -> bottle.HTTPResponse:
        """Changes of many tasks, newest first."""
        return answer(listed([_operation(one) for one in self.site.operations.newest()]))

    def operation(self, id: str) -> bottle.HTTPResponse:
        """How far one of them is."""
        return answer(_operation(self.site.operations.get(id)))

    def events(self) -> Any:
        """The counts whenever they change, as server-sent events, for as long as one listens."""
        response = bottle.response
        response.content_type = "text/event-stream; charset=UTF-8"
        # nginx would hold the events back until its buffer is full.
        response.set_header("X-Accel-Buffering", "no")
        return self.site.feed.listen()

    # Changing

    def submit(self) -> bottle.HTTPResponse:
        """Queue a call of a task by its name."""
        given = self._given("name", "args", "kwargs", "options")
        handle = self.site.submit(given)
        self.site.audit("submit", handle.id)
        place = f"{self.site.base()}/api/tasks/{handle.id}"
        return answer(self.site.client.get(handle.id), 201, Location=place)

    def _on_one(self, action: str) -> Callable[[str, str], bottle.HTTPResponse]:
        def act(pool: str, uid: str) -> bottle.HTTPResponse:
            self._given()
            id = "/".join(split_id(f"{pool}/{uid}"))
            task = self.site.client.get(id)
            if not self.site.operations.act(action, [task]):
                state = self.site.client.state(id)
                text = f"task {id} is {state}: it can not be {_PAST[action]}"
                raise Problem(409, "wrong_state", text)
            self.site.audit(action, id)
            return answer(task if action == "remove" else self.site.client.get(id))

        return act

    def _on_all(self, action: str) -> Callable[[], bottle.HTTPResponse]:
        def act() -> bottle.HTTPResponse:
            selection = Selection(**texts(self._given(*SELECTION)))
            return answer(_operation(self.site.start(action, selection)), 202)

        return act

    def pause(self, pool: str | None, paused: bool) -> bottle.HTTPResponse:
        """Pause or resume a pool, or all; the pool, or all of them, as it is then."""
        self._given()
        self.site.pause(pool, paused)
        pools = self.site.overview().pools
        return answer(listed(pools) if pool is None else self.site.pool(pool))

    def scale(self, pool: str) -> bottle.HTTPResponse:
        """Set the workers of each process of a pool; null: as many as it was started with."""
        given = self._given("workers")
        if "workers" not in given:
            raise Problem(400, "bad_request", 'scaling needs "workers": a whole number, or null')
        self.site.scale(pool, given["workers"])
        return answer(self.site.pool(pool))

    def limits(self) -> bottle.HTTPResponse:
        """The limits of all pools, as they are now."""
        return answer(listed(self.site.limits()))

    def set_limit(self, name: str) -> bottle.HTTPResponse:
        """Have a limit be another one at once, in a pool or in all that know it."""
        given = self._given("pool", "concurrency", "rate", "per", "burst")
        pool = texts({"pool": given.pop("pool", None)}).get("pool")
        numbers = {one: value for one, value in given.items() if value is not None}
        return answer(listed(self.site.set_limit(name, Limit(**numbers), pool)))

    def reset_limit(self, name: str) -> bottle.HTTPResponse:
        """Have a limit be what its tasks declare again."""
        pool = texts(self._given("pool")).get("pool")
        return answer(listed(self.site.set_limit(name, None, pool)))

    def drain(self, node: str, drained: bool) -> bottle.HTTPResponse:
        """Have a node claim nothing more, or again; the node."""
        self._given()
        record = self.site.drain(node, drained)
        return answer({name: record.get(name) for name in NODE})

    def purge(self, pool: str) -> bottle.HTTPResponse:
        """Remove what has not started, or what is in a state; 202 where that takes long."""
        given = texts(self._given("state", "name"))
        record = self.site.purge(pool, given.get("state"), given.get("name"))
        record = self.site.operations.wait(record["id"], PURGE_WAIT_S)
        if record["state"] == "running":
            return answer(_operation(record), 202)
        return answer(self.site.pool(pool))

    def examine(self) -> bottle.HTTPResponse:
        """Have all that is stored examined in the background; ``fix`` mends what can be."""
        fix = self._given("fix").get("fix", False)
        if not isinstance(fix, bool):
            raise Problem(400, "bad_request", '"fix" is to be true or false')
        return answer({"checkup": self.site.examine(fix)}, 202)

    def _on_workflow(self, action: str) -> Callable[[str, str], bottle.HTTPResponse]:
        def act(pool: str, uid: str) -> bottle.HTTPResponse:
            self._given()
            self.site.steer_workflow(f"{pool}/{uid}", action)
            return self.workflow(f"{pool}/{uid}")

        return act

    def _on_schedule(self, action: str) -> Callable[[str], bottle.HTTPResponse]:
        def act(name: str) -> bottle.HTTPResponse:
            self._given()
            schedule, run = self.site.steer_schedule(name, action)
            response = answer(_schedule(schedule.info()))
            if run is not None:
                response.set_header("Location", f"{self.site.base()}/api/tasks/{run}")
            return response

        return act

    def _given(self, *names: str) -> dict[str, Any]:
        limit = self.site.client.config.payload_limit + OVERHEAD_BYTES
        given = read_json(bottle.request.environ, limit)
        only(given, names, "this action")
        return given


def answer(value: Any, status: int = 200, **headers: str) -> bottle.HTTPResponse:
    """A JSON answer."""
    return bottle.HTTPResponse(
        dump(value), status, {"Content-Type": "application/json", **headers}
    )


def texts(given: dict[str, Any]) -> dict[str, str]:
    """Fields that are to be texts; null is the same as left out."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise Problem(400, "bad_request", f'"{name}" is to be a text')
    return {name: value for name, value in given.items() if value}


def _schedule(info: dict[str, Any]) -> dict[str, Any]:
    """A schedule in the interface's form; one that can not be read has a name and an error."""
    return {name: info.get(name) for name in SCHEDULE}


def _operation(record: Record) -> dict[str, Any]:
    """What of an operation is shown: not where it goes on."""
    return {name: record[name] for name in record if name not in ("states", "cursor")}


_PAST = {"cancel": "cancelled", "resubmit": "resubmitted", "remove": "removed"}


def listed(items: list[Any], cursor: str | None = None) -> dict[str, Any]:
    """A list in the interface's form."""
    return {"items": items, "cursor": cursor}


def error_answer(problem: Problem) -> bottle.HTTPResponse:
    """A problem in the interface's form."""
    return answer({"error": {"code": problem.code, "message": problem.message}}, problem.status)


def query_of() -> dict[str, str]:
    """The query string's parameters, the last value of each."""
    return {name: bottle.request.query.getunicode(name, "") for name in bottle.request.query}
