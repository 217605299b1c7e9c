"""Every change is in the list of changes: who, from where, what, of what. By the routes, so that a
new one without its line is found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import bottle
import msgpack
import pytest
from servers import Server
from ui_world import NAMESPACE, Browser, World, basic, browse

from skedulr import Skedulr
from skedulr.ui.api import Api
from skedulr.ui.security import User
from skedulr.ui.site import Site

#: Path, body, and how the change is told.
CHANGES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("/api/tasks", {"name": "work"}, "submit", "default/"),
    ("/api/tasks/default/one/cancel", {}, "cancel", "default/one"),
    ("/api/tasks/default/one/resubmit", {}, "resubmit", "default/one"),
    ("/api/tasks/default/one/remove", {}, "remove", "default/one"),
    ("/api/tasks/cancel", {"name": "x"}, "cancel all", "name x"),
    ("/api/tasks/resubmit", {"pool": "default"}, "resubmit all", "pool default"),
    ("/api/tasks/remove", {"state": "dead"}, "remove all", "state dead"),
    ("/api/pools/default/pause", {}, "pause", "pool default"),
    ("/api/pools/default/resume", {}, "resume", "pool default"),
    ("/api/pools/default/scale", {"workers": 3}, "scale", "pool default to 3"),
    ("/api/pools/default/purge", {"state": "dead"}, "purge", "state dead, pool default"),
    ("/api/pause", {}, "pause", "all pools"),
    ("/api/resume", {}, "resume", "all pools"),
    ("/api/nodes/n1/drain", {}, "drain", "node n1"),
    ("/api/nodes/n1/undrain", {}, "undrain", "node n1"),
    ("/api/doctor", {"fix": True}, "doctor, with repair", "all pools"),
    ("/api/workflows/default/w/cancel", {}, "cancel workflow", "default/w"),
    ("/api/workflows/default/w/resubmit", {}, "resubmit workflow", "default/w"),
    ("/api/schedules/hourly/run", {}, "run schedule", "hourly"),
    ("/api/schedules/hourly/pause", {}, "pause schedule", "hourly"),
    ("/api/schedules/hourly/resume", {}, "resume schedule", "hourly"),
    ("/api/schedules/hourly/remove", {}, "remove schedule", "hourly"),
    ("/api/limits/few/set", {"concurrency": 2}, "set limit", "few in all pools"),
    ("/api/limits/few/reset", {}, "set limit", "few in all pools: as declared"),
)


@pytest.fixture(scope="module")
def ui(_running: Any) -> Iterator[Browser]:
    server: Server = _running("redis")
    server.flush()
    app = Skedulr(url=server.url, namespace=NAMESPACE)
    world = World(server.url)
    world.submit("work", id="one", delay=3600)
    with app.workflow("w", id="w") as w:
        w.add(app.remote("work", pool="default").bind())
    app.schedule_recurring(app.remote("work", pool="default").bind(), 3600, name="hourly")
    world.submit("work", limit={"concurrency": 1, "name": "few"}, delay=3600)
    now = world.now_ms() / 1000
    world.call("HSET", world.client.space.nodes, "n1", msgpack.packb({
        "id": "n1", "host": "h", "pid": 1, "version": "1", "started_at": now, "beat_at": now + 600,
        "pools": [], "children": [{"pool": "default", "pid": 2, "workers": 1, "busy": 0}],
    }))
    yield browse(world, auth=[User("ann", "s3cret")])
    app.close()


@pytest.mark.parametrize(("path", "body", "what", "target"), CHANGES)
def test_a_change_is_noted(
    ui: Browser, path: str, body: dict[str, Any], what: str, target: str
) -> None:
    answer = ui.post(path, body, **basic("ann", "s3cret"), REMOTE_ADDR="10.1.2.3")
    assert answer.status < 300, answer.body
    newest = ui.page("/changes", **basic("ann", "s3cret")).text.partition("<tbody>")[2]
    row = re.split("<td>|<td class=[^>]*>", newest.partition("</tr>")[0])[-4:]
    assert row[:3] == ["ann", "<code>10.1.2.3</code>", f"<b>{what}</b>"]
    assert row[3].startswith(target)


def test_all_changes_are_in_the_table_above() -> None:
    app = bottle.Bottle()
    Api(Site(lambda: pytest.fail("nothing is asked"))).install(app)
    for route in app.routes:
        if route.method == "POST":
            # The longest rules first: a task's own action is no action on all.
            shape = re.sub("<.*?>", "[^/]+", route.rule)
            assert any(re.fullmatch(shape, path) for path, *_ in CHANGES), route.rule
