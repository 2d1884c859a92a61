"""The Protocol for the agent's access to images, and its implementation with gkm.images."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from gkm.api.config import Config
from gkm.api.signers import Signer
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.local_image import BlobDownload
from gkm.images.pulling import pull
from gkm.images.pulling.disk_reservations import DiskReservation
from gkm.images.pulling.entry import StoreEntry
from gkm.images.pulling.pull import Progress, PullStage
from gkm.images.reference import Reference
from gkm.images.registries.credentials import PullSecrets
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verified_images import ImageVerifier, RegistryImages
from gkm.images.signatures.verify import Verdict, Verifier

from gkm_agent.caches.model import WantedCache
from gkm_agent.telemetry import metrics

_STAGE_LABELS = {PullStage.DOWNLOADING: "download", PullStage.EXTRACTING: "extract"}


class CacheImages(ImageVerifier, Protocol):
    """Verifies, describes and fetches images. Thread-safe; bounded in time and bytes."""

    def opened_for(self, wanted: WantedCache) -> "CacheImages":
        """Return an instance that uses the pull secrets of one cache.

        Raises:
            GKMError: the credentials are unreadable or invalid, or the reference is invalid.
        """

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return a refusal if the policies no longer accept the `signers` of an approved image, else None.

        Needs no registry.
        """

    def describe(self, image: str, digest: str) -> CacheImage:
        """Read the manifest and labels of an image without its content.

        Raises:
            GKMError: the image is no cache image, or the registry refuses access.
        """

    def fetch(self, image: CacheImage, progress: Progress, reservation: DiskReservation | None) -> StoreEntry:
        """Return the store entry of an image; pull it if the store lacks it. An error of `progress` ends the pull.

        Raises:
            GKMError: the fetch failed and left no entry.
            UnreadableState: the store has a damaged entry under this digest.
        """


class _CountedRegistry(Registry):
    """A registry that counts the received bytes."""

    def blob(self, ref: Reference, download: BlobDownload) -> None:
        """Implement Registry.blob."""
        before = download.received
        try:
            super().blob(ref, download)
        finally:
            metrics.PULL_BYTES.inc(download.received - before)


@dataclass(frozen=True)
class NodeImages(RegistryImages):
    """Implements CacheImages with gkm.images."""

    layout: Layout
    max_bytes: int

    @classmethod
    def of(cls, config: Config, layout: Layout, secrets: PullSecrets | None = None) -> "NodeImages":
        """Return the access to images for a configuration; without `secrets`, access to registries is anonymous."""
        verifier = Verifier(config.verification)
        return cls(_CountedRegistry(config.registries), verifier, secrets, layout, config.store.max_image_bytes)

    def opened_for(self, wanted: WantedCache) -> CacheImages:
        """Implement CacheImages.opened_for."""
        return self.with_pull_secrets(wanted.image, wanted.ref.namespace, wanted.pull_secrets)

    def resolve(self, image: str) -> str:
        """Implement ImageVerifier.resolve."""
        with metrics.PULL_SECONDS.labels("resolve").time():
            return super().resolve(image)

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Implement ImageVerifier.verify, and record its duration."""
        verify = super().verify
        return timed_verification(lambda: verify(image, digest, namespace))

    def describe(self, image: str, digest: str) -> CacheImage:
        """Implement CacheImages.describe."""
        with metrics.PULL_SECONDS.labels("describe").time():
            return cache.describe(self.registry, Reference.parse(image).pinned(digest))

    def fetch(self, image: CacheImage, progress: Progress, reservation: DiskReservation | None) -> StoreEntry:
        """Implement CacheImages.fetch."""
        with timed_stages(progress) as timed:
            return pull.fetch(
                self.registry, image, self.layout, max_bytes=self.max_bytes, reservation=reservation, progress=timed
            )


def timed_verification(verify: Callable[[], Verdict]) -> Verdict:
    """Call `verify` and return its verdict; record the duration as a metric with the result as label."""
    result = "error"
    with metrics.VERIFY_SECONDS.time() as timer:
        try:
            verdict = verify()
            result = "refused" if not verdict.allowed else "verified" if verdict.verified else "admitted"
            return verdict
        finally:
            timer.labels(result)


@contextmanager
def timed_stages(progress: Progress) -> Iterator[Progress]:
    """Yield a `progress` that also records the duration of each stage. A fetch that finds the entry has no stages.

    The last stage ends with the fetch, so it includes the rename of the entry into the store.
    """
    current: PullStage | None = None
    with ExitStack() as timer:

        def record(stage: PullStage, percent: int) -> None:
            nonlocal current
            if stage is not current:
                current = stage
                timer.close()
                timer.enter_context(metrics.PULL_SECONDS.labels(_STAGE_LABELS[stage]).time())
            progress(stage, percent)

        yield record
    if current is not None:
        metrics.succeeded("pull")
