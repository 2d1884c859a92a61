"""Read the signed statements about an image, such as its bill of materials; `evaluation` decides whether they count."""

from gkm.api.errors import GKMError
from gkm.images.manifest import PREDICATE_ANNOTATION, Descriptor
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.discovery import is_transient
from gkm.images.signatures.signature_formats import Signature, parse_bundle

MAX_ATTESTATIONS = 64
MAX_ATTESTATION_BYTES = 16 << 20
"""Size of a signed statement: a list of a captured cache's files has up to 10 MiB, then base64. cosign reads 128 MiB.
"""


def attestations(registry: Registry, ref: Reference, predicate_type: str) -> list[Descriptor]:
    """Return the attestations of this type that an image has, by what their descriptors state; raises GKMError."""
    found = [each for each in registry.referrers(ref) if each.annotations.get(PREDICATE_ANNOTATION) == predicate_type]
    return found[:MAX_ATTESTATIONS]


def attestation(registry: Registry, ref: Reference, found: Descriptor, predicate_type: str) -> Signature | None:
    """Return an attestation of a pinned image, not verified; None if it cannot be one.

    Raises:
        GKMError: the registry does not answer, or denies access.
    """
    try:
        layers = registry.manifest(ref.pinned(found.digest)).image().layers
        if not layers:
            return None
        return parse_bundle(registry.small_blob(ref, layers[0], MAX_ATTESTATION_BYTES), predicate_type)
    except GKMError as error:
        if is_transient(error):
            raise
        return None
