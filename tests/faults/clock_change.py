"""A live change of the clocks: a master whose schedules are in zones that change in a minute.

    python -m tests.faults.clock_change

Two zones are made by hand and found by PYTHONTZPATH: ``Test/Gap`` is a minute ahead from a certain
instant on, ``Test/Fold`` a minute behind. Around that instant, in each zone: a daily line whose
time is skipped or comes twice, one well before, one well after, and one every ten seconds. Takes
some three minutes; prints what ran when, and exits with 1 where anything was wrong.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Run by ``python -m tests.faults.clock_change``, as pytest's own rules would have it.
sys.path[:0] = [str(HERE), str(HERE.parent)]

from harness import WORK, Node  # noqa: E402
from servers import Server, selected  # noqa: E402

SHIFT_S = 60
#: From the start of this script to the change, at least.
AHEAD_S = 75


def zone_file(change_s: int, shift_s: int) -> bytes:
    """A TZif file (RFC 8536): UTC, and from an instant on ``shift_s`` seconds ahead of it."""
    counts = struct.pack(">6l", 0, 0, 0, 1, 2, 8)
    body = (
        struct.pack(">q", change_s) + b"\x01"
        + struct.pack(">lBB", 0, 0, 0) + struct.pack(">lBB", shift_s, 0, 4) + b"OLD\0NEW\0"
    )
    empty = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    first = empty + struct.pack(">lBB", 0, 0, 0) + b"UTC\0"
    return first + b"TZif2" + bytes(15) + counts + body + b"\n\n"


def lines(change: datetime) -> dict[str, tuple[str, str, list[datetime]]]:
    """Schedule -> zone, cron line with seconds first, and when it is to tick."""
    def daily(face: datetime) -> str:
        return f"{face.second} {face.minute} {face.hour} * * *"

    def at(seconds: int) -> datetime:
        return change + timedelta(seconds=seconds)

    shift = timedelta(seconds=SHIFT_S)
    paced = [at(seconds) for seconds in range(-30, 90, 10)]
    return {
        "gap-before": ("Test/Gap", daily(at(-20)), [at(-20)]),
        # The clock goes from 0 to 60 seconds behind the full minute: 30 is never shown.
        "gap-inside": ("Test/Gap", daily(at(30)), [at(0)]),
        "gap-after": ("Test/Gap", daily(at(40) + shift), [at(40)]),
        "gap-paced": ("Test/Gap", "*/10 * * * * *", paced),
        "fold-before": ("Test/Fold", daily(at(-70)), []),
        # Shown at -20, and again 60 seconds later.
        "fold-twice": ("Test/Fold", daily(at(-20)), [at(-20)]),
        "fold-after": ("Test/Fold", daily(at(75) - shift), [at(75)]),
        "fold-paced": ("Test/Fold", "*/10 * * * * *", paced),
    }


def work(change: datetime) -> str:
    declared = "".join(
        f'skedulr.cron("{line}", name="{name}", tz="{zone}", seconds="first")(quick)\n'
        for name, (zone, line, _) in lines(change).items()
    )
    return f"{WORK}\n\n{declared}"


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="skt-zone-"))
    change_s = (int(time.time()) + AHEAD_S + 59) // 60 * 60
    change = datetime.fromtimestamp(change_s, UTC)
    (folder / "Test").mkdir()
    (folder / "Test" / "Gap").write_bytes(zone_file(change_s, SHIFT_S))
    (folder / "Test" / "Fold").write_bytes(zone_file(change_s, -SHIFT_S))
    server = Server(selected()[0]).start()
    node = Node(
        folder / "node", server.url, work=work(change),
        env={"PYTHONTZPATH": f"{folder}:/usr/share/zoneinfo"},
    )
    try:
        node.start()
        print(f"the clocks change at {change:%H:%M:%S} UTC; waiting until 90 s after", flush=True)
        time.sleep(max(0.0, change_s + 92 - time.time()))
        return report(node, change)
    finally:
        node.close()
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def report(node: Node, change: datetime) -> int:
    wrong = 0
    window = (change - timedelta(seconds=30), change + timedelta(seconds=89))
    for name, (_, line, expected) in lines(change).items():
        uids = {one.uid for one in node.effects.all() if one.uid.startswith(f"{name}@")}
        ran = sorted(
            datetime.fromtimestamp(int(uid.partition("@")[2]) / 1000, UTC) for uid in uids
        )
        seen = [at for at in ran if window[0] <= at <= window[1]]
        due = [at for at in expected if window[0] <= at <= window[1]]
        wrong += seen != due
        shown = ", ".join(f"{(at - change).total_seconds():+.0f}" for at in seen)
        print(f"{'ok   ' if seen == due else 'WRONG'} {name:<12} {line:<18} ticks at {shown} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
