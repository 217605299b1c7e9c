"""What the lists of tasks show, for tests that are about something else."""

from __future__ import annotations

from typing import Any

from skedulr import lists
from skedulr.client import Client


def listed(client: Client, state: str | None = None, pool: str = "default") -> list[dict[str, Any]]:
    """Up to 500 tasks of a pool, in a state or in any."""
    selection = lists.Selection(state=state, pool=pool)
    page: lists.Page = client.ask(
        lambda wire: lists.page(wire, "skedulr", [pool], selection, lists.MOST_ITEMS)
    )
    return page.items
