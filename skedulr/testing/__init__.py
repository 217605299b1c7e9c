"""Testing kit: run an application's tasks inside of its tests, in no time.

    def test_reminder(skedulr_app):                  # a fixture of the pytest plugin
        handle = remind.using(delay=3 * 3600).submit("ann")
        skedulr_app.drain()                          # runs what is due: nothing yet
        skedulr_app.advance(3 * 3600)                # three hours later, at once
        assert handle.result(timeout=0) == "reminded ann"

``app()`` and ``inline()`` are the same machinery: the scripts and the executor that production
runs, on a fake Redis whose clock only moves when told to. Under ``inline()`` a submit runs at once,
with all its retries, before it returns. ``server()`` has a real server and real workers.

What the kit does not model, and tests on ``server()`` or a real master should:

- Death: a task that ends its process ends the tests. No leases expire, nothing is recovered.
- Real time: a handler that sleeps takes as long as it sleeps, and ``timeout=`` counts real seconds.
  As in production it interrupts only code that lets other greenlets run; in a process that gevent
  has not patched, ``time.sleep`` does not.
- More than one process: tasks run in the caller's thread, one after the other, except where one
  waits; ``workers`` bounds how many may wait at once.
- ``drain``, ``advance`` and running under ``inline()`` are for one thread. Submitting is for all.
- A handler that waits for what nobody will ever do is an error at once, unless something else keeps
  this thread's hub alive (other greenlets with sockets or timers): then it waits.

Importing this package loads neither gevent nor fakeredis; the first use does. Needs the extra
``test`` (fakeredis with Lua).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .driven import DrivenApp, app, inline
    from .served import ServedApp, embedded, server
    from .standing import Clock

__all__ = ["app", "inline", "server", "embedded", "Clock", "DrivenApp", "ServedApp"]

_MODULES = {
    "app": "driven", "inline": "driven", "DrivenApp": "driven", "Clock": "standing",
    "server": "served", "embedded": "served", "ServedApp": "served",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'skedulr.testing' has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
