"""Workflows, measured: a chain, a fan-out with a join, memory an edge. By hand:

    python tests/benchmarks/workflows.py [chain] [fan] [map] [edges] [plain] [--steps N] [--tasks N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from harness import Node
from servers import Server

WORK = """
from skedulr import task

@task(name="nothing")
def nothing():
    pass

@task(name="take")
def take(item):
    pass

@task(name="span")
def span(count):
    return list(range(count))
"""


def calls(server: Server, *scripts: str) -> int:
    """Script calls and other commands so far."""
    done: int = server.client.info("stats")["total_commands_processed"]
    return done


def chain(server: Server, app: Any, steps: int) -> None:
    nothing = app.remote("nothing")
    with app.workflow("chain") as w:
        app.pause("default")
        before = None
        for _ in range(steps):
            before = w.add(nothing.bind(), depends_on=[before] if before else ())
        began = time.perf_counter()
    print(f"chain: {steps} steps stored in {time.perf_counter() - began:.2f} s")
    commands = calls(server)
    began = time.perf_counter()
    app.resume("default")
    last = before.handle
    last.result(timeout=300)
    took = time.perf_counter() - began
    print(f"chain: {steps / took:,.0f} steps/s; {(calls(server) - commands) / steps:.1f} "
          "commands a step, those inside of scripts included")


def fan(server: Server, app: Any, tasks: int) -> None:
    nothing = app.remote("nothing")
    app.pause("default")
    used = server.client.info("memory")["used_memory"]
    began = time.perf_counter()
    with app.workflow("fan") as w:
        first = w.add(nothing.bind())
        wide = [w.add(nothing.bind(), depends_on=first) for _ in range(tasks)]
        join = w.add(nothing.bind(), depends_on=wide)
    took = time.perf_counter() - began
    more = server.client.info("memory")["used_memory"] - used
    print(f"fan: {tasks:,} + 2 tasks, {2 * tasks:,} edges stored in {took:.1f} s, "
          f"{tasks / took:,.0f} tasks/s, {more / tasks:.0f} bytes a task with its two edges")
    began = time.perf_counter()
    app.resume("default")
    join.handle.result(timeout=600)
    took = time.perf_counter() - began
    print(f"fan: {tasks / took:,.0f} tasks/s, {tasks:,} tasks and the join in {took:.1f} s")
    stats = {k[8:]: v for k, v in server.client.info("commandstats").items()}
    print(sorted(((v["usec"] / 1e6, k, v["calls"]) for k, v in stats.items()), reverse=True)[:9])
    print("fan: state", w.state, w.info()["counts"])


def mapped(server: Server, app: Any, tasks: int) -> None:
    """A map: its tasks are made by whoever delivers, and joined once."""
    span, nothing = app.remote("span"), app.remote("take")
    before = scripts(server)
    began = time.perf_counter()
    with app.workflow("map") as w:
        all_of = w.map(nothing, w.add(span.bind(tasks)))
        last = w.add(app.remote("nothing").bind(), depends_on=all_of)
    last.handle.result(timeout=600)
    took = time.perf_counter() - began
    more = {name: count - before.get(name, 0) for name, count in scripts(server).items()}
    print(f"map: {tasks / took:,.0f} tasks/s, {tasks:,} made, run and joined in {took:.1f} s; "
          f"{more.get('evalsha', 0) / tasks * 1000:.1f} script calls per 1,000 tasks, "
          f"state {w.state}")


def edges(server: Server, app: Any, tasks: int) -> None:
    """What waiting costs: the same tasks plain, and with one edge each; and where it lies."""
    nothing = app.remote("nothing")
    app.pause("default")
    used = server.client.info("memory")["used_memory"]
    app.submit_many(nothing.bind() for _ in range(tasks))
    bare = server.client.info("memory")["used_memory"] - used
    used = server.client.info("memory")["used_memory"]
    with app.workflow("fan") as w:
        first = w.add(nothing.bind())
        wide = [w.add(nothing.bind(), depends_on=first) for _ in range(tasks)]
        w.add(nothing.bind(), depends_on=wide)
    tied = server.client.info("memory")["used_memory"] - used
    print(f"edges: {bare / tasks:.0f} bytes a plain task, {tied / tasks:.0f} with two edges: "
          f"{(tied - bare) / tasks / 2:.0f} an edge")
    for name in ("tasks", "ready", "waiting", "held", "edges", "outbox", "records"):
        key = f"{{skedulr:default}}:{name}"
        size = server.client.execute_command("MEMORY", "USAGE", key, "SAMPLES", 1000) or 0
        print(f"edges: {name:8} {size / tasks:6.0f} bytes a task")
    app.purge("default")
    app.resume("default")


def scripts(server: Server) -> dict[str, int]:
    """Calls of each command so far."""
    found = server.client.info("commandstats")
    return {name[8:]: one["calls"] for name, one in found.items()}


def plain(server: Server, app: Any, tasks: int) -> None:
    nothing = app.remote("nothing")
    commands = calls(server)
    began = time.perf_counter()
    handles = app.submit_many([nothing.bind() for _ in range(tasks)])
    handles[-1].result(timeout=100)
    app.wait(handles[-100:], 100)
    took = time.perf_counter() - began
    time.sleep(0.5)
    print(f"plain: {tasks / took:,.0f} tasks/s; "
          f"{(calls(server) - commands) / tasks * 1000:.0f} commands per 1,000 tasks")
    used = server.client.info("memory")["used_memory"]
    app.pause("default")
    app.submit_many([nothing.bind() for _ in range(tasks)])
    more = server.client.info("memory")["used_memory"] - used
    print(f"plain: {more / tasks:.0f} bytes a waiting task")
    app.resume("default")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["chain", "fan", "map", "edges", "plain"])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=100_000)
    given = parser.parse_args()
    server = Server("redis").start()
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder) / "node", server.url, work=WORK, pools="default=10").start(1)
        try:
            for what in given.what:
                if what == "chain":
                    chain(server, node.app, given.steps)
                elif what == "fan":
                    fan(server, node.app, given.tasks)
                elif what == "map":
                    mapped(server, node.app, given.tasks)
                elif what == "edges":
                    edges(server, node.app, given.tasks)
                else:
                    plain(server, node.app, given.tasks)
        finally:
            node.close()
            server.close()


if __name__ == "__main__":
    main()
