"""Options for all tasks of an app, or of one pool, unless a task or a call says otherwise.

In order of strength: the call (``using``), the task (``@task``), its pool, the app.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import options
from .errors import ConfigError
from .keys import check_name

#: What is of one task or one call by its nature.
_NOT_SHARED = frozenset(("id", "delay", "at", "redact"))


class Defaults:
    """``general`` options of an app, and those of its ``pools`` by name; checked here.

    >>> Defaults({"max_retries": 5}, {"critical": {"timeout": 30}}).option("timeout", "critical")
    30.0
    """

    def __init__(
        self, general: Mapping[str, Any] | None = None,
        pools: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.general = _check("defaults", general or {})
        self.pools = {
            check_name("pool", pool): _check(f"pool_defaults[{pool!r}]", given, pool=False)
            for pool, given in (pools or {}).items()
        }

    def option(self, name: str, pool: str, fallback: Any = None) -> Any:
        """The value for tasks of ``pool`` that say nothing themselves."""
        own = self.pools.get(pool)
        if own is not None and name in own:
            return own[name]
        return self.general.get(name, fallback)


def _check(where: str, given: Mapping[str, Any], *, pool: bool = True) -> dict[str, Any]:
    for name in given:
        if name in _NOT_SHARED or (name == "pool" and not pool):
            raise ConfigError(f"{where}: {name}= belongs to one task or call, not to all")
    return options.check(given)
