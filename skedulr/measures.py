"""Measures: what ``skedulr.stats()`` and ``skedulr.history()`` say, put together from the counts of
the moment and from what was counted of runs."""

from __future__ import annotations

from typing import Any

from . import counts, figures
from .errors import UnknownPool, nearest
from .figures import Asker
from .keys import PoolKeys, check_name

#: A series goes back so far where nobody says how far, seconds.
PERIOD_S = 3600.0


def stats(wire: Asker, namespace: str, priority: int = 0) -> dict[str, Any]:
    """The form the HTTP interface calls "stats". ``priority``: of the task whose wait is predicted.
    "names" are since ever, sorted by pool and name."""
    view = counts.look(wire, namespace, priority)
    return {**view.stats(), "names": names(wire, namespace, [pool["name"] for pool in view.pools])}


def names(wire: Asker, namespace: str, pools: list[str]) -> list[dict[str, Any]]:
    """Runs, failures and times of each task since ever."""
    return [
        row for pool in pools
        for row in figures.rows(pool, figures.totals(wire, PoolKeys(namespace, pool)).names)
    ]


def history(
    wire: Asker, namespace: str, pool: str | None = None, name: str | None = None,
    period_s: float = PERIOD_S, step_s: float | None = None,
) -> dict[str, Any]:
    """How a pool (None: all together), or the runs of one task, did over time: lists of one length.

    ``t`` (when each point ends, epoch seconds), ``submitted``, ``throughput``, ``succeeded``,
    ``failed`` (attempts) and ``dead`` in tasks/s, ``wait_mean_ms``, ``wait_p50_ms`` and
    ``wait_p95_ms``, ``run_...`` the same; None where nothing is known. Beside them ``pool``,
    ``name``, ``period``, ``step`` (seconds of a point), and ``now``: pool -> its rates
    (``Overview.rates``).

    Raises UnknownPool, and ConfigError for a period or a step that is not kept (``figures.plan``).
    """
    how = figures.plan(period_s, step_s)
    if pool is not None:
        check_name("pool", pool)
    view = counts.look(wire, namespace)
    known = [one["name"] for one in view.pools]
    if pool is not None and pool not in known:
        raise UnknownPool(f"no pool is called {pool!r}{nearest(pool, known)}")
    pools = known if pool is None else [pool]
    points = figures.series(wire, namespace, pools, how, view.now_s, name)
    return {
        "pool": pool, "name": name, "period": how.step_s * how.points,
        **figures.lines(points, how, view.now_s), "now": {one: view.rates(one) for one in pools},
    }
