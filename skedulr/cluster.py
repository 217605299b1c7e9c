"""Redis Cluster: which node has a key, and sending each command there.

All keys of a pool are in one slot, and so on one node; those of a namespace are in another. Each
command goes to the node of its first key. A slot map, shared by all connections of a process, says
which that is; it is asked for at the first need, after a node did not answer, and mended by each
redirection. What an answer means is the caller's business, as with a single server: a command is
repeated here only after an answer that says that it was not carried out.

Messages go to all nodes, whoever publishes them. Ours are published and heard at the node that has
the namespace's keys, so that one way is as short as it can be.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Generic, Protocol, TypeVar

from .addresses import Node, read_address
from .wire_errors import NotAnswered, Redirected, Refused

SLOTS = 16384
#: More redirections of one command than this, and the Cluster is taken to be in the middle of
#: something.
MOST_REDIRECTIONS = 6
#: Commands that are not about a key.
KEYLESS = frozenset((
    "PING", "TIME", "INFO", "CONFIG", "SLOWLOG", "SCAN", "MULTI", "EXEC", "CLUSTER", "CLIENT",
    "ASKING", "WAIT", "ROLE", "DBSIZE", "SCRIPT", "ACL", "LATENCY", "COMMAND",
))
#: Those whose first key is not their first word.
_KEY_AT = {"EVAL": 3, "EVALSHA": 3, "XGROUP": 2, "XINFO": 2, "OBJECT": 2, "MEMORY": 2}


class Line(Protocol):
    """What a router needs of the connection to one node."""

    timeout_s: float

    def call(self, *command: Any, timeout_s: float | None = None) -> Any: ...

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]: ...

    def close(self) -> None: ...


L = TypeVar("L", bound=Line)


def slot_of(key: str | bytes) -> int:
    """The slot of a key: that of the part in its first braces, if there is something in them.

    >>> slot_of("{a:b}:ready") == slot_of("{a:b}:tasks"), slot_of("foo")
    (True, 12182)
    """
    text = key.encode() if isinstance(key, str) else key
    begin = text.find(b"{")
    end = text.find(b"}", begin + 1) if begin >= 0 else -1
    if end > begin + 1:
        text = text[begin + 1:end]
    return crc_hqx(text, 0) % SLOTS


def slot_for(command: Sequence[Any]) -> int | None:
    """The slot that a command is about; None where any node will do."""
    name = command[0]
    if name in KEYLESS:
        return None
    if name in ("XREAD", "XREADGROUP"):
        return slot_of(command[command.index("STREAMS") + 1])
    if name in ("EVAL", "EVALSHA") and not int(command[2]):
        return None
    return slot_of(command[_KEY_AT.get(name, 1)])


class SlotMap:
    """Which node has which slot, as far as is known. ``seeds`` are asked where nothing is."""

    def __init__(self, seeds: Sequence[Node]) -> None:
        self._seeds = tuple(seeds)
        self._owners: list[Node | None] = [None] * SLOTS
        #: The masters that have slots.
        self.nodes: tuple[Node, ...] = ()
        #: It is to be asked for before it is used again.
        self.stale = True
        #: A node that did not answer is asked last.
        self._silent: Node | None = None

    def node_of(self, slot: int | None, ask: Callable[[Node], Any]) -> Node:
        """The node of a slot, or (None) any, from a map that is asked for where it may be wrong:
        see ``refresh``. Raises Refused where nobody has the slot."""
        if self.stale:
            self.refresh(ask)
        node = self._owners[slot] if slot is not None else next(iter(self.nodes), None)
        if node is None:
            self.stale = True
            raise Refused(f"CLUSTERDOWN no node has slot {slot}")
        return node

    def learn(self, slot: int, node: Node) -> None:
        """A redirection said that this node has the slot: newer than the map, which is asked for
        only where the node is a new one."""
        self._owners[slot] = node
        self.stale = node not in self.nodes

    def mistrust(self, node: Node) -> None:
        """This node did not answer, or not as one that has slots."""
        self._silent, self.stale = node, True

    def refresh(self, ask: Callable[[Node], Any]) -> None:
        """Take the map that ``ask(node)`` gives, the answer of CLUSTER SLOTS. Raises NotAnswered,
        which says why, node by node."""
        known = dict.fromkeys((*self.nodes, *self._seeds))
        problems = []
        for node in sorted(known, key=lambda one: one == self._silent):
            try:
                rows = ask(node)
            except Exception as error:
                problems.append(f"{node}: {error or type(error).__name__}")
                continue
            if rows:
                self._read(rows, node)
                return
            problems.append(f"{node}: no slots are given to any node")
        raise NotAnswered("; ".join(problems), sent=False)

    def _read(self, rows: Iterable[Any], asked: Node) -> None:
        owners: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in rows:
            # A node that knows no address of itself means the one that it was asked at.
            name = (host or b"").decode()
            node = Node(asked.host if name in ("", "?") else name, int(port))
            owners[int(first):int(last) + 1] = [node] * (int(last) - int(first) + 1)
        # One after the other, each in one step: other threads read them.
        self._owners = owners
        self.nodes = tuple(sorted({node for node in owners if node is not None}))
        self.stale = False


@lru_cache(maxsize=64)
def slot_map(url: str) -> SlotMap:
    """The map of a Cluster, one for each process."""
    return SlotMap(read_address(url).nodes)


class Router(Generic[L]):
    """Sends commands to their nodes, over one line for each; ``parent`` says how long answers may
    take. For one caller at a time."""

    def __init__(self, url: str, parent: Any, make_line: Callable[[Node], L]) -> None:
        self._url, self._parent, self._make_line = url, parent, make_line
        self._lines: dict[Node, L] = {}

    @cached_property
    def _map(self) -> SlotMap:
        # At the first need: an address that can not be used is told where it is used.
        return slot_map(self._url)

    @property
    def lines(self) -> list[L]:
        """Those that were needed so far."""
        return list(self._lines.values())

    def call(self, *command: Any, timeout_s: float | None = None) -> Any:
        """The answer of the node that has the command's key; its errors are the line's."""
        slot, asking = slot_for(command), None
        for _ in range(MOST_REDIRECTIONS):
            node = asking or self._node(slot)
            try:
                line = self.line(node)
                if asking is not None:
                    line.call("ASKING")
                return line.call(*command, timeout_s=timeout_s)
            except Redirected as redirection:
                asking = self._follow(redirection, node)
            except (NotAnswered, Refused):
                self._map.mistrust(node)
                raise
        raise Refused(f"TRYAGAIN slot {slot} is being moved")

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers to several commands, each of its node."""
        for _ in range(MOST_REDIRECTIONS):
            node = None
            try:
                answers: list[Any] = [None] * len(commands)
                for node, places in self._by_node(commands).items():
                    found = self.line(node).calls([commands[at] for at in places])
                    for at, answer in zip(places, found, strict=True):
                        answers[at] = answer
                return answers
            except Redirected as redirection:
                if node is not None and self._follow(redirection, node) is not None:
                    return list(self._one_by_one(commands))
            except (NotAnswered, Refused) as error:
                if "TRYAGAIN" in str(error):
                    # Of a transaction, whose keys are not all where it is.
                    return list(self._one_by_one(commands))
                if node is not None:
                    self._map.mistrust(node)
                raise
        raise Refused("TRYAGAIN slots are being moved")

    def line(self, node: Node) -> L:
        """The line to a node."""
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = self._make_line(node)
        line.timeout_s = self._parent.timeout_s
        return line

    def line_of(self, key: str | bytes) -> L:
        """The line to the node that has a key."""
        return self.line(self._node(slot_of(key)))

    def every_line(self) -> list[L]:
        """A line to each master."""
        self._node(None)
        return [self.line(node) for node in self._map.nodes]

    def close(self) -> None:
        """Drop all connections."""
        for line in self._lines.values():
            line.close()

    def any_line(self) -> L:
        """The line to some master."""
        return self.line(self._node(None))

    def _node(self, slot: int | None) -> Node:
        if slot is None:
            # Whoever is there already.
            for node, line in self._lines.items():
                if getattr(line, "connected", False) and node in self._map.nodes:
                    return node
        was = self._map.nodes
        node = self._map.node_of(slot, lambda node: self.line(node).call("CLUSTER", "SLOTS"))
        if self._map.nodes != was:
            for stranger in [one for one in self._lines if one not in self._map.nodes]:
                self._lines.pop(stranger).close()
        return node

    def _follow(self, redirection: Redirected, asked: Node) -> Node | None:
        """Take note of it; the node to ask for this once, where that is all it says."""
        node = Node(redirection.host or asked.host, redirection.port)
        if redirection.asking:
            return node
        self._map.learn(redirection.slot, node)
        return None

    def _by_node(self, commands: Sequence[tuple[Any, ...]]) -> dict[Node, list[int]]:
        groups: dict[Node, list[int]] = {}
        for at, slot in enumerate(_slots(commands)):
            groups.setdefault(self._node(slot), []).append(at)
        return groups

    def _one_by_one(self, commands: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """While a slot is being moved some of its keys are here and some there: what was to be one
        step can not be one."""
        together: list[Any] | None = None
        for command in commands:
            if command[0] == "MULTI":
                together = []
                yield b"OK"
            elif command[0] == "EXEC":
                yield together
                together = None
            elif together is None:
                yield self.call(*command)
            else:
                together.append(self.call(*command))
                yield b"QUEUED"


def _slots(commands: Sequence[tuple[Any, ...]]) -> list[int | None]:
    """The slot of each command. One without a key goes where the one before it goes, one that
    begins something where the next one goes."""
    slots = [slot_for(command) for command in commands]
    following = None
    before = next((slot for slot in slots if slot is not None), None)
    for at, slot in enumerate(slots):
        if slot is not None:
            before = slot
        elif commands[at][0] == "MULTI":
            following = next((one for one in slots[at:] if one is not None), None)
            slots[at] = before = following
        else:
            slots[at] = before
    return slots
