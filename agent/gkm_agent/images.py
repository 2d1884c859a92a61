"""What the agent needs of images, and gkm.images as what stands behind it."""

from collections.abc import Callable
from typing import Protocol

from gkm.api.config import Config
from gkm.hoststate.layout import Layout
from gkm.images import cache, entry, pull
from gkm.images.cache import CacheImage
from gkm.images.entry import Entry
from gkm.images.pull import Stage
from gkm.images.reference import Reference
from gkm.images.registry import Registry
from gkm.images.verify import Verdict, Verifier

Progress = Callable[[Stage, int], None]


class CacheImages(Protocol):
    """From a reference to an entry of the store. Called from several threads; bounded in time and bytes."""

    def resolve(self, image: str) -> str:
        """Return the digest that a reference names now.

        Raises:
            GKMError: it names nothing, or the registry does not say.
        """

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return whether exactly this content may be used in a namespace (None: cluster-wide)."""

    def describe(self, image: str, digest: str) -> CacheImage:
        """Return what the image says of itself; no content is fetched.

        Raises:
            GKMError: it is no cache image, or not ours to read.
        """

    def fetch(self, image: CacheImage, progress: Progress) -> Entry:
        """Return the complete entry of an image, made now if need be. What `progress` raises ends the fetch.

        Raises:
            GKMError: nothing was made.
            UnreadableState: what the store has under this digest is damaged, and in the way.
        """

    def find(self, digest: str) -> Entry | None:
        """Return the entry of a digest if the store has it.

        Raises:
            UnreadableState: it is damaged.
        """


class RegistryImages:
    """The CacheImages of gkm.images."""

    def __init__(self, config: Config, layout: Layout) -> None:
        self._registry = Registry(config.registries)
        self._verifier = Verifier(config.verification)
        self._max_bytes = config.store.max_image_bytes
        self._layout = layout

    def resolve(self, image: str) -> str:
        """See CacheImages."""
        return self._registry.resolve(Reference.parse(image))

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """See CacheImages."""
        return self._verifier.verify(self._registry, Reference.parse(image).pinned(digest), namespace)

    def describe(self, image: str, digest: str) -> CacheImage:
        """See CacheImages."""
        return cache.describe(self._registry, Reference.parse(image).pinned(digest))

    def fetch(self, image: CacheImage, progress: Progress) -> Entry:
        """See CacheImages."""
        return pull.fetch(self._registry, image, self._layout, max_bytes=self._max_bytes, progress=progress)

    def find(self, digest: str) -> Entry | None:
        """See CacheImages."""
        return entry.find(self._layout, digest)
