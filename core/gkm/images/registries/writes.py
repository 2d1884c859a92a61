"""Write to registries by the OCI distribution specification 1.1: blobs in one piece, manifests, deletion."""

import time
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode

from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import ByteCounter, LocalBlob
from gkm.images.manifest import Descriptor
from gkm.images.reference import Reference
from gkm.images.registries.hosts import RegistryHosts, failure
from gkm.images.registries.transport import (
    MAX_ATTEMPTS,
    MAX_DELAY_SECONDS,
    NOT_FOUND,
    OK,
    RETRYABLE_STATUSES,
    RegistryRequest,
    read_body,
    retry_delay,
)

MAX_RESPONSE_BYTES = 64 << 10
"""Limit of bytes of a response that is read only so that the connection can be used again."""
_CREATED, _ACCEPTED = 201, 202
_ACTIONS = "pull,push"
_NO_DELETION = frozenset({400, 405, 501})
"""The statuses of registries that refuse to delete; distribution's default is 405."""


class RegistryWrites(RegistryHosts):
    """Writes to all registries that the configuration allows. Thread-safe."""

    def blob_exists(self, ref: Reference, descriptor: Descriptor) -> bool:
        """Return whether the repository of `ref` has a blob; raises as `store_manifest` does."""
        self.check_allowed(ref)
        request = RegistryRequest("HEAD", self.url(ref.registry, ref.repository, f"blobs/{descriptor.digest}"))
        with self.send(ref.registry, ref.repository, request, _ACTIONS, self.deadline()) as response:
            if response.status not in (OK, NOT_FOUND):
                raise failure(ref, response.status, "written", response.headers)
            return bool(response.status == OK)

    def mount_blob(self, ref: Reference, descriptor: Descriptor, source: Reference) -> bool:
        """Link a blob of another repository into the repository of `ref`; return False if it must be uploaded."""
        if source.registry != ref.registry or source.repository == ref.repository:
            return False
        self.check_allowed(ref)
        query = urlencode({"mount": descriptor.digest, "from": source.repository})
        request = RegistryRequest("POST", self.url(ref.registry, ref.repository, f"blobs/uploads/?{query}"), body=b"")
        # One scope names both repositories (distribution, "Token Scope Documentation"): the blob is read from `source`.
        actions = f"{_ACTIONS} repository:{source.repository}:pull"
        try:
            with self.send(ref.registry, ref.repository, request, actions, self.deadline()) as response:
                return bool(response.status == _CREATED)
        except GKMError as error:
            if error.reason is Reason.UNAUTHORIZED:
                return False
            raise

    def store_blob(self, ref: Reference, blob: LocalBlob, counter: ByteCounter) -> None:
        """Upload a blob; each attempt opens a new upload session.

        A broken upload cannot restart in its session: distribution 3 answers 416, olareg breaks the connection. Raises
        as `store_manifest` does.
        """
        self.check_allowed(ref)
        deadline = self.deadline(blob.descriptor.size)
        before = counter.done

        def body() -> Iterator[bytes]:
            counter.add(before - counter.done)  # each attempt restarts
            return counter.through(_read(blob))

        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.descriptor.size)}
        for attempt in range(1, MAX_ATTEMPTS + 1):
            session = self._session(ref, deadline)
            url = f"{session}{'&' if '?' in session else '?'}digest={quote(blob.descriptor.digest)}"
            request = RegistryRequest("PUT", url, headers, body=body, attempts=1)
            try:
                with self.send(ref.registry, ref.repository, request, _ACTIONS, deadline) as response:
                    if response.status != _CREATED:
                        raise _refusal(ref, response.status, response.headers)
                    read_body(response, MAX_RESPONSE_BYTES, deadline)
                    return
            except GKMError as error:
                pause = retry_delay(attempt + 1, error.retry_after, self.limits.pause)
                late = error.retry_after > MAX_DELAY_SECONDS or time.monotonic() + pause >= deadline
                if error.reason is not Reason.REGISTRY_UNAVAILABLE or attempt == MAX_ATTEMPTS or late:
                    raise
            time.sleep(pause)

    def store_manifest(self, ref: Reference, raw: bytes, media_type: str) -> bool:
        """Store a manifest under the tag or digest of `ref`; return whether the registry lists it as a referrer.

        Raises:
            GKMError: UNAUTHORIZED, NOT_ALLOWED or REGISTRY_UNAVAILABLE; NODE_ERROR when a local blob cannot be read.
        """
        self.check_allowed(ref)
        url = self.url(ref.registry, ref.repository, f"manifests/{ref.target}")
        request = RegistryRequest("PUT", url, {"Content-Type": media_type}, body=raw)
        return "OCI-Subject" in self._write(ref, request, self.deadline(), _CREATED)

    def delete(self, ref: Reference) -> None:
        """Delete a tag, or the manifest of a digest; succeed if it does not exist.

        Raises:
            GKMError: NOT_ALLOWED if the registry offers no such deletion or the configuration does not allow the
                registry, UNAUTHORIZED if the account lacks the right, REGISTRY_UNAVAILABLE.
        """
        self.check_allowed(ref)
        request = RegistryRequest("DELETE", self.url(ref.registry, ref.repository, f"manifests/{ref.target}"))
        with self.send(ref.registry, ref.repository, request, f"{_ACTIONS},delete", self.deadline()) as response:
            if response.status in _NO_DELETION:
                what, other = ("a digest", "allow deletion in the registry's configuration, or use its own tool")
                if not ref.digest:
                    what, other = "a tag", f"name the digest: {ref.name}@sha256:…"
                raise GKMError(
                    Reason.NOT_ALLOWED,
                    f"{ref.registry} answers {response.status}: it does not delete {what} ({ref})",
                    other,
                )
            if response.status not in (OK, _ACCEPTED, NOT_FOUND):
                raise failure(ref, response.status, "deleted", response.headers)

    def _session(self, ref: Reference, deadline: float) -> str:
        """Return the upload address; a host other than the registry's receives no credentials."""
        uploads = self.url(ref.registry, ref.repository, "blobs/uploads/")
        headers = self._write(ref, RegistryRequest("POST", uploads, body=b""), deadline, _ACCEPTED)
        return self.location(ref.registry, uploads, headers.get("Location", ""))

    def _write(self, ref: Reference, request: RegistryRequest, deadline: float, expected: int) -> Mapping[str, str]:
        """Send a write request; return the headers of the response."""
        with self.send(ref.registry, ref.repository, request, _ACTIONS, deadline) as response:
            if response.status != expected:
                raise failure(ref, response.status, "written", response.headers)
            read_body(response, MAX_RESPONSE_BYTES, deadline)
            return response.headers


def _refusal(ref: Reference, status: int, headers: Mapping[str, str]) -> GKMError:
    cause = failure(ref, status, "written", headers)
    if status not in RETRYABLE_STATUSES:
        return cause
    hint = "try again later: stored blobs are not sent again"
    return GKMError(cause.reason, cause.message, hint, retry_after=cause.retry_after)


def _read(blob: LocalBlob) -> Iterator[bytes]:
    """Yield the bytes in pieces that are small enough to send within the stall timeout."""
    try:
        yield from blob.pieces()
    except OSError as error:
        # The transport would take an OSError for a connection failure and retry.
        raise GKMError(Reason.NODE_ERROR, f"blob {blob.descriptor.digest} cannot be read: {error}") from error
