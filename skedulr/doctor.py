"""The doctor: finds what is broken in Redis, and mends it, while everything runs.

A finding counts only if a second look, a moment later, finds it again. Each mend is one small
script that looks once more itself, so what is sound by then stays as it is. What is broken says
``findings.py``; how it is looked at, ``rounds.py``.

Everything goes by pages of 500; SCAN and its kin are used here and nowhere else. Only keys with
the hash tag of this very namespace are looked at: no other one's begins with it.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import message
from .delivery import Delivery
from .findings import KINDS, Finding, Kind, name, raw
from .held import mend_detail
from .keys import PER_OWNER, PoolKeys, SpaceKeys
from .redis_scripts import script
from .rounds import (
    JOURNALS,
    PAGE,
    Limits,
    Listings,
    Locks,
    Nodes,
    Notes,
    Operations,
    Owners,
    Pools,
    Round,
    Schedules,
    Tasks,
    Unknown,
    affordable,
    now_of,
    pages,
    pool_keys,
    scan,
)
from .spreading import spread_of
from .ties import Broken, Edges, Outbox, Waiting
from .wire import Wire

#: Between the two looks, seconds. A script takes milliseconds; a step from pool to pool, a few.
MOMENT_S = 1.0
#: Findings kept of one examination. Where there are more, mending these and looking again helps.
MOST_FINDINGS = 50_000
#: Mends of one script call: each looks at its task once more, and a hundred take 2 ms.
MENDS = 100
#: A mend may bring another fault to light: so many times it is looked again at most.
MOST_TURNS = 4

#: The type of each key of a pool. A key that is missing here would be one that nobody examines.
TYPES = {
    "ready": "zset", "delayed": "zset", "leases": "zset", "claims": "hash", "tasks": "hash",
    "info": "hash", "suspects": "zset", "done": "zset", "records": "hash", "dead": "zset",
    "deaths": "zset",
    "cancels": "set", "watch": "hash", "wake": "list", "meta": "hash", "stats": "hash",
    "unique": "hash", "windows": "zset", "progress": "hash", "broken": "hash",
    "schedules": "hash", "planned": "hash", "resting": "hash", "ticks": "zset",
    "waiting": "hash", "held": "zset", "edges": "hash", "outbox": "zset", "history": "hash",
    "limits": "hash", "slots": "hash", "rates": "zset", "releases": "zset", "parked": "zset",
    "queues": "zset", "turns": "zset", "marks": "zset",
    "workflows": "zset",
    "stream": "stream", "removed": "hash",
    "declared": "zset", "declarers": "zset", "owned": "set", "own": "hash",
}
#: Those whose members are not walked through.
_NOT_WALKED = frozenset(
    ("wake", "meta", "stats", "deaths", "declared", "declarers", "limits", "slots", "rates",
     "releases", "turns", "marks", "history", "removed", "workflows")
)
_COUNTS = {"zset": "ZCARD", "hash": "HLEN", "set": "SCARD", "stream": "XLEN"}


class Doctor:
    """Examines a namespace through ``wire``, which it has to itself meanwhile.

    ``lease_s`` is how long a claim without a lease is given before the sweep takes it back.
    ``on_progress(count)`` is told how many more members of keys were looked at, or mended.

    >>> doctor = Doctor(wire, "skedulr")                          # doctest: +SKIP
    >>> found = doctor.examine("default")                         # doctest: +SKIP
    >>> mended = doctor.mend(found)                               # doctest: +SKIP
    """

    def __init__(
        self, wire: Wire, namespace: str, *, lease_s: float = 15.0, moment_s: float | None = None,
        sleep: Callable[[float], object] = time.sleep,
        on_progress: Callable[[int], object] = lambda count: None,
    ) -> None:
        self.namespace = namespace
        self._wire, self._space = wire, SpaceKeys(namespace)
        self._grace_ms = round(lease_s * 1000)
        self._moment_s = MOMENT_S if moment_s is None else moment_s
        self._sleep, self.on_progress = sleep, on_progress

    def pools(self) -> list[str]:
        """Every pool that is listed, or has keys."""
        listed = {name(one) for one in self._wire.call("HKEYS", self._space.pools)}
        return sorted(listed | self._survey.pools.keys())

    def size(self, pool: str) -> int:
        """About how many members of keys an examination of a pool looks at."""
        keys = PoolKeys(self.namespace, pool)
        wrong = {one.uid for one in self._wrong_types(keys)}
        return sum(self._wire.calls([
            (_COUNTS[kind], key) for one, kind in TYPES.items()
            if one not in PER_OWNER and one not in _NOT_WALKED
            and (key := getattr(keys, one)) not in wrong
        ]))

    def examine(self, pool: str) -> list[Finding]:
        """What is broken in a pool. Raises the errors of a wire."""
        keys = PoolKeys(self.namespace, pool)
        wrong = self._wrong_types(keys)
        # Every script stops at such a key, and so would each look of ours.
        return wrong or self._look_twice(self._rounds(pool))

    def examine_namespace(self) -> list[Finding]:
        """What is broken in what belongs to no pool. Raises the errors of a wire."""
        return self._look_twice(self._rounds(None))

    def mend(self, found: Iterable[Finding]) -> list[Finding]:
        """Mend what was found and can be; what is mended now, also what that brought to light."""
        mended: list[Finding] = []
        left = [one for one in found if one.fixable]
        for _ in range(MOST_TURNS):
            done = [one for group in _by_mend(left) for one in self._mend(group)]
            if not done:
                break
            self.on_progress(len(done))
            mended += done
            self._hurry_deliverers(done)
            left = [one for one in self._look_at(done) if one.fixable]
        return mended

    # Looking

    def _look_twice(self, rounds: Sequence[Round]) -> list[Finding]:
        first: dict[Any, Finding] = {}
        for count, found in (page for one in rounds for page in one.walk()):
            self.on_progress(count)
            first.update((one.place, one) for one in found)
            if len(first) >= MOST_FINDINGS:
                break
        if not first:
            return []
        self._sleep(self._moment_s)
        return [one for one in _again(rounds, list(first.values())) if one.place in first]

    def _look_at(self, found: Iterable[Finding]) -> list[Finding]:
        """What is broken now about whatever these are about."""
        by_pool: dict[str | None, list[Finding]] = defaultdict(list)
        for one in found:
            by_pool[one.pool].append(one)
        return [
            one for pool, theirs in by_pool.items() for one in _again(self._rounds(pool), theirs)
        ]

    def _rounds(self, pool: str | None) -> list[Round]:
        """Those of a pool, or (None) of the whole namespace."""
        wire, space, survey = self._wire, self._space, self._survey
        if pool is None:
            return [
                Nodes(wire, space), Listings(wire, space, self.namespace),
                Pools(wire, space, survey.pools), Operations(wire, survey.operations),
                Unknown(wire, None, survey.unknown),
            ]
        keys, names = PoolKeys(self.namespace, pool), survey.pools.get(pool, set())
        owners = {one.partition(":")[2] for one in names if one.partition(":")[0] in PER_OWNER}
        unknown = {keys.prefix + one for one in names if not _is_known(one)}
        return [
            Tasks(wire, keys, self._grace_ms), Owners(wire, keys, owners - {""}),
            Waiting(wire, keys), Edges(wire, keys), Outbox(wire, keys),
            Locks(wire, keys), Limits(wire, keys), Schedules(wire, keys), Notes(wire, keys),
            Unknown(wire, pool, unknown),
        ]

    def _wrong_types(self, keys: PoolKeys) -> list[Finding]:
        names = [one for one in TYPES if one not in PER_OWNER]
        kinds = self._wire.calls([("TYPE", getattr(keys, one)) for one in names])
        return [
            Finding("key-of-wrong-type", keys.pool, getattr(keys, one),
                    f"it is a {kind.decode()} and has to be a {TYPES[one]}: nothing works in this "
                    "pool, and nothing else of it can be examined")
            for one, kind in zip(names, kinds, strict=True)
            if kind.decode() not in ("none", TYPES[one])
        ]

    @cached_property
    def _survey(self) -> _Survey:
        return _Survey.take(self._wire, self._space, self.on_progress)

    # Mending

    def _mend(self, group: Sequence[Finding]) -> Iterator[Finding]:
        """Mend findings of one pool and owner that are mended the same way; those that were."""
        how = KINDS[group[0].kind]
        if how.script == "command":
            yield from (one for one in group if self._mend_plainly(one))
            return
        if how.script in ("tie", "deliver"):
            yield from self._tie(group) if how.script == "tie" else self._deliver(group)
            return
        # One mend may be for several: all that is left of a task goes at once.
        same: dict[Any, list[Finding]] = defaultdict(list)
        for one in group:
            same[one.uid, one.detail].append(one)
        firsts = [each[0] for each in same.values()]
        for page in pages(firsts, JOURNALS if how.script == "bury" else MENDS):
            for one in self._run(how.script, page, self._arguments(how, page)):
                if one.kind == "schedule-incomplete":
                    # Whoever looks for it by its name is not sent to this pool any more.
                    self._wire.call("ZREM", self._space.schedules, one.detail)
                yield from same[one.uid, one.detail]

    def _arguments(self, how: Kind, page: Sequence[Finding]) -> list[Any]:
        args: list[Any] = [how.action] if how.action else []
        if how.script == "mend_owner":
            args.append(raw(page[0].owner))
        for one in page:
            args.append(raw(one.uid))
            if how.script in ("mend", "bury"):
                args.append(one.detail)
            if how.script == "bury":
                args.append(_gravestone(one, now_of(self._wire.call("TIME"))))
        return args

    def _run(self, called: str, page: Sequence[Finding], args: list[Any]) -> Iterator[Finding]:
        found, keys = script(called), PoolKeys(self.namespace, page[0].pool or "")
        names: list[Any] = [raw(key) for key in keys.of(found.keys, page[0].owner)]
        letters: bytes = self._wire.run(found, names, args)[1]
        return (one for one, letter in zip(page, letters.decode(), strict=True) if letter == "m")

    def _tie(self, group: Sequence[Finding]) -> Iterator[Finding]:
        """Tie children to those parents that would not tell them; what is known of these they are
        told at once."""
        keys = PoolKeys(self.namespace, group[0].pool or "")
        waiting, size = Waiting(self._wire, keys), affordable(self._wire, keys.tasks)
        by_uid: dict[str, list[Finding]] = defaultdict(list)
        for one in group:
            by_uid[one.uid].append(one)
        for uids in pages(by_uid, size):
            mended = set()
            for part in pages(waiting.untied([raw(uid) for uid in uids]), MENDS):
                self._tie_part(keys, part)
                mended |= {one.child.uid for one in part}
            yield from (one for uid in uids if uid in mended for one in by_uid[uid])

    def _tie_part(self, keys: PoolKeys, part: Sequence[Broken]) -> None:
        plain, maps = [], {}
        for one in part:
            if one.child.journal is not None and spread_of(one.child.journal) is not None:
                maps[one.child.uid] = one.child.text or b""
            else:
                plain.append((one.parent, one.edge, one.missing))
        self._delivery.tie_again(plain)
        # A deliverer makes those of its tasks that are gone, as it is tied to them.
        args: list[Any] = ["hold"]
        for uid, text in maps.items():
            args += [raw(uid), mend_detail(text, text.decode())]
        if maps:
            mend = script("mend")
            self._wire.run(mend, keys.of(mend.keys), args)
            self._delivery.told.add(keys.pool)

    def _deliver(self, group: Sequence[Finding]) -> Iterator[Finding]:
        """Tell what nobody has told. All of the pool is told with it: there is only one way."""
        keys = PoolKeys(self.namespace, group[0].pool or "")
        outbox = Outbox(self._wire, keys)
        overdue = {one.place for page in pages(group, PAGE) for one in outbox.again(page)}
        late = [one for one in group if one.place in overdue]
        if late:
            self._delivery.settle([keys.pool])
        for page in pages(late, PAGE):
            scores = self._wire.call("ZMSCORE", keys.outbox, *(raw(one.uid) for one in page))
            yield from (one for one, score in zip(page, scores, strict=True) if score is None)

    def _hurry_deliverers(self, mended: Iterable[Finding]) -> None:
        """What is to be told or tied now would be noticed some seconds later."""
        pools = {one.pool for one in mended if KINDS[one.kind].action in ("hold", "hurry")}
        pools |= self._delivery.told
        pools |= {one.pool for one in mended if one.kind == "body-unreadable"}
        self._delivery.told.clear()
        for pool in sorted(filter(None, pools)):
            self._wire.call("PUBLISH", self._space.control, f"outbox {pool}/")

    @cached_property
    def _delivery(self) -> Delivery:
        return Delivery(self.namespace, self._wire)

    def _mend_plainly(self, one: Finding) -> bool:
        """Mends that need no script: done twice, or too late, they change nothing that counts. A
        node that lives writes its record again within seconds."""
        space = self._space
        commands: dict[str, tuple[Any, ...]] = {
            "node-silent": ("HDEL", space.nodes, raw(one.uid)),
            "node-unreadable": ("HDEL", space.nodes, raw(one.uid)),
            "pool-unlisted": ("HSETNX", space.pools, one.uid, one.detail),
            "schedule-unlisted": ("ZADD", space.schedules, 0, one.detail),
            "listed-without-schedule": ("ZREM", space.schedules, one.detail),
            "lock-for-ever": ("PEXPIRE", raw(one.uid), 60_000),
        }
        return bool(self._wire.call(*commands[one.kind]))


def _again(rounds: Iterable[Round], found: Sequence[Finding]) -> Iterator[Finding]:
    """What the rounds see now of what these are about, each once."""
    seen = set()
    for round in rounds:
        theirs = (one for one in found if KINDS[one.kind].subject in round.subjects)
        for page in pages(theirs, JOURNALS):
            for one in round.again(page):
                if one.place not in seen:
                    seen.add(one.place)
                    yield one


def _by_mend(found: Iterable[Finding]) -> Iterator[list[Finding]]:
    """Findings in groups that one call can mend, in the order of KINDS: places come before what
    lies beside them, so that a task back in its place keeps its header."""
    groups: dict[Any, list[Finding]] = defaultdict(list)
    for one in found:
        how = KINDS[one.kind]
        owner = one.owner if how.script == "mend_owner" else ""
        groups[one.pool, how.script, how.action, owner].append(one)
    order = list(KINDS)
    yield from sorted(groups.values(), key=lambda group: order.index(group[0].kind))


def _gravestone(one: Finding, now_ms: int) -> bytes:
    """The record in place of a journal that can not be read; it shows how that began."""
    text = f"{one.text}; it begins with {one.detail[:200]!r}"
    stamp = b"\xcf" + now_ms.to_bytes(8, "big")
    envelope = message.envelope(message.name_part("unreadable"), (), {}, None, 100)
    error = message.entry(message.DEAD, "doctor", 0, 0, ["PayloadError", text, ""])
    return envelope + stamp + error + stamp


@dataclass(slots=True)
class _Survey:
    """The keys of a namespace: of each pool what follows its prefix, and the namespace's own."""

    pools: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    operations: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    @classmethod
    def take(
        cls, wire: Wire, space: SpaceKeys, on_progress: Callable[[int], object]
    ) -> _Survey:
        """One walk over all keys of the server's database."""
        survey = cls()
        own = {key for attribute, key in vars(space).items() if not attribute.startswith("_")}
        namespace = space.pools.partition("}")[0].removeprefix("{")
        # What follows the name is a colon (a pool) or the brace that closes (the namespace): a
        # namespace whose name begins with this one goes on with something else.
        tag = re.compile(re.escape(f"{{{namespace}") + r"(?::([^}]*))?\}:(.*)", re.DOTALL)
        for found in scan(wire, "SCAN", None, PAGE, "MATCH", f"{{{namespace}[:}}]*"):
            on_progress(len(found))
            for key in map(name, found):
                match = tag.fullmatch(key)
                pool, rest = (match[1], match[2]) if match is not None else (None, "")
                if pool is not None and pool_keys(namespace, pool) is not None:
                    survey.pools[pool].add(rest)
                elif match is not None and pool is None and rest.startswith("operation:"):
                    survey.operations.add(key)
                elif key not in own:
                    survey.unknown.add(key)
        return survey


def _is_known(key: str) -> bool:
    """Whether keys.py makes such a key of a pool."""
    single, colon, owner = key.partition(":")
    return single in TYPES and (single in PER_OWNER) == bool(colon and owner)
