"""Protocols for the operator's access to images, and their implementation with gkm.images."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gkm.api.caches import ImageVolume
from gkm.api.config import Config
from gkm.api.signers import Signer
from gkm.gpus.targets import normalize_target
from gkm.images import cache
from gkm.images.cache import MOUNT_PATH_LABEL, CacheImage
from gkm.images.reference import Reference
from gkm.images.registries.credentials import PullSecrets
from gkm.images.registries.registry import Registry
from gkm.images.registries.transport import TransportLimits
from gkm.images.signatures.verified_images import ImageVerifier, RegistryImages
from gkm.images.signatures.verify import VERIFY_SECONDS, Verdict, Verifier
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath


@dataclass(frozen=True, slots=True)
class ImageClaims:
    """The facts that a cache image states about itself.

    The bytes of its files (0 if not stated), its creation time and its runtime.
    """

    size_bytes: int = 0
    created: datetime | None = None
    readable: bool = True
    runtime: str = ""
    volume: ImageVolume | None = None
    """The image as a volume of pods; None if it was built for no mount path."""


NO_CLAIMS = ImageClaims()
UNREADABLE = ImageClaims(readable=False)


class ImageChecker(ImageVerifier, Protocol):
    """Checks images of caches for the admission webhook."""

    def claims(self, image: str, digest: str) -> ImageClaims:
        """Return the facts that an image states about itself.

        Raises:
            GKMError: as `resolve`, or the image is not a cache image.
        """


class Images(ImageChecker, Protocol):
    """Checks images of caches for the controllers."""

    def with_pull_secrets(self, image: str, namespace: str | None, names: Sequence[str]) -> "Images":
        """Return images that are read with the named pull Secrets of a namespace (RegistryImages.with_pull_secrets)."""

    def without_mirrors(self) -> "Images":
        """Return images that are read from their own registries, without mirrors (RegistryImages.without_mirrors)."""

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return a refusal if policies no longer accept the signers of a verified image; None otherwise."""


class CheckedImages(RegistryImages):
    """Implements Images: reads images in registries, and verifies their signatures by the configured policies."""

    @classmethod
    def of(
        cls,
        config: Config,
        limits: TransportLimits | None = None,
        secrets: PullSecrets | None = None,
        seconds: float = VERIFY_SECONDS,
    ) -> "CheckedImages":
        """Return an instance for a configuration; fetching all signatures of an image may take `seconds`."""
        return cls(Registry(config.registries, limits=limits), Verifier(config.verification, seconds), secrets)

    def claims(self, image: str, digest: str) -> ImageClaims:
        """Return the facts that an image states about itself, read from its registry; raise GKMError."""
        described = cache.describe(self.registry, Reference.parse(image).pinned(digest))
        volume = image_volume(described)
        return ImageClaims(described.size_bytes or 0, described.created, runtime=described.runtime, volume=volume)


def image_volume(described: CacheImage) -> ImageVolume | None:
    """Return a cache image as an image volume of pods; None if its label has no usable mount path."""
    try:
        path = MountPath(described.labels.get(MOUNT_PATH_LABEL, ""))
    except InvalidMountPath:
        return None
    gpus = dict.fromkeys(normalize_target(target).arch_name for target in described.targets)
    return ImageVolume(str(described.ref), path.text, list(gpus))
