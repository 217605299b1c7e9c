"""Handle: what a producer holds of a task it submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

if TYPE_CHECKING:
    from datetime import timedelta

    from .client import Client

R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """One submitted task, by its id. Holds no connection and no state; every look asks Redis.

    ``id`` is ``"<pool>/<uid>"``; it may be kept, sent elsewhere, and given to ``skedulr.get``.
    """

    __slots__ = ("_client", "id")

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self.id: Final = id

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def uid(self) -> str:
        """The part of the id after the pool."""
        return self.id.rpartition("/")[2]

    @property
    def pool(self) -> str:
        """The pool the task was submitted to."""
        return self.id.rpartition("/")[0]

    @property
    def state(self) -> str:
        """``queued``, ``scheduled``, ``waiting``, ``running``, ``succeeded``, ``dead``, ...

        Raises TaskNotFound once the record is forgotten.
        """
        return self._client.state(self.id)

    def info(self) -> dict[str, Any]:
        """All that is known of the task: the JSON form of the HTTP interface, as a dict.

        Raises TaskNotFound.
        """
        return self._client.get(self.id)

    def result(self, timeout: float | timedelta | None = None) -> R_co:
        """What the handler returned; waits for it up to ``timeout`` seconds (None: for ever).

        Tuples come back as lists. Raises TaskFailed where the task ended otherwise,
        ResultTimeout when it had not ended in time, TaskNotFound, StorageUnavailable.
        """
        return cast(R_co, self._client.result(self.id, timeout))

    @property
    def progress(self) -> float | None:
        """The percent that the running handler last reported, or None. Raises TaskNotFound."""
        return cast("float | None", self.info()["progress"])

    def resubmit(self) -> bool:
        """Put an ended task back: same id, attempts and crashes from 0, the history kept.

        False where it has not ended, so a second call changes nothing. Raises TaskNotFound,
        DuplicateTask where its unique key is taken by now, QueueFull.
        """
        return self._client.resubmit(self.id)

    def cancel(self) -> bool:
        """Cancel: True if it was cancelled or, running, told to stop; False once it had ended."""
        return self._client.cancel(self.id)
