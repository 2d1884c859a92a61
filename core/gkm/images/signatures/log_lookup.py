"""Legacy signatures that came without their log entry: the entry, asked for from the logs of the trusted root.

Only where a policy says so, because the verdict then hangs on a service besides the registry. What a log answers is
checked like an entry that came with the signature: the log cannot make a signature count that it has not signed for.
"""

from dataclasses import replace

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gkm.api.errors import GKMError, Reason
from gkm.api.policies import Policy
from gkm.images.signatures import certificates, log_entries
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.keys import MALFORMED, supported
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.signature_formats import Signature, SignatureForm
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signatures.transparency import RekorEntry
from gkm.images.signatures.trusted_root import TrustedRoot

MAX_LOOKUPS = 8
"""For one image: its holders may sign dozens of times, and each signature would be a question to somebody else."""

_NOT_GOOD: tuple[type[Exception], ...] = (Untrusted, *MALFORMED)


class LogLookups:
    """The questions to logs that come of one image; all have ended at `until` (time.monotonic()).

    `unread` is set when a log could not say: then there may be an entry.
    """

    def __init__(self, until: float) -> None:
        self._until = until
        self._cached: dict[tuple[str, bytes, bytes], RekorEntry | None] = {}
        self.read_error: GKMError | None = None

    def with_log_entry(self, signature: Signature, trust: TrustPolicy) -> Signature:
        """Return the signature with its entry, where it has none and the policy lets us ask."""
        if not (trust.policy.tlog_lookup and trust.root) or signature.problem or signature.entry:
            return signature
        verifier = _verifier(signature, trust.policy, trust.root.trusted)
        if not verifier:
            return signature
        key_of_lookup = trust.root.path, signature.signature, verifier
        if key_of_lookup not in self._cached:
            if len(self._cached) >= MAX_LOOKUPS:
                return signature
            self._cached[key_of_lookup] = self._query_logs(signature, verifier, trust.root.trusted)
        return replace(signature, entry=self._cached[key_of_lookup])

    def _query_logs(self, signature: Signature, verifier: bytes, root: TrustedRoot) -> RekorEntry | None:
        for log in root.logs:
            if not log.url:
                continue
            try:
                rekor = Rekor(SigstoreService("the transparency log", log.url, until=self._until))
                if entry := rekor.find_entry(signature.signed, signature.signature, verifier):
                    return log_entries.from_bundle(entry)
            except GKMError as error:
                # Whatever is wrong with a log, it says nothing of the image.
                self.read_error = self.read_error or GKMError(Reason.REGISTRY_UNAVAILABLE, error.message)
        return None


def _verifier(signature: Signature, policy: Policy, root: TrustedRoot) -> bytes:
    """Return the certificate (PEM) of a legacy signature that would count with an entry; nothing for all others."""
    if signature.form is not SignatureForm.LEGACY or not signature.certificate:
        return b""
    try:
        certificate = x509.load_der_x509_certificate(signature.certificate)
        key = supported(certificate.public_key())
        # When it was used only the entry says; that it was good when it was issued keeps strangers' out.
        certificates.check(certificate, root, certificate.not_valid_before_utc)
        holder = certificates.holder(certificate)
    except _NOT_GOOD:
        return b""
    named = any(identity.matches(holder.issuer, holder.subject) for identity in policy.identities)
    made = key is not None and key.verifies(signature.signature, signature.signed)
    return certificate.public_bytes(serialization.Encoding.PEM) if named and made else b""
