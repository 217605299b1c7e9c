"""The exit statuses of ``skedulr``. Scripts rely on them; ``skedulr --help`` lists them."""

from __future__ import annotations

OK = 0
#: Something went wrong, or what was asked for could not be done.
FAILURE = 1
#: The command line, a setting or a file that was named can not be used.
USAGE = 2
#: ``result``: the task ended otherwise than succeeded.
ENDED_OTHERWISE = 3
#: ``result``: the task has not ended yet.
NOT_YET = 4
#: Ctrl-C, as shells count it: 128 + SIGINT.
INTERRUPTED = 130
#: Whoever read our output has gone: 128 + SIGPIPE.
BROKEN_PIPE = 141
