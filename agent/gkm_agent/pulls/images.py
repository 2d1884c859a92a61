"""What the agent needs of images, and gkm.images as what stands behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gkm.api.config import Config
from gkm.api.signers import Signer
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.pulling import entry, pull
from gkm.images.pulling.entry import StoreEntry
from gkm.images.pulling.pull import PullStage
from gkm.images.reference import Reference
from gkm.images.registries.blobs import BlobDownload
from gkm.images.registries.pull_secrets import PullSecrets
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verdict, Verifier

from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls import timing as stages
from gkm_agent.telemetry import metrics

Progress = Callable[[PullStage, int], None]


class CacheImages(Protocol):
    """From a reference to an entry of the store. Called from several threads; bounded in time and bytes."""

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """Accept an image that the configuration lets us ask for; comes first, because it asks nobody.

        Raises:
            GKMError: INVALID_REFERENCE; NOT_ALLOWED; or SIGNATURE_MISSING, no policy covers it where one must.
        """

    def opened_for(self, wanted: WantedCache) -> "CacheImages":
        """Return the same with the credentials of one cache.

        Raises:
            GKMError: they cannot be read, or are none; or its image is no reference.
        """

    def resolve(self, image: str) -> str:
        """Return the digest that a reference names now.

        Raises:
            GKMError: it names nothing, or the registry does not say.
        """

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return whether exactly this content may be used in a namespace (None: cluster-wide)."""

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return the refusal of what `signers` opened, where policies name one of them no more. Asks nobody."""

    def describe(self, image: str, digest: str) -> CacheImage:
        """Return what the image says of itself; no content is fetched.

        Raises:
            GKMError: it is no cache image, or not ours to read.
        """

    def fetch(self, image: CacheImage, progress: Progress) -> StoreEntry:
        """Return the complete entry of an image, made now if need be. What `progress` raises ends the fetch.

        Raises:
            GKMError: nothing was made.
            UnreadableState: what the store has under this digest is damaged, and in the way.
        """

    def find(self, digest: str) -> StoreEntry | None:
        """Return the entry of a digest if the store has it.

        Raises:
            UnreadableState: it is damaged.
        """


class _CountedRegistry(Registry):
    """A registry that counts what comes."""

    def blob(self, ref: Reference, arrival: BlobDownload) -> None:
        """See Registry."""
        before = arrival.received
        try:
            super().blob(ref, arrival)
        finally:
            metrics.PULL_BYTES.inc(arrival.received - before)


@dataclass(frozen=True, slots=True)
class NodeImages:
    """The CacheImages of gkm.images."""

    registry: Registry
    verifier: Verifier
    layout: Layout
    max_bytes: int
    secrets: PullSecrets | None

    @classmethod
    def of(cls, config: Config, layout: Layout, secrets: PullSecrets | None = None) -> "NodeImages":
        """Return images as they are configured; without `secrets` registries are read anonymously."""
        verifier = Verifier(config.verification)
        return cls(_CountedRegistry(config.registries), verifier, layout, config.store.max_image_bytes, secrets)

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """See CacheImages."""
        ref = Reference.parse(image)
        self.registry.hosts.check_allowed(ref)
        self.verifier.check_covered(ref, namespace)

    def opened_for(self, wanted: WantedCache) -> CacheImages:
        """See CacheImages."""
        if self.secrets is None:
            return self
        found = self.secrets.credentials(wanted.image, wanted.ref.namespace, wanted.pull_secrets)
        return self if found is None else replace(self, registry=self.registry.with_credentials(found))

    def resolve(self, image: str) -> str:
        """See CacheImages."""
        with stages.stage("resolve"):
            return self.registry.resolve(Reference.parse(image))

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """See CacheImages."""
        pinned = Reference.parse(image).pinned(digest)
        return stages.verified(lambda: self.verifier.verify(self.registry, pinned, namespace))

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """See CacheImages."""
        return self.verifier.revoked(Reference.parse(image).pinned(digest), namespace, signers)

    def describe(self, image: str, digest: str) -> CacheImage:
        """See CacheImages."""
        with stages.stage("describe"):
            return cache.describe(self.registry, Reference.parse(image).pinned(digest))

    def fetch(self, image: CacheImage, progress: Progress) -> StoreEntry:
        """See CacheImages."""
        with stages.FetchTimer(progress) as watched:
            return pull.fetch(self.registry, image, self.layout, max_bytes=self.max_bytes, progress=watched.record)

    def find(self, digest: str) -> StoreEntry | None:
        """See CacheImages."""
        return entry.find(self.layout, digest)
