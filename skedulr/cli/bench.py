"""``skedulr bench``: how fast it is here, in a namespace of its own that is removed afterwards."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .. import config
from ..bench.ground import Ground, interrupts_held
from ..bench.parts import PARTS, QUICK, Amounts, Run, conditions, measure
from ..committer import unavailable
from ..embedded import EmbeddedServer
from ..errors import ConfigError, nearest
from ..wire import Wire, WireError
from . import exits
from .progress import Progress
from .session import Session


def bench(session: Session) -> int:
    """The command."""
    parts, amounts = _parts(session), _amounts(session)
    with _ended_in_order(), _server(session) as (url, how):
        session.hint(f"measuring on {how}: {', '.join(parts)}")
        try:
            _measure(session, url, parts, amounts)
        except WireError as error:
            raise unavailable(error) from error
    return exits.OK


def _measure(session: Session, url: str, parts: list[str], amounts: Amounts) -> None:
    given = session.given
    with Progress(sys.stderr, amounts.all_of(parts)) as progress:
        count = _counter(progress)
        ground = Ground(
            url, namespace=getattr(given, "namespace", None), workers=given.workers,
            processes=given.processes, payload=given.payload, on_tasks=count,
        )
        try:
            run = Run(ground=ground.open(), amounts=amounts, parts=parts, on_tasks=count)
            stands = conditions(run)
            measure(run)
        finally:
            with interrupts_held():
                ground.close()
    _show(session, run, stands)


def _counter(progress: Progress) -> Callable[[int], None]:
    def count(more: int) -> None:
        progress.count += more
        progress.read(more)

    return count


def _show(session: Session, run: Run, stands: dict[str, object]) -> None:
    out = session.output
    if out.json:
        out.document({
            "conditions": stands,
            "figures": {one.name: round(one.value, 3) for one in run.figures},
        })
        return
    out.table(
        ("FIGURE", "VALUE", "UNIT"),
        [(one.text, _rounded(one.value), one.unit) for one in run.figures], empty="",
    )
    out.line()
    out.fields((name.replace("_", " "), value) for name, value in stands.items())
    if stands["other_clients"]:
        out.line()
        out.line("Others use this server: what it spent counts their work as well.")


def _rounded(value: float) -> float | int:
    return round(value) if value >= 1000 or value == int(value) else value


def _parts(session: Session) -> list[str]:
    asked = session.given.parts or list(PARTS)
    for part in asked:
        if part not in PARTS:
            raise ConfigError(
                f"there is no part {part!r}{nearest(part, PARTS)}"
            )
    return [part for part in PARTS if part in asked]


def _amounts(session: Session) -> Amounts:
    given = session.given
    asked = {"tasks": given.tasks, "submits": given.submits}
    amounts = dataclasses.replace(
        QUICK if given.quick else Amounts(),
        **{name: count for name, count in asked.items() if count is not None},
    )
    for name, least in (("tasks", 100), ("submits", 100)):
        if getattr(amounts, name) < least:
            raise ConfigError(f"--{name} {getattr(amounts, name)}: at least {least}")
    for name in ("workers", "processes"):
        if getattr(given, name) < 1:
            raise ConfigError(f"--{name} {getattr(given, name)}: at least 1")
    if given.payload < 0:
        raise ConfigError(f"--payload {given.payload}: at least 0")
    return amounts


@contextmanager
def _server(session: Session) -> Iterator[tuple[str, str]]:
    """The server that ``--redis`` names, else a private one, as (url, what it is)."""
    given = session.given
    if getattr(given, "redis", None) is not None:
        if given.persistence is not None:
            raise ConfigError("--persistence is for the bench's own server, not for --redis")
        yield session.address.url, config.hide_password(session.address.url)
        return
    folder = tempfile.mkdtemp(prefix="skedulr-bench-")
    server = EmbeddedServer(folder)
    try:
        url = server.start()
        _persist(url, given.persistence or "none")
        yield url, f"a server of its own, persistence {given.persistence or 'none'}"
    finally:
        with interrupts_held():
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)


def _persist(url: str, how: str) -> None:
    wire = Wire(url, name="skedulr:bench")
    if how == "none":
        wire.call("CONFIG", "SET", "appendonly", "no")
    else:
        wire.call("CONFIG", "SET", "appendonly", "yes", "appendfsync", how)
    wire.close()


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """A TERM ends the run like Ctrl-C: with everything removed."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
