"""The teller: has the leader say what it sees of the whole cluster to those who listen for it.

Listeners are children with hooks for ``long_queue``, ``leader_change`` or ``stats``
(``listener.py``). Where there is none, nothing is counted and nothing written.
"""

from __future__ import annotations

from .. import counts
from ..lead import Beat, LeadStore
from ..wires import SharedWire


class Teller:
    """Tells while its node leads, behind its term."""

    def __init__(self, *, store: LeadStore, wire: SharedWire, node: str, namespace: str) -> None:
        self._store, self._wire, self._node, self._namespace = store, wire, node, namespace

    def look(self, beat: Beat) -> None:
        """Count once and tell, where somebody listens. Raises WireError."""
        if beat.listening:
            overview = counts.look(self._wire, self._namespace)
            saw = {"at": overview.now_s, "stats": overview.stats()}
            self._store.tell(self._wire, self._node, beat.term, saw)
