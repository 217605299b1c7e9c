"""Where the server is that nobody named: the default address, or an embedded one that was found.

A producer may be started before the master whose embedded server it is to use. The address that it
found then is the wrong one for ever, unless somebody looks again: who can not connect does.
"""

from __future__ import annotations

from collections.abc import Callable

from .config import RedisAddress


class Whereabouts:
    """Shared by all connections of a client. ``find`` looks where a client that starts now would;
    it costs some looks at files, and no connection.

    >>> found = [RedisAddress("redis://a", "the default address"), RedisAddress("redis://b", "")]
    >>> place = Whereabouts(found[0], lambda: found[1])
    >>> place.look_again("redis://a"), place.url, place.look_again("redis://b")
    (True, 'redis://b', False)
    """

    def __init__(self, address: RedisAddress, find: Callable[[], RedisAddress]) -> None:
        self._address, self._find = address, find

    def __str__(self) -> str:
        """The server in words, its password hidden."""
        return str(self._address)

    @property
    def url(self) -> str:
        """Where it was when somebody looked last."""
        return self._address.url

    def look_again(self, tried: str) -> bool:
        """Nobody answers at ``tried``; whether it is somewhere else by now."""
        self._address = self._find()
        return self._address.url != tried
