"""How the UI bears 1,000,000 queued and 200,000 dead tasks, and 200 open browsers. By hand:

    python tests/benchmarks/ui_load.py [QUEUED] [DEAD] [BROWSERS]

Prints the median and the slowest of ten requests for each page, and the share of a core that a
master without children uses while nothing happens and so many streams are open.
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness import Node, wait_until
from servers import Server, free_port

from skedulr import message
from skedulr.keys import PoolKeys
from skedulr.uids import Uids

PATHS = (
    "/", "/tasks", "/tasks?state=queued", "/tasks?state=dead", "/tasks?state=queued&name=nobody",
    "/tasks?query=no+such+text", "/dead", "/nodes", "/redis", "/api/stats", "/api/pools",
    "/api/tasks?state=queued&limit=500", "/api/history?span=24h",
)


def main(queued: int = 1_000_000, dead: int = 200_000, browsers: int = 200) -> None:
    """Fill, measure, print."""
    server = Server("redis").start()
    port = free_port()
    node = Node(
        Path(tempfile.mkdtemp()), server.url, "--ui", f"127.0.0.1:{port}", modules=(), work="",
    )
    try:
        assert node.app is not None
        fill(node, server, queued, dead)
        node.start(ready=None)
        wait_until(lambda: _get(port, "/livez"), "the UI answers")
        for path in PATHS:
            times = [_get(port, path) for _ in range(10)]
            print(f"{path:40} median {statistics.median(times) * 1000:6.1f} ms, "
                  f"slowest {max(times) * 1000:6.1f} ms")
        streams = [_stream(port) for _ in range(browsers)]
        time.sleep(3)
        print(f"{browsers} streams, nothing happens: {_share(node.pid):.1%} of a core")
        for stream in streams:
            stream.close()
    finally:
        node.close()
        server.close()


def fill(node: Node, server: Server, queued: int, dead: int) -> None:
    """Store the tasks: the queued ones as producers do, the dead ones as scripts do."""
    assert node.app is not None
    began = time.monotonic()
    task = node.app.remote("mail.send", pool="default")
    for _ in node.app.submit_iter(task.bind(f"user{i}@example.com") for i in range(queued)):
        pass
    keys, uids = PoolKeys("skedulr", "default"), Uids()
    body = message.envelope(message.name_part("mail.send"), ("x@example.com",), {}, {}, 10_000)
    end = message.entry(message.DEAD, "n.1.1", 4, 1, ["SMTPError", "no such user", "Traceback..."])
    now = int(time.time() * 1000)
    pipe = server.client.pipeline(transaction=False)
    for i in range(dead):
        uid, at = uids.next(), now - i * 400
        stamp = b"\xcf" + at.to_bytes(8, "big")
        pipe.hset(keys.records, uid, body + stamp + end + stamp)
        pipe.zadd(keys.dead, {uid: at})
        if i % 5000 == 4999:
            pipe.execute()
    pipe.execute()
    print(f"{queued:,} queued and {dead:,} dead after {time.monotonic() - began:.0f} s")


def _get(port: int, path: str) -> float:
    began = time.monotonic()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"Accept": "text/html"}
    )
    try:
        urllib.request.urlopen(request, timeout=30).read()
    except OSError:
        return 0.0
    return time.monotonic() - began


def _stream(port: int) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return stream


def _share(pid: int, seconds: float = 20) -> float:
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / seconds


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
