"""Pages: what people see. Each is complete without JavaScript; with it, it stays up to date.

A page asks for what it shows panel by panel, and a panel that can not be had says so in its place:
one that fails never takes the page with it. Changes are in ``forms.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import bottle

from .. import __version__, workflow_list
from ..cronline import CronLine, check_zone
from ..errors import SkedulrError, StorageUnavailable
from ..kept import Kept
from ..lists import Selection
from ..scheduling import Plan
from . import redisview, shown, static
from .drawing import draw
from .plain import dump, pretty
from .problems import Problem
from .requests import number, only
from .samples import dead_groups
from .security import Guard

if TYPE_CHECKING:
    from .site import Site

log = logging.getLogger("skedulr.ui")

TEMPLATES = Path(__file__).parent / "templates"
#: Tasks on a page of the list.
ROWS = 50
FILTERS = ("state", "pool", "name", "query")
STATES = (
    "running", "queued", "scheduled", "waiting", "succeeded", "dead", "cancelled", "skipped",
    "expired",
)
#: The key that goes to a page after "g", its path, its name.
NAVIGATION = (
    ("o", "/", "Overview"), ("t", "/tasks", "Tasks"), ("d", "/dead", "Dead"),
    ("w", "/workflows", "Workflows"), ("s", "/schedules", "Schedules"), ("l", "/limits", "Limits"),
    ("n", "/nodes", "Nodes"), ("a", "/submit", "Submit"),
    ("r", "/redis", "Redis"), ("c", "/changes", "Changes"),
)
NOTE = "skedulr_note"
#: In a request's environ, once Redis did not answer it: what it said.
SILENT = "skedulr.silent"


class Panel:
    """Something a page shows, or why it can not be had.

    Once Redis was silent for one panel, the page's other panels do not wait for it again.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        environ = bottle.request.environ
        self.value: Any = None
        self.trouble: str | None = environ.get(SILENT)
        if self.trouble is not None:
            return
        try:
            self.value = make()
        except StorageUnavailable as error:
            self.trouble = environ[SILENT] = str(error)
        except SkedulrError as error:
            self.trouble = str(error)
        except Exception:
            log.exception("a panel can not be shown")
            self.trouble = "this part can not be shown: see the log of the master"


class Pages:
    """The routes of the pages."""

    def __init__(self, site: Site, guard: Guard) -> None:
        self.site, self.guard = site, guard
        self._templates: dict[str, bottle.SimpleTemplate] = {}

    def install(self, app: bottle.Bottle) -> None:
        """Add the routes."""
        app.route("/", "GET", self.overview)
        app.route("/tasks", "GET", self.tasks)
        app.route("/tasks/<pool>/<uid>", "GET", self.task)
        app.route("/workflows", "GET", self.workflows)
        app.route("/workflows/<uid>", "GET", lambda uid: self.workflow("default", uid))
        app.route("/workflows/<pool>/<uid>", "GET", self.workflow)
        app.route("/dead", "GET", self.dead)
        app.route("/schedules", "GET", self.schedules)
        app.route("/limits", "GET", self.limits)
        app.route("/nodes", "GET", self.nodes)
        app.route("/submit", "GET", self.submit)
        app.route("/redis", "GET", self.redis)
        app.route("/changes", "GET", self.changes)
        app.route("/operations/<id>", "GET", self.operation)
        app.route("/terms", "GET", self.terms)
        app.route("/login", "GET", self.login)
        app.route("/static/<name:path>", "GET", static.serve)

    # The pages

    def overview(self) -> str:
        """All pools at a glance, what fails, who runs it. ``pool`` and ``span`` choose what the
        charts show."""
        query = _query()
        only(query, ("pool", "span"), "this page")
        # One look for both: not one that is kept, since a change leads back here at once.
        look = Kept(self.site.overview, 60)
        return self.render(
            "overview", "Overview", chosen=query.get("pool"), span=query.get("span"),
            stats=Panel(lambda: look.get().stats()), nodes=Panel(lambda: look.get().nodes),
            names=Panel(self.site.names_measured),
            changes=Panel(lambda: self.site.audit_log.newest(6)), sparks=Panel(self.site.sparks),
            sizes=Panel(self.site.sizes), failing=Panel(self.site.failing),
            lead=Panel(lambda: self.site.client.leader()),
            decisions=Panel(lambda: self.site.client.decisions(4)),
        )

    def tasks(self) -> str:
        """The list of tasks; its filter is the address."""
        query = _query()
        only(query, (*FILTERS, "cursor"), "this page")
        selection = _selection(query)
        page = Panel(lambda: self.site.page(selection, ROWS, query.get("cursor") or None))
        return self.render(
            "tasks", "Tasks", page=page, filters=query, states=STATES,
            names=Panel(self.site.names).value or [],
        )

    def task(self, pool: str, uid: str) -> str:
        """Everything known of one task."""
        id = f"{pool}/{uid}"
        task = self.site.client.get(id)
        attempts = Panel(lambda: self.site.attempts(pool, uid))
        asked = "stack" in bottle.request.query and task["state"] == "running"
        stack = Panel(lambda: self.site.client.stack(id)) if asked else None
        return self.render(
            "task", f"{task.get('name') or id}", task=task, attempts=attempts, stack=stack
        )

    def limits(self) -> str:
        """Every limit, what waits for it, and what it may be instead."""
        return self.render("limits", "Limits", limits=Panel(self.site.limits))

    def workflows(self) -> str:
        """The newest workflows, and how far each is."""
        query = _query()
        only(query, ("state", "pool", "cursor"), "this page")
        return self.render(
            "workflows", "Workflows", filters=query, states=workflow_list.STATES,
            page=Panel(lambda: self.site.client.workflows(
                state=query.get("state") or None, pool=query.get("pool") or None,
                cursor=query.get("cursor") or None,
            )),
        )

    def terms(self) -> bottle.HTTPResponse:
        """What a search may be completed to, as a JSON list."""
        return bottle.HTTPResponse(
            dump(self.site.terms()), 200, {"Content-Type": "application/json"}
        )

    def workflow(self, pool: str, uid: str) -> str:
        """A workflow as a graph and as a table."""
        view = self.site.client.workflow(f"{pool}/{uid}")
        names = {
            one["id"]: one["name"] or f"#{one['id'].rpartition('.')[2]}" for one in view["steps"]
        }
        steps = len(view["ids"])
        return self.render(
            "workflow", view["name"], workflow=view, names=names, steps=steps,
            drawing=draw(view["steps"]) if steps == len(view["steps"]) else None,
        )

    def dead(self) -> str:
        """The dead-letter queue, by task and error."""
        query = _query()
        only(query, ("pool",), "this page")
        pool = query.get("pool") or None
        Selection(pool=pool)  # refuses what is no pool's name

        def groups() -> Any:
            sampled = [one for one in self.site.dead_sample() if pool in (None, one.pool)]
            return dead_groups(sampled, self.site.now_s())

        return self.render("dead", "Dead", groups=Panel(groups), filters=query)

    def schedules(self) -> str:
        """What ticks, when, and how its last runs went; and what a cron line would mean."""
        query = _query()
        only(query, ("cursor", "line", "tz"), "this page")
        line, zone = query.get("line", ""), query.get("tz") or "UTC"
        return self.render(
            "schedules", "Schedules", line=line, zone=zone, cursor=query.get("cursor"),
            page=Panel(lambda: self.site.schedule_page(ROWS, query.get("cursor") or None)),
            ticks=Panel(lambda: upcoming(line, zone, self.site.now_s()) if line else None),
        )

    def nodes(self) -> str:
        """Masters and their children, and what they run."""
        query = _query()
        only(query, ("decisions",), "this page")
        running, decisions = Selection(state="running"), number(query, "decisions", 20, 1, 200)
        return self.render(
            "nodes", "Nodes", nodes=Panel(lambda: self.site.overview().nodes),
            decisions=Panel(lambda: self.site.client.decisions(decisions)),
            shown_decisions=decisions, lead=Panel(lambda: self.site.client.leader()),
            running=Panel(lambda: self.site.page(running, 200, None).items),
        )

    def submit(self) -> str:
        """A form for any task."""
        query = _query()
        only(query, ("name", "from", "json"), "this page")
        given: dict[str, Any] = {"name": query.get("name", "")}
        if query.get("from"):
            given = self.site.client.get(query["from"])
        return self._submit(given, {}, None, signed=not (query.get("from") or query.get("json")))

    def submit_again(self, typed: dict[str, str], trouble: str) -> str:
        """The form as it was sent, and why it could not be done."""
        return self._submit({}, typed, trouble, signed="signed" in typed)

    def _submit(
        self, given: dict[str, Any], typed: dict[str, str], trouble: str | None, *, signed: bool
    ) -> str:
        """``signed``: with a field for each parameter of the task, where they are known."""
        fields = {
            "name": given.get("name") or "", "args": pretty(given.get("args") or []),
            "kwargs": pretty(given.get("kwargs") or {}), "pool": given.get("pool") or "",
            "tags": ", ".join(given.get("tags") or []), "key": given.get("key") or "", **typed,
        }
        known = Panel(lambda: self.site.client.published(fields["name"])).value
        return self.render(
            "submit", "Submit", fields=fields, trouble=trouble, known=known,
            parameters=known.parameters if known is not None and signed else (),
            names=Panel(self.site.names).value or [],
        )

    def redis(self) -> str:
        """The server below it all."""
        return self.render(
            "redis", "Redis", view=Panel(self.site.redis), facts=redisview.facts,
            checkup=Panel(lambda: self.site.checkup.last()),
        )

    def changes(self) -> str:
        """Who changed what through this UI."""
        return self.render("changes", "Changes", changes=Panel(
            lambda: self.site.audit_log.newest(200)
        ))

    def operation(self, id: str) -> str:
        """One operation on many tasks, and how far it is."""
        return self.render("operation", "Operation", operation=self.site.operations.get(id))

    def login(self) -> str:
        """Asks for user and password."""
        return self.render("login", "Log in", failed=False)

    def refusal(self, problem: Problem) -> bottle.HTTPResponse:
        """A problem as a page; where credentials are missing, the page that asks for them."""
        if problem.status == 401 and self.guard.has_users:
            text = self.render("login", "Log in", failed=False)
        else:
            text = self.render("problem", "Not possible", problem=problem)
        return bottle.HTTPResponse(
            text, problem.status, {"Content-Type": "text/html; charset=UTF-8"}
        )

    # How a page is made

    def render(self, template_name: str, title: str, **values: Any) -> str:
        """A page from its template, which escapes every value it is given."""
        template = self._templates.get(template_name)
        if template is None:
            template = bottle.SimpleTemplate(
                name=f"{template_name}.tpl", lookup=[str(TEMPLATES)]
            )
            self._templates[template_name] = template
        base, caller = self.site.base(), self.site.caller()
        known = caller.role != "nobody"
        text: str = template.render(
            title=title, root=base, path=bottle.request.environ["PATH_INFO"], caller=caller,
            may_change=caller.may_change, s=shown, link=lambda *a, **q: shown.link(base, *a, **q),
            asset=lambda name: static.address(base, name), version=__version__,
            navigation=NAVIGATION if known else (), token=self.guard.form_token(caller),
            here=_here(), note=self._take_note(), has_users=self.guard.has_users,
            layout=Panel(self.site.frame).value if known else None,
            now=Panel(self.site.now_s).value or self.site.wall_s(), **values,
        )
        return text

    def _take_note(self) -> str:
        """What the change before this page came to; shown once."""
        text: str = bottle.request.get_cookie(NOTE) or ""
        if text:
            bottle.response.set_header(
                "Set-Cookie", f"{NOTE}=; Path={self.site.base() or '/'}; Max-Age=0; SameSite=Lax"
            )
        return shown.brief(bottle.urlunquote(text), 300)


def upcoming(line: str, zone: str, now_s: float, count: int = 5) -> list[datetime]:
    """The next times of a cron line, in its zone; ConfigError says what is wrong with it."""
    plan = Plan(line=CronLine.parse(line, None), zone=check_zone(zone))
    return [
        datetime.fromtimestamp(tick_ms / 1000, ZoneInfo(plan.zone))
        for tick_ms in plan.upcoming(int(now_s * 1000), 0, count)
    ]


def _query() -> dict[str, str]:
    return {name: bottle.request.query.getunicode(name, "") for name in bottle.request.query}


def _selection(query: dict[str, str]) -> Selection:
    return Selection(**{name: query.get(name) or None for name in FILTERS})


def _here() -> str:
    """Path and query of the page at hand, below the UI's place: where a form comes back to."""
    environ = bottle.request.environ
    path = quote(environ["PATH_INFO"].encode("latin-1"))
    query = environ.get("QUERY_STRING", "")
    return f"{path}?{query}" if query else path
