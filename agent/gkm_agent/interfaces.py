"""Protocols for the source of the wanted caches, and for the sinks of the published state.

Each has two implementations: the Kubernetes API, and a directory of files.
"""

from typing import Protocol, TypeVar

from gkm.api.nodes import NodeStatus

from gkm_agent.caches.model import WantedCache

T_contra = TypeVar("T_contra", contravariant=True)


class CacheSource(Protocol):
    """Returns the caches that this node should have. On a change it sets the wake event of the agent."""

    @property
    def synced(self) -> bool:
        """Return whether `caches` is complete, so that a cache that is not in it is deleted."""

    def caches(self) -> list[WantedCache]:
        """Return the wanted caches of the last read, without waiting for a network."""

    def start(self) -> None:
        """Start to watch the wanted caches; return at once."""

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the first complete read; return whether it is done."""

    def stop(self) -> None:
        """Stop watching the wanted caches, in bounded time."""


class NotWritten(Exception):
    """The sink cannot write now; the publisher tries again. The message states the cause.

    `retry_after` is the pause in seconds that the server asked for, 0 if it did not ask for one. `refused` means that
    the server answers and refuses this value, so that it may take another one.
    """

    def __init__(self, message: str, retry_after: float = 0.0, *, refused: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.refused = refused


class Sink(Protocol[T_contra]):
    """Publishes one kind of value, and writes only if the published value differs."""

    def publish(self, value: T_contra, /) -> None:
        """Write the value where it is published, unless it is there already.

        Raises:
            NotWritten: at least a part of the value is not written.
        """

    def invalidate(self) -> None:
        """Forget what was written: another client may have changed or deleted the objects."""


class StatusSink(Protocol):
    """Writes one status object per scope; a scope is a namespace, or None for the cluster-wide caches."""

    def scopes(self) -> set[str | None]:
        """Return the scopes for which an object of this node exists.

        Raises:
            NotWritten: the sink cannot read them now.
        """

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """Write `status` to the object of a scope.

        Raises:
            NotWritten: the object does not have this status yet.
        """

    def remove(self, scope: str | None) -> None:
        """Remove the object of a scope; idempotent.

        Raises:
            NotWritten: the object may still exist.
        """
