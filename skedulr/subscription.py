"""Following one pub/sub channel. Messages only hurry: what they say is also kept in a key.

In a Cluster a message goes to every node, whichever it is published at; we listen at the node that
has the keys of the channel's namespace, where most of them are published.
"""

from __future__ import annotations

from collections.abc import Callable

from .wire import open_connection

#: A connection on which nothing came for this long is asked whether it lives, seconds.
QUIET_S = 60.0
#: How long an answer may take, seconds.
ANSWER_S = 5.0


def follow(
    url: str, channel: str, *, name: str, on_subscribed: Callable[[], object],
    on_message: Callable[[str], object],
) -> None:
    """Call ``on_message`` with each message of ``channel``; returns only by raising.

    ``on_subscribed`` is called once messages are sure to come: whatever was said before that is to
    be looked up. Raises redis-py's errors, a wire's and OSError when the connection breaks.
    """
    connection = open_connection(url, name=name, timeout_s=ANSWER_S, key=channel)
    try:
        connection.send_command("SUBSCRIBE", channel)
        connection.read_response(timeout=ANSWER_S)
        on_subscribed()
        while True:
            if not connection.can_read(timeout=QUIET_S):
                connection.send_command("PING")
            kind, *rest = connection.read_response(timeout=ANSWER_S)
            if kind == b"message":
                on_message(rest[1].decode())
    finally:
        connection.disconnect()
