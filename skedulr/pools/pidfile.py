"""The pid file: which process is the master, and that there is only one.

It is a lock (flock) first: the number in it is for people and scripts. So a file that a killed
master left behind hinders nobody, whosever process has that number by now.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ..errors import ConfigError


class PidFile:
    """Holds ``path`` between ``take`` and ``release``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self.descriptor = -1

    def take(self) -> None:
        """Lock the file and write our number; ConfigError where another master has it, or it can
        not be written."""
        try:
            while True:
                end = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                if self._lock(end):
                    break
                os.close(end)
            os.ftruncate(end, 0)
            os.pwrite(end, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise ConfigError(
                f"--pid-file {self.path} can not be written: {error.strerror}"
            ) from None
        self.descriptor = end

    def release(self) -> None:
        """Remove the file. Safe twice; does nothing in a forked child."""
        end, self.descriptor = self.descriptor, -1
        if end < 0:
            return
        try:
            os.unlink(self.path)  # while it is locked: nobody else's goes
        except OSError:
            pass
        os.close(end)

    def _lock(self, end: int) -> bool:
        """False where the file was removed meanwhile by the one who had it: try the new one."""
        try:
            fcntl.flock(end, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(end, 32, 0).decode("ascii", "replace").strip()
            os.close(end)
            raise ConfigError(
                f"--pid-file {self.path}: a master runs already"
                + (f", pid {holder}" if holder.isdecimal() else "")
            ) from None
        try:
            return os.path.samestat(os.fstat(end), os.stat(self.path))
        except FileNotFoundError:
            return False
