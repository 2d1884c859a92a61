"""Check the signed statement about a captured image: its files, and the hardware that they are for."""

from collections.abc import Sequence

from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.signers import Signer
from gkm.images.captured.content import PREDICATE_TYPE, PackedFile, content_digest
from gkm.images.manifest import decode
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.attestations import attestation, attestations
from gkm.images.signatures.evaluation import TrustPolicy


class _Predicate(Struct):
    hardware: str
    files: list[PackedFile]
    content_digest: str = field(name="contentDigest")


class _CaptureStatement(Struct):
    predicate: _Predicate


def check(
    registry: Registry, ref: Reference, trusts: Sequence[TrustPolicy], hardware_key: str, digest_of_content: str
) -> None:
    """Check that signers whom every policy trusts state this content for this hardware, of a pinned image.

    The digest of the content is computed anew from the stated files.

    Raises:
        GKMError: SIGNATURE_MISSING, no such statement counts; or the registry does not answer.
    """
    signers = {trust.index: set[Signer]() for trust in trusts}
    for found in attestations(registry, ref, PREDICATE_TYPE):
        signature = attestation(registry, ref, found, PREDICATE_TYPE)
        if signature is None or signature.payload is None:
            continue
        findings = [finding for trust in trusts if (finding := trust.evaluate(signature, ref.target)).ok]
        # Decoded only after a trusted signer's signature is verified.
        if findings and _states(signature.payload, hardware_key, digest_of_content):
            for finding in findings:
                signers[finding.policy].add(finding.signer)
    if not trusts or not all(trust.is_satisfied(signers[trust.index]) for trust in trusts):
        raise GKMError(
            Reason.SIGNATURE_MISSING,
            f"no trusted statement about {ref} names this content and the hardware {hardware_key}",
        )


def states_in(payload: bytes) -> tuple[str, str]:
    """Return the hardware key and the digest of the content that a statement's files have; raises GKMError."""
    predicate = decode(payload, _CaptureStatement, "statement about captured files").predicate
    computed = content_digest(predicate.hardware, predicate.files)
    if computed != predicate.content_digest:
        raise GKMError(Reason.CONTENT_MISMATCH, "the files of the statement have another digest than it states")
    return predicate.hardware, computed


def _states(payload: bytes, hardware_key: str, digest_of_content: str) -> bool:
    try:
        return states_in(payload) == (hardware_key, digest_of_content)
    except GKMError:
        return False
