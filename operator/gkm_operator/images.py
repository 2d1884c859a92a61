"""What the operator asks about images, as a Protocol, and its answer on gkm.images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from gkm.api.config import Config
from gkm.api.signers import Signer
from gkm.images import cache
from gkm.images.reference import Reference
from gkm.images.registries.pull_secrets import PullSecrets
from gkm.images.registries.registry import Registry
from gkm.images.registries.transport import Limits
from gkm.images.signatures.verify import VERIFY_SECONDS, Verdict, Verifier


@dataclass(frozen=True, slots=True)
class Claims:
    """What an image says of itself: the bytes of its files, 0 where it does not say, and when it was created."""

    size_bytes: int = 0
    created: datetime | None = None
    readable: bool = True


NO_CLAIMS = Claims()
UNREADABLE = Claims(readable=False)


class Images(Protocol):
    """Registry and policy. Thread-safe, bounded in time; raises GKMError."""

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """Accept an image that the configuration lets us ask for; comes first, because it asks nobody.

        Raises:
            GKMError: INVALID_REFERENCE; NOT_ALLOWED; or SIGNATURE_MISSING, no policy covers it where one must.
        """
        ...

    def opened_for(self, image: str, namespace: str | None, secrets: Sequence[str]) -> "Images":
        """Return the same with the credentials of a cache of `image` that names Secrets of its namespace.

        Raises:
            GKMError: one of them cannot be read, or holds none; or `image` is no reference.
        """
        ...

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

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return the refusal of what `signers` opened, where policies name one of them no more. Asks nobody.

        Raises:
            GKMError: `image` is no reference.
        """
        ...

    def claims(self, image: str, digest: str) -> Claims:
        """Return what the image says of itself.

        Raises:
            GKMError: as `size`.
        """
        ...

    def size(self, image: str, digest: str) -> int:
        """Return how many bytes the files of the cache have together, as the image claims; 0 when it does not.

        Raises:
            GKMError: as `resolve`, or it is no cache image.
        """
        ...


@dataclass(frozen=True, slots=True)
class CheckedImages:
    """`Images` by gkm.images."""

    registry: Registry
    verifier: Verifier
    secrets: PullSecrets | None

    @classmethod
    def of(
        cls,
        config: Config,
        limits: Limits | None = None,
        secrets: PullSecrets | None = None,
        seconds: float = VERIFY_SECONDS,
    ) -> "CheckedImages":
        """Return images as they are configured; without `secrets` registries are read anonymously.

        The signatures of one image may take `seconds` to arrive, all together.
        """
        return cls(Registry(config.registries, limits=limits), Verifier(config.verification, seconds), secrets)

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """Accept an image that the configuration lets us ask for."""
        ref = Reference.parse(image)
        self.registry.hosts.check_allowed(ref)
        self.verifier.check_covered(ref, namespace)

    def opened_for(self, image: str, namespace: str | None, secrets: Sequence[str]) -> "CheckedImages":
        """Return the same with the credentials of a cache."""
        found = self.secrets.credentials(image, namespace, secrets) if self.secrets else None
        return self if found is None else replace(self, registry=self.registry.with_credentials(found))

    def resolve(self, image: str) -> str:
        """Return the digest that a reference names now."""
        return self.registry.resolve(Reference.parse(image))

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on this digest."""
        return self.verifier.verify(self.registry, Reference.parse(image).pinned(digest), namespace)

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return the refusal of what `signers` opened, where policies name one of them no more."""
        return self.verifier.revoked(Reference.parse(image).pinned(digest), namespace, signers)

    def claims(self, image: str, digest: str) -> Claims:
        """Return what the image says of itself."""
        described = cache.describe(self.registry, Reference.parse(image).pinned(digest))
        return Claims(described.size_bytes or 0, described.created)

    def size(self, image: str, digest: str) -> int:
        """Return the size of the files as the image claims it."""
        return self.claims(image, digest).size_bytes
