"""What is: the Protocol of a sink of node status. Kubernetes is one, a directory is another."""

from typing import Protocol

from gkm.api.nodes import NodeStatus


class NotWritten(Exception):
    """The sink cannot take it now; it is tried again. The message says why."""


class StatusSink(Protocol):
    """Takes what this node says; a scope is a namespace, or None for the cluster-wide caches."""

    def scopes(self) -> set[str | None]:
        """Return the scopes for which an object of this node exists.

        Raises:
            NotWritten: that cannot be known now.
        """

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """Make the object of a scope say `status`.

        Raises:
            NotWritten: it does not say so yet.
        """

    def remove(self, scope: str | None) -> None:
        """Remove the object of a scope; idempotent.

        Raises:
            NotWritten: it may still be there.
        """
