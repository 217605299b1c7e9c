"""The doctor's rounds: reading the facts, sort by sort, and having them judged.

``walk`` looks at everything of its sort, page by page; ``again`` looks once more at what some
findings are about. What is judged together is read in one step (MULTI), so that nothing is taken
for broken because it moved between two looks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgpack

from . import message
from .counts import SILENT_S
from .errors import ConfigError, PayloadError
from .findings import (
    Finding,
    Sight,
    TaskFacts,
    judge_body,
    judge_lock,
    judge_record,
    judge_schedule,
    judge_task,
    name,
    owner_of,
    raw,
    read_lock,
)
from .held import is_start, made_anew, mend_detail, waits_of, was_freed
from .keys import PoolKeys, SpaceKeys
from .limiting import Known, read_known
from .streams import FIRST_PLACE, GROUP, Group, group_of, is_streamed, oldest_first, queued
from .wire import Wire

T = TypeVar("T")

#: The most members of a key that are asked for at once.
PAGE = 500
#: The most bytes of bodies or records that are asked for at once, as far as a few tell their size.
PAGE_BYTES = 8_000_000
#: How many of them tell it.
SAMPLE = 20
#: Findings whose journals are read again in one step.
JOURNALS = 50

#: A rate's next token is looked for no later than this after it is there, ms.
LATE_ALARM_MS = 1000

Found = Iterator[tuple[int, list[Finding]]]


class Round(Protocol):
    """One sort of facts. ``subjects`` are those of KINDS that it can look at again."""

    subjects: frozenset[str]

    def walk(self) -> Found:
        """Everything there is, by pages: how many members were looked at, what was found."""
        ...

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        """What is broken now about whatever up to JOURNALS findings are about."""
        ...


class Tasks:
    """Bodies, records, places, and what lies beside them."""

    subjects = frozenset(("task",))
    #: Where else an id may stand, and the command that walks there.
    _PLACES = (
        ("ready", "ZSCAN"), ("delayed", "ZSCAN"), ("suspects", "ZSCAN"), ("held", "ZSCAN"),
        ("waiting", "HSCAN"), ("parked", "ZSCAN"), ("leases", "ZSCAN"),
        ("claims", "HSCAN"), ("done", "ZSCAN"), ("dead", "ZSCAN"), ("info", "HSCAN"),
        ("cancels", "SSCAN"), ("watch", "HSCAN"), ("progress", "HSCAN"),
    )

    def __init__(self, wire: Wire, keys: PoolKeys, grace_ms: int) -> None:
        self._wire, self._keys, self._grace_ms = wire, keys, grace_ms
        #: Whether ready work is in a stream; what is there, where that had to be learned; entries
        #: without a body.
        self._streamed = is_streamed(wire, keys)
        self._in_stream: set[bytes] | None = None
        self._strays: set[bytes] = set()

    def walk(self) -> Found:
        k = self._keys
        if self._streamed:
            yield from self._walk_stream()
        for key in (k.tasks, k.records):
            for page in scan(self._wire, "HSCAN", key, affordable(self._wire, key)):
                journals = _pairs(page)
                found = self._judge(
                    list(journals), bodies=journals if key == k.tasks else {},
                    records=journals if key == k.records else {},
                )
                yield len(journals), found
        for place, command in self._PLACES:
            # What a join waits for is as long as it has parents.
            count = affordable(self._wire, k.waiting) if place == "waiting" else PAGE
            for page in scan(self._wire, command, getattr(k, place), count):
                ids = page if command == "SSCAN" else page[::2]
                yield len(ids), self._judge(self._without_journal(ids))

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        ids = _ids(found)
        k = self._keys
        if self._in_stream is not None:
            self._in_stream |= self._all_in_stream()
        bodies, records = self._wire.calls([("HMGET", k.tasks, *ids), ("HMGET", k.records, *ids)])
        return self._judge(ids, bodies=_there(ids, bodies), records=_there(ids, records))

    def _walk_stream(self) -> Found:
        """Learn what is in the stream, where counting says that something is missing there; and
        find entries of nobody's."""
        k = self._keys
        bodies, claims, waiting, *places, length, removed, here = at_once(self._wire, [
            ("HLEN", k.tasks), ("HLEN", k.claims), ("HLEN", k.waiting),
            *(("ZCARD", key) for key in (k.delayed, k.suspects)),
            ("XLEN", k.stream), ("HGET", k.removed, ""), ("EXISTS", k.stream),
        ])
        group = group_of(self._wire, k) if here else Group(0, 0)
        if queued(length, group, removed) < bodies - claims - waiting - sum(places):
            self._in_stream = self._all_in_stream()
        for ids in oldest_first(self._wire, k, PAGE, above=group.last_place):
            yield len(ids), self._judge_entries(ids)

    def _all_in_stream(self) -> set[bytes]:
        return {id for page in oldest_first(self._wire, self._keys, PAGE) for id in page}

    def _judge_entries(self, ids: Sequence[bytes]) -> list[Finding]:
        """Entries that wait and have no task. One that was taken out is noted, and goes by itself;
        so does the other, but somebody removed that body."""
        k = self._keys
        bodies, removed = self._wire.calls([
            ("HMGET", k.tasks, *ids), ("HMGET", k.removed, *ids),
        ])
        self._strays.update(
            id for id, body, gone in zip(ids, bodies, removed, strict=True)
            if body is None and gone is None
        )
        return [one for one in self._judge(self._without_journal(ids))
                if one.kind == "queued-without-body"]

    def _without_journal(self, ids: Sequence[bytes]) -> list[bytes]:
        """Those that the walks over bodies and records do not come by."""
        k = self._keys
        if not ids:
            return []
        known = self._wire.calls([
            ("HEXISTS", key, id) for key in (k.tasks, k.records) for id in ids
        ])
        return [id for i, id in enumerate(ids) if not (known[i] or known[len(ids) + i])]

    def _judge(
        self, ids: Sequence[bytes], *, bodies: Mapping[bytes, bytes] | None = None,
        records: Mapping[bytes, bytes] | None = None,
    ) -> list[Finding]:
        if not ids:
            return []
        now_ms, all_facts = self._look(ids)
        found = []
        for id, facts in zip(ids, all_facts, strict=True):
            sights = list(judge_task(facts, now_ms, self._grace_ms))
            body, record = (bodies or {}).get(id), (records or {}).get(id)
            # What was moved between the two looks is another one's now.
            if body is not None and facts.body:
                sights = [each for one in sights for each in self._if_waiting(facts.uid, body, one)]
                sights += judge_body(facts, body)
            if record is not None and facts.record:
                sights += judge_record(facts, record, now_ms)
            found += [_finding(self._keys.pool, facts.uid, sight, facts.holder) for sight in sights]
        return found

    def _if_waiting(self, uid: str, body: bytes, sight: Sight) -> Iterator[Sight]:
        """A task in no place that has to wait for others is not to be queued before they end."""
        if sight.kind != "in-no-place":
            yield sight
            return
        try:
            journal = message.read_journal(body)
        except PayloadError:
            yield sight
            return
        id = f"{self._keys.pool}/{uid}"
        in_hand = [b"a " + raw(uid), b"t " + raw(uid)]
        if is_start(journal) and any(self._wire.call("ZMSCORE", self._keys.outbox, *in_hand)):
            return  # a workflow that was not stored whole is being removed, its steps first
        if waits_of(id, journal) is None or was_freed(journal):
            yield sight
        else:
            yield Sight("waits-in-no-place", "its body is there, and nothing of what it waits for: "
                        "all of its parents are asked anew",
                        mend_detail(None, made_anew(id, journal)))

    def _look(self, ids: Sequence[bytes]) -> tuple[int, list[TaskFacts]]:
        k, count = self._keys, len(ids)
        answers = at_once(self._wire, [
            ("TIME",),
            *(("HEXISTS", key, id) for key in (k.tasks, k.records) for id in ids),
            *(("HMGET", key, *ids) for key in (k.watch, k.progress, k.claims, k.info, k.waiting)),
            ("SMISMEMBER", k.cancels, *ids),
            *(("ZMSCORE", key, *ids)
              for key in (k.ready, k.delayed, k.suspects, k.leases, k.done, k.dead, k.held,
                          k.parked)),
        ])
        time, bodies, records = answers[0], answers[1:count + 1], answers[count + 1:2 * count + 1]
        watch, progress, claims, info, waiting, cancels, *scores = answers[2 * count + 1:]
        if self._streamed:
            self._place(ids, bodies, claims, waiting, scores)
        ready, delayed, suspects, leases, done, dead, held, parked = scores
        return now_of(time), [
            TaskFacts(
                name(ids[i]), bool(bodies[i]), bool(records[i]), watch[i] is not None,
                progress[i] is not None, bool(cancels[i]), claims[i], info[i],
                _number(ready[i]), _number(delayed[i]), _number(suspects[i]), _number(leases[i]),
                _number(done[i]), _number(dead[i]), _number(held[i]), _number(parked[i]),
                waiting[i] is not None, self._streamed,
            )
            for i in range(count)
        ]

    def _place(
        self, ids: Sequence[bytes], bodies: Sequence[int], claims: Sequence[bytes | None],
        waiting: Sequence[bytes | None], scores: Sequence[list[Any]],
    ) -> None:
        """Put places and leases where a stream has them: what lives and is nowhere else is ready,
        unless it is known to be missing; a claim's lease is its entry's being pending."""
        ready, delayed, suspects, leases, _, _, held, parked = scores
        pending = self._pending(claims)
        for i, id in enumerate(ids):
            elsewhere = delayed[i] or suspects[i] or held[i] or waiting[i] or parked[i]
            if claims[i] is None and not elsewhere:
                known = self._in_stream is None or id in self._in_stream
                if known if bodies[i] else id in self._strays:
                    ready[i] = b"%d" % FIRST_PLACE
            if leases[i] is None and pending[i]:
                leases[i] = b"0"

    def _pending(self, claims: Sequence[bytes | None]) -> list[bool]:
        """Whether the entries of these claims are pending."""
        entries = [
            parts[1] + b"-0" if len(parts := (claim or b"").split(b" ")) > 1 else b""
            for claim in claims
        ]
        stream = self._keys.stream
        here = self._wire.call("EXISTS", stream) and self._wire.call("XINFO", "GROUPS", stream)
        asked = [entry for entry in entries if entry and here]
        found = self._wire.calls([
            ("XPENDING", stream, GROUP, entry, entry, 1) for entry in asked
        ]) if asked else []
        there = {entry for entry, pending in zip(asked, found, strict=True) if pending}
        return [entry in there for entry in entries]


class Owners:
    """What is kept of each process: the ids it holds, its last calls; and the claims it has."""

    subjects = frozenset(("task", "owner"))

    def __init__(self, wire: Wire, keys: PoolKeys, owners: Iterable[str]) -> None:
        self._wire, self._keys, self._owners = wire, keys, sorted(owners)

    def walk(self) -> Found:
        for owner in self._owners:
            yield 2, self._for_ever(owner)
            for ids in scan(self._wire, "SSCAN", self._of("owned", owner)):
                yield len(ids), self._judge_owned(owner, ids)
        for page in scan(self._wire, "HSCAN", self._keys.claims):
            ids = page[::2]
            yield len(ids), self._judge_claims(ids, page[1::2])

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        seen = []
        for owner in {one.owner for one in found if one.kind == "owner-for-ever"}:
            seen += self._for_ever(owner)
        tasks = [one for one in found if one.kind != "owner-for-ever"]
        for owner, ids in _grouped((one.owner, raw(one.uid)) for one in tasks if one.owner).items():
            seen += self._judge_owned(owner, ids)
        ids = _ids(tasks)
        if ids:
            seen += self._judge_claims(ids, self._wire.call("HMGET", self._keys.claims, *ids))
        return seen

    def _of(self, key: str, owner: str) -> bytes:
        return raw(self._keys.of((key,), owner)[0])

    def _for_ever(self, owner: str) -> list[Finding]:
        names = ("owned", "own")
        lives = self._wire.calls([("PTTL", self._of(one, owner)) for one in names])
        return [
            Finding("owner-for-ever", self._keys.pool, one,
                    f"what is kept of process {owner} ({one}) has no expiry", owner=owner)
            for one, ms in zip(names, lives, strict=True) if ms == -1
        ]

    def _judge_owned(self, owner: str, ids: Sequence[bytes]) -> list[Finding]:
        if not ids:
            return []
        held, claims = at_once(self._wire, [
            ("SMISMEMBER", self._of("owned", owner), *ids), ("HMGET", self._keys.claims, *ids),
        ])
        return [
            Finding("owned-without-claim", self._keys.pool, name(id),
                    f"process {owner} is said to hold it, and has not claimed it", owner=owner)
            for id, is_held, claim in zip(ids, held, claims, strict=True)
            if is_held and (claim is None or owner_of(claim) != owner)
        ]

    def _judge_claims(
        self, ids: Sequence[bytes], claims: Sequence[bytes | None]
    ) -> list[Finding]:
        by_owner = _grouped(
            (owner, id) for id, claim in zip(ids, claims, strict=True)
            if claim is not None and (owner := owner_of(claim)) is not None
        )
        return [one for owner, theirs in by_owner.items() for one in self._unowned(owner, theirs)]

    def _unowned(self, owner: str, ids: Sequence[bytes]) -> list[Finding]:
        held, gone, claims = at_once(self._wire, [
            ("SMISMEMBER", self._of("owned", owner), *ids),
            ("HEXISTS", self._of("own", owner), "gone"), ("HMGET", self._keys.claims, *ids),
        ])
        if gone:
            return []  # what it still claims goes back when its lease is over
        return [
            Finding("claim-unowned", self._keys.pool, name(id),
                    f"claimed by {owner}, and not among what that holds: it would not be given "
                    "back at once where that process dies", owner=owner)
            for id, is_held, claim in zip(ids, held, claims, strict=True)
            if not is_held and claim is not None and owner_of(claim) == owner
        ]


class Locks:
    """Unique keys, and the ends of their windows."""

    subjects = frozenset(("lock",))

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys

    def walk(self) -> Found:
        for page in scan(self._wire, "HSCAN", self._keys.unique):
            yield len(page) // 2, self._judge(page[::2], page[1::2])
        for page in scan(self._wire, "ZSCAN", self._keys.windows):
            digests = page[::2]
            yield len(digests), self._judge_now(digests)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge_now(_ids(found))

    def _judge_now(self, digests: Sequence[bytes]) -> list[Finding]:
        if not digests:
            return []
        return self._judge(digests, self._wire.call("HMGET", self._keys.unique, *digests))

    def _judge(self, digests: Sequence[bytes], seen: Sequence[bytes | None]) -> list[Finding]:
        if not digests:
            return []
        k = self._keys
        holders = [raw(read_lock(lock or b"")[0] or "") for lock in seen]
        time, locks, windows, *living = at_once(self._wire, [
            ("TIME",), ("HMGET", k.unique, *digests), ("ZMSCORE", k.windows, *digests),
            *(("HEXISTS", k.tasks, holder) for holder in holders),
        ])
        return [
            _finding(k.pool, name(digest), sight)
            for digest, before, lock, window, lives in zip(
                digests, seen, locks, windows, living, strict=True
            )
            if before == lock
            for sight in judge_lock(lock, bool(lives), _number(window), now_of(time))
        ]


class Limits:
    """What limits keep: slots and their counts, parked tasks in their queues, and who waits."""

    subjects = frozenset(("limit",))

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys

    def walk(self) -> Found:
        yield 1, self._judge_alarm()
        sizes = self._wire.calls([("HLEN", self._keys.slots), ("ZCARD", self._keys.queues)])
        if not any(sizes):
            return
        yield sum(sizes), self._judge_slots()
        for page in scan(self._wire, "ZSCAN", self._keys.queues):
            yield len(page) // 2, self._judge_members(page[::2])
        for page in scan(self._wire, "ZSCAN", self._keys.parked):
            yield len(page) // 2, self._judge_parked(page[::2])

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        seen, names = self._judge_alarm(), _ids(found)
        if {one.kind for one in found} & {"slot-without-claim", "slots-miscounted",
                                          "set-waits-for-nothing", "limit-stuck"}:
            wanted = {(one.kind, one.uid) for one in found}
            seen += [one for one in self._judge_slots() if (one.kind, one.uid) in wanted]
        members = [one for one in names if b" " in one]
        if members:
            seen += self._judge_members(members)
        parked = [raw(one.uid) for one in found if one.kind == "parked-in-no-queue"]
        return seen + self._judge_parked(parked)

    def _judge_alarm(self) -> list[Finding]:
        """Claims look at one time alone: when the first token comes back of all that are waited
        for."""
        k = self._keys
        noted, first = at_once(self._wire, [
            ("HGET", k.meta, "release_at"), ("ZRANGE", k.releases, 0, 0, "WITHSCORES"),
        ])
        due = b"%d" % float(first[1]) if first else None
        if noted == due:
            return []
        what = "nothing says when" if noted is None else f"{noted[:40]!r} says when"
        then = "never" if due is None else f"at {due.decode()} ms"
        return [Finding("release-unnoted", k.pool, "release_at",
                        f"{what} a rate lets out the next task, and that is {then}: parked tasks "
                        "stay parked, or claims look in vain")]

    def _judge_slots(self) -> list[Finding]:
        """One look at all slots: as many as there are tasks that run and sets that wait."""
        k = self._keys
        flat, definitions, ready, suspects, alarms, time = at_once(self._wire, [
            ("HGETALL", k.slots), ("HGETALL", k.limits), ("ZCARD", k.ready),
            ("ZCARD", k.suspects), ("ZRANGE", k.releases, 0, -1, "WITHSCORES"), ("TIME",),
        ])
        slots = _pairs(flat)
        held = {id: keys for id, keys in slots.items() if id[:1] not in (b"#", b"@")}
        counted = {key[1:]: int(n) for key, n in slots.items() if key[:1] == b"#"}
        waits = {key[1:]: wait for key, wait in slots.items() if key[:1] == b"@"}
        found = self._unclaimed(list(held))
        true = Counter(key for keys in held.values() for key in keys.split())
        found += [
            Finding("slots-miscounted", k.pool, name(key),
                    f"{counted.get(key, 0):,} slots of it are counted as taken, and "
                    f"{true[key]:,} tasks hold one",
                    b"%d %d" % (counted.get(key, 0), counted.get(key, 0) - true[key]))
            for key in {*counted, *true} if counted.get(key, 0) != true[key]
        ]
        found += self._judge_waits(waits)
        found += self._stuck(
            waits, _pairs(definitions), counted, _pairs(alarms), now_of(time),
            queued=ready + suspects > 0,
        )
        return found

    def _unclaimed(self, ids: Sequence[bytes]) -> list[Finding]:
        """Slots of tasks that nobody has claimed, looked at again in one step."""
        found = []
        for page in pages(ids, PAGE):
            held, claims = at_once(self._wire, [
                ("HMGET", self._keys.slots, *page), ("HMGET", self._keys.claims, *page),
            ])
            found += [
                Finding("slot-without-claim", self._keys.pool, name(id),
                        "it holds a slot of a limit, and nobody has claimed it")
                for id, slot, claim in zip(page, held, claims, strict=True)
                if slot is not None and claim is None
            ]
        return found

    def _judge_waits(self, waits: Mapping[bytes, bytes]) -> list[Finding]:
        found = []
        for page in pages(waits, PAGE):
            answers = at_once(self._wire, [
                ("HMGET", self._keys.slots, *(b"@" + one for one in page)),
                *(("ZRANGEBYLEX", self._keys.queues, b"[%s " % one, b"(%s :" % one, "LIMIT", 0, 1)
                  for one in page),
                *(("ZSCORE", self._keys.queues, waits[one]) for one in page),
            ])
            now, firsts, there = answers[0], answers[1:1 + len(page)], answers[1 + len(page):]
            found += [
                Finding("set-waits-for-nothing", self._keys.pool, name(one),
                        "tasks with these limits are parked, and no key lets them out")
                for one, wait, first, score in zip(page, now, firsts, there, strict=True)
                if wait == waits[one] and (
                    score is None or not first or first[0].split(b" ")[1] != wait.split(b" ")[1]
                )
            ]
        return found

    def _stuck(
        self, waits: Mapping[bytes, bytes], definitions: Mapping[bytes, bytes],
        counted: Mapping[bytes, int], alarms: Mapping[bytes, bytes], now_ms: int, *, queued: bool,
    ) -> list[Finding]:
        """Keys that are waited for, have room, and none of whose tasks is on its way: while nothing
        is ``queued``. And those whose next token is looked for long after it is there."""
        found = []
        for key in {wait.split(b" ")[0][1:] for wait in waits.values()}:
            id = key.partition(b".")[0]
            known = read_known(id, definitions.get(id, b""))
            text = "tasks wait for this limit, it has room, and nothing lets them out"
            if known is not None and known.holds.concurrency is not None:
                stuck = not queued and counted.get(key, 0) < known.holds.concurrency
            elif key not in alarms:
                stuck = not queued
            else:
                late_ms = float(alarms[key]) - now_ms - _token_ms(known)
                stuck = late_ms > LATE_ALARM_MS
                text = ("tasks wait for this limit, and nothing looks for its next token for "
                        f"another {late_ms / 1000:,.0f} s: was the server's clock set back?")
            if stuck:
                found.append(Finding("limit-stuck", self._keys.pool, name(key), text))
        return found

    def _judge_members(self, members: Sequence[bytes]) -> list[Finding]:
        tasks = [(one, *parts[1:3]) for one in members
                 if not one.startswith(b"!") and len(parts := one.split(b" ")) > 2]
        sets = [(one, one.rpartition(b" ")[2]) for one in members if one.startswith(b"!")]
        found = []
        if tasks:
            scores, there = at_once(self._wire, [
                ("ZMSCORE", self._keys.parked, *(id for _, _, id in tasks)),
                ("ZMSCORE", self._keys.queues, *(one for one, _, _ in tasks)),
            ])
            found += [
                Finding("queue-member-not-parked", self._keys.pool, name(one),
                        f"task {name(id)} stands in the queue of a limit, and is not parked there")
                for (one, at, id), score, still in zip(tasks, scores, there, strict=True)
                if still is not None and (score is None or float(score) != float(at))
            ]
        if sets:
            waits, there = at_once(self._wire, [
                ("HMGET", self._keys.slots, *(b"@" + of for _, of in sets)),
                ("ZMSCORE", self._keys.queues, *(one for one, _ in sets)),
            ])
            found += [
                Finding("wait-without-set", self._keys.pool, name(one),
                        "a set of limits waits for a key, and does not know of it")
                for (one, _), wait, still in zip(sets, waits, there, strict=True)
                if still is not None and wait != one
            ]
        return found

    def _judge_parked(self, ids: Sequence[bytes]) -> list[Finding]:
        if not ids:
            return []
        k = self._keys
        places, headers = at_once(self._wire, [
            ("ZMSCORE", k.parked, *ids), ("HMGET", k.info, *ids),
        ])
        asked = [
            (id, member, member + b" s")
            for id, at, header in zip(ids, places, headers, strict=True) if at is not None
            for member in (b"%s %016.0f %s" % (_set_of(header), float(at), id),)
        ]
        if not asked:
            return []
        scores, places = at_once(self._wire, [
            ("ZMSCORE", k.queues, *(one for _, *both in asked for one in both)),
            ("ZMSCORE", k.parked, *(id for id, _, _ in asked)),
        ])
        return [
            Finding("parked-in-no-queue", k.pool, name(id),
                    "it is parked, and stands in the queue of no limit")
            for i, (id, _, _) in enumerate(asked)
            if scores[2 * i] is None and scores[2 * i + 1] is None and places[i] is not None
        ]


class Schedules:
    """The schedules of a pool, and whether the namespace's directory knows them."""

    subjects = frozenset(("schedule",))

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys
        self._directory = SpaceKeys(keys.namespace).schedules

    def walk(self) -> Found:
        k = self._keys
        for key, command in (
            (k.schedules, "HSCAN"), (k.planned, "HSCAN"), (k.resting, "HSCAN"), (k.ticks, "ZSCAN"),
        ):
            for page in scan(self._wire, command, key):
                names = page[::2]
                yield len(names), self._judge(names)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge(_ids(found))

    def _judge(self, names: Sequence[bytes]) -> list[Finding]:
        if not names:
            return []
        k = self._keys
        found = []
        members = [b"%s %s" % (one, k.pool.encode()) for one in names]
        states = at_once(self._wire, [
            *(("HMGET", key, *names) for key in (k.schedules, k.planned, k.resting)),
            ("ZMSCORE", k.ticks, *names),
        ])
        listed = self._wire.call("ZMSCORE", self._directory, *members)
        for one, member, definition, plan, resting, tick, at in zip(
            names, members, *states, listed, strict=True
        ):
            if (definition, plan, resting, tick) == (None, None, None, None):
                continue  # removed since
            sights = list(judge_schedule(definition, plan, resting, _number(tick)))
            if at is None and not sights:
                sights = [Sight("schedule-unlisted", "nobody finds it by its name")]
            found += [
                _finding(k.pool, name(one), sight._replace(detail=member)) for sight in sights
            ]
        return found


class Notes:
    """What scripts have set aside; and the list that wakes fetchers."""

    subjects = frozenset(("note",))

    def __init__(self, wire: Wire, keys: PoolKeys) -> None:
        self._wire, self._keys = wire, keys

    def walk(self) -> Found:
        yield 1, self._wakes()
        for page in scan(self._wire, "HSCAN", self._keys.broken):
            ids = page[::2]
            yield len(ids), self._judge(ids, page[1::2])

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        ids = [raw(one.uid) for one in found if one.kind == "set-aside"]
        seen = self._wakes()
        if ids:
            seen += self._judge(ids, self._wire.call("HMGET", self._keys.broken, *ids))
        return seen

    def _judge(self, ids: Sequence[bytes], reasons: Sequence[bytes | None]) -> list[Finding]:
        return [
            Finding("set-aside", self._keys.pool, name(id),
                    f"set aside by a script: {why[:200].decode('utf-8', 'replace')}")
            for id, why in zip(ids, reasons, strict=True) if why is not None
        ]

    def _wakes(self) -> list[Finding]:
        count = self._wire.call("LLEN", self._keys.wake)
        if count <= 1:
            return []
        return [Finding("wake-overfull", self._keys.pool, "wake",
                        f"{count:,} tokens wake fetchers, and one is enough")]


class Unknown:
    """Keys with the namespace's hash tag that no function of keys.py makes."""

    subjects = frozenset(("key",))

    def __init__(self, wire: Wire, pool: str | None, keys: Iterable[str]) -> None:
        self._wire, self._pool, self._keys = wire, pool, sorted(keys)

    def walk(self) -> Found:
        for at in range(0, len(self._keys), PAGE):
            page = self._keys[at:at + PAGE]
            yield len(page), self._judge(page)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge([one.uid for one in found if one.kind == "key-unknown"])

    def _judge(self, keys: Sequence[str]) -> list[Finding]:
        there = self._wire.calls([("EXISTS", raw(key)) for key in keys]) if keys else []
        return [
            Finding("key-unknown", self._pool, key,
                    "no key of this release: another one's, or by mistake; remove it by hand")
            for key, exists in zip(keys, there, strict=True) if exists
        ]


# ---------------------------------------------------------------------- of a whole namespace


class Nodes:
    """The records of masters."""

    subjects = frozenset(("node",))

    def __init__(self, wire: Wire, space: SpaceKeys) -> None:
        self._wire, self._key = wire, space.nodes

    def walk(self) -> Found:
        for page in scan(self._wire, "HSCAN", self._key):
            ids = page[::2]
            yield len(ids), self._judge(ids)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge(_ids(found))

    def _judge(self, ids: Sequence[bytes]) -> list[Finding]:
        if not ids:
            return []
        time, records = self._wire.calls([("TIME",), ("HMGET", self._key, *ids)])
        now_s = now_of(time) / 1000
        return [
            Finding(kind, None, name(id), text)
            for id, record in zip(ids, records, strict=True) if record is not None
            for kind, text in _judge_node(record, now_s)
        ]


def _judge_node(record: bytes, now_s: float) -> Iterator[tuple[str, str]]:
    try:
        node = msgpack.unpackb(record)
        silent_s, host, pid = now_s - float(node["beat_at"]), node.get("host"), node.get("pid")
    except Exception as error:
        yield "node-unreadable", f"a node's record can not be read: {error!r}"
        return
    if silent_s > SILENT_S:
        yield "node-silent", f"node on {host}, pid {pid}, has written nothing for {silent_s:,.0f} s"


class Listings:
    """The namespace's directory of schedules."""

    subjects = frozenset(("listing",))

    def __init__(self, wire: Wire, space: SpaceKeys, namespace: str) -> None:
        self._wire, self._key, self._namespace = wire, space.schedules, namespace

    def walk(self) -> Found:
        for page in scan(self._wire, "ZSCAN", self._key):
            members = page[::2]
            yield len(members), self._judge(members)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        members = [one.detail for one in found]
        listed = self._wire.call("ZMSCORE", self._key, *members)
        return self._judge([
            one for one, score in zip(members, listed, strict=True) if score is not None
        ])

    def _judge(self, members: Sequence[bytes]) -> list[Finding]:
        found = []
        for member in members:
            schedule, _, pool = name(member).rpartition(" ")
            keys = pool_keys(self._namespace, pool)
            if keys is None or not self._wire.call("HEXISTS", keys.schedules, raw(schedule)):
                found.append(Finding(
                    "listed-without-schedule", None, name(member),
                    f"schedule {schedule!r} is listed for pool {pool!r}, which has none", member,
                ))
        return found


class Pools:
    """Pools that have keys, and whether the namespace lists them."""

    subjects = frozenset(("pool",))

    def __init__(self, wire: Wire, space: SpaceKeys, pools: Iterable[str]) -> None:
        self._wire, self._key, self._pools = wire, space.pools, sorted(pools)

    def walk(self) -> Found:
        yield len(self._pools), self._judge(self._pools)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge([one.uid for one in found])

    def _judge(self, pools: Sequence[str]) -> list[Finding]:
        time, *listed = self._wire.calls([
            ("TIME",), *(("HEXISTS", self._key, one) for one in pools),
        ])
        return [
            Finding("pool-unlisted", None, one, "it has keys, and no list shows it",
                    b"%d" % now_of(time))
            for one, known in zip(pools, listed, strict=True) if not known
        ]


class Operations:
    """The locks of the UI's bulk operations."""

    subjects = frozenset(("operation",))

    def __init__(self, wire: Wire, keys: Iterable[str]) -> None:
        self._wire, self._keys = wire, sorted(keys)

    def walk(self) -> Found:
        yield len(self._keys), self._judge(self._keys)

    def again(self, found: Sequence[Finding]) -> list[Finding]:
        return self._judge([one.uid for one in found])

    def _judge(self, keys: Sequence[str]) -> list[Finding]:
        lives = self._wire.calls([("PTTL", raw(key)) for key in keys]) if keys else []
        return [
            Finding("lock-for-ever", None, key, "the lock of a bulk operation has no expiry")
            for key, ms in zip(keys, lives, strict=True) if ms == -1
        ]


# ------------------------------------------------------------------------------- reading


def scan(
    wire: Wire, command: str, key: str | bytes | None, count: int = PAGE, *more: Any
) -> Iterator[list[bytes]]:
    """The pages of a SCAN (without a key, over all nodes) or one of its kin. What is there all the
    while comes at least once."""
    if key is None:
        for node in wire.every_node():
            yield from _scan(node, command, (), count, more)
    else:
        yield from _scan(wire, command, (key,), count, more)


def _scan(
    wire: Wire, command: str, where: tuple[Any, ...], count: int, more: tuple[Any, ...]
) -> Iterator[list[bytes]]:
    cursor: Any = 0
    size = PAGE if command in ("SCAN", "SSCAN") else 2 * PAGE
    while True:
        cursor, page = wire.call(command, *where, cursor, *more, "COUNT", count)
        # A small key comes whole, whatever was asked for.
        for at in range(0, len(page), size):
            yield page[at:at + size]
        if int(cursor) == 0:
            return


def pool_keys(namespace: str, pool: str) -> PoolKeys | None:
    """The keys of a pool, or None for what no pool can be called."""
    try:
        return PoolKeys(namespace, pool)
    except ConfigError:
        return None


def now_of(time: Sequence[bytes]) -> int:
    """Milliseconds from the answer of TIME."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of up to ``size``."""
    page: list[T] = []
    for one in items:
        page.append(one)
        if len(page) == size:
            yield page
            page = []
    if page:
        yield page


def affordable(wire: Wire, key: str) -> int:
    """How many fields of a hash may be asked for at once, by the largest of a few."""
    some = wire.call("HRANDFIELD", key, SAMPLE) or []
    sizes = wire.calls([("HSTRLEN", key, one) for one in some]) if some else [0]
    return max(1, min(PAGE, PAGE_BYTES // max(1, *sizes)))


def at_once(wire: Wire, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The answers of commands that nothing comes in between of."""
    answers: list[Any] = wire.calls([("MULTI",), *commands, ("EXEC",)])[-1]
    return answers


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _there(ids: Sequence[bytes], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    return {id: one for id, one in zip(ids, values, strict=True) if one is not None}


def _ids(found: Iterable[Finding]) -> list[bytes]:
    return list(dict.fromkeys(raw(one.uid) for one in found))


def _grouped(pairs: Iterable[tuple[str, bytes]]) -> dict[str, list[bytes]]:
    groups: dict[str, list[bytes]] = defaultdict(list)
    for group, one in pairs:
        groups[group].append(one)
    return groups


def _set_of(header: bytes | None) -> bytes:
    """The set of limits that a header names."""
    return (header or b"").partition(b" l:")[2].partition(b" ")[0].partition(b"/")[0]


def _token_ms(known: Known | None) -> float:
    """How long a rate takes for a token at most."""
    if known is None or known.holds.rate is None:
        return 0.0
    return 1000 * (known.holds.per_s or 0.0) / known.holds.rate


def _number(score: bytes | None) -> float | None:
    return None if score is None else float(score)


def _finding(pool: str, uid: str, sight: Sight, owner: str | None = None) -> Finding:
    return Finding(sight.kind, pool, uid, sight.text, sight.detail, owner or "", sight.left_alone)
