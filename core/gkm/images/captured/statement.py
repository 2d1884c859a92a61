"""Check the signed statement about a captured image: namespace, hardware and time of the capture, and its files."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.meta import utc_time
from gkm.api.signers import Signer
from gkm.images.captured.content import PREDICATE_TYPE, PackedFile, content_digest
from gkm.images.image_store import ImageSource
from gkm.images.manifest import decode
from gkm.images.reference import Reference
from gkm.images.signatures.attestations import attestation, attestations
from gkm.images.signatures.evaluation import TrustPolicy

CLOCK_SKEW: Final = timedelta(seconds=60)
"""How much later than the controllers' clock the time in a statement may be."""


class CaptureClaim(NamedTuple):
    """The claim of a capture: which content it has, from which namespace and hardware, and what it extends.

    The namespace of the pod, the hardware key, the digest of the content, the family that the capture joins, and the
    digest of the image that it extends; "" without a family or such an image.
    """

    namespace: str
    hardware_key: str
    content_digest: str
    family: str = ""
    base: str = ""


class _Predicate(Struct):
    namespace: str
    time: str
    hardware: str
    files: list[PackedFile]
    content_digest: str = field(name="contentDigest")
    family: str = ""
    base: str = ""


class _CaptureStatement(Struct):
    predicate: _Predicate


def check(
    registry: ImageSource, ref: Reference, trusts: Sequence[TrustPolicy], wanted: CaptureClaim, now: datetime
) -> datetime:
    """Check that the trusted signers attested a capture's claim about an image; return the time of the capture.

    The digest of the content is computed anew from the stated files. A statement whose time is more than CLOCK_SKEW
    after `now` does not count: its capture would never be too old.

    Return the latest time of which enough signers state that the capture was made then or later.

    Raises:
        GKMError: SIGNATURE_MISSING, no such statement is valid; or the registry does not answer.
    """
    stated: list[tuple[datetime, int, Signer]] = []
    for found in attestations(registry, ref, PREDICATE_TYPE):
        signature = attestation(registry, ref, found, PREDICATE_TYPE)
        if signature is None or signature.payload is None:
            continue
        findings = [finding for trust in trusts if (finding := trust.evaluate(signature, ref.target)).ok]
        # Decoded only after a trusted signer's signature is verified.
        time = time_of(signature.payload, wanted) if findings else None
        if time is not None and time <= now + CLOCK_SKEW:
            stated += [(time, finding.policy, finding.signer) for finding in findings]
    signers = {trust.index: set[Signer]() for trust in trusts}
    for time, policy, signer in sorted(stated, key=lambda each: each[0], reverse=True):
        signers[policy].add(signer)
        if all(trust.is_satisfied(signers[trust.index]) for trust in trusts):
            return time
    raise GKMError(
        Reason.SIGNATURE_MISSING,
        f"no trusted statement about {ref} names the namespace {wanted.namespace}, this content and the hardware "
        f"{wanted.hardware_key}",
    )


def states_in(payload: bytes) -> tuple[CaptureClaim, datetime]:
    """Return the claim and the time in a statement about a capture. Raises GKMError."""
    predicate = decode(payload, _CaptureStatement, "statement about captured files").predicate
    computed = content_digest(predicate.hardware, predicate.files)
    if computed != predicate.content_digest:
        raise GKMError(Reason.CONTENT_MISMATCH, "the files of the statement have another digest than it states")
    time = utc_time(predicate.time)
    if time is None:
        raise GKMError(Reason.METADATA_INVALID, "the time of the statement is invalid")
    claim = CaptureClaim(predicate.namespace, predicate.hardware, computed, predicate.family, predicate.base)
    return claim, time


def time_of(payload: bytes, wanted: CaptureClaim) -> datetime | None:
    """Return the time in a statement about this capture; None if the statement is about another one or not GKM's."""
    try:
        found, time = states_in(payload)
    except GKMError:
        return None
    return time if found == wanted else None
