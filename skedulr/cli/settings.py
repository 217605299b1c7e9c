"""``skedulr config``: every setting in force, and where it came from. Connects to nothing."""

from __future__ import annotations

from .. import acl, config
from . import exits
from .session import Session


def show_config(session: Session) -> int:
    """The command."""
    settings, out = session.settings, session.output
    if session.given.acl:
        return _show_acl(session)
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


def _show_acl(session: Session) -> int:
    namespace, url, out = session.settings.namespace, session.address.url, session.output
    if out.json:
        out.document({
            "user": acl.USER, "rules": acl.rules(namespace, url), "commands": acl.commands(url),
            "optional": sorted(acl.OPTIONAL),
        })
        return exits.OK
    first, *of_sentinels = acl.lines(namespace, url)
    out.line(first)
    for line in of_sentinels:
        session.hint("and on the sentinels, where they ask for passwords:")
        out.line(line)
    return exits.OK
