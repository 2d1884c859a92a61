"""Rekor (version 1): signatures are written down, or looked up, and an entry comes back with its promises.

What comes back is believed by nobody before it has been checked like any other signature.
Source: sigstore/rekor, openapi.yaml and pkg/types (hashedrekord 0.0.1, dsse 0.0.1).
"""

import base64
import hashlib
from typing import Any

import msgspec

from gkm.api.errors import GKMError, Reason
from gkm.images.signatures import log_entries
from gkm.images.signatures.bundles import LogEntry
from gkm.images.signatures.sigstore_services import SigstoreService

ENTRIES = "/api/v1/log/entries"
RETRIEVE = f"{ENTRIES}/retrieve"
_NOT_FOUND = frozenset({400, 404, 405, 422})
"""What a log answers that does not know such an entry, or (Rekor 2) no such question."""
_OK, _CREATED, _CONFLICT = 200, 201, 409


class Rekor:
    """A log that takes entries and finds them again."""

    def __init__(self, service: SigstoreService) -> None:
        self._service = service

    def add_hashedrekord(self, data: bytes, signature: bytes, verifier: bytes) -> LogEntry:
        """Write down a signature over data.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, NOT_ALLOWED or METADATA_INVALID.
        """
        return self._add(hashedrekord_entry(data, signature, verifier))

    def add_dsse(self, envelope: bytes, verifier: bytes) -> LogEntry:
        """Write down a DSSE envelope; raises as `hashed` does."""
        content = {"envelope": envelope.decode(), "verifiers": [_base64(verifier)]}
        return self._add({"apiVersion": "0.0.1", "kind": "dsse", "spec": {"proposedContent": content}})

    def find_entry(self, data: bytes, signature: bytes, verifier: bytes) -> LogEntry | None:
        """Return the entry of a signature over data, the oldest where there are several, None where there is none.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, NOT_ALLOWED or TOO_LARGE.
        """
        query = {"entries": [hashedrekord_entry(data, signature, verifier)]}
        answer = self._service.post(RETRIEVE, msgspec.json.encode(query))
        if answer.status in _NOT_FOUND:
            return None
        if answer.status != _OK:
            raise self._service.failure(f"it answers {answer.status} to the question for an entry")
        try:
            # Whoever wants to can log a signature again, later.
            return min(
                log_entries.from_responses(answer.body), key=lambda entry: int(entry.integrated_time), default=None
            )
        except GKMError as error:
            raise self._service.failure(error.message) from error

    def _add(self, proposed: dict[str, Any]) -> LogEntry:
        answer = self._service.post(ENTRIES, msgspec.json.encode(proposed))
        if answer.status == _CONFLICT and answer.location:
            # A try whose answer was lost had arrived.
            answer = self._service.get(answer.location)
        if answer.status not in (_OK, _CREATED):
            raise self._service.failure(f"it answers {answer.status} to a new entry")
        try:
            return log_entries.from_response(answer.body)
        except GKMError as error:
            raise self._service.failure(error.message, Reason.METADATA_INVALID) from error


def hashedrekord_entry(data: bytes, signature: bytes, verifier: bytes) -> dict[str, Any]:
    """Return the entry that is proposed for a signature over data (`hashedrekord`)."""
    signed = {"content": _base64(signature), "publicKey": {"content": _base64(verifier)}}
    digest = {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}
    spec = {"data": {"hash": digest}, "signature": signed}
    return {"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
