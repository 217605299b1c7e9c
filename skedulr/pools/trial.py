"""A trial of the tasks' modules: imported in a process that ends with it.

Where a development server is about to be started, a mistake in a module is told before anything is
there to be stopped again. A trial that does not end in time proves nothing, and neither does one
that misses the server: the children import the modules anyway, and say what they find.
"""

from __future__ import annotations

import os
import posix
import signal
import sys
from collections.abc import Sequence

from gevent import monkey

from ..errors import StorageUnavailable
from .child import CANNOT_BOOT, DRAINED, leave_parent_behind
from .children import let_go, prepare_fork, system_fork
from .modules import load_modules, print_error

#: How long a trial may take, seconds.
LONGEST_S = 10.0

# Patched, these would need the hub, and libev would reap what is waited for here. For the same
# reason descriptors are closed by posix: os.close, patched, closes when the loop runs next, and
# the end of the pipe would never be seen.
_select = monkey.get_original("select", "select")
_waitpid = monkey.get_original("os", "waitpid")


def can_be_imported(modules: Sequence[str], timeout_s: float = LONGEST_S) -> bool:
    """Whether the children will be able to import these; False once the error is on stderr."""
    ours, theirs = os.pipe()
    prepare_fork()
    pid = system_fork()
    if pid == 0:
        posix.close(ours)
        _try(modules)
    posix.close(theirs)
    try:
        if not _select([ours], [], [], timeout_s)[0]:
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(_waitpid(pid, 0)[1]) != CANNOT_BOOT
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGKILL)
        _waitpid(pid, 0)
        raise
    finally:
        posix.close(ours)


def _try(modules: Sequence[str]) -> None:
    """In the new process: import, say what is wrong, and never come back."""
    status = DRAINED
    try:
        leave_parent_behind()
        let_go(())
        # A module that submits as it is imported should learn soon that nobody answers yet.
        os.environ["SKEDULR_SUBMIT_TIMEOUT"] = "0.01"
        errors = os.dup(2)
        _silence()
        try:
            load_modules(modules)
        except (KeyboardInterrupt, StorageUnavailable):
            pass
        except BaseException as error:
            status = CANNOT_BOOT
            os.dup2(errors, 2)
            print_error(error)
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            pass  # nobody reads it
        os._exit(status)


def _silence() -> None:
    """What a module prints is the children's to print."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
