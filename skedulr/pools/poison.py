"""Poison tasks: how the death of a process is written into the journals of what it ran.

The task that had the CPU is charged a crash, and at the third it is dead. Its neighbours are
charged nothing. A death while draining charges nobody; nor does one that this system caused itself,
except that a hung task is counted as timed out.

A SIGKILL that came from outside for all that can be seen (``evidence.py``) is a loss and no crash:
it hits whatever runs just then, and the same task time after time where many come in a row. Losses
have a limit of their own, since a task may have its process killed in ways that nobody sees.
"""

from __future__ import annotations

from .. import message
from ..store import Judgement

#: Crashes after which a task goes to the dead-letter queue.
CRASH_LIMIT = 3
#: Losses after which it goes there.
LOSS_LIMIT = 10


def judge(
    *, culprit: bytes, owner: str, host: str, how: str, suspecting: bool, loss: bool = False,
    name: str = "",
) -> Judgement:
    """The judgement of one death; ``how`` says it in words ("killed by SIGKILL"). ``loss``: nothing
    shows that a task brought it about. ``name`` is what the culprit's task is called."""
    story = f"its process on {host} died: {how}"
    kind, limit, count = message.CRASHED_TYPE, CRASH_LIMIT, f"for the {CRASH_LIMIT}rd time"
    if loss:
        story += ", from outside as it seems"
        kind, limit, count = message.LOST_TYPE, LOSS_LIMIT, f"for the {LOSS_LIMIT}th time"
    return Judgement(
        culprit=culprit, limit=limit, suspecting=suspecting, loss=loss, name=name,
        back=message.entry(message.CRASHED, owner, 0, 0, [kind, story, ""]),
        death=message.entry(message.DEAD, owner, 0, 0, [kind, f"{story}, {count}", ""]),
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
