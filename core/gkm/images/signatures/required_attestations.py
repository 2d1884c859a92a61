"""Evaluation of the attestations that policies require: find a valid one for each, or state why there is none.

An attestation is valid if a signer of the policy signed it (with the checks of signatures, `evaluation`), if its
subject is the digest of the image, and if its predicate satisfies every rule. Rules run only on predicates of trusted
signers, only until one attestation satisfies them, and in a child process that ends within its limits.
"""

import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import BoundedSemaphore

import msgspec
from msgspec import Struct

from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import listed
from gkm.api.policies import PredicateRule, RequiredAttestation
from gkm.api.signers import Signer
from gkm.hoststate.bounded_command import BoundedCommand, CommandResult, RunFailed
from gkm.hoststate.escaping import escape
from gkm.images.image_store import ImageSource
from gkm.images.manifest import decode
from gkm.images.reference import Reference
from gkm.images.signatures.attestations import AttestationReader, FetchedAttestation
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.rules_child import CPU_SECONDS, HEADROOM_BYTES, OUT_OF_MEMORY
from gkm.images.signatures.signature_formats import Signature

_EVALUATION = BoundedSemaphore()
"""One at a time in a process: any user who may push can attach an attestation that takes 60 MiB to decode, and the
child that runs the rules takes as much; the webhook has 256 MiB."""
MAX_FINDINGS = 4
"""Attestations in the reason why all are invalid, so that a message stays readable."""
MAX_TYPE = 256
"""Characters of a type that the registry states or that a policy names."""
RUN_SECONDS = 10.0
"""Limit in seconds of a child process; an idle machine needs 0.1 s beyond CPU_SECONDS."""
MAX_OUTPUT_BYTES = 4 << 10
MAX_EXPRESSION_SHOWN = 80
_PROGRAM = (sys.executable, "-I", "-W", "ignore", "-m", "gkm.images.signatures.rules_child")
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


@dataclass(frozen=True, slots=True)
class AttestationFinding:
    """Whether an image has an attestation that the policy with the index `policy` requires, and the reason if not.

    `reason` has the signer's form and the reason for each attestation found if all are invalid.
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
    others: list[str] = field(default_factory=list)
    """The types of attestations that the image has."""

    def finding(self) -> AttestationFinding:
        if self.satisfied is not None:
            return self.satisfied
        more = f"; and {len(self.refusals) - MAX_FINDINGS} more" if len(self.refusals) > MAX_FINDINGS else ""
        others = f"; the image has {listed(self.others, MAX_FINDINGS)}" if self.others else ""
        absent = f"no such attestation was found{others}"
        reason = "; ".join(self.refusals[:MAX_FINDINGS]) + more if self.refusals else absent
        return AttestationFinding(self.trust.index, self.required.predicate_type, ok=False, reason=reason)

    def consider(self, signature: Signature, digest: str, until: float) -> None:
        """Take a valid attestation, or note why it does not; raises the transient errors of `violation`."""
        found = self.trust.evaluate(signature, digest)
        problem = found.reason
        if found.ok:
            try:
                problem = violation(self.required.rules, signature.payload or b"", until)
            except GKMError as error:
                if error.inconclusive:
                    raise
                problem = error.message
            if not problem:
                self.satisfied = AttestationFinding(
                    self.trust.index, self.required.predicate_type, ok=True, reason=found.reason, signer=found.signer
                )
                return
        self.refusals.append(f"{found.form} attestation: {problem}")


def evaluate(
    registry: ImageSource, ref: Reference, trusts: Sequence[TrustPolicy], until: float
) -> tuple[tuple[AttestationFinding, ...], GKMError | None]:
    """Return a finding for each attestation that the policies of a pinned image require.

    The second value is the transient error that prevented a complete search; then the image may have more. The
    evaluation ends at `until` (time.monotonic()).
    """
    requirements = [_Requirement(trust, each) for trust in trusts for each in trust.policy.attestations]
    errors: list[GKMError] = []
    for place in dict.fromkeys(each.trust.place(ref) for each in requirements):
        of_place = [each for each in requirements if each.trust.place(ref) == place]
        reader = AttestationReader(registry, place)
        try:
            for predicate_type in dict.fromkeys(each.required.predicate_type for each in of_place):
                of_type = [each for each in of_place if each.required.predicate_type == predicate_type]
                _consider(reader.of_type(predicate_type), of_type, ref.target, until)
        except GKMError as caught:
            errors.append(caught)
        for each in of_place:
            each.others = [escape(name[:MAX_TYPE]) for name in reader.types()]
        errors[:0] = [reader.read_error] if reader.read_error else []
    return tuple(each.finding() for each in requirements), next(iter(errors), None)


def _consider(
    attestations: Iterable[FetchedAttestation], requirements: Sequence[_Requirement], digest: str, until: float
) -> None:
    """Compare attestations of one type with the requirements, until all are satisfied; raises transient errors."""
    for attestation in attestations:
        if not _EVALUATION.acquire(timeout=max(0.0, until - time.monotonic())):
            raise unavailable("the attestations of the image take too long to evaluate")
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


class _Statement(Struct):
    predicate: msgspec.Raw = msgspec.Raw(b"null")


class _Reply(Struct):
    rule: int = -1
    reason: str = ""


def violation(rules: Sequence[PredicateRule], payload: bytes, until: float) -> str:
    """Return why the predicate of an attestation does not satisfy all rules; "" if it does.

    The child ends at `until` (time.monotonic()).

    Raises:
        GKMError: METADATA_INVALID if the statement is malformed; NODE_ERROR if this machine could not run the rules.
    """
    if not rules:
        return ""
    predicate = decode(payload, _Statement, "signed statement", json_limits.check_predicate).predicate
    if has_nul(bytes(predicate)):
        return "its predicate holds the character U+0000, and rules cannot see what follows it"
    request = msgspec.json.encode({"rules": [rule.expression for rule in rules], "predicate": predicate})
    result = _run(request, min(RUN_SECONDS, until - time.monotonic()))
    if reason := _exceeded(result.code):
        return reason
    reply = _reply(result)
    if reply.rule < 0:
        return ""
    rule = rules[min(reply.rule, len(rules) - 1)]
    named = rule.message or f"{rule.expression[:MAX_EXPRESSION_SHOWN]!r}"
    return f"rule {reply.rule + 1} ({named}) {escape(reply.reason)}"


def has_nul(text: bytes) -> bool:
    r"""Return whether JSON holds the character NUL, for which it has one form: \u0000.

    The engine takes C strings: it would see what is before it as the whole. A backslash of a text is two in JSON, so
    these are taken out first, from the left: what is left begins an escape.
    """
    return rb"\u0000" in text.replace(rb"\\", b"")


def _run(request: bytes, seconds: float) -> CommandResult:
    if seconds <= 0:
        raise unavailable("the attestations of the image take too long to evaluate")
    try:
        return BoundedCommand(_PROGRAM, seconds, MAX_OUTPUT_BYTES, environment={}, directory="/").run(request)
    except RunFailed as error:
        raise unavailable(f"the process for the rules of attestations {error}") from error


def _exceeded(code: int) -> str:
    """Return what the end of a child means, if the rules or the predicate are its cause."""
    if code == -signal.SIGPROF:
        return f"its rules need more than {CPU_SECONDS:g} s of CPU time"
    if code == OUT_OF_MEMORY:
        return f"its rules need more than {HEADROOM_BYTES >> 20} MiB of memory"
    return f"its rules crash their process (signal {-code})" if -code in _CRASHES else ""


def _reply(result: CommandResult) -> _Reply:
    if result.code == 0 and result.output:
        return decode(result.output, _Reply, "result of the rules of attestations")
    raise unavailable(f"the process for the rules of attestations ended with status {result.code}")


def unavailable(message: str) -> GKMError:
    """Return the error for a check that could not be made; a retry may succeed."""
    return GKMError(Reason.NODE_ERROR, message, "it is tried again")
