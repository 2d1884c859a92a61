"""Verification of an image: apply the configured policies to its signatures and return one verdict.

`discovery` finds the signatures, `evaluation` decides which of them count under each policy that covers the image, and
the verdict states the reason in words that a person understands. An image with the required signatures also needs the
attestations that the policies require (`required_attestations`).

For a legacy signature without a log entry, the logs of the trusted root are queried. A policy must enable the lookup
(`tlogLookup`), because the verdict then depends on a service besides the registry. GKM verifies a log's response like
an entry that came with the signature, so a log cannot make a signature count that it did not record.
"""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase

from cryptography.hazmat.primitives import serialization
from msgspec.structs import astuple

from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.api.signers import Signer
from gkm.images.image_store import ImageSource
from gkm.images.reference import Reference
from gkm.images.signatures import certificates, keyless, required_attestations
from gkm.images.signatures.bundles import LogEntry
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.discovery import find_signatures
from gkm.images.signatures.evaluation import SignatureFinding, TrustPolicy
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.required_attestations import AttestationFinding
from gkm.images.signatures.signature_formats import Signature, SignatureForm
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signatures.trust_material import TrustedRoot, stamp

MAX_LISTED = 4
"""Limit of signers or findings in one message."""
MAX_LISTED_GLOBS = 2
MAX_GLOB = 60
"""Limit of globs in a message, and of characters of each."""
VERIFY_SECONDS = 60.0
"""Seconds to fetch all signatures of one image."""
MAX_LOOKUPS = 8
"""Limit of log lookups for one image; each is a request to another service."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying an image under the signature policies.

    `verified` is None if verification is off, or if the registry did not respond and the signatures that it returned
    do not satisfy the policies. `allowed` states whether the configured mode permits the image. `message` tells a
    person the required and the found signatures or attestations. `findings` has every signature once for each policy
    that covers the image.
    """

    verified: bool | None
    allowed: bool
    reason: Reason
    message: str
    findings: tuple[SignatureFinding, ...] = ()
    attestations: tuple[AttestationFinding, ...] = ()
    """The result for each attestation that the policies require; empty if the signatures are not sufficient."""
    detail: str = ""
    """Details of the error that prevented verification, for logs and the command line."""
    retry_after: float = 0.0
    """The pause in seconds that the registry requested when it prevented verification."""

    @property
    def signers(self) -> tuple[Signer, ...]:
        """Return the signers with a valid signature, each once."""
        return tuple(sorted({finding.signer for finding in self.findings if finding.ok}, key=astuple))

    @property
    def signed(self) -> datetime | None:
        """Return the earliest confirmed time of a valid signature, None if no time is confirmed."""
        times = (finding.signed for finding in self.findings if finding.ok)
        return min((time for time in times if time is not None), default=None)


class Verifier:
    """Applies the configured signature policies to images. Thread-safe.

    Every policy that covers an image must be satisfied (see `Policy`). The verifier evaluates every signature, even
    after the first sufficient one, so that the verdict has a reason for each. That costs some milliseconds each, for
    at most 128 signatures.
    """

    def __init__(self, config: Verification, seconds: float = VERIFY_SECONDS) -> None:
        self._config = config
        self._seconds = seconds

    def stamp(self) -> Hashable:
        """Return a value that changes when a file of a policy changes; earlier verdicts are then out of date."""
        return tuple(stamp(path) for path in dict.fromkeys(self._config.files()))

    def check_covered(self, ref: Reference, namespace: str | None) -> None:
        """Check that the mode permits an image without a policy, or that a policy covers it; needs no network.

        Raises:
            GKMError: SIGNATURE_MISSING if the mode is `enforce` and no policy covers the image.
        """
        covered = any(covers(policy, ref, namespace) for policy in self._config.policies)
        if self._config.mode == "enforce" and not covered:
            raise GKMError(Reason.SIGNATURE_MISSING, self._uncovered(ref, namespace))

    def trusts(self, ref: Reference, namespace: str | None) -> list[TrustPolicy]:
        """Return the policies that cover an image, with their keys and trusted roots loaded.

        Raises:
            GKMError: SIGNATURE_INVALID if a key or trusted root is unusable.
        """
        return [
            TrustPolicy.from_policy(index, policy)
            for index, policy in enumerate(self._config.policies)
            if covers(policy, ref, namespace)
        ]

    def verify(self, registry: ImageSource, ref: Reference, namespace: str | None) -> Verdict:
        """Return the verdict on a pinned image for a namespace (None: cluster-wide).

        An error of the registry or the image is a verdict too, never an exception.
        """
        if self._config.mode == "off":
            return Verdict(None, allowed=True, reason=Reason.NOT_REQUIRED, message="verification is switched off")
        try:
            verdict = self._verdict(registry, ref, namespace)
        except GKMError as error:
            verdict = _undetermined(error) if error.inconclusive else _refused(error.reason, str(error))
        return self._by_mode(verdict)

    def revoked(self, ref: Reference, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return the refusal of an accepted image if the policies no longer accept its signers.

        The policies revoke it if they no longer name a signer and the others do not suffice, if no policy covers the
        image any more, or if a key or trusted root is unusable. None if only the registry can decide: a policy may
        require more signatures than before. This method reads only the files of policies and never raises.
        """
        if self._config.mode == "off":
            return None
        try:
            trusts = self.trusts(ref, namespace)
        except GKMError as error:
            return self._by_mode(_refused(error.reason, str(error)))
        if not trusts:
            return self._by_mode(_refused(Reason.SIGNATURE_MISSING, self._uncovered(ref, namespace)))
        named = [signer for signer in signers if any(trust.trusts(signer) for trust in trusts)]
        wanting = next((trust for trust in trusts if not trust.is_satisfied(named)), None)
        if wanting is None or len(named) == len(signers):
            return None
        removed = [signer for signer in signers if signer not in named]
        reason = Reason.SIGNATURE_INVALID if any(signer.key_id for signer in removed) else Reason.IDENTITY_MISMATCH
        by = _list([str(signer) for signer in removed], ", ")
        signed = f"it was signed by {by}, which no policy names any more"
        return self._by_mode(_refused(reason, _requirement(ref, wanting) + signed))

    def _by_mode(self, verdict: Verdict) -> Verdict:
        if self._config.mode == "warn" and not verdict.allowed:
            return replace(verdict, allowed=True, message=f"{verdict.message} (allowed: verification only warns)")
        return verdict

    def _uncovered(self, ref: Reference, namespace: str | None) -> str:
        where = f" in namespace {namespace}" if namespace else ""
        policies = len(self._config.policies)
        number = "none is" if not policies else "1 is" if policies == 1 else f"{policies} are"
        todo = "ask an administrator to add one to verification.policies, or use an image that is covered"
        return f"no verification policy covers {ref.name}{where} ({number} configured); {todo}"

    def _verdict(self, registry: ImageSource, ref: Reference, namespace: str | None) -> Verdict:
        trusts = self.trusts(ref, namespace)
        if not trusts:
            return _refused(Reason.SIGNATURE_MISSING, self._uncovered(ref, namespace))
        until = time.monotonic() + self._seconds
        registry = registry.within(self._seconds)
        verdict = _evaluated(registry, ref, trusts, until)
        if verdict.verified is False and any(registry.has_mirrors(trust.place(ref)) for trust in trusts):
            # A mirror can withhold signatures or list only useless ones: the registry itself decides on a refusal.
            # Its signatures get separate log lookups, because signatures of a mirror may have used them up.
            return _evaluated(registry.without_mirrors(), ref, trusts, until)
        return verdict


def _evaluated(registry: ImageSource, ref: Reference, trusts: Sequence[TrustPolicy], until: float) -> Verdict:
    """Return the verdict of the policies on what the sources of `registry` have."""
    verdict = _signed(registry, ref, trusts, LogLookups(until))
    if not verdict.verified or not any(trust.policy.attestations for trust in trusts):
        return verdict
    findings, read_error = required_attestations.evaluate(registry, ref, trusts, until)
    missing = next((finding for finding in findings if not finding.ok), None)
    if missing is None:
        types = _list(list(dict.fromkeys(finding.predicate_type for finding in findings)), ", ")
        return replace(verdict, message=f"{verdict.message}, and has the attestations {types}", attestations=findings)
    if read_error is not None:
        return replace(_undetermined(read_error, verdict.findings), attestations=findings)
    trust = next(trust for trust in trusts if trust.index == missing.policy)
    message = (
        f"{ref} needs an attestation {missing.predicate_type} ({_policy(ref, trust)}); {missing.reason}; gkm cache "
        "attest or cosign attest adds one"
    )
    return replace(_refused(Reason.ATTESTATION_MISSING, message, verdict.findings), attestations=findings)


class LogLookups:
    """The transparency log lookups for one image; each must end before `until` (time.monotonic()).

    `read_error` is the first error of a log; then an entry may exist that the lookup did not find.
    """

    def __init__(self, until: float) -> None:
        self._until = until
        self._cached: dict[tuple[str, bytes, bytes], LogEntry | None] = {}
        self.read_error: GKMError | None = None

    def with_log_entry(self, signature: Signature, trust: TrustPolicy) -> Signature:
        """Return the signature with a log entry; look a missing entry up if the policy allows that."""
        if not (trust.policy.tlog_lookup and trust.root) or signature.problem or signature.entry:
            return signature
        verifier = _verifier(signature, trust, trust.root.trusted)
        if not verifier:
            return signature
        lookup = trust.root.path, signature.signature, verifier
        if lookup not in self._cached:
            if len(self._cached) >= MAX_LOOKUPS:
                return signature
            self._cached[lookup] = self._query_logs(signature, verifier, trust.root.trusted)
        return replace(signature, entry=self._cached[lookup])

    def _query_logs(self, signature: Signature, verifier: bytes, root: TrustedRoot) -> LogEntry | None:
        for log in root.logs:
            if not log.url:
                continue
            try:
                rekor = Rekor(SigstoreService("the transparency log", log.url, until=self._until))
                if entry := rekor.find_entry(signature.signed, signature.signature, verifier):
                    return entry
            except GKMError as error:
                # An error of a log is no evidence about the image.
                self.read_error = self.read_error or GKMError(Reason.REGISTRY_UNAVAILABLE, error.message)
        return None


def _signed(registry: ImageSource, ref: Reference, trusts: Sequence[TrustPolicy], lookups: LogLookups) -> Verdict:
    """Return the verdict of the policies on the signatures alone."""
    found = {place: find_signatures(registry, place) for place in dict.fromkeys(trust.place(ref) for trust in trusts)}
    evaluated = [
        (
            trust,
            tuple(
                trust.evaluate(lookups.with_log_entry(each, trust), ref.target)
                for each in found[trust.place(ref)].signatures
            ),
        )
        for trust in trusts
    ]
    read_error = next((each.read_error for each in found.values() if each.read_error), lookups.read_error)
    findings = tuple(finding for _, of_policy in evaluated for finding in of_policy)
    for trust, of_policy in evaluated:
        if not trust.is_satisfied(finding.signer for finding in of_policy if finding.ok):
            if read_error is not None:
                # The part that was not readable may hold a good signature, so the verdict stays open.
                return _undetermined(read_error, findings)
            return _refused(
                _reason(trust, of_policy), _requirement(ref, trust) + _findings_summary(of_policy), findings
            )
    by = _list(sorted({str(finding.signer) for finding in findings if finding.ok}), ", ")
    signed = f"{ref.target} is signed by {by}"
    return Verdict(verified=True, allowed=True, reason=Reason.COSIGN_SUCCESS, message=signed, findings=findings)


def covers(policy: Policy, ref: Reference, namespace: str | None) -> bool:
    """Return whether the globs of a policy match an image and a namespace (None: cluster-wide)."""
    in_namespace = not policy.namespaces or (
        namespace is not None and any(fnmatchcase(namespace, pattern) for pattern in policy.namespaces)
    )
    return in_namespace and any(ref.matches(pattern) for pattern in policy.images)


def _reason(trust: TrustPolicy, findings: Sequence[SignatureFinding]) -> Reason:
    if all(finding.ok for finding in findings):
        # Every signature is valid, but there are too few, or no signature exists.
        return Reason.SIGNATURE_MISSING
    if not any(finding.ok for finding in findings) and any(trust.is_unnamed_identity(finding) for finding in findings):
        return Reason.IDENTITY_MISMATCH
    return Reason.SIGNATURE_INVALID


def _requirement(ref: Reference, trust: TrustPolicy) -> str:
    entries = trust.entries
    names = _list([str(entry) for entry in entries], ", ")
    noun = "identity" if not trust.keys else "key" if len(trust.keys) == len(entries) else "key or identity"
    plural = {"identity": "identities", "key": "keys", "key or identity": "keys and identities"}[noun]
    if len(entries) == 1:
        quantity = noun
    elif trust.policy.require == "all":
        quantity = f"all of the {plural}"
    else:
        quantity = f"{'one' if trust.required_signers == 1 else trust.required_signers} of the {plural}"
    logged = ", logged" if trust.policy.tlog == "required" else ""
    return f"{ref} needs a signature by {quantity} {names}{logged} ({_policy(ref, trust)}); "


def _policy(ref: Reference, trust: TrustPolicy) -> str:
    """Return text that identifies a policy in the configuration: its index and the globs that cover the image."""
    globs = [glob for glob in trust.policy.images if ref.matches(glob)]
    shown = [glob if len(glob) <= MAX_GLOB else f"{glob[: MAX_GLOB - 1]}…" for glob in globs]
    return f"policies[{trust.index}] for {_list(shown, ', ', MAX_LISTED_GLOBS)}"


def _findings_summary(findings: Sequence[SignatureFinding]) -> str:
    if not findings:
        return "no signature was found"
    return "found " + _list([f"{f.form} signature: {f.reason}{_signer_suffix(f)}" for f in findings], "; ")


def _signer_suffix(finding: SignatureFinding) -> str:
    return f" ({finding.signer})" if finding.ok else ""


def _list(texts: Sequence[str], separator: str, shown: int = MAX_LISTED) -> str:
    more = f"{separator}and {len(texts) - shown} more" if len(texts) > shown else ""
    return separator.join(texts[:shown]) + more


def _undetermined(error: GKMError, findings: tuple[SignatureFinding, ...] = ()) -> Verdict:
    open_verdict = Verdict(None, allowed=False, reason=error.reason, message=str(error), findings=findings)
    return replace(open_verdict, detail=error.detail, retry_after=error.retry_after)


def _refused(reason: Reason, message: str, findings: tuple[SignatureFinding, ...] = ()) -> Verdict:
    return Verdict(verified=False, allowed=False, reason=reason, message=message, findings=findings)


def _verifier(signature: Signature, trust: TrustPolicy, root: TrustedRoot) -> bytes:
    """Return the certificate (PEM) of a legacy signature that only lacks an entry to count; b"" for any other."""
    if signature.form is not SignatureForm.LEGACY or not signature.certificate:
        return b""
    try:
        with certificates.readable():
            certificate = keyless.signing_certificate(signature)
            # Only the entry proves the time of use. A check at the time of issue excludes certificates of strangers.
            certificates.check(certificate, root, certificate.not_valid_before_utc)
            named = trust.trusts(certificates.holder(certificate))
    except Untrusted:
        return b""
    return certificate.public_bytes(serialization.Encoding.PEM) if named else b""
