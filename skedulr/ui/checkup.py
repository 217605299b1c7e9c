"""Checkup: the doctor's examination of the namespace, in the background, shared by all masters.

It walks over everything there is, so nobody waits for it: a page shows how far it is, and what the
last one found, who asked for it and when. One runs at a time in a namespace.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from typing import Any

import msgpack

from ..client import Client
from ..doctor import Doctor
from ..errors import StorageUnavailable
from ..findings import Finding
from ..wire import Wire, WireError

log = logging.getLogger("skedulr.ui")

#: How often the record is brought up to date, seconds; and how long a silent one keeps others off.
WRITE_S, LOCK_MS = 1.0, 15_000
#: Findings that are kept to be shown. All of them are counted.
SHOWN = 200
_FIELD, _LOCK = "checkup", "checkup"
#: Turns of mending: one mend may bring another fault to light.
_TURNS = 3

Record = dict[str, Any]


class Checkup:
    """The namespace's checkup; ``client`` is where the tasks are."""

    def __init__(self, client: Client, *, lease_s: float = 15.0) -> None:
        self._client, self._lease_s = client, lease_s

    def last(self) -> Record | None:
        """The one that runs, else the last one: ``state`` is "running", "finished", "failed" or
        "lost" (its process ended half way); None where there was none."""
        place, lock = self._client.space.ui, self._client.space.operation_lock(_LOCK)
        # The lock first: it goes when the end is written, so none and "running" means it was lost.
        held, text = self._client.ask(lambda wire: (
            wire.call("EXISTS", lock), wire.call("HGET", place, _FIELD)
        ))
        if text is None:
            return None
        record: Record = msgpack.unpackb(text)
        if record["state"] == "running" and not held:
            record["state"] = "lost"
        return record

    def start(self, by: str, *, fix: bool) -> Record:
        """Begin one, and mend what it finds if ``fix`` says so. Where one runs already, that."""
        token = secrets.token_hex(8)
        lock = self._client.space.operation_lock(_LOCK)
        got = self._client.ask(lambda wire: wire.call("SET", lock, token, "NX", "PX", LOCK_MS))
        if got is None:
            running = self.last()
            if running is not None:
                return running
        record: Record = {
            "state": "running", "by": by, "fix": fix, "done": 0, "total": 0, "mended": 0,
            "count": 0, "findings": [], "error": None, "started_at": _now(self._client),
            "finished_at": None,
        }
        run = _Run(self._client, record, lock, self._lease_s)
        run.write()
        threading.Thread(target=run.run, name="skedulr-ui-checkup", daemon=True).start()
        return record


class _Run:
    """One checkup under way, on a connection of its own."""

    def __init__(self, client: Client, record: Record, lock: str, lease_s: float) -> None:
        self._client, self._record, self._lock, self._lease_s = client, record, lock, lease_s
        self._written_at = 0.0

    def run(self) -> None:
        """Examine, mend if asked, examine again; the end is in the record."""
        record = self._record
        wire = Wire(self._client.config.url, name="skedulr:checkup", timeout_s=30.0)
        try:
            found = self._examine(wire)
            for _ in range(_TURNS if record["fix"] else 0):
                mended = self._doctor(wire).mend(found)
                record["mended"] += len(mended)
                if not mended:
                    break
                found = self._examine(wire)
            record.update(
                state="finished", count=len(found), findings=[one.view() for one in found[:SHOWN]]
            )
        except (WireError, StorageUnavailable) as error:
            record.update(state="failed", error=str(error)[:500])
        except Exception as error:
            log.exception("the checkup stopped")
            record.update(state="failed", error=str(error)[:500])
        finally:
            wire.close()
            self._end()

    def write(self) -> None:
        """Bring the record up to date, and keep others off."""
        place, text = self._client.space.ui, msgpack.packb(self._record)

        def put(wire: Wire) -> None:
            wire.call("HSET", place, _FIELD, text)
            wire.call("PEXPIRE", self._lock, LOCK_MS)

        self._client.ask(put)
        self._written_at = time.monotonic()

    def _end(self) -> None:
        try:
            self._record["finished_at"] = _now(self._client)
            self.write()
            self._client.ask(lambda wire: wire.call("DEL", self._lock))
        except StorageUnavailable as error:
            log.warning("the checkup's end can not be noted: %s", error)

    def _examine(self, wire: Wire) -> list[Finding]:
        doctor, record = self._doctor(wire), self._record
        pools = doctor.pools()
        record.update(done=0, total=sum(doctor.size(pool) for pool in pools))
        return [
            *(one for pool in pools for one in doctor.examine(pool)), *doctor.examine_namespace()
        ]

    def _doctor(self, wire: Wire) -> Doctor:
        return Doctor(
            wire, self._client.config.namespace, lease_s=self._lease_s, on_progress=self._count
        )

    def _count(self, more: int) -> None:
        self._record["done"] += more
        if time.monotonic() - self._written_at > WRITE_S:
            self.write()


def _now(client: Client) -> float:
    """Redis' time."""
    seconds, micros = client.ask(lambda wire: wire.call("TIME"))
    return int(seconds) + int(micros) / 1e6
