"""Several masters with one schedule in their code, killed at random: is each tick fired once?

    python -m tests.faults.ticks --masters 3 --ticks 200 --seed 7

Masters and children get SIGKILL, one at a time, with pauses drawn from the seed, and are started
again. The schedule makes up every tick that was missed, so at the end all ticks from the first to
the last must be there, one period apart, each as one task that succeeded. How often a run was
repeated because its process died in the middle is reported; that is allowed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Run by ``python -m tests.faults.ticks``, as pytest's own rules would have it.
sys.path[:0] = [str(HERE), str(HERE.parent)]

import redis  # noqa: E402
from harness import Node, wait_until  # noqa: E402
from servers import Server, selected  # noqa: E402

from skedulr.keys import PoolKeys  # noqa: E402

WORK = '''\
import os
import time

import skedulr


@skedulr.every({every}, catch_up="all")
@skedulr.task(name="tick", max_retries=20)
def tick():
    run = skedulr.current_task()
    line = f"{{run.uid}} {{run.attempt}} ran {{os.getpid()}} {{time.monotonic():.6f}}\\n"
    end = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(end, line.encode())
    os.close(end)
'''


@dataclass
class Report:
    """A run in figures."""

    seed: int
    ticks: list[int]
    period_ms: int
    fired: int
    states: Counter[str]
    effects: Counter[str]
    kills: Counter[str]

    @property
    def gaps(self) -> list[int]:
        """What lies between two ticks and is not one period."""
        return [
            after - before for before, after in zip(self.ticks, self.ticks[1:], strict=False)
            if after - before != self.period_ms
        ]

    @property
    def well(self) -> bool:
        return (
            not self.gaps and self.fired == len(self.ticks) == len(set(self.ticks))
            and set(self.states) == {"succeeded"} and len(self.effects) == len(self.ticks)
        )

    def __str__(self) -> str:
        repeated = sum(count - 1 for count in self.effects.values())
        kills = ", ".join(f"{count} x {what}" for what, count in sorted(self.kills.items()))
        return (
            f"seed {self.seed}: {len(self.ticks)} ticks, {self.fired} fired, {self.gaps} odd gaps, "
            f"states {dict(self.states)}, {len(self.effects)} ran ({repeated} runs repeated); "
            f"killed {kills}"
        )


def run(
    url: str, folder: Path, *, masters: int, ticks: int, every_s: float, seed: int,
    pause_s: float = 1.5,
) -> Report:
    """Start, kill and start again until so many ticks were fired; then look at all of them."""
    dice, kills = random.Random(seed), Counter[str]()
    nodes = [
        Node(folder / f"node{number}", url, "--lease", "2", work=WORK.format(every=every_s))
        for number in range(masters)
    ]
    try:
        for node in nodes:
            node.start()
        while _fired(nodes[0]) < ticks:
            _wait_for_ticks(nodes[0], max(1, round(dice.random() * 2 * pause_s / every_s)))
            _kill(dice, nodes, kills)
        # Ticks go on for ever: the last ones are those of before the pause.
        assert nodes[0].app is not None
        nodes[0].app.schedules()["tick"].pause()
        return _look(nodes, seed, round(every_s * 1000), kills)
    finally:
        for node in nodes:
            node.close()


def _kill(dice: random.Random, nodes: list[Node], kills: Counter[str]) -> None:
    node = dice.choice(nodes)
    if dice.random() < 0.5:
        victims = node.children()
        if victims:
            os.kill(victims[0], signal.SIGKILL)
            kills["child"] += 1
    else:
        if dice.random() < 0.5:
            node.kill_all()
            kills["host"] += 1
        else:
            node.signal(signal.SIGKILL)
            node.wait()
            kills["master"] += 1
        node.start(None)


def _fired(node: Node) -> int:
    assert node.app is not None
    if "tick" not in node.app.schedules():
        return 0
    return int(node.app.schedules()["tick"].fired)


def _wait_for_ticks(node: Node, count: int) -> None:
    target = _fired(node) + count
    wait_until(lambda: _fired(node) >= target, f"{count} more ticks are fired", 60)


def _look(nodes: list[Node], seed: int, period_ms: int, kills: Counter[str]) -> Report:
    client = redis.Redis.from_url(nodes[0].url or "", socket_timeout=10)
    keys = PoolKeys("skedulr", "default")

    def over() -> bool:
        return not client.hlen(keys.tasks)

    wait_until(over, lambda: f"all runs end: {client.hkeys(keys.tasks)}", 90)
    app = nodes[0].app
    assert app is not None
    uids = [uid.decode() for uid in client.hkeys(keys.records)]
    return Report(
        seed=seed, ticks=sorted(int(uid.partition("@")[2]) for uid in uids), period_ms=period_ms,
        fired=_fired(nodes[0]), states=Counter(app.client.state(f"default/{uid}") for uid in uids),
        effects=Counter(one.uid for node in nodes for one in node.effects.all()), kills=kills,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--masters", type=int, default=3)
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--every", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="skt-ticks-"))
    server = Server(selected()[0]).start()
    try:
        report = run(
            server.url, folder, masters=given.masters, ticks=given.ticks, every_s=given.every,
            seed=given.seed,
        )
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(report)
    return 0 if report.well else 1


if __name__ == "__main__":
    sys.exit(main())
