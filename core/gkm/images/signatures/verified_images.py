"""Resolve and verify images under the signature policies, for the agent and the operator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from gkm.api.signers import Signer
from gkm.images.reference import Reference
from gkm.images.registries.credentials import PullSecrets
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verdict, Verifier


class ImageVerifier(Protocol):
    """Resolves and verifies images. Thread-safe and bounded in time. A namespace of None means cluster-wide."""

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """Check that the configuration allows an image, without a request to its registry.

        Raises:
            GKMError: INVALID_REFERENCE; NOT_ALLOWED; or SIGNATURE_MISSING, the mode requires a policy that covers the
                image and no policy does.
        """
        ...

    def resolve(self, image: str) -> str:
        """Return the digest that a reference names now.

        Raises:
            GKMError: the reference is invalid, or its registry is forbidden, does not answer or has no such image.
        """
        ...

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on this digest of an image for use in a namespace.

        Raises:
            GKMError: as `resolve`.
        """
        ...


@dataclass(frozen=True)
class RegistryImages:
    """Implements ImageVerifier with registries and the configured policies; without `secrets` it reads anonymously."""

    registry: Registry
    verifier: Verifier
    secrets: PullSecrets | None

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """Check that the configuration allows an image in a namespace, without a request to its registry."""
        ref = Reference.parse(image)
        self.registry.check_allowed(ref)
        self.verifier.check_covered(ref, namespace)

    def with_pull_secrets(self, image: str, namespace: str | None, names: Sequence[str]) -> Self:
        """Return an instance with the credentials for one cache: the Secrets `names` in its namespace.

        Raises:
            GKMError: a Secret cannot be read or holds no credentials; or the reference is invalid.
        """
        found = self.secrets.credentials(image, namespace, names) if self.secrets else None
        return self if found is None else replace(self, registry=self.registry.with_credentials(found))

    def without_mirrors(self) -> Self:
        """Return an instance that reads images without mirrors."""
        return replace(self, registry=self.registry.without_mirrors())

    def resolve(self, image: str) -> str:
        """Return the digest that an image reference names now in its registry; raise GKMError."""
        return self.registry.resolve(Reference.parse(image))

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on this digest of an image for use in a namespace (ImageVerifier.verify)."""
        return self.verifier.verify(self.registry, Reference.parse(image).pinned(digest), namespace)

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return a refusal if the policies no longer accept the `signers` of a verified digest, else None.

        Needs no network.

        Raises:
            GKMError: the reference is invalid.
        """
        return self.verifier.revoked(Reference.parse(image).pinned(digest), namespace, signers)
