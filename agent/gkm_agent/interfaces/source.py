"""The Protocol of a source of desired caches. The Kubernetes API implements it, and so does a directory."""

from typing import Protocol

from gkm_agent.caches.model import WantedCache


class CacheSource(Protocol):
    """Returns the caches that this node should have. On a change it sets the wake event of the agent."""

    @property
    def synced(self) -> bool:
        """Return whether `caches` is complete: only then does a missing cache mean a deleted one."""

    def caches(self) -> list[WantedCache]:
        """Return the wanted caches as last read; never wait for a network."""

    def start(self) -> None:
        """Start to watch; return at once."""

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the first complete read; return whether it is done."""

    def stop(self) -> None:
        """Stop watching, in bounded time."""
