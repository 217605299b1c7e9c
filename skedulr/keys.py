"""Every Redis key and channel, made in one place.

A pool's keys carry the hash tag ``{namespace:pool}``, so that a script touches one Cluster slot
and pools spread over a Cluster's nodes. Neither part may hold a colon or a brace, so no
installation's keys can be taken for another's, be one name a prefix of the other or not.
"""

from __future__ import annotations

import re

from .errors import ConfigError

#: What a namespace or a pool may be called.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: What follows ``<pool>/`` in a task's id.
UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@=+-]{0,199}")

#: Keys of a pool that stand alone.
SINGLE = (
    "ready", "delayed", "leases", "claims", "tasks", "info", "suspects", "done", "records",
    "dead", "deaths", "cancels", "watch", "wake", "meta", "stats", "unique", "windows", "progress",
    "broken",
    "schedules", "planned", "resting", "ticks", "declared", "declarers",
    "waiting", "held", "edges", "outbox", "history", "stream", "removed",
    "limits", "slots", "rates", "releases", "parked", "queues", "turns", "marks",
    "workflows",
)
#: Keys of a pool of which each owner (a child process) has its own.
PER_OWNER = ("owned", "own")
#: So many lists of keys are kept for who asks again.
MOST_LISTS = 200


def check_name(kind: str, name: str) -> str:
    """``name`` itself, or ConfigError: ``kind`` is "pool" or "namespace"."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"{kind} name {name!r} is not usable: 1 to 64 of letters, digits, '_', '.' and '-'"
        )
    return name


def split_id(id: str) -> tuple[str, str]:
    """The pool and the uid of a task id; a bare uid means pool ``default``.

    >>> split_id("critical/a1"), split_id("a1")
    (('critical', 'a1'), ('default', 'a1'))

    Raises ConfigError where either part is not of its form.
    """
    pool, slash, uid = id.rpartition("/")
    pool = check_name("pool", pool) if slash else "default"
    if not UID.fullmatch(uid):
        raise ConfigError(
            f"task id {uid!r} is not usable: 1 to 200 of letters, digits and '_.:@=+-', "
            "beginning with a letter or digit"
        )
    return pool, uid


class PoolKeys:
    """The keys of one pool, as attributes: ``PoolKeys("skedulr", "default").ready``."""

    ready: str
    delayed: str
    leases: str
    claims: str
    tasks: str
    info: str
    suspects: str
    done: str
    records: str
    dead: str
    deaths: str
    cancels: str
    watch: str
    wake: str
    meta: str
    stats: str
    unique: str
    windows: str
    progress: str
    broken: str
    schedules: str
    planned: str
    resting: str
    ticks: str
    declared: str
    declarers: str
    waiting: str
    held: str
    edges: str
    outbox: str
    limits: str
    slots: str
    rates: str
    releases: str
    parked: str
    queues: str
    turns: str
    marks: str
    stream: str
    removed: str
    history: str
    workflows: str

    def __init__(self, namespace: str, pool: str) -> None:
        check_name("namespace", namespace)
        check_name("pool", pool)
        self.namespace, self.pool = namespace, pool
        self.prefix = f"{{{namespace}:{pool}}}:"
        self._lists: dict[tuple[tuple[str, ...], str | None], list[str]] = {}
        for name in SINGLE:
            setattr(self, name, self.prefix + name)

    def of(self, names: tuple[str, ...], owner: str | None = None) -> list[str]:
        """The keys called ``names``, in that order; those of an owner need ``owner``. One list for
        all who ask for the same, not to be changed."""
        found = self._lists.get((names, owner))
        if found is None:
            if len(self._lists) >= MOST_LISTS:
                self._lists.clear()  # owners come and go
            found = self._lists[names, owner] = [
                f"{self.prefix}{name}:{owner}" if name in PER_OWNER else self.prefix + name
                for name in names
            ]
        return found


class SpaceKeys:
    """The few keys and channels of a whole namespace."""

    def __init__(self, namespace: str) -> None:
        check_name("namespace", namespace)
        prefix = f"{{{namespace}}}:"
        #: HASH pool -> when it was first seen, ms.
        self.pools = prefix + "pools"
        #: HASH node id -> its record (msgpack).
        self.nodes = prefix + "nodes"
        #: HASH task name -> pool and defaults (msgpack), published by children.
        self.names = prefix + "names"
        #: HASH pool -> the workers an operator wants in each process of it; "#" -> changes so far.
        self.sizes = prefix + "sizes"
        #: ZSET, all scores 0: "<schedule> <pool>": a name finds its pool, and pages are sorted.
        self.schedules = prefix + "schedules"
        #: HASH of what masters share for their UI: the secret that signs sessions and forms.
        self.ui = prefix + "ui"
        #: LIST of changes made through the UI, newest first, bounded (msgpack).
        self.audit = prefix + "audit"
        #: HASH of the node that leads: node, term (only grows), until (Redis ms).
        self.leader = prefix + "leader"
        #: HASH pool -> the workers the leader wants in the cluster (msgpack); "#" -> changes.
        self.tuning = prefix + "tuning"
        #: LIST of what the leader decided and why, newest first, bounded (msgpack).
        self.decisions = prefix + "decisions"
        #: Expires: some node has tuned pools, so that the leader is to look at them.
        self.watched = prefix + "watched"
        #: Expires: some process has hooks for the whole cluster.
        self.listening = prefix + "listening"
        #: HASH, expires: what the leader saw last, for those hooks, and its number.
        self.seen = prefix + "seen"
        #: HASH, expires: what those hooks have been told, so that each thing is told once.
        self.noticed = prefix + "noticed"
        #: HASH id -> how far a bulk operation of the UI is (msgpack).
        self.operations = prefix + "operations"
        self._prefix = prefix

    def ended(self, client: str) -> str:
        """The channel on which one waiting process hears of tasks that ended."""
        return f"{self._prefix}ended:{client}"

    def operation_lock(self, id: str) -> str:
        """Says which process works on a bulk operation; expires."""
        return f"{self._prefix}operation:{id}"

    def stack(self, id: str) -> str:
        """Where a running task is in its code, as its process wrote it; expires in seconds."""
        return f"{self._prefix}stack:{id}"

    @property
    def control(self) -> str:
        """The channel that hurries cancels and changed settings along."""
        return self._prefix + "control"
