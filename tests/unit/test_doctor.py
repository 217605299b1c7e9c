"""The doctor: each broken state is built by hand, found, mended, and gone at a second examination;
a healthy system, at rest or at work, gives no findings; other namespaces are left alone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from servers import Server, selected

from skedulr import message, payload
from skedulr.cronline import CronLine
from skedulr.delivery import Child, Delivery
from skedulr.dependencies import Waits, extras_of
from skedulr.doctor import TYPES, Doctor
from skedulr.findings import KINDS, Finding
from skedulr.keys import PER_OWNER, SINGLE, PoolKeys, SpaceKeys
from skedulr.limiting import Limit, placing_of
from skedulr.schedule_records import Definition
from skedulr.schedule_store import Directory, ScheduleStore, place
from skedulr.scheduling import Plan, Policy
from skedulr.store import (
    END_DEAD,
    END_SUCCEEDED,
    Deferral,
    Ending,
    Failure,
    Judgement,
    Lane,
    Store,
    Submission,
)
from skedulr.testing.fake import FakeWire
from skedulr.testing.standing import Clock
from skedulr.wire import Wire

LEASE_MS = 15_000
ENVELOPE = message.envelope(message.name_part("work"), (1,), {}, None, 1000)
HEAD = message.success_head("hands")
CANCEL = message.entry(message.CANCELLED, "me", 0, 0, "no more")


class Hands:
    """A process that submits, claims and ends tasks of pool ``default``, as a child would."""

    def __init__(self, wire: Wire, owner: str, namespace: str = "skedulr") -> None:
        self.wire, self.owner = wire, owner
        self.store = Store(PoolKeys(namespace, "default"))
        self.space = SpaceKeys(namespace)
        self._claims, self._ends = Lane(wire, owner), Lane(wire, owner)

    def submit(self, *uids: str, options: str = "") -> None:
        self.wire.call("HSETNX", self.space.pools, "default", 1)
        batch = [Submission(uid, ENVELOPE, options) for uid in uids]
        self.store.submit(self.wire, batch, replaced=CANCEL)

    def tie(self, uid: str, *parents: str, missing: bool = False) -> None:
        """Submit a task that waits for others, and tie it to them."""
        waits = Waits(tuple(f"default/{one}" for one in parents), "S" * len(parents), missing)
        body = message.envelope(message.name_part("work"), (1,), {}, extras_of(waits), 1000)
        options = f"0 - - {waits.letters}"
        self.store.submit(self.wire, [Submission(uid, body, options, waits)])
        Delivery("skedulr", self.wire).attach([Child("default", uid, 0, waits)])
        self.wire.call("ZREM", self.store.keys.outbox, f"a {uid}")

    def claim(self, want: int = 1) -> list[tuple[bytes, bytes]]:
        claims = self.store.claim(self._claims, want, want, LEASE_MS)
        return [(uid, claims.token) for uid in claims.rows[::4]]

    def succeed(self, *held: tuple[bytes, bytes]) -> None:
        entry = message.success(HEAD, 1, 1, payload.encode(None))
        self._end(held, END_SUCCEEDED, entry)

    def bury(self, *held: tuple[bytes, bytes]) -> None:
        self._end(held, END_DEAD, message.entry(message.DEAD, "hands", 1, 1, ["E", "no", ""]))

    def _end(self, held: tuple[tuple[bytes, bytes], ...], kind: str, entry: bytes) -> None:
        self.store.finish(self._ends, [Ending(uid, token, kind, entry) for uid, token in held])

    def retry(self, held: tuple[bytes, bytes], delay_ms: int = 60_000) -> None:
        entry = message.entry(message.FAILED, "hands", 1, 1, ["E", "no", ""])
        self.store.retry(self._ends, [Failure(*held, delay_ms, entry)])

    def defer(self, held: tuple[bytes, bytes]) -> None:
        self.store.defer(self._ends, [Deferral(*held, 1)])

    def release(self, *held: tuple[bytes, bytes]) -> None:
        self.store.release(self.wire, self.owner, held)


class Ward(Hands):
    """A namespace with something in every place, and a doctor for it."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, "node1.0.1")
        self.keys = self.store.keys
        self.doctor = Doctor(wire, "skedulr", moment_s=0)

    def fill(self) -> None:
        """Two tasks in each place, by the scripts alone."""
        for uid, end in (("done", self.succeed), ("dead", self.bury)):
            self.submit(f"{uid}1", f"{uid}2")
            end(*self.claim(2))
        self.submit("told1")
        self.tie("told2", "told1")
        self.succeed(*self.claim())  # it waits to be told that
        self.submit("later1", "later2", options="5 +60000 -")
        self.submit("retried")
        self.retry(*self.claim())
        self.submit("held1", options="9 - d:x:0:lock1")
        self.submit("window", options="9 - w:x:60000:lock2")
        self.submit("held2", options="9 - -")
        self.claim(3)
        self.submit("ready1", "ready2", options="0 - s:x:0:lock3")
        self.submit("high", options="7 - -")
        self.tie("tied", "ready1", "later1")
        self.tie("patient", "never", missing=True)
        self.store.watch(self.wire, "ready1", "channel")
        self.store.cancel(self.wire, "held1", CANCEL, "control")
        self.put_schedule("daily")

    def put_schedule(self, name: str) -> None:
        line = CronLine.parse("0 9 * * *")
        definition = Definition(
            name, "work", Plan(None, line, "UTC", None, None, 0),
            Policy("latest", None, "allow"), ENVELOPE, "",
        )
        ScheduleStore(self.keys, "control").put(self.wire, [place(definition, 1)])
        self.wire.call(*Directory(self.space).addition("default", [name]))

    def examine(self) -> list[Finding]:
        """Everything that is found by a doctor who knows nothing yet."""
        doctor = Doctor(self.wire, "skedulr", moment_s=0)
        found = [one for pool in doctor.pools() for one in doctor.examine(pool)]
        return [*found, *doctor.examine_namespace()]

    def call(self, command: str, key: str, *args: Any) -> Any:
        """A command on a key of the pool, by its short name."""
        return self.wire.call(command, self.keys.prefix + key, *args)

    def now(self) -> int:
        seconds, micros = self.wire.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def dump(self, tag: str) -> dict[bytes, Any]:
        """Everything in the keys that begin with a tag."""
        read = {b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
                b"set": ("SMEMBERS",), b"list": ("LRANGE", 0, -1), b"string": ("GET",)}
        found = {}
        for key in self.wire.call("KEYS", "*"):
            if key.startswith(tag.encode()):
                command, *rest = read[self.wire.call("TYPE", key)]
                found[key] = self.wire.call(command, key, *rest)
        return found


@pytest.fixture(params=["fakeredis", *selected()])
def ward(
    request: pytest.FixtureRequest, _running: Callable[[str], Server]
) -> Iterator[Ward]:
    if request.param == "fakeredis":
        yield Ward(FakeWire(Clock()))
        return
    server = _running(request.param)
    server.flush()
    wire = Wire(server.url, name="test:doctor")
    yield Ward(wire)
    wire.close()


def kinds(found: list[Finding]) -> list[tuple[str, str]]:
    return sorted((one.kind, one.uid) for one in found)


# ------------------------------------------------------------------------------ health


def test_every_place_filled_by_scripts_is_healthy(ward: Ward) -> None:
    ward.fill()
    assert ward.examine() == []


def test_what_nobody_was_there_to_tell_is_healthy(ward: Ward) -> None:
    ward.fill()
    ward.call("ZADD", "outbox", ward.now() - 3_600_000, "s told1")
    assert ward.examine() == []
    live(ward, since_s=5)  # it has just begun to
    assert ward.examine() == []
    live(ward, since_s=3600)
    ward.call("ZADD", "outbox", 2 ** 52, "s told1")  # as an import does that is not through
    assert ward.examine() == []


def test_edges_that_an_earlier_release_wrote_out_in_full_are_edges(ward: Ward) -> None:
    ward.fill()
    ward.call("HSET", "edges", "later1", "0,1 default/tied,2,0")
    assert ward.examine() == []


def test_an_empty_namespace_is_healthy(ward: Ward) -> None:
    assert ward.examine() == []


def test_what_processes_leave_when_they_end_or_die_is_healthy(ward: Ward) -> None:
    ward.fill()
    other = Hands(ward.wire, "node1.0.2")
    other.submit("x1", "x2", "x3")
    first, second, third = other.claim(3)
    other.release(first)
    other.defer(second)
    judgement = Judgement(third[0], 3, message.entry(message.CRASHED, "m", 0, 1, ""), b"")
    other.store.release_owner(ward.wire, other.owner, judgement)
    ward.store.release_owner(ward.wire, ward.owner)
    assert ward.examine() == []


# ------------------------------------------------------------------------------ illness


def running_without_lease(ward: Ward) -> str:
    ward.call("ZREM", "leases", "held2")
    return "held2"


def lease_too_long(ward: Ward) -> str:
    ward.call("ZADD", "leases", ward.now() + 10 * 86_400_000, "held2")
    return "held2"


def lease_without_claim(ward: Ward) -> str:
    ward.call("ZADD", "leases", ward.now(), "ready1")
    return "ready1"


def claim_without_body(ward: Ward) -> str:
    ward.submit("plain")
    for uid, _ in ward.claim(20):
        if uid == b"plain":
            ward.call("HDEL", "tasks", uid)
    return "plain"


def claim_unreadable(ward: Ward) -> str:
    ward.call("HSET", "claims", "held2", "node1.0.1:5 and more")
    return "held2"


def queued_without_body(ward: Ward) -> str:
    ward.call("ZADD", "ready", 5, "ghost")
    return "ghost"


def in_no_place(ward: Ward) -> str:
    ward.call("ZREM", "ready", "high")
    return "high"


def in_two_places(ward: Ward) -> str:
    ward.call("ZADD", "ready", 5, "later1")
    return "later1"


def in_two_places_while_it_runs(ward: Ward) -> str:
    ward.call("ZADD", "ready", 5, "held2")
    return "held2"


def record_and_body(ward: Ward) -> str:
    record = ward.call("HGET", "records", "done1")
    ward.call("HSET", "tasks", "done1", record[:len(ENVELOPE) + message.STAMP])
    ward.call("ZADD", "ready", 5, "done1")
    return "done1"


def record_unlisted(ward: Ward) -> str:
    ward.call("ZREM", "done", "done1")
    return "done1"


def record_misfiled(ward: Ward) -> str:
    ward.call("ZADD", "dead", 5, "done1")
    return "done1"


def listed_without_record(ward: Ward) -> str:
    ward.call("HDEL", "records", "dead1")
    return "dead1"


def header_without_body(ward: Ward) -> str:
    ward.call("HSET", "info", "ghost", "5 0 0 0 -")
    return "ghost"


def cancel_without_body(ward: Ward) -> str:
    ward.call("SADD", "cancels", "done1")
    return "done1"


def watch_without_body(ward: Ward) -> str:
    ward.call("HSET", "watch", "done1", "channel")
    return "done1"


def progress_without_body(ward: Ward) -> str:
    ward.call("HSET", "progress", "ghost", msgpack.packb([50, None]))
    return "ghost"


def header_unreadable(ward: Ward) -> str:
    ward.call("HSET", "info", "later1", "five attempts")
    return "later1"


def body_unreadable(ward: Ward) -> str:
    ward.call("HSET", "tasks", "ready1", b"\xc1 rubbish")
    return "ready1"


def record_unreadable(ward: Ward) -> str:
    ward.call("HSET", "records", "done1", b"\x94\x01torn")
    return "done1"


def set_aside(ward: Ward) -> str:
    ward.call("HSET", "broken", "ghost", "ready without a body")
    return "ghost"


def wake_overfull(ward: Ward) -> str:
    ward.call("RPUSH", "wake", "1", "1")
    return "wake"


def lock_without_holder(ward: Ward) -> str:
    ward.call("HSET", "unique", "lock9", "ghost 0")
    return "lock9"


def lock_unreadable(ward: Ward) -> str:
    ward.call("HSET", "unique", "lock9", "ghost")
    return "lock9"


def lock_without_window(ward: Ward) -> str:
    ward.call("ZREM", "windows", "lock2")
    return "lock2"


def window_without_lock(ward: Ward) -> str:
    ward.call("ZADD", "windows", ward.now() - 3_600_000, "lock9")
    return "lock9"


def claim_unowned(ward: Ward) -> str:
    ward.call("SREM", f"owned:{ward.owner}", "held2")
    return "held2"


def owned_without_claim(ward: Ward) -> str:
    ward.call("SADD", f"owned:{ward.owner}", "ready1")
    return "ready1"


def owner_for_ever(ward: Ward) -> str:
    ward.call("PERSIST", f"own:{ward.owner}")
    return "own"


def schedule_incomplete(ward: Ward) -> str:
    ward.call("HDEL", "planned", "daily")
    return "daily"


def schedule_unreadable(ward: Ward) -> str:
    ward.call("HSET", "planned", "daily", "tomorrow")
    return "daily"


def schedule_without_tick(ward: Ward) -> str:
    ward.call("ZREM", "ticks", "daily")
    return "daily"


def schedule_rests_and_ticks(ward: Ward) -> str:
    ward.call("HSET", "resting", "daily", "paused")
    return "daily"


def schedule_unlisted(ward: Ward) -> str:
    ward.wire.call("DEL", ward.space.schedules)
    return "daily"


def listed_without_schedule(ward: Ward) -> str:
    ward.wire.call("ZADD", ward.space.schedules, 0, "hourly nowhere")
    return "hourly nowhere"


def node_silent(ward: Ward) -> str:
    record = {"id": "n1", "host": "h", "pid": 1, "beat_at": time.time() - 3600, "children": []}
    ward.wire.call("HSET", ward.space.nodes, "n1", msgpack.packb(record))
    return "n1"


def node_unreadable(ward: Ward) -> str:
    ward.wire.call("HSET", ward.space.nodes, "n1", b"\xc1")
    return "n1"


def pool_unlisted(ward: Ward) -> str:
    ward.wire.call("DEL", ward.space.pools)
    return "default"


def lock_for_ever(ward: Ward) -> str:
    key = ward.space.operation_lock("abc")
    ward.wire.call("SET", key, "token")
    return key


ONE = "0 - - " + placing_of([Limit(concurrency=1)], "t", str)
#: The key of that limit, which is the name of its set as well.
LIMITED = ONE.partition("l:")[2].partition("/")[0]


def fill_limit(ward: Ward) -> None:
    """One task runs, two are parked."""
    ward.submit("lim1", "lim2", "lim3", options=ONE)
    ward.claim(20)


def slot_without_claim(ward: Ward) -> str:
    fill_limit(ward)
    ward.call("HSET", "slots", "ghost", LIMITED)
    ward.call("HINCRBY", "slots", f"#{LIMITED}", 1)
    return "ghost"


def slots_miscounted(ward: Ward) -> str:
    fill_limit(ward)
    ward.call("HINCRBY", "slots", f"#{LIMITED}", 3)
    return LIMITED


def parked_in_no_queue(ward: Ward) -> str:
    fill_limit(ward)
    (member,) = ward.call("ZRANGEBYLEX", "queues", "-", "+")[-1:]
    assert member.endswith(b" lim3")
    ward.call("ZREM", "queues", member)
    return "lim3"


def queue_member_not_parked(ward: Ward) -> str:
    fill_limit(ward)
    member = f"{LIMITED} 9999999999999999 ghost"
    ward.call("ZADD", "queues", 0, member)
    return member


def set_waits_for_nothing(ward: Ward) -> str:
    fill_limit(ward)
    ward.submit("ready4")
    ward.call("ZREM", "queues", ward.call("HGET", "slots", f"@{LIMITED}"))
    return LIMITED


def wait_without_set(ward: Ward) -> str:
    fill_limit(ward)
    member = f"!{LIMITED} 0000000000000009 another"
    ward.call("ZADD", "queues", 0, member)
    return member


def limit_stuck(ward: Ward) -> str:
    fill_limit(ward)
    ward.call("HDEL", "slots", "lim1", f"#{LIMITED}")
    return LIMITED


def limit_stuck_by_a_late_alarm(ward: Ward) -> str:
    key = fill_rate(ward)
    late = ward.now() + 10 * 86_400_000
    ward.call("ZADD", "releases", late, key)
    ward.call("HSET", "meta", "release_at", late)
    return key


RATED = "0 - - " + placing_of([Limit(rate=1, per=60)], "t", str)


def fill_rate(ward: Ward) -> str:
    """One task runs, two are parked until the next token is there; the limit's key."""
    ward.submit("rate1", "rate2", "rate3", options=RATED)
    ward.claim(20)
    (key,) = ward.call("ZRANGE", "releases", 0, -1)
    return str(key.decode())


def release_unnoted(ward: Ward) -> str:
    fill_rate(ward)
    ward.call("HDEL", "meta", "release_at")
    return "release_at"


def release_noted_too_late(ward: Ward) -> str:
    fill_rate(ward)
    ward.call("HINCRBY", "meta", "release_at", 3_600_000)
    return "release_at"


def release_unreadable(ward: Ward) -> str:
    fill_rate(ward)
    ward.call("HSET", "meta", "release_at", "soon")
    return "release_at"


def held_without_waiting(ward: Ward) -> str:
    ward.call("HDEL", "waiting", "tied")
    return "tied"


def waiting_without_held(ward: Ward) -> str:
    ward.call("ZREM", "held", "tied")
    return "tied"


def waiting_unreadable(ward: Ward) -> str:
    ward.call("HSET", "waiting", "tied", "0 0 at once - SS")
    return "tied"


def waiting_of_another_round(ward: Ward) -> str:
    ward.call("HSET", "waiting", "tied", "3 0 - - SS")
    return "tied"


def waiting_for_others(ward: Ward) -> str:
    ward.call("HSET", "waiting", "tied", "0 0 - - SSS")
    return "tied"


def waiting_for_nothing(ward: Ward) -> str:
    ward.call("HSET", "waiting", "tied", "0 0 - - ss")
    return "tied"


def waits_in_no_place(ward: Ward) -> str:
    ward.call("HDEL", "waiting", "tied")
    ward.call("ZREM", "held", "tied")
    return "tied"


def waiting_without_body(ward: Ward) -> str:
    ward.call("HDEL", "tasks", "tied")
    ward.call("ZREM", "held", "tied")
    return "tied"


def waiting_and_queued(ward: Ward) -> str:
    ward.call("ZADD", "ready", 5, "tied")
    return "tied"


def held_and_queued(ward: Ward) -> str:
    ward.call("ZADD", "held", 5, "ready1")
    return "ready1"


def held_for_nothing(ward: Ward) -> str:
    ward.call("ZREM", "ready", "ready1")
    ward.call("ZADD", "held", 5, "ready1")
    return "ready1"


def start_forgotten(ward: Ward) -> str:
    steps = {"steps": [["one", "default"]]}
    body = message.envelope(message.name_part("flow"), (), {}, steps, 1000)
    ward.store.submit(ward.wire, [Submission("flow", body, "0 - - A")])
    ward.call("ZREM", "outbox", "a flow")
    return "flow"


def edge_lost(ward: Ward) -> str:
    ward.call("HDEL", "edges", "later1")
    return "tied"


def edge_lost_of_a_parent_to_come(ward: Ward) -> str:
    ward.call("HDEL", "edges", "never")
    return "patient"


def parent_ended(ward: Ward) -> str:
    ward.call("ZREM", "outbox", "s told1")
    return "told2"


def parent_unknown(ward: Ward) -> str:
    ward.submit("gone")
    ward.tie("orphan", "gone")
    ward.call("HDEL", "tasks", "gone")
    ward.call("ZREM", "ready", "gone")
    ward.call("HDEL", "edges", "gone")
    return "orphan"


def edges_without_parent(ward: Ward) -> str:
    ward.call("HSET", "edges", "ghost", "0,2 tied other/c,2,1")
    return "ghost"


def edges_unreadable(ward: Ward) -> str:
    ward.call("HSET", "edges", "ghost", "tied")
    return "ghost"


def edges_beyond_the_last_page(ward: Ward) -> str:
    ward.call("HSET", "edges", "ready1,3", " c1 c2")
    return "ready1,3"


def outbox_unreadable(ward: Ward) -> str:
    ward.call("ZADD", "outbox", ward.now(), "told1")
    return "told1"


def outbox_too_late(ward: Ward) -> str:
    ward.call("ZADD", "outbox", ward.now() + 10 * 86_400_000, "s told1")
    return "s told1"


def outbox_overdue(ward: Ward) -> str:
    live(ward, since_s=3600)
    ward.call("ZADD", "outbox", ward.now() - 3_600_000, "s told1")
    return "s told1"


def live(ward: Ward, since_s: int) -> None:
    """A node has lived for so long."""
    now_s = ward.now() / 1000
    record = {"id": "n1", "host": "h", "pid": 1, "started_at": now_s - since_s, "beat_at": now_s,
              "children": [{}]}
    ward.wire.call("HSET", ward.space.nodes, "n1", msgpack.packb(record))


ILLNESSES = (
    running_without_lease, lease_too_long, lease_without_claim, claim_without_body,
    claim_unreadable, queued_without_body, in_no_place, in_two_places,
    in_two_places_while_it_runs, record_and_body, record_unlisted, record_misfiled,
    listed_without_record, header_without_body, cancel_without_body, watch_without_body,
    progress_without_body, header_unreadable, body_unreadable, record_unreadable, set_aside,
    wake_overfull, lock_without_holder, lock_unreadable, lock_without_window, window_without_lock,
    claim_unowned, owned_without_claim, owner_for_ever, schedule_incomplete, schedule_unreadable,
    schedule_without_tick, schedule_rests_and_ticks, schedule_unlisted, listed_without_schedule,
    node_silent, node_unreadable, pool_unlisted, lock_for_ever, slot_without_claim,
    slots_miscounted, parked_in_no_queue, queue_member_not_parked, set_waits_for_nothing,
    wait_without_set, limit_stuck, limit_stuck_by_a_late_alarm, release_unnoted,
    release_noted_too_late, release_unreadable, held_without_waiting, waiting_without_held,
    waiting_unreadable, waiting_of_another_round, waiting_for_others, waiting_for_nothing,
    waits_in_no_place, waiting_without_body, waiting_and_queued, held_and_queued, held_for_nothing,
    start_forgotten, edge_lost, edge_lost_of_a_parent_to_come, parent_ended, parent_unknown,
    edges_without_parent, edges_unreadable, edges_beyond_the_last_page, outbox_unreadable,
    outbox_too_late, outbox_overdue,
)
#: Where the name of the function is not that of the kind, or more than one thing is found.
KINDS_OF = {
    "claim_unreadable": {"claim-unreadable", "owned-without-claim"},
    "in_two_places_while_it_runs": {"in-two-places"},
    "schedule_unreadable": {"schedule-incomplete"},
    "limit_stuck_by_a_late_alarm": {"limit-stuck"},
    "release_noted_too_late": {"release-unnoted"},
    "release_unreadable": {"release-unnoted"},
    "waiting_of_another_round": {"waiting-unreadable"},
    "waiting_for_others": {"waiting-unreadable"},
    "waiting_for_nothing": {"waiting-unreadable"},
    "waiting_without_body": {"queued-without-body"},
    "waiting_and_queued": {"in-two-places"},
    "held_and_queued": {"in-two-places"},
    "held_for_nothing": {"held-without-waiting"},
    "edge_lost_of_a_parent_to_come": {"edge-lost"},
    "edges_beyond_the_last_page": {"edges-unreadable"},
}


@pytest.mark.parametrize("illness", ILLNESSES, ids=lambda one: one.__name__)
def test_a_broken_state_is_found_and_mended(ward: Ward, illness: Callable[[Ward], str]) -> None:
    ward.fill()
    uid = illness(ward)
    expected = KINDS_OF.get(illness.__name__, {illness.__name__.replace("_", "-")})
    found = ward.examine()
    assert {(one.kind, one.uid) for one in found} == {(kind, uid) for kind in expected}
    mended = ward.doctor.mend(found)
    assert {(one.kind, one.uid) for one in mended} >= {(one.kind, one.uid) for one in found
                                                       if one.fixable}
    assert ward.examine() == []


def test_every_kind_that_can_be_mended_is_among_the_illnesses() -> None:
    shown = {kind for one in ILLNESSES
             for kind in KINDS_OF.get(one.__name__, {one.__name__.replace("_", "-")})}
    assert {kind for kind, how in KINDS.items() if how.script} == shown


def test_every_key_of_a_pool_is_one_that_the_doctor_examines() -> None:
    # A new place for tasks, which the doctor does not know, would make it put them elsewhere.
    assert set(TYPES) == {*SINGLE, *PER_OWNER}


# ------------------------------------------------------------------- what is only reported


def test_a_suspect_is_shown_and_left_alone(ward: Ward) -> None:
    ward.submit("a")
    ward.claim()
    judgement = Judgement(b"", 3, b"", b"")
    ward.store.release_owner(ward.wire, ward.owner, judgement)
    found = ward.examine()
    assert kinds(found) == [("suspect", "a")]
    assert ward.doctor.mend(found) == []
    assert ward.call("ZCARD", "suspects") == 1


def test_what_a_newer_release_wrote_is_left_alone(ward: Ward) -> None:
    ward.fill()
    for key, uid in (("tasks", "ready1"), ("records", "done1")):
        ward.call("HSET", key, uid, b"\x94\x63" + ward.call("HGET", key, uid)[2:])
    before = ward.dump("{")
    found = ward.examine()
    assert kinds(found) == [("newer-release", "done1"), ("newer-release", "ready1")]
    assert ward.doctor.mend(found) == []
    assert ward.dump("{") == before


def test_an_unreadable_body_that_is_claimed_is_left_to_its_worker(ward: Ward) -> None:
    ward.fill()
    ward.call("HSET", "tasks", "held2", b"rubbish")
    found = ward.examine()
    assert [(one.kind, one.uid, one.fixable) for one in found] == [
        ("body-unreadable", "held2", False)
    ]
    assert ward.doctor.mend(found) == []


def test_an_unknown_key_is_shown_and_left_alone(ward: Ward) -> None:
    ward.fill()
    strange = ["{skedulr:default}:reday", "{skedulr:default}:ready:x", "{skedulr}:pool",
               "{skedulr:a b}:ready", "{skedulr:default}:owned"]
    for key in strange:
        ward.wire.call("SET", key, "1")
    found = ward.examine()
    assert kinds(found) == sorted(("key-unknown", key) for key in strange)
    assert ward.doctor.mend(found) == []
    assert ward.wire.call("EXISTS", *strange) == len(strange)


def test_a_key_of_the_wrong_type_is_shown_alone(ward: Ward) -> None:
    ward.fill()
    in_no_place(ward)
    ward.wire.call("DEL", ward.keys.ready)
    ward.call("SET", "ready", "1")
    found = ward.examine()
    assert kinds(found) == [("key-of-wrong-type", ward.keys.ready)]
    assert ward.doctor.mend(found) == []
    assert ward.doctor.size("default") > 0


# ------------------------------------------------------------------------- while all runs


def test_what_is_sound_at_the_second_look_was_no_fault(ward: Ward) -> None:
    ward.fill()
    moments = []

    def meanwhile(seconds: float) -> None:
        moments.append(seconds)
        ward.call("ZADD", "ready", 5, "high")

    in_no_place(ward)
    doctor = Doctor(ward.wire, "skedulr", moment_s=0.7, sleep=meanwhile)
    assert doctor.examine("default") == []
    assert moments == [0.7]


def test_nobody_waits_for_a_second_look_at_nothing(ward: Ward) -> None:
    ward.fill()
    doctor = Doctor(ward.wire, "skedulr", sleep=lambda seconds: pytest.fail("it slept"))
    assert doctor.examine("default") == []


@pytest.mark.parametrize("illness", ILLNESSES, ids=lambda one: one.__name__)
def test_what_is_sound_by_the_time_of_the_mend_stays_as_it_is(
    illness: Callable[[Ward], str]
) -> None:
    ward = Ward(FakeWire(Clock()))
    ward.fill()
    illness(ward)
    found = ward.examine()
    ward.wire.call("FLUSHALL")
    ward.fill()
    before = ward.dump("{")
    scripts = [one for one in found if KINDS[one.kind].script != "command"]
    assert ward.doctor.mend(scripts) == []
    assert ward.dump("{") == before


def test_a_mend_leaves_everything_else_as_it_is(ward: Ward) -> None:
    ward.fill()
    before = ward.dump("{")
    uid = queued_without_body(ward)
    ward.doctor.mend(ward.examine())
    assert uid == "ghost"
    assert ward.dump("{") == before


def test_a_busy_system_gives_no_findings(server: Server) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        wire = Wire(server.url, name=f"test:busy:{number}")
        dice = random.Random(number)
        incarnation = count = 0
        hands, delivery = Hands(wire, f"busy.{number}.0"), Delivery("skedulr", wire)
        try:
            while not stop.is_set():
                count += 1
                locks = ("", "0 - d:r:0:k%d", "0 - s:p:0:k%d", "1 - w:r:60:k%d", "2 +1 -")
                options = dice.choice(locks)
                hands.submit(f"t{number}-{count}", options=options % (count % 7)
                             if "%" in options else options)
                held = hands.claim(dice.randint(0, 5))
                for one in held:
                    act = dice.choice((hands.succeed, hands.bury, hands.release, hands.defer,
                                       hands.retry, hands.succeed))
                    if dice.random() < 0.2:
                        hands.store.cancel(wire, one[0].decode(), CANCEL, "control")
                    act(one)
                if count % 3 == 0:
                    parents = [f"t{number}-{count - dice.randrange(3)}" for _ in range(2)]
                    hands.tie(f"c{number}-{count}", *dict.fromkeys(parents))
                if count % 4 == 0:
                    delivery.deliver("default", ahead_ms=10_000)
                if count % 25 == 0:
                    hands.store.release_owner(wire, hands.owner)
                    incarnation += 1
                    hands = Hands(wire, f"busy.{number}.{incarnation}")
                if count % 10 == 0:
                    hands.store.trim(wire, 0, 20, 20)
        except BaseException as error:
            failures.append(error)
        finally:
            wire.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        ward = Ward(Wire(server.url, name="test:doctor"))
        for _ in range(10):
            doctor = Doctor(ward.wire, "skedulr", moment_s=0.02)
            found = [*doctor.examine("default"), *doctor.examine_namespace()]
            assert found == []
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
        ward.wire.close()
    assert failures == []
    assert int(server.client.hget(ward.keys.stats, "succeeded")) > 0


# ---------------------------------------------------------------------------- consequences


def test_a_run_without_a_lease_is_recovered_after_the_grace(ward: Ward) -> None:
    ward.fill()
    uid = running_without_lease(ward)
    doctor = Doctor(ward.wire, "skedulr", moment_s=0, lease_s=5)
    before = ward.now()
    doctor.mend(doctor.examine("default"))
    lease = int(ward.call("ZSCORE", "leases", uid))
    assert before + 5000 <= lease <= ward.now() + 5000
    # Its owner, if it lives, renews it meanwhile; else the sweep takes it back.
    ward.call("ZADD", "leases", ward.now() - 1, uid)
    ward.call("HSET", "meta", "swept", ward.now(), "recover_after", 1)
    judgement = Judgement(b"", 3, b"", b"", suspecting=False)
    assert ward.store.recover(ward.wire, LEASE_MS, LEASE_MS, judgement).uids == [uid.encode()]
    assert ward.examine() != [], "it ran, and nobody was named: it is a suspect"


def test_a_task_in_no_place_runs_after_its_mend(ward: Ward) -> None:
    ward.fill()
    uid = in_no_place(ward)
    ward.wire.call("DEL", ward.keys.wake)
    ward.doctor.mend(ward.examine())
    assert ward.call("LLEN", "wake") == 1
    assert [claimed for claimed, _ in ward.claim()] == [uid.encode()], "it has kept its priority"


def test_a_delayed_task_that_was_queued_as_well_waits_for_its_time(ward: Ward) -> None:
    ward.fill()
    uid = in_two_places(ward)
    ward.doctor.mend(ward.examine())
    assert ward.call("ZSCORE", "ready", uid) is None
    assert ward.call("ZSCORE", "delayed", uid) is not None


def test_a_task_that_has_ended_is_not_run_again(ward: Ward) -> None:
    ward.fill()
    uid = record_and_body(ward)
    ward.doctor.mend(ward.examine())
    assert ward.call("HEXISTS", "tasks", uid) == 0
    assert ward.call("ZSCORE", "ready", uid) is None
    assert ward.call("HEXISTS", "records", uid) == 1


def test_a_resubmitted_task_is_run_though_its_old_record_stayed(ward: Ward) -> None:
    ward.fill()
    record = ward.call("HGET", "records", "dead1")
    note = message.entry(message.RESUBMITTED, "me", 0, 0)
    ward.store.resubmit(ward.wire, [("dead1", "", note)])
    ward.call("HSET", "records", "dead1", record)
    assert kinds(ward.examine()) == [("record-and-body", "dead1")]
    ward.doctor.mend(ward.examine())
    assert ward.examine() == []
    assert ward.call("ZSCORE", "ready", "dead1") is not None
    assert ward.call("HEXISTS", "records", "dead1") == 0


@pytest.mark.parametrize("illness", [body_unreadable, record_unreadable],
                         ids=lambda one: one.__name__)
def test_what_can_not_be_read_is_shown_among_the_dead(
    ward: Ward, illness: Callable[[Ward], str]
) -> None:
    ward.fill()
    uid = illness(ward)
    ward.doctor.mend(ward.examine())
    journal = message.read_journal(ward.call("HGET", "records", uid))
    assert journal.end_state == "dead"
    assert "can not be read" in journal.entries[-1].value[1]
    assert ward.call("ZSCORE", "dead", uid) is not None
    assert ward.call("ZSCORE", "done", uid) is None
    assert ward.call("ZSCORE", "ready", uid) is None


def test_a_lock_goes_and_the_key_is_free_again(ward: Ward) -> None:
    ward.fill()
    lock_without_holder(ward)
    ward.doctor.mend(ward.examine())
    ward.submit("next", options="0 - d:x:0:lock9")
    assert ward.call("HGET", "unique", "lock9") == b"next 0"


def test_more_than_a_page_of_findings_is_mended_whole(ward: Ward) -> None:
    for at in range(0, 1300, 100):
        pairs = [part for i in range(at, at + 100) for part in (i, f"ghost{i}")]
        ward.call("ZADD", "ready", *pairs)
        ward.call("SADD", "cancels", *pairs[1::2])
        ward.call("HSET", "info", *(part for uid in pairs[1::2] for part in (uid, "0 0 0 0 -")))
    ward.wire.call("HSETNX", ward.space.pools, "default", 1)
    looked_at: list[int] = []
    doctor = Doctor(ward.wire, "skedulr", moment_s=0, on_progress=looked_at.append)
    assert doctor.size("default") == 3900
    found = doctor.examine("default")
    assert len(found) == 3900
    assert sum(looked_at) >= 3900
    assert len(doctor.mend(found)) == 3900
    assert ward.examine() == []


def test_large_bodies_are_asked_for_a_few_at_a_time(ward: Ward) -> None:
    large = message.envelope(message.name_part("work"), ("x" * 900_000,), {}, None, 10**6)
    for i in range(30):
        ward.store.submit(ward.wire, [Submission(f"t{i}", large, "")])
    ward.wire.call("HSETNX", ward.space.pools, "default", 1)
    asked = []
    call = ward.wire.call

    def watched(*command: Any, **options: Any) -> Any:
        answer = call(*command, **options)
        if command[:2] == ("HSCAN", ward.keys.tasks):
            asked.append(sum(map(len, answer[1])))
        return answer

    ward.wire.call = watched  # type: ignore[method-assign]
    assert Doctor(ward.wire, "skedulr").examine("default") == []
    # fakeredis and a small hash give more than was asked for; a server of this size does not.
    assert sum(asked) >= 30 * 900_000


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_broken_at_once_is_sound_in_the_end(seed: int) -> None:
    dice = random.Random(seed)
    ward = Ward(FakeWire(Clock()))
    ward.fill()
    record, body = ward.call("HGET", "records", "done1"), ward.call("HGET", "tasks", "ready1")
    claims = (f"{ward.owner}:1 5 0", "other.0.1:3 9 7 s", "torn", f"{ward.owner}:2 7 1")
    for i in range(60):
        uid = f"t{i}"
        for key, value in (("tasks", dice.choice((body, body, record + body[-9:], b"no"))),
                           ("records", dice.choice((record, record, b"no"))),
                           ("claims", dice.choice(claims)),
                           ("info", dice.choice(("0 1 2", "5 0 0 0 -"))),
                           ("watch", "channel"), ("progress", b"\x92\x01\xc0"),
                           ("broken", "why"), ("unique", f"{uid} {dice.choice((0, 1, 2**50))}")):
            if dice.random() < 0.4:
                ward.call("HSET", key, uid, value)
        for key in ("ready", "delayed", "suspects", "leases", "done", "dead", "windows"):
            if dice.random() < 0.3:
                ward.call("ZADD", key, dice.choice((5, ward.now(), ward.now() + 1000)), uid)
        for key in ("cancels", f"owned:{ward.owner}", "owned:other.0.1"):
            if dice.random() < 0.3:
                ward.call("SADD", key, uid)
    # A lock may lose its holder by the mend of that one.
    for _ in range(2):
        ward.doctor.mend(ward.examine())
    left = ward.examine()
    assert [one for one in left if one.fixable] == []
    assert {one.kind for one in left} <= {"suspect", "body-unreadable"}


# -------------------------------------------------------------------------- other namespaces


def test_other_namespaces_are_neither_looked_at_nor_touched(ward: Ward) -> None:
    ward.fill()
    for namespace in ("skedulr.b", "skedulr-b", "skedulrb", "s", "sk"):
        keys, space = PoolKeys(namespace, "default"), SpaceKeys(namespace)
        ward.wire.call("ZADD", keys.ready, 5, "ghost")
        ward.wire.call("SET", keys.prefix + "strange", "1")
        ward.wire.call("HSET", space.nodes, "n", b"\xc1")
        ward.wire.call("SET", space.operation_lock("x"), "1")
    ward.wire.call("SET", "skedulr:default:ready", "1")
    ward.wire.call("SET", "{skedulr", "1")
    before = {**ward.dump("{s"), **ward.dump("skedulr")}
    for illness in (in_no_place, lock_for_ever, lock_without_holder):
        illness(ward)
    found = ward.examine()
    assert {one.kind for one in found} == {"in-no-place", "lock-for-ever", "lock-without-holder"}
    ward.doctor.mend(found)
    own = (b"{skedulr:", b"{skedulr}")
    after = {**ward.dump("{s"), **ward.dump("skedulr")}
    assert {key: one for key, one in after.items() if not key.startswith(own)} == {
        key: one for key, one in before.items() if not key.startswith(own)
    }
