"""The UI as one WSGI application: guard, routes, error forms, headers.

``make_app`` puts it together; the same application is served by the master and, through
``skedulr.dashboard()``, by anyone's WSGI server. So nothing here knows gevent, and what the master
knows of its children comes from Redis like everything else.

The way of a request: what a listed proxy forwards is taken over and the prefix taken off its path;
probes are answered; Host, caller and, for a change, origin and role are checked; then Bottle finds
the handler. Every answer, errors included, leaves through one place that adds the headers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, cast

import bottle

from ..client import Client
from ..errors import SkedulrError, StorageUnavailable
from .api import Api, answer, error_answer
from .forms import Forms
from .metrics import Metrics
from .pages import Pages
from .problems import Problem, problem_of
from .proxies import Proxies
from .security import HEADERS, OPEN_PATHS, Caller, Credentials, Guard, wants_page
from .site import BASE, CALLER, Site

log = logging.getLogger("skedulr.ui")

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]

def make_app(
    client: Client | Callable[[], Client], *, prefix: str = "",
    auth: Iterable[Any] | Callable[[Environ], bool] | None = None,
    read_only: bool = False, hosts: Iterable[str] | None = (), loopback: bool = True,
    proxies: Iterable[str] = (), metrics_auth: bool = True,
) -> Wsgi:
    """The UI and HTTP interface of a namespace as a WSGI application.

    ``prefix``: the path it is mounted at, taken off where the server has not done so. ``auth``:
    None (whoever reaches it may), ``auth(environ) -> bool``, or users (``security.read_users``).
    ``hosts``: names it is reached by, beside this machine's own; None: any. ``loopback``: it can
    be reached from this machine alone. ``proxies``: addresses and networks whose X-Forwarded-*
    headers count. ``metrics_auth``: /metrics is guarded as all else is; else anybody may read it.
    """
    site = Site(client)
    checker = auth if auth is None or callable(auth) else Credentials(auth, site.key)
    guard = Guard(auth=checker, read_only=read_only, hosts=hosts, loopback=loopback, key=site.key)
    routes = bottle.Bottle()
    # What goes wrong in a handler is for the front to explain, not for Bottle's own error page.
    routes.config.update({"catchall": False, "json.enable": False})
    pages = Pages(site, guard)
    Api(site).install(routes)
    Metrics(lambda: site.client).install(routes)
    pages.install(routes)
    Forms(site, guard, pages).install(routes)
    routes.default_error_handler = lambda error: _refused(pages, _bottle_problem(error))
    return _Front(site, guard, pages, routes, prefix, Proxies(proxies), metrics_auth)


class _Front:
    """The outermost application."""

    def __init__(
        self, site: Site, guard: Guard, pages: Pages, routes: bottle.Bottle, prefix: str,
        proxies: Proxies, metrics_auth: bool,
    ) -> None:
        self._open_metrics = not metrics_auth
        self._site, self._guard, self._pages, self._routes = site, guard, pages, routes
        self._prefix, self._proxies = prefix.rstrip("/"), proxies

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        self._proxies.believe(environ)
        _take_off(environ, self._prefix)

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            names = {name.lower() for name, _ in headers}
            added = [pair for pair in HEADERS if pair[0].lower() not in names]
            if "cache-control" not in names:
                added.append(("Cache-Control", "no-store"))
            return start_response(status, [*headers, *added], *more)

        if environ["PATH_INFO"] in OPEN_PATHS:
            return self._probe(environ, start)
        try:
            self._admit(environ)
            return cast("Iterable[bytes]", self._routes(environ, start))
        except Problem as problem:
            return self._refuse(environ, start, problem)
        except SkedulrError as error:
            return self._refuse(environ, start, problem_of(error))
        except Exception:
            # The text of an unknown error may hold anything: it is for the log.
            log.exception("%s %s failed", environ.get("REQUEST_METHOD"), environ["PATH_INFO"])
            return self._refuse(environ, start, Problem(500, "internal", "see the master's log"))

    def _admit(self, environ: Environ) -> None:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == "/metrics" and self._open_metrics:
            environ[CALLER] = Caller(None, "nobody")
            return
        self._guard.check_host(environ)
        if method == "POST":
            self._guard.check_origin(environ)
        caller = self._guard.caller(environ)
        if caller is None:
            if path.startswith("/static/") or path == "/login":
                # The page that asks for the password needs its style.
                environ[CALLER] = Caller(None, "nobody")
                return
            raise Problem(401, "unauthorized", "user and password are needed")
        environ[CALLER] = caller
        if method not in ("GET", "HEAD", "POST"):
            raise Problem(405, "method_not_allowed", f"{method[:20]} is not used here")
        if method == "POST" and path not in ("/login", "/logout"):
            self._guard.check_change(environ, caller)

    def _refuse(
        self, environ: Environ, start: StartResponse, problem: Problem
    ) -> Iterable[bytes]:
        environ.setdefault(CALLER, Caller(None, "nobody"))
        bottle.request.bind(environ)
        response = _refused(self._pages, problem)
        start(response.status_line, response.headerlist)
        return [_bytes(response.body)] if environ["REQUEST_METHOD"] != "HEAD" else []

    def _probe(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        """/livez: the process answers. /readyz, /healthz: and so does Redis."""
        response = answer({"status": "ok"})
        if environ["PATH_INFO"] != "/livez":
            try:
                self._site.client.ask(lambda wire: wire.call("PING"))
            except StorageUnavailable as error:
                response = error_answer(problem_of(error))
        start(response.status_line, response.headerlist)
        return [_bytes(response.body)] if environ["REQUEST_METHOD"] != "HEAD" else []


def _take_off(environ: Environ, prefix: str) -> None:
    """Find where the UI is mounted; the path that is left begins with a slash.

    The server may have taken the prefix off already (into SCRIPT_NAME, or, as a proxy does, for
    good), or not at all.
    """
    script, path = environ.get("SCRIPT_NAME", "").rstrip("/"), environ.get("PATH_INFO", "")
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        script, path = script + prefix, path[len(prefix):]
        environ["SCRIPT_NAME"] = script
    elif prefix and not script.endswith(prefix):
        script += prefix
    environ[BASE] = script
    environ["PATH_INFO"] = path or "/"


def _bottle_problem(error: bottle.HTTPError) -> Problem:
    """Bottle's own refusals: no such path, or not by this method."""
    if error.status_code == 405:
        return Problem(405, "method_not_allowed", "this path is used by another method")
    if error.status_code == 404:
        return Problem(404, "not_found", "there is nothing at this path")
    return Problem(error.status_code, "bad_request", "the request can not be read")


def _refused(pages: Pages, problem: Problem) -> bottle.HTTPResponse:
    environ = bottle.request.environ
    if environ["PATH_INFO"].startswith("/api/") or not wants_page(environ):
        response = error_answer(problem)
        if problem.status == 401:
            response.set_header("WWW-Authenticate", 'Basic realm="Skedulr", charset="UTF-8"')
        return response
    return pages.refusal(problem)


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode("utf-8", "backslashreplace")
