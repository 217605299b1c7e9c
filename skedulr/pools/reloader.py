"""The reloader: notices that code has changed, for ``--reload`` in development.

It looks at the Python files below the folder the master runs in, by their times of change. One look
at 2,000 files takes about 10 ms.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("skedulr.master")

#: Folders that hold other people's code, or none.
_SKIPPED = frozenset(("node_modules", "site-packages", "__pycache__"))
_MOST_FILES = 20_000


class Reloader:
    """Watches the Python files below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = dict(python_files(folder))

    def look(self) -> str | None:
        """A file that was changed, made or removed since the last look, or None."""
        found = dict(python_files(self._folder))
        changed = [
            path for path in found.keys() | self._known.keys()
            if found.get(path) != self._known.get(path)
        ]
        self._known = found
        return min(changed, default=None)


def python_files(folder: Path) -> Iterator[tuple[str, int]]:
    """Paths and times of change (ns) of the Python files below a folder; no hidden folder, no
    environment, no installed package."""
    count = 0
    for here, folders, files in os.walk(folder):
        folders[:] = [
            name for name in folders
            if name[0] != "." and name not in _SKIPPED
            and not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
        ]
        for name in files:
            if not name.endswith(".py"):
                continue
            path = os.path.join(here, name)
            try:
                yield path, os.stat(path).st_mtime_ns
            except OSError:
                continue  # removed since it was listed
            count += 1
            if count >= _MOST_FILES:
                log.warning("more than %d Python files: --reload watches no others", count)
                return
