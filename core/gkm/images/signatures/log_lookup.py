"""Lookup of missing log entries: for a legacy signature without an entry, query the logs of the trusted root.

A policy must enable the lookup (`tlogLookup`), because the verdict then depends on a service besides the registry.
GKM verifies a log's response like an entry that came with the signature, so a log cannot make a signature count that
it did not record.
"""

from dataclasses import replace

from cryptography.hazmat.primitives import serialization

from gkm.api.errors import GKMError, Reason
from gkm.images.signatures import certificates, keyless
from gkm.images.signatures.bundles import LogEntry
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.signature_formats import Signature, SignatureForm
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signatures.trusted_root import TrustedRoot

MAX_LOOKUPS = 8
"""Lookups for one image: it can have dozens of signatures, and each lookup is a request to another service."""


class LogLookups:
    """The log lookups for one image; every lookup ends before `until` (time.monotonic()).

    `read_error` is the first error of a log; then an entry may exist that the lookup did not find.
    """

    def __init__(self, until: float) -> None:
        self._until = until
        self._cached: dict[tuple[str, bytes, bytes], LogEntry | None] = {}
        self.read_error: GKMError | None = None

    def with_log_entry(self, signature: Signature, trust: TrustPolicy) -> Signature:
        """Return the signature with its log entry: look a missing entry up if the policy allows it."""
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
                # An error of a log proves nothing about the image.
                self.read_error = self.read_error or GKMError(Reason.REGISTRY_UNAVAILABLE, error.message)
        return None


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
