"""``skedulr config``: every setting in force, and where it came from. Connects to nothing."""

from __future__ import annotations

from .. import config
from . import exits
from .session import Session


def show_config(session: Session) -> int:
    """The command."""
    settings, out = session.settings, session.output
    rows = config.describe(settings)
    url, how = config.hide_password(session.address.url), session.address.how
    if out.json:
        out.document({
            "settings": {name: {"value": value, "source": source} for name, value, source in rows},
            "server": {"url": url, "how": how},
        })
        return exits.OK
    out.table(("SETTING", "VALUE", "FROM"), rows, empty="", cut="VALUE")
    out.line()
    out.fields([("server", f"{url} ({how})")])
    return exits.OK
