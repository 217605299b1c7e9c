"""A cancel while the answer of a claim is on its way: the task has an owner that has not got it."""

from __future__ import annotations

import os
import signal
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
        wait_until(lambda: listeners(whole), what="its child listens")
        held = whole.trap(node, "claim", "hold_reply", when=lambda: whole.queued() > 0)
        uid = whole.submit("plain")
        wait_until(lambda: held.sprung, what="it is claimed")
        task = whole.app().get(f"default/{uid}")
        wait_until(lambda: task.state == "running", what="the claim was applied")
        assert task.cancel() is True
        wait_until(lambda: passed_on(whole), what="the message has gone to the node")
        # It prints its stacks from its loop: what lay on its connections has been read by then.
        for count in (1, 2):
            os.kill(node.child(), signal.SIGUSR1)
            wait_until(
                lambda count=count: node.log.count("stacks of pool") >= count, what="it has looked"
            )
        held.let_go()
        wait_until(lambda: whole.ended(uid), what="it has ended")
        assert task.state == "cancelled"
        assert not whole.effects(uid)


def listeners(whole: World) -> list[dict[str, str]]:
    """The connections by which children hear of cancels."""
    found = whole.server.client.client_list(_type="pubsub")
    return [one for one in found if one["name"].endswith(":default:control")]


def passed_on(whole: World) -> bool:
    """Whether the server has sent them all that it had for them."""
    return all(int(one["omem"]) == 0 and int(one["obl"]) == 0 for one in listeners(whole))
