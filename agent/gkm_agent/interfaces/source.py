"""What is wanted: the Protocol of a source of caches. Kubernetes is one, a directory is another."""

from typing import Protocol

from gkm_agent.caches.model import WantedCache


class CacheSource(Protocol):
    """Says which caches this node should have; wakes the agent, by an event it is made with, when it says another."""

    @property
    def synced(self) -> bool:
        """Return whether `caches` is complete: only then does a missing cache mean a deleted one."""

    def caches(self) -> list[WantedCache]:
        """Return what is wanted now; never waits for a network."""

    def start(self) -> None:
        """Begin to watch; returns at once."""

    def wait(self, seconds: float) -> bool:
        """Wait, at most so long, until the first look at everything has been had; return whether it has."""

    def stop(self) -> None:
        """End the watching, in bounded time."""
