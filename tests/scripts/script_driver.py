"""Drives the scripts of one pool as store.py does, and shows everything Redis holds after it.

``Scripts`` has a method per script; each gives its reply with ids as text and bodies as bytes.
Every reply begins with Redis time, so a test can write down the exact state it expects::

    stored = pool.submit(task("a"))
    assert pool.state() == {"ready": {"a": place(1)}, "tasks": {"a": body("a", stored.now)}, ...}
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fakeredis
import redis
from servers import Server, leaks

from skedulr.keys import PER_OWNER, PoolKeys
from skedulr.limiting import Limit, limit_id, placing_of
from skedulr.redis_scripts import Script, script
from skedulr.wire import Wire
from skedulr.wire_errors import judge

LEVEL = 2**44
LEASE = 15_000
#: A time that no test reaches, ms.
FAR = 4_000_000_000_000


class FakeRunner:
    """A fakeredis server behind the interface of a Wire."""

    def __init__(self) -> None:
        self.client = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7,)))

    def call(self, *command: Any) -> Any:
        return self.client.execute_command(*command)

    def run(self, called: Script, keys: list[str], args: list[Any]) -> Any:
        try:
            try:
                return self.client.evalsha(called.sha, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:
                return self.client.eval(called.text, len(keys), *keys, *args)
        except redis.exceptions.ResponseError as error:
            judged = judge(error)
            raise (judged or error) from error


class RealRunner(Wire):
    """A Wire to a test server, with a client of redis-py beside it for looking."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url, name="scripts")
        self.server, self.client = server, server.client


class Task(NamedTuple):
    """What submit.lua takes for one task."""

    uid: str
    envelope: bytes
    options: str


def task(
    uid: str, priority: int = 0, when: str = "-", unique: str = "-", envelope: bytes | None = None,
    limits: str = "",
) -> Task:
    """``limits`` as ``limited`` gives them."""
    plain = (priority, when, unique, limits) == (0, "-", "-", "")
    return Task(
        uid, b"env-" + uid.encode() if envelope is None else envelope,
        "" if plain else f"{priority} {when} {unique}{limits and ' ' + limits}",
    )


def limited(*limits: Limit) -> str:
    """What a submit says of these limits; their keys are formatted already."""
    return placing_of(limits, "t", str)


def place(sequence: int, priority: int = 0) -> int:
    """The score in ready of the n-th task that was queued."""
    return (100 - priority) * LEVEL + sequence


def stamp(ms: int) -> bytes:
    return b"\xcf" + ms.to_bytes(8, "big")


def body(uid: str, now: int, *journal: tuple[bytes, int]) -> bytes:
    """What ``tasks`` or ``records`` holds for ``task(uid)``: its envelope and journal, stamped."""
    return b"env-" + uid.encode() + stamp(now) + b"".join(
        entry + stamp(at) for entry, at in journal
    )


class Claimed(NamedTuple):
    """One task as claim.lua gives it."""

    uid: str
    place: int
    body: bytes
    header: str


class Reply:
    """A script's reply: ``now`` is Redis time in ms, ``rest`` what follows, bytes made text."""

    def __init__(self, raw: list[Any]) -> None:
        self.now: int = raw[0]
        self.rest = [_text(part) for part in raw[1:]]

    def __repr__(self) -> str:
        return f"Reply(now={self.now}, rest={self.rest})"

    @property
    def verdicts(self) -> str:
        found: str = self.rest[0]
        return found


class ClaimReply(Reply):
    def __init__(self, raw: list[Any], token: str) -> None:
        super().__init__(raw[:3])
        self.token = token
        self.next_due: int = self.rest[0]
        self.cancelled: list[str] = self.rest[1]
        rows = raw[3:]
        self.tasks = [
            Claimed(rows[i].decode(), int(rows[i + 1]), rows[i + 2], rows[i + 3].decode())
            for i in range(0, len(rows), 4)
        ]
        self.uids = [one.uid for one in self.tasks]


class Scripts:
    """The scripts of pool ``default``, on ``runner``. Owners' calls are numbered by themselves,
    unless a test gives ``number``."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.keys = PoolKeys("skedulr", "default")
        self._numbers: dict[tuple[str, str], int] = {}

    def run(self, name: str, *args: Any, owner: str | None = None) -> Any:
        called = script(name)
        return self.runner.run(called, self.keys.of(called.keys, owner), list(args))

    def _number(self, owner: str, lane: str, number: int | None) -> int:
        if number is None:
            number = self._numbers.get((owner, lane), 0) + 1
        self._numbers[owner, lane] = number
        return number

    # -- the scripts ------------------------------------------------------------------------------

    def submit(self, *tasks: Task, capacity: int = 0, entry: bytes | None = None) -> Reply:
        last = [] if entry is None else [entry]
        return Reply(self.run("submit", capacity, *(part for one in tasks for part in one), *last))

    def claim(
        self, owner: str = "n1", want: int = 10, starting: int | None = None, lease: int = LEASE,
        number: int | None = None, aging: int = 0,
    ) -> ClaimReply:
        number = self._number(owner, "claim", number)
        starting = want if starting is None else starting
        args = [aging] if aging else []
        raw = self.run("claim", owner, number, want, starting, lease, *args, owner=owner)
        return ClaimReply(raw, f"{owner}:{number}")

    def set_limit(self, limit: Limit | None, name: str = "t", kind: str = "c") -> Reply:
        """None: as declared. Goes on until all of it is done."""
        definition, after = "-" if limit is None else limit.definition(), ""
        id = limit_id(kind if limit is None or limit.kind is None else limit.kind, name)
        while True:
            reply = Reply(self.run("set_limit", id, definition, after))
            after = reply.rest[1]
            if not after:
                return reply

    def finish(
        self, *ended: tuple[str, str, str, bytes], owner: str = "n1",
        started: tuple[tuple[str, str], ...] = (), number: int | None = None,
    ) -> Reply:
        number = self._number(owner, "finish", number)
        flat = [part for one in ended for part in one]
        pairs = [part for pair in started for part in pair]
        return Reply(self.run("finish", number, len(ended), *flat, *pairs, owner=owner))

    def retry(
        self, *failed: tuple[str, str, int, bytes], owner: str = "n1", number: int | None = None
    ) -> Reply:
        number = self._number(owner, "finish", number)
        return Reply(
            self.run("retry", number, *(part for one in failed for part in one), owner=owner)
        )

    def defer(
        self, *put_off: tuple[str, str, int], owner: str = "n1", number: int | None = None
    ) -> Reply:
        number = self._number(owner, "finish", number)
        return Reply(
            self.run("defer", number, *(part for one in put_off for part in one), owner=owner)
        )

    def renew(self, *held: tuple[str, str], owner: str = "n1", lease: int = LEASE) -> Reply:
        return Reply(
            self.run("renew", lease, *(part for pair in held for part in pair), owner=owner)
        )

    def release(self, *held: tuple[str, str], owner: str = "n1") -> Reply:
        return Reply(
            self.run("release", "ids", *(part for pair in held for part in pair), owner=owner)
        )

    def release_owner(self, owner: str = "n1") -> Reply:
        return Reply(self.run("release", "owner", owner, owner=owner))

    def judge_owner(
        self, owner: str = "n1", culprit: str = "", limit: int = 3, suspect_started: bool = True,
        loss: bool = False,
    ) -> Reply:
        return Reply(self.run(
            "release", "owner", owner, culprit, limit, b"crash", b"killed",
            "1" if suspect_started else "0", "", "1" if loss else "", owner=owner,
        ))

    def suspects_may_start_at(self, owner: str, at_ms: int) -> None:
        """From when an owner may take the next group of suspects, where its last one still runs."""
        own = self.keys.of(("own",), owner)[0]
        last = self.call("HGET", own, "suspect").decode()
        self.call("HSET", own, "suspect", f"{at_ms} {last.partition(' ')[2]}")

    def recover(self, limit: int = 500, lease: int = LEASE, gap: int = 10_000) -> Reply:
        return Reply(self.run("recover", limit, lease, gap))

    def judge_hosts(
        self, crashes: int = 3, limit: int = 500, lease: int = LEASE, gap: int = 10_000
    ) -> Reply:
        return Reply(self.run("recover", limit, lease, gap, crashes, b"crash", b"killed"))

    def promote(self, limit: int = 500) -> Reply:
        return Reply(self.run("promote", limit))

    def cancel(self, uid: str, entry: bytes = b"cancelled", channel: str = "control") -> Reply:
        return Reply(self.run("cancel", uid, entry, channel, f"cancel default/{uid}"))

    def resubmit(
        self, *tasks: tuple[str, str, bytes], capacity: int = 0, before: int = 0
    ) -> Reply:
        return Reply(
            self.run("resubmit", capacity, before, *(part for one in tasks for part in one))
        )

    def purge(self, which: str, *uids: str) -> Reply:
        return Reply(self.run("purge", which, *uids))

    def progress(self, *reports: tuple[str, str, bytes]) -> Reply:
        return Reply(self.run("progress", *(part for one in reports for part in one)))

    def trim(
        self, limit: int = 500, age: int = 7 * 86_400_000, most_done: int = 1000,
        most_dead: int = 1000,
    ) -> Reply:
        return Reply(self.run("trim", limit, age, most_done, most_dead))

    def attach(self, *edges: tuple[str, str, str]) -> Reply:
        return Reply(self.run("attach", *(part for edge in edges for part in edge)))

    def take(
        self, *delivered: tuple[str, str], limit: int = 100, ahead: int = 10_000, lease: int = 5000
    ) -> Reply:
        """``rest`` is the score, then items and what is held of them."""
        flat = [part for pair in delivered for part in pair]
        return Reply(self.run("take", limit, ahead, lease, *flat))

    def resolve(
        self, *edges: tuple[str, str, int], entries: tuple[bytes, ...] = (b"parent failed",)
    ) -> Reply:
        flat = [part for edge in edges for part in edge]
        return Reply(self.run("resolve", b"all succeeded", len(entries), *entries, *flat))

    def reopen(self, *tasks: tuple[str, int, str, bytes]) -> Reply:
        return Reply(self.run("reopen", *(part for one in tasks for part in one)))

    def begin(self, what: str, uid: str, entry: bytes = b"begun") -> Reply:
        return Reply(self.run("begin", what, uid, entry))

    def watch(self, uid: str, channel: str = "ch1") -> Any:
        return self.run("watch", uid, channel)

    def unwatch(self, uid: str, channel: str = "ch1") -> Any:
        return self.run("unwatch", uid, channel)

    # -- what Redis holds -------------------------------------------------------------------------

    def state(self, *without: str) -> dict[str, Any]:
        """Everything in Redis but ``history`` (see ``figures``) and the keys named ``without``:
        sorted sets as uid -> score, hashes and sets as they are, the bodies in ``tasks`` and
        ``records`` as bytes. Fails where a key is unknown or an owner's key has no expiry."""
        assert leaks(self.runner.client) == []
        client, prefix = self.runner.client, self.keys.prefix
        found: dict[str, Any] = {}
        for key in client.keys("*"):
            name = key.decode().removeprefix(prefix)
            if name not in ("history", *without) and name.partition(":")[0] not in without:
                found[name] = self._value(name)
        return found

    def figures(self) -> dict[str, str]:
        """What is counted of runs: the fields of ``history``, and of ``stats`` those of names."""
        client, keys = self.runner.client, self.keys
        fields = client.hgetall(keys.history) | {
            name: text for name, text in client.hgetall(keys.stats).items() if name[:1] == b" "
        }
        return {name.decode(): text.decode() for name, text in fields.items()}

    def fold(self, *names: str, read_ms: int | None = None) -> Reply:
        return Reply(self.run("fold", self.now() if read_ms is None else read_ms, *names))

    def _value(self, name: str) -> Any:
        client, key = self.runner.client, self.keys.prefix + name
        kind = client.type(key)
        if kind == b"zset":
            pairs = client.zrange(key, 0, -1, withscores=True)
            return {uid.decode(): int(score) for uid, score in pairs}
        if kind == b"hash":
            raw = name in ("tasks", "records")
            return {
                field.decode(): value if raw else _text(value)
                for field, value in client.hgetall(key).items()
                if name != "stats" or not field.startswith(b" ")
            }
        if kind == b"set":
            return {member.decode() for member in client.smembers(key)}
        assert kind == b"list", (name, kind)
        return _text(client.lrange(key, 0, -1))

    # -- shortcuts for a test's beginning ---------------------------------------------------------

    def call(self, *command: Any) -> Any:
        return self.runner.call(*command)

    def sleep_until_due(self, *uids: str, ago: int = 5) -> None:
        """Make delayed tasks due: their due time is set ``ago`` ms into the past."""
        for uid in uids:
            self.call("ZADD", self.keys.delayed, "XX", self.now() - ago, uid)

    def let_leases_expire(self, *uids: str) -> None:
        """As if the leases of these tasks (default: all) had run out a second ago."""
        for uid in uids or [one.decode() for one in self.call("ZRANGE", self.keys.leases, 0, -1)]:
            self.call("ZADD", self.keys.leases, "XX", self.now() - 1000, uid)

    def sweeps_have_run(self) -> None:
        """As if sweeps had run regularly for long."""
        self.call("HSET", self.keys.meta, "swept", self.now() - 10, "recover_after", 1)

    def pause(self) -> None:
        self.call("HSET", self.keys.meta, "paused", "1")

    def drain_wake(self) -> None:
        self.call("DEL", self.keys.wake)

    def woken(self) -> bool:
        """Whether a wake token lies there; it is taken."""
        return self.call("LPOP", self.keys.wake) is not None

    def now(self) -> int:
        seconds, micros = self.runner.client.time()
        return int(seconds) * 1000 + micros // 1000

    def finish_now(self, *uids: str, kind: str = "s", entry: bytes = b"done") -> Reply:
        """Claim everything as owner ``setup`` and end ``uids`` (default: all of it)."""
        taken = self.claim("setup", want=500)
        chosen = uids or tuple(taken.uids)
        reply = self.finish(
            *((uid, taken.token, kind, entry) for uid in chosen), owner="setup"
        )
        rest = [(uid, taken.token) for uid in taken.uids if uid not in chosen]
        if rest:
            self.release(*rest, owner="setup")
        self.call("DEL", *self.keys.of(PER_OWNER, "setup"))
        self._numbers.clear()
        self.drain_wake()
        return reply


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value

