"""One run of a command: the settings in force, the server that is meant, the client to it.

Everything is made when it is first asked for, so that ``config`` works without a server.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from .. import config
from ..app import Skedulr
from ..errors import ConfigError, SkedulrError, StorageUnavailable
from . import exits
from .output import Output, printable

if TYPE_CHECKING:
    from ..client import Client


class Session:
    """What a command works with; ``given`` are its parsed arguments."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.output = Output(json=getattr(given, "json", False))

    @cached_property
    def settings(self) -> config.Config:
        """The settings in force. Raises ConfigError."""
        flags = {name: getattr(self.given, name, None) for name in ("redis", "namespace")}
        file = getattr(self.given, "config", None)
        return config.load(flags, {}, os.environ, Path.cwd(), Path(file) if file else None)

    @cached_property
    def address(self) -> config.RedisAddress:
        """Which server is meant and how it was found."""
        return config.find_redis(self.settings, os.environ, Path.cwd())

    @cached_property
    def app(self) -> Skedulr:
        """An app on that server; it connects at its first use."""
        settings = self.settings
        return Skedulr(
            url=self.address.url, namespace=settings.namespace, capacity=settings.capacity,
            submit_timeout=settings.submit_timeout, payload_limit=settings.payload_limit,
            wait_replicas=settings.wait_replicas, codec=settings.codec,
        )

    @property
    def client(self) -> Client:
        """The app's client."""
        return self.app.client

    def complain(self, text: str) -> None:
        """One line on stderr, under the command's name."""
        print(f"skedulr {self.given.command}: {printable(text)}", file=sys.stderr)

    def hint(self, text: str) -> None:
        """One line on stderr that a pipe does not carry along."""
        print(printable(text), file=sys.stderr)

    def explain(self, error: Exception) -> str:
        """An error in one line; where Redis is away, with the address and how it was found."""
        if not isinstance(error, StorageUnavailable):
            return self._in_flags(str(error))
        cause = error.__cause__ or error
        # Told by its name: importing wires costs commands that need none a fifth of a second.
        does = "does not let us in" if type(cause).__name__ == "Barred" else "does not answer"
        text = f"Redis {does} at {self.address}: {cause}"
        if self.given.command == "submit":
            text += "; it may have been stored" if error.maybe_submitted else "; nothing was stored"
        return text

    def _in_flags(self, text: str) -> str:
        """What is said of options as Python has them, ``max_retries=x``, said of our flags."""
        parser = getattr(self.given, "parser", None)
        if parser is None or getattr(self.given, "jsonl", None):
            return text  # in a file of calls, options are keys of a line

        def flag(found: re.Match[str]) -> str:
            name = "--" + found[1].replace("_", "-")
            return f"{name} " if name in parser._option_string_actions else found[0]

        return re.sub(r"(?<![\w'\"])([a-z_]+)=", flag, text)

    def status_of(self, error: Exception) -> int | None:
        """The exit status for what users can run into; None for a fault of ours."""
        if isinstance(error, ConfigError):
            return exits.USAGE
        # What Redis itself objects to, such as a permission that is missing. Told by its module:
        # importing redis for this would cost commands that need no server a fifth of a second.
        known = isinstance(error, SkedulrError) or type(error).__module__ == "redis.exceptions"
        return exits.FAILURE if known else None
