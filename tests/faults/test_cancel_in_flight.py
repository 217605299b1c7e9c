"""A cancel while the answer of a claim is on its way: the task has an owner that has not got it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from servers import wait_until
from world import World

pytestmark = pytest.mark.server


def test_a_task_that_is_cancelled_while_the_answer_of_its_claim_is_on_its_way_does_not_start(
    world: Callable[..., World],
) -> None:
    with world(lease_s=30) as whole:
        node = whole.node("node", proxied=True)
        running = whole.submit("hold", 60)
        whole.effect("began", running)
        wait_until(lambda: listens(whole), what="its child listens")
        submitted: list[str] = []
        held = whole.trap(
            node, "claim", "hold_reply", act=lambda: submitted.append(whole.submit("plain"))
        )
        wait_until(lambda: held.sprung, what="it is claimed")
        (uid,) = submitted
        task, other = (whole.app().get(f"default/{one}") for one in (uid, running))
        wait_until(lambda: task.state == "running", what="the claim was applied")
        assert task.cancel() is True
        # Told to the child behind the first cancel: by then it has heard of both.
        assert other.cancel() is True
        whole.effect("interrupted", running)
        held.let_go()
        wait_until(lambda: whole.ended(uid), what="it has ended")
        assert task.state == "cancelled"
        assert not whole.effects(uid)


def listens(whole: World) -> bool:
    """Whether the child hears of cancels by now."""
    found = whole.server.client.client_list(_type="pubsub")
    return any(one["name"].endswith(":default:control") for one in found)
