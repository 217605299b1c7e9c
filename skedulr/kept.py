"""Kept: a value that many ask for and that is made anew only now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from .errors import SkedulrError

T = TypeVar("T")


class Kept(Generic[T]):
    """A value that is made again when it is older than ``seconds``; one caller makes it.

    That it could not be made is kept as well: while Redis is silent, those who wait for the value
    do not each wait for a time-out of their own.
    """

    def __init__(
        self, make: Callable[[], T], seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._seconds, self._monotonic = make, seconds, monotonic
        self._guard = threading.Lock()
        self._value: T | None = None
        self._error: SkedulrError | None = None
        self._made_at = float("-inf")

    def get(self) -> T:
        """The value. Raises what making it raised."""
        with self._guard:
            if self._monotonic() - self._made_at >= self._seconds:
                self._renew()
            if self._error is not None:
                raise self._error
            assert self._value is not None
            return self._value

    def _renew(self) -> None:
        try:
            self._value, self._error = self._make(), None
        except SkedulrError as error:
            self._error = error
        self._made_at = self._monotonic()
