"""Evaluation of the attestations that policies require: find one that counts for each, or state why none does.

An attestation counts if a signer of the policy signed it (the checks are those of signatures, `evaluation`), if its
subject is the digest of the image, and if its predicate satisfies every rule. Rules run only on predicates of trusted
signers, and only until one attestation satisfies them.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import BoundedSemaphore

from gkm.api.errors import GKMError
from gkm.api.policies import RequiredAttestation
from gkm.api.signers import Signer
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures import rules_process
from gkm.images.signatures.attestations import AttestationReader, FetchedAttestation
from gkm.images.signatures.discovery import is_transient
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.signature_formats import Signature

_EVALUATION = BoundedSemaphore()
"""One at a time in a process: whoever may push can attach attestations of which one takes 60 MiB to decode, and the
child that runs the rules takes as much; the webhook has 256 MiB."""
MAX_FINDINGS = 4
"""Attestations in the reason why none counts, so that a message stays readable."""


@dataclass(frozen=True, slots=True)
class AttestationFinding:
    """The result for one attestation that the policy with the index `policy` requires.

    `reason` has the signer's form and the reason for each attestation found if none counts.
    """

    policy: int
    predicate_type: str
    ok: bool
    reason: str
    signer: Signer = field(default_factory=Signer)


@dataclass(slots=True)
class _Requirement:
    """A required attestation under a trust policy, and what was found so far."""

    trust: TrustPolicy
    required: RequiredAttestation
    refusals: list[str] = field(default_factory=list)
    satisfied: AttestationFinding | None = None

    def finding(self) -> AttestationFinding:
        if self.satisfied is not None:
            return self.satisfied
        more = f"; and {len(self.refusals) - MAX_FINDINGS} more" if len(self.refusals) > MAX_FINDINGS else ""
        reason = "; ".join(self.refusals[:MAX_FINDINGS]) + more if self.refusals else "no such attestation was found"
        return AttestationFinding(self.trust.index, self.required.predicate_type, ok=False, reason=reason)

    def consider(self, signature: Signature, digest: str, until: float) -> None:
        """Take an attestation that counts, or note why it does not; raises the transient errors of `violation`."""
        found = self.trust.evaluate(signature, digest)
        problem = found.reason
        if found.ok:
            try:
                problem = rules_process.violation(self.required.rules, signature.payload or b"", until)
            except GKMError as error:
                if is_transient(error):
                    raise
                problem = error.message
            if not problem:
                self.satisfied = AttestationFinding(
                    self.trust.index, self.required.predicate_type, ok=True, reason=found.reason, signer=found.signer
                )
                return
        self.refusals.append(f"{found.form} attestation: {problem}")


def evaluate(
    registry: Registry, ref: Reference, trusts: Sequence[TrustPolicy], until: float
) -> tuple[tuple[AttestationFinding, ...], GKMError | None]:
    """Return a finding for each attestation that the policies of a pinned image require.

    The second value is the transient error that prevented a complete search; then the image may have more. The
    evaluation ends at `until` (time.monotonic()).
    """
    requirements = [_Requirement(trust, each) for trust in trusts for each in trust.policy.attestations]
    reader = AttestationReader(registry, ref)
    error: GKMError | None = None
    try:
        for predicate_type in dict.fromkeys(each.required.predicate_type for each in requirements):
            _consider(reader.of_type(predicate_type), _of_type(requirements, predicate_type), ref.target, until)
    except GKMError as caught:
        error = caught
    return tuple(each.finding() for each in requirements), reader.read_error or error


def _of_type(requirements: Sequence[_Requirement], predicate_type: str) -> list[_Requirement]:
    return [each for each in requirements if each.required.predicate_type == predicate_type]


def _consider(
    attestations: Iterable[FetchedAttestation], requirements: Sequence[_Requirement], digest: str, until: float
) -> None:
    """Compare attestations of one type with the requirements, until all are satisfied; raises transient errors."""
    for attestation in attestations:
        if not _EVALUATION.acquire(timeout=max(0.0, until - time.monotonic())):
            raise rules_process.unavailable("the attestations of the image take too long to evaluate")
        try:
            signature = attestation.signature()
            for each in requirements:
                if each.satisfied is None:
                    each.consider(signature, digest, until)
            del signature  # before the next one is fetched
        finally:
            _EVALUATION.release()
        if all(each.satisfied for each in requirements):
            return
