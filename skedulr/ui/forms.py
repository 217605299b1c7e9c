"""Forms: what the pages' buttons send. Each checks its token, acts, and leads back to the page."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import bottle

from ..errors import SkedulrError
from ..keys import split_id
from ..limiting import Limit
from ..lists import Selection
from ..signatures import Parameter
from . import shown
from .operations import ACTIONS
from .pages import FILTERS, NOTE, Pages
from .plain import parse
from .problems import Problem, problem_of
from .requests import read_form
from .security import Credentials, Guard, session_cookie
from .site import WORKFLOW_ACTIONS

if TYPE_CHECKING:
    from .site import Site

log = logging.getLogger("skedulr.ui")

_PAST = {"cancel": "cancelled", "resubmit": "resubmitted", "remove": "removed",
         "pause": "paused", "resume": "resumed"}
_NUMBERS = {"priority": int, "max_retries": int, "delay": float, "timeout": float}
#: Annotations of which JSON has a form.
_JSON_KINDS = ("int", "float", "bool", "list", "dict", "tuple", "set", "List", "Dict")
_TEXTS = ("pool", "key", "id")


class Forms:
    """The routes that the pages' forms post to."""

    def __init__(self, site: Site, guard: Guard, pages: Pages) -> None:
        self.site, self.guard, self.pages = site, guard, pages

    def install(self, app: bottle.Bottle) -> None:
        """Add the routes."""
        app.route("/do/tasks", "POST", self.tasks)
        app.route("/do/pools/<pool>/<action>", "POST", self.pool)
        app.route("/do/pools/<action>", "POST", self.all_pools)
        app.route("/do/schedules/<name>/<action>", "POST", self.schedule)
        app.route("/do/limits", "POST", self.limit)
        app.route("/do/workflows/<pool>/<uid>", "POST", self.workflow)
        app.route("/do/nodes/<node>/<action>", "POST", self.node)
        app.route("/do/doctor", "POST", self.doctor)
        app.route("/do/submit", "POST", self.submit)
        app.route("/login", "POST", self.login)
        app.route("/logout", "POST", self.logout)

    # Changes

    def tasks(self) -> bottle.HTTPResponse:
        """Cancel, resubmit or remove the ticked tasks, or all that the filter names."""
        form = self._form()
        action = one(form, "action")
        if action not in ACTIONS:
            raise Problem(400, "bad_form", "the form names no action")
        if one(form, "all"):
            return self._start(action, form)
        ids = [split_id(id) for id in form.get("ids", ())][:500]
        if not ids:
            return self._back(form, "Nothing was selected.")
        tasks = self.site.views(ids)
        changed = self.site.operations.act(action, tasks)
        self.site.audit(action, ", ".join("/".join(id) for id in ids))
        left = len(ids) - changed
        note = f"{changed:,} {_PAST[action]}"
        return self._back(form, f"{note}; {left:,} could not be." if left else f"{note}.")

    def _start(self, action: str, form: Mapping[str, list[str]]) -> bottle.HTTPResponse:
        selection = Selection(**{name: one(form, name) or None for name in FILTERS})
        record = self.site.start(action, selection)
        return self._leave(f"/operations/{record['id']}", "")

    def pool(self, pool: str, action: str) -> bottle.HTTPResponse:
        """Pause, resume, scale or purge one pool."""
        form = self._form()
        if action in ("pause", "resume"):
            self.site.pause(pool, action == "pause")
            return self._back(form, f"Pool {pool} is {_PAST[action]}.")
        if action == "scale":
            text = one(form, "workers")
            self.site.scale(pool, int(text) if text.isdecimal() and len(text) < 9 else None)
            return self._back(form, f"Pool {pool} will follow within a second.")
        if action == "purge":
            record = self.site.purge(pool, None, None)
            return self._leave(f"/operations/{record['id']}", "")
        raise Problem(404, "not_found", "there is no such action on a pool")

    def all_pools(self, action: str) -> bottle.HTTPResponse:
        """Pause or resume all pools."""
        form = self._form()
        if action not in ("pause", "resume"):
            raise Problem(404, "not_found", "there is no such action on all pools")
        self.site.pause(None, action == "pause")
        return self._back(form, f"All pools are {_PAST[action]}.")

    def schedule(self, name: str, action: str) -> bottle.HTTPResponse:
        """Run, pause, resume or remove a schedule."""
        form = self._form()
        if action not in ("run", "pause", "resume", "remove"):
            raise Problem(404, "not_found", "there is no such action on a schedule")
        _, run = self.site.steer_schedule(name, action)
        if run is not None:
            return self._leave(f"/tasks/{run}", f"Schedule {name} runs now.")
        return self._back(form, f"Schedule {name} is {_PAST[action]}.")

    def limit(self) -> bottle.HTTPResponse:
        """Set a limit of one pool, or take that back."""
        form = self._form()
        name, pool = one(form, "name"), one(form, "pool")
        if one(form, "reset"):
            self.site.set_limit(name, None, pool)
            return self._back(form, f"Limit {name} is as declared again.")
        numbers: dict[str, Any] = {
            field: _number(one(form, field), field)
            for field in ("concurrency", "rate", "per", "burst") if one(form, field)
        }
        self.site.set_limit(name, Limit(**numbers), pool)
        return self._back(form, f"Limit {name} holds from now on.")

    def workflow(self, pool: str, uid: str) -> bottle.HTTPResponse:
        """Cancel a workflow, or resubmit what failed of it."""
        form = self._form()
        action = one(form, "action")
        if action not in WORKFLOW_ACTIONS:
            raise Problem(404, "not_found", "there is no such action on a workflow")
        count = self.site.steer_workflow(f"{pool}/{uid}", action)
        return self._back(form, f"{count:,} {_PAST[action]}.")

    def node(self, node: str, action: str) -> bottle.HTTPResponse:
        """Have a node claim nothing more, or again."""
        form = self._form()
        if action not in ("drain", "undrain"):
            raise Problem(404, "not_found", "there is no such action on a node")
        self.site.drain(node, action == "drain")
        told = "claims nothing more; what runs there ends" if action == "drain" else "claims again"
        return self._back(form, f"Node {node} {told}.")

    def doctor(self) -> bottle.HTTPResponse:
        """Have all that is stored examined, and mended where the form says so."""
        form = self._form()
        self.site.examine(bool(one(form, "fix")))
        return self._back(form, "The doctor looks at everything that is stored.")

    def submit(self) -> bottle.HTTPResponse | str:
        """Queue what the form describes; where it can not be, show the form with what was typed."""
        form = self._form(self.site.client.config.payload_limit * 3 + 65_536)
        if one(form, "fields"):
            return self._leave(shown.link("", "/submit", name=one(form, "name")), "")
        try:
            handle = self.site.submit(self._described(form))
        except (SkedulrError, Problem) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            return bottle.HTTPResponse(
                self.pages.submit_again({name: one(form, name) for name in form}, problem.message),
                problem.status, {"Content-Type": "text/html; charset=UTF-8"},
            )
        self.site.audit("submit", handle.id)
        return self._leave(f"/tasks/{handle.id}", "Submitted.")

    def _described(self, form: Mapping[str, list[str]]) -> dict[str, Any]:
        """The submit that the form's fields describe."""
        name = one(form, "name").strip()
        args, kwargs = _json(form, "args", "[]"), _json(form, "kwargs", "{}")
        known = self.site.client.published(name) if "signed" in form else None
        if known is not None:
            args, kwargs = signed_arguments(known.parameters, form)
        return {"name": name, "options": _options(form), "args": args, "kwargs": kwargs}

    # Sessions

    def login(self) -> bottle.HTTPResponse:
        """Open a session for the right user and password."""
        auth = self.guard.auth
        if not isinstance(auth, Credentials):
            return self._leave("/", "")
        form = read_form(bottle.request.environ)
        caller = auth.check(one(form, "user"), one(form, "password"))
        if caller is None:
            log.warning(
                "a wrong user or password from %s", bottle.request.environ.get("REMOTE_ADDR")
            )
            text = self.pages.render("login", "Log in", failed=True)
            return bottle.HTTPResponse(text, 401, {"Content-Type": "text/html; charset=UTF-8"})
        response = self._leave(_own_path(one(form, "back")), "")
        self._set_session(response, auth.open_session(caller, self.site.wall_s()))
        return response

    def logout(self) -> bottle.HTTPResponse:
        """End the session."""
        response = self._leave("/", "")
        self._set_session(response, "")
        return response

    def _set_session(self, response: bottle.HTTPResponse, text: str) -> None:
        secure = bottle.request.environ.get("wsgi.url_scheme") == "https"
        cookie = session_cookie(text, path=self.site.base(), secure=secure)
        response.add_header("Set-Cookie", cookie)

    # Inside

    def _form(self, limit: int = 262_144) -> dict[str, list[str]]:
        form = read_form(bottle.request.environ, limit)
        self.guard.check_form_token(self.site.caller(), one(form, "token"))
        return form

    def _back(self, form: Mapping[str, list[str]], note: str) -> bottle.HTTPResponse:
        return self._leave(_own_path(one(form, "back")), note)

    def _leave(self, path: str, note: str) -> bottle.HTTPResponse:
        """To another page of ours, with a line about what was done."""
        base = self.site.base()
        response = bottle.HTTPResponse("", 303, {"Location": base + path})
        if note:
            response.add_header(
                "Set-Cookie",
                f"{NOTE}={quote(note, safe='')}; Path={base or '/'}; Max-Age=30; SameSite=Lax",
            )
        return response


def one(form: Mapping[str, list[str]], name: str) -> str:
    """A field's last value, '' without one."""
    return (form.get(name) or [""])[-1]


def _own_path(path: str) -> str:
    """A path of this UI and nothing else: ``//host`` and ``/\\host`` lead elsewhere."""
    ours = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if ours and path.isprintable() and path.isascii() else "/"


def _number(text: str, field: str) -> float:
    """A number that was typed; a whole one where it is."""
    try:
        number = float(text)
    except ValueError:
        raise Problem(400, "bad_form", f"{field}: {text[:40]!r} is no number") from None
    return int(number) if number.is_integer() else number


def _options(form: Mapping[str, list[str]]) -> dict[str, Any]:
    """The options of a submit's form; fields left empty are not given."""
    options: dict[str, Any] = {name: one(form, name) for name in _TEXTS if one(form, name)}
    for name, kind in _NUMBERS.items():
        if one(form, name):
            try:
                options[name] = kind(one(form, name))
            except ValueError:
                text = f"{name}: {one(form, name)[:40]!r} is no number"
                raise Problem(400, "bad_form", text) from None
    tags = [tag.strip() for tag in one(form, "tags").split(",") if tag.strip()]
    if tags:
        options["tags"] = tags
    return options


def signed_arguments(
    parameters: Iterable[Parameter], form: Mapping[str, list[str]]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments from a field for each parameter; one left empty is not passed."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in parameters:
        text = one(form, f"p:{parameter.name}")
        if not text.strip():
            continue
        value = _value(parameter, text)
        if parameter.kind == "positional":
            args.append(value)
        elif parameter.kind == "args":
            args += value if isinstance(value, list) else [value]
        elif parameter.kind == "kwargs" and isinstance(value, dict):
            kwargs |= value
        else:
            kwargs[parameter.name] = value
    return args, kwargs


def _value(parameter: Parameter, text: str) -> Any:
    """What a field means: text where the parameter is one, else JSON; what is none is text, unless
    the parameter is a number or the like."""
    kind = (parameter.annotation or "").replace(" ", "").removesuffix("|None")
    if kind == "str":
        return text
    try:
        return parse(text.encode())
    except ValueError:
        if kind.partition("[")[0] in _JSON_KINDS or parameter.kind in ("args", "kwargs"):
            problem = f"{parameter.name}: {text[:60]!r} is no {parameter.annotation or 'JSON'}"
            raise Problem(400, "bad_form", problem) from None
        return text


def _json(form: Mapping[str, list[str]], name: str, empty: str) -> Any:
    try:
        return parse((one(form, name).strip() or empty).encode())
    except (ValueError, json.JSONDecodeError) as error:
        raise Problem(400, "bad_form", f"{name}: this is no JSON: {error}") from None
