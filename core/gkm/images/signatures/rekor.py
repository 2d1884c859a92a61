"""A client of Rekor (version 1): add a signature to the log, or find its entry.

The client does not verify an entry; the caller verifies it like an entry that came with a signature.
Source: sigstore/rekor, openapi.yaml and pkg/types (hashedrekord 0.0.1, dsse 0.0.1).
"""

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
"""Statuses of a log without such an entry, and of Rekor 2, which has no such endpoint."""
_OK, _CREATED, _CONFLICT = 200, 201, 409


class Rekor:
    """A transparency log that can add and find entries."""

    def __init__(self, service: SigstoreService) -> None:
        self._service = service

    def add_hashedrekord(self, data: bytes, signature: bytes, verifier: bytes) -> LogEntry:
        """Add a signature over data to the log; `verifier` is the certificate or public key (PEM) that verifies it.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, NOT_ALLOWED or METADATA_INVALID.
        """
        return self._add(hashedrekord_entry(data, signature, verifier))

    def add_dsse(self, envelope: bytes, verifier: bytes) -> LogEntry:
        """Add a DSSE envelope to the log; raises as `add_hashedrekord` does."""
        content = {"envelope": envelope.decode(), "verifiers": [verifier]}
        return self._add({"apiVersion": "0.0.1", "kind": "dsse", "spec": {"proposedContent": content}})

    def find_entry(self, data: bytes, signature: bytes, verifier: bytes) -> LogEntry | None:
        """Return the oldest entry of a signature over data; None if the log has no entry.

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
            # Anyone can log the same signature again later.
            return min(
                log_entries.from_responses(answer.body), key=lambda entry: int(entry.integrated_time), default=None
            )
        except GKMError as error:
            raise self._service.failure(error.message) from error

    def _add(self, proposed: dict[str, Any]) -> LogEntry:
        answer = self._service.post(ENTRIES, msgspec.json.encode(proposed))
        if answer.status == _CONFLICT and answer.location:
            # An earlier request reached the log, but its response was lost.
            answer = self._service.get(answer.location)
        if answer.status not in (_OK, _CREATED):
            raise self._service.failure(f"it answers {answer.status} to a new entry")
        try:
            return log_entries.from_response(answer.body)
        except GKMError as error:
            raise self._service.failure(error.message, Reason.METADATA_INVALID) from error


def hashedrekord_entry(data: bytes, signature: bytes, verifier: bytes) -> dict[str, Any]:
    """Return the body of a request to log a signature over data (`hashedrekord`); msgspec encodes bytes as base64."""
    signed = {"content": signature, "publicKey": {"content": verifier}}
    digest = {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}
    spec = {"data": {"hash": digest}, "signature": signed}
    return {"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec}
