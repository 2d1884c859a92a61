"""`Images` in memory, with results that the test sets for references and digests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from gkm.api.caches import ImageVolume
from gkm.api.errors import GKMError, Reason
from gkm.api.signers import Signer
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict
from gkm_operator.images import ImageClaims

T = TypeVar("T")

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
GOOD = Verdict(verified=True, allowed=True, reason=Reason.COSIGN_SUCCESS, message="signed by key k")
UNSIGNED = Verdict(verified=False, allowed=False, reason=Reason.SIGNATURE_MISSING, message="no signature was found")
WARNED = Verdict(verified=False, allowed=True, reason=Reason.SIGNATURE_MISSING, message="no signature (only warns)")
UNKNOWN = Verdict(verified=None, allowed=False, reason=Reason.REGISTRY_UNAVAILABLE, message="no answer")
OFF = Verdict(verified=None, allowed=True, reason=Reason.NOT_REQUIRED, message="verification is switched off")
AWAY = GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry does not answer")


@dataclass
class FakeImages:
    """Returns the results that the test set; anything else is not found. An error among the results is raised."""

    digests: dict[str, str | GKMError] = field(default_factory=dict)
    verdicts: dict[str, Verdict | GKMError] = field(default_factory=dict)
    sizes: Mapping[str, int | GKMError] = field(default_factory=dict)
    created: dict[str, datetime] = field(default_factory=dict)
    revocations: dict[str, Verdict] = field(default_factory=dict)
    """What policies take back, by digest, whoever signed it."""
    closed: GKMError | None = None
    """Why the credentials of caches cannot be read."""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    volumes: Mapping[str, ImageVolume] = field(default_factory=dict)
    """The images that were built for a mount path, by digest."""
    refused: Mapping[str, GKMError] = field(default_factory=dict)
    """Images that the configuration does not let us ask for."""

    def check_allowed(self, image: str, namespace: str | None) -> None:
        del namespace
        if image in self.refused:
            raise self.refused[image]

    def with_pull_secrets(self, image: str, namespace: str | None, names: Sequence[str]) -> "FakeImages":
        if self.closed is not None:
            raise self.closed
        if names:
            self.asked.append(("opened for", image, str(namespace), *names))
        return self

    def without_mirrors(self) -> "FakeImages":
        return self

    def resolve(self, image: str) -> str:
        self.asked.append(("resolve", image))
        if image not in self.digests:
            Reference.parse(image)
            raise GKMError(Reason.NOT_FOUND, f"{image} is not there")
        return _or_raise(self.digests[image])

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        self.asked.append(("verify", image, digest, str(namespace)))
        return _or_raise(self.verdicts.get(digest, UNSIGNED))

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        self.asked.append(("revoked", image, digest, str(namespace), *map(str, signers)))
        return self.revocations.get(digest)

    def claims(self, image: str, digest: str) -> ImageClaims:
        return ImageClaims(self.size(image, digest), self.created.get(digest), volume=self.volumes.get(digest))

    def size(self, image: str, digest: str) -> int:
        self.asked.append(("size", image, digest))
        return _or_raise(self.sizes.get(digest, 0))


def _or_raise(answer: T | GKMError) -> T:
    if isinstance(answer, GKMError):
        raise answer
    return answer
