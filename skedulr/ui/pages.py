"""Pages: what people see. Each is complete without JavaScript; with it, it stays up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import bottle

from .problems import Problem
from .security import Guard

if TYPE_CHECKING:
    from .app import Site

_HERE = Path(__file__).parent
TEMPLATES, STATIC = _HERE / "templates", _HERE / "static"


class Pages:
    """The routes of the pages."""

    def __init__(self, site: Site, guard: Guard) -> None:
        self.site, self.guard = site, guard
        self._templates: dict[str, bottle.SimpleTemplate] = {}

    def install(self, app: bottle.Bottle) -> None:
        """Add the routes."""
        app.route("/", "GET", self.overview)

    def overview(self) -> str:
        """All pools at a glance."""
        return self.render("overview", title="Overview", overview=self.site.overview())

    def refusal(self, problem: Problem) -> bottle.HTTPResponse:
        """A problem as a page."""
        return bottle.HTTPResponse(
            self.render("problem", title="Not possible", problem=problem), problem.status,
            {"Content-Type": "text/html; charset=UTF-8"},
        )

    def render(self, name: str, **values: Any) -> str:
        """A page from its template; every value is escaped there."""
        template = self._templates.get(name)
        if template is None:
            template = bottle.SimpleTemplate(name=f"{name}.tpl", lookup=[str(TEMPLATES)])
            self._templates[name] = template
        text: str = template.render(base_path=self.site.base(), **values)
        return text
