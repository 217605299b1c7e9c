"""What tests of the lead's scripts share: the store on a runner, and all that Redis holds."""

from __future__ import annotations

from typing import Any

from script_driver import FakeRunner, RealRunner
from servers import leaks

from skedulr.lead import Beat, LeadStore


class Leads:
    """The scripts of one namespace on a server of any kind."""

    def __init__(self, runner: FakeRunner | RealRunner) -> None:
        self.runner, self.store = runner, LeadStore("skedulr")

    def beat(self, node: str, **given: Any) -> Beat:
        return self.store.beat(
            self.runner, node, **{"willing": True, "known_term": 0, "tuned": False, **given}
        )

    def resign(self, node: str, term: int) -> bool:
        return self.store.resign(self.runner, node, term)

    def steer(self, node: str, term: int, **given: Any) -> int:
        return self.store.steer(
            self.runner, node, term, **{"sizes": [], "decisions": [], **given}
        )

    def tell(self, node: str, term: int, saw: dict[str, Any] | None = None) -> int:
        return self.store.tell(self.runner, node, term, saw or {})

    def time_is_over(self) -> None:
        """As if the lead had run out a moment ago."""
        key = self.store.space.leader
        until = int(self.runner.call("HGET", key, "until"))
        self.runner.call("HSET", key, "until", until - 10_000)

    def state(self) -> dict[str, Any]:
        """Everything Redis holds, by key, as redis-py gives it."""
        client = self.runner.client
        assert leaks(client) == []
        read = {
            b"hash": client.hgetall, b"string": client.get,
            b"list": lambda key: client.lrange(key, 0, -1),
        }
        return {
            key.decode().partition(":")[2]: read[client.type(key)](key)
            for key in client.keys("*")
        }
