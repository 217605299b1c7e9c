"""What a release stored, kept for the later ones: every state, form and key, as a file.

    python tests/kept_store.py            writes tests/fixtures/store-VERSION.jsonl anew

The file has one JSON object a line: first what the release itself showed of each task, then each
key with its type, content and whether it expires, bytes as base64. ``load`` puts it into a server.
A file of a release that is out is never written again.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import WORK, Node
from servers import Server, wait_until

import skedulr
from skedulr.keys import PoolKeys

FIXTURES = Path(__file__).resolve().parent / "fixtures"
NAMESPACE = "kept"
#: Far enough away for a test of any year to come, epoch seconds.
FAR_S = 4_102_444_800

TASKS = WORK + '''

@task(name="echo")
def echo(value, **named):
    return value


@task(name="doomed", max_retries=1, retry=skedulr.LinearRetry(0.05))
def doomed():
    raise ValueError("never, ünd nevermore")


@task(name="later", max_retries=3, retry=skedulr.LinearRetry(300_000_000))
def later():
    raise OSError("not yet")


@task(name="reports", max_retries=0)
def reports(file):
    skedulr.report_progress(40, "half of it")
    while not os.path.exists(file):
        time.sleep(0.01)
    return "done"


@task(name="there", pool="other")
def there(number):
    return number + 1


@skedulr.every(3600)
@task(name="hourly", pool="other")
def hourly():
    pass
'''
#: Of a task, what must not change.
SHOWN = ("state", "name", "pool", "priority", "attempt", "max_retries", "args", "kwargs", "key",
         "tags", "result", "error", "progress", "note", "due_at", "submitted_at", "depends_on")


def make(url: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Tasks in all states, on an empty server; what is shown of each, by its id."""
    app = skedulr.Skedulr(url=url, namespace=NAMESPACE)
    # By name alone, before anybody has published it: a child moves it to where it belongs.
    app.submit("there", 1)
    node = Node(
        folder, url, "--lease", "5", pools="default=4,other=2", work=TASKS, namespace=NAMESPACE
    ).start(2)
    try:
        ids = _make(app, node)
        app.scale_pool("other", 3)
        shown = {id: app.client.get(id) for id in ids}
        # As a machine dies: what runs stays claimed.
        node.kill_all()
    finally:
        node.close()
        app.close()
    return {id: {part: one.get(part) for part in SHOWN} for id, one in shown.items()}


def _make(app: skedulr.Skedulr, node: Node) -> list[str]:
    def put(name: str, uid: str, *args: Any, **options: Any) -> Any:
        return app.submit_call(app.remote(name, id=uid, **options).bind(*args))

    values = {"text": "ünï", "list": [1, 2.5, None, True], "deep": {"a": {"b": [b"\x00\xff"]}}}
    made = [put("echo", "succeeded", values, tags=("eu", "big"), headers={"tenant": "t1"}),
            put("doomed", "dead"), put("later", "between"),
            put("reports", "running", "open"),
            put("there", "elsewhere", 5, pool="other")]
    put("there", "moved", 7)
    cancelled = put("echo", "cancelled", 1, at=FAR_S)
    cancelled.cancel()
    made += [cancelled, put("echo", "scheduled", 2, at=FAR_S, key="k", unique="until_done"),
             put("echo", "windowed", 3, unique=1_000_000, key="w")]
    with app.workflow("kept flow") as flow:
        first = flow.add(app.remote("echo").bind(4))
        second = flow.add(app.remote("there", pool="other").bind(5), on_success=first)
        skipped = flow.add(app.remote("echo").bind(6), on_failure=second)
    child = put("echo", "child", 8, depends_on=["default/scheduled"])
    for id, state in (
        ("default/succeeded", "succeeded"), ("default/dead", "dead"),
        ("default/between", "scheduled"), ("default/running", "running"),
        ("other/elsewhere", "succeeded"), (skipped.id, "skipped"),
        ("default/windowed", "succeeded"),
    ):
        wait_until(lambda id=id, state=state: app.get(id).state == state, 10, f"{id} is {state}")
    wait_until(lambda: app.client.get("default/running")["progress"] == 40, 10, "it reported")
    app.schedule_cron(app.remote("echo").bind("x"), "0 9 1 1 *", name="yearly", tz="Europe/Paris")
    app.schedule_recurring(app.remote("echo").bind("y"), 60, name="paused").pause()
    app.pause("default")
    late = put("echo", "expired", 9, expires=0.01)
    made += [put("echo", "queued", 10), put("echo", "urgent", 11, priority=7)]
    time.sleep(0.1)  # its time is what is to pass
    app.resume("default")
    wait_until(lambda: late.state == "expired", 10, "it expired")
    app.pause("default")
    made += [put("echo", "waits", 12), put("echo", "first", 13, priority=50)]
    return [*(one.id for one in (*made, late, child, first, second, skipped)), flow.id]


def dump(server: Server) -> Iterator[dict[str, Any]]:
    """Every key of a server."""
    client = server.client
    read = {
        b"hash": lambda key: [
            part for pair in sorted(client.hgetall(key).items()) for part in pair
        ],
        b"set": lambda key: sorted(client.smembers(key)),
        b"list": lambda key: client.lrange(key, 0, -1),
        b"string": lambda key: [client.get(key)],
        b"zset": lambda key: [
            part for member, score in client.zrange(key, 0, -1, withscores=True)
            for part in (b"%.17g" % score, member)
        ],
    }
    for key in sorted(client.keys("*")):
        kind = client.type(key)
        content = [base64.b64encode(part).decode() for part in read[kind](key)]
        yield {"key": key.decode(), "type": kind.decode(), "content": content,
               "expires": client.pttl(key) > 0}


def load(path: Path, server: Server) -> dict[str, dict[str, Any]]:
    """Put a kept store into an empty server; what its release showed, by id."""
    shown, *rows = map(json.loads, path.read_text("utf-8").splitlines())
    write = {"hash": "HSET", "set": "SADD", "list": "RPUSH", "string": "SET", "zset": "ZADD"}
    for row in rows:
        content = [base64.b64decode(part) for part in row["content"]]
        server.client.execute_command(write[row["type"]], row["key"], *content)
        if row["expires"]:
            server.client.expire(row["key"], 3600)
    return shown["shown"]


def main() -> None:
    """Write the file of this release."""
    server = Server("redis").start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            shown = make(server.url, Path(folder) / "node")
        head = {"release": skedulr.__version__, "at": time.strftime("%Y-%m-%d"), "shown": shown}
        path = FIXTURES / f"store-{skedulr.__version__}.jsonl"
        rows = [head, *dump(server)]
        assert any(row.get("key") == PoolKeys(NAMESPACE, "default").tasks for row in rows)
        path.write_text("".join(
            json.dumps(row, default=lambda value: f"<{type(value).__name__}>", ensure_ascii=False,
                       sort_keys=True) + "\n" for row in rows
        ), "utf-8")
        print(f"wrote {path.name}: {len(rows)} lines, {path.stat().st_size:,} bytes")
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
