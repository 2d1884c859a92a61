"""What the operator asks about images, as a Protocol, and its answer on gkm.images."""

from typing import Protocol

from gkm.api.config import Config
from gkm.images import cache
from gkm.images.reference import Reference
from gkm.images.registry import Registry
from gkm.images.transport import Limits
from gkm.images.verify import Verdict, Verifier


class Images(Protocol):
    """Registry and policy. Thread-safe, bounded in time; raises GKMError."""

    def resolve(self, image: str) -> str:
        """Return the digest that a reference names now.

        Raises:
            GKMError: it is no reference, its registry is not allowed, does not answer, or knows no such image.
        """
        ...

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on this digest, wanted in a namespace (None: cluster-wide).

        Raises:
            GKMError: as `resolve`.
        """
        ...

    def size(self, image: str, digest: str) -> int:
        """Return how many bytes the files of the cache have together, as the image claims; 0 when it does not.

        Raises:
            GKMError: as `resolve`, or it is no cache image.
        """
        ...


class RegistryImages:
    """`Images` by gkm.images."""

    def __init__(self, config: Config, limits: Limits | None = None) -> None:
        self._registry = Registry(config.registries, limits=limits)
        self._verifier = Verifier(config.verification)

    def resolve(self, image: str) -> str:
        """Return the digest that a reference names now."""
        return self._registry.resolve(Reference.parse(image))

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on this digest."""
        return self._verifier.verify(self._registry, Reference.parse(image).pinned(digest), namespace)

    def size(self, image: str, digest: str) -> int:
        """Return the size of the files as the image claims it."""
        return cache.describe(self._registry, Reference.parse(image).pinned(digest)).size_bytes or 0
