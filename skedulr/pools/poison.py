"""Poison tasks: how the death of a process is written into the journals of what it ran.

The task that had the CPU is charged a crash, and at the third it is dead. Its neighbours are
charged nothing. A death while draining charges nobody; nor does one that this system caused itself,
except that a hung task is counted as timed out.
"""

from __future__ import annotations

from .. import message
from ..store import Judgement

#: Crashes after which a task goes to the dead-letter queue.
CRASH_LIMIT = 3


def judge(
    *, culprit: bytes, owner: str, host: str, how: str, suspecting: bool, name: str = "",
) -> Judgement:
    """The judgement of one death; ``how`` says it in words ("killed by SIGKILL"). ``name`` is what
    the culprit's task is called."""
    story = f"its process on {host} died: {how}"
    return Judgement(
        culprit=culprit, limit=CRASH_LIMIT, suspecting=suspecting, name=name,
        back=message.entry(message.CRASHED, owner, 0, 0, [message.CRASHED_TYPE, story, ""]),
        death=message.entry(message.DEAD, owner, 0, 0, [
            message.CRASHED_TYPE, f"{story}, for the {CRASH_LIMIT}rd time", "",
        ]),
    )


def judge_host(owner: str = "") -> Judgement:
    """The judgement of claims whose leases expired: their host is gone, nothing is known."""
    return Judgement(
        culprit=b"", limit=CRASH_LIMIT, suspecting=True,
        back=message.entry(message.CRASHED, owner, 0, 0, [
            message.CRASHED_TYPE, "its process or host vanished while it ran", "",
        ]),
        death=message.entry(message.DEAD, owner, 0, 0, [
            message.CRASHED_TYPE,
            f"its process or host vanished while it ran, for the {CRASH_LIMIT}rd time", "",
        ]),
    )
