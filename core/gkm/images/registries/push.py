"""Store an image in a registry: each blob in one piece, then the manifest (distribution-spec 1.1, "Pushing")."""

import time
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import ByteCounter, LocalBlob, LocalImage, ProgressCallback
from gkm.images.manifest import Descriptor, Manifest
from gkm.images.reference import Reference
from gkm.images.registries.hosts import failure
from gkm.images.registries.registry import Registry
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
"""The response is unused; reading it makes the connection reusable."""
_CREATED, _ACCEPTED = 201, 202
_ACTIONS = "pull,push"


def image(
    registry: Registry, ref: Reference, packed: LocalImage, report: ProgressCallback = lambda _done, _of: None
) -> str:
    """Store an image under a reference and return its digest; skip blobs that the repository has.

    `report` receives the sent bytes and the total; the sent bytes decrease when an upload breaks off and restarts.

    Raises:
        GKMError: UNAUTHORIZED, NOT_ALLOWED or REGISTRY_UNAVAILABLE; NODE_ERROR when a local blob cannot be read.
    """
    blobs(registry, ref, packed, report)
    return manifest(registry, ref, packed.manifest, packed.media_type)


def blobs(
    registry: Registry, ref: Reference, packed: LocalImage, report: ProgressCallback = lambda _done, _of: None
) -> None:
    """Store the blobs of an image that its repository lacks; reports and raises as `image` does."""
    counter = ByteCounter(report, sum(blob.descriptor.size for blob in packed.blobs))
    for blob in packed.blobs:
        if blob_exists(registry, ref, blob.descriptor):
            counter.add(blob.descriptor.size)
        else:
            _store(registry, ref, blob, counter)


def blob(registry: Registry, ref: Reference, packed: LocalBlob) -> str:
    """Store a blob and return its digest; raises as `image` does."""
    _store(registry, ref, packed, ByteCounter(lambda _done, _of: None, packed.descriptor.size))
    return packed.descriptor.digest


def manifest(registry: Registry, ref: Reference, raw: bytes, media_type: str) -> str:
    """Store a manifest under the tag or digest of `ref` and return its digest; raises as `image` does."""
    _put(registry, ref, raw, media_type)
    return Manifest.from_bytes(raw, media_type).digest


def referrer(registry: Registry, ref: Reference, raw: bytes, media_type: str) -> bool:
    """Store a manifest with a subject; return whether the registry lists it as a referrer; raises as `image` does."""
    return "OCI-Subject" in _put(registry, ref, raw, media_type)


def _put(registry: Registry, ref: Reference, raw: bytes, media_type: str) -> Mapping[str, str]:
    registry.check_allowed(ref)
    url = registry.url(ref.registry, ref.repository, f"manifests/{ref.target}")
    request = RegistryRequest("PUT", url, {"Content-Type": media_type}, body=raw)
    return _write(registry, ref, request, registry.deadline(), _CREATED)


def blob_exists(registry: Registry, ref: Reference, descriptor: Descriptor) -> bool:
    """Return whether the repository has a blob; raises as `image` does."""
    registry.check_allowed(ref)
    request = RegistryRequest("HEAD", registry.url(ref.registry, ref.repository, f"blobs/{descriptor.digest}"))
    with registry.send(ref.registry, ref.repository, request, _ACTIONS, registry.deadline()) as response:
        if response.status not in (OK, NOT_FOUND):
            raise failure(ref, response.status, "written", response.headers.get("Retry-After", ""))
        return bool(response.status == OK)


def _store(registry: Registry, ref: Reference, blob: LocalBlob, counter: ByteCounter) -> None:
    """Store a blob; each attempt opens its own upload session.

    A broken upload cannot restart in its session: distribution 3 answers 416, olareg breaks the connection.
    """
    registry.check_allowed(ref)
    deadline = registry.deadline(blob.descriptor.size)
    before = counter.done

    def body() -> Iterator[bytes]:
        counter.add(before - counter.done)  # each attempt restarts
        return counter.through(_read(blob))

    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.descriptor.size)}
    for attempt in range(1, MAX_ATTEMPTS + 1):
        session = _session(registry, ref, deadline)
        url = f"{session}{'&' if '?' in session else '?'}digest={quote(blob.descriptor.digest)}"
        request = RegistryRequest("PUT", url, headers, body=body, attempts=1)
        try:
            with registry.send(ref.registry, ref.repository, request, _ACTIONS, deadline) as response:
                if response.status != _CREATED:
                    raise _refusal(ref, response.status, response.headers.get("Retry-After", ""))
                read_body(response, MAX_RESPONSE_BYTES, deadline)
                return
        except GKMError as error:
            pause = retry_delay(attempt + 1, error.retry_after, registry.limits.pause)
            late = error.retry_after > MAX_DELAY_SECONDS or time.monotonic() + pause >= deadline
            if error.reason is not Reason.REGISTRY_UNAVAILABLE or attempt == MAX_ATTEMPTS or late:
                raise
        time.sleep(pause)


def _refusal(ref: Reference, status: int, retry_after: str) -> GKMError:
    cause = failure(ref, status, "written", retry_after)
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


def _session(registry: Registry, ref: Reference, deadline: float) -> str:
    """Return the upload address; a host other than the registry's receives no credentials."""
    uploads = registry.url(ref.registry, ref.repository, "blobs/uploads/")
    headers = _write(registry, ref, RegistryRequest("POST", uploads, body=b""), deadline, _ACCEPTED)
    return registry.location(ref.registry, uploads, headers.get("Location", ""))


def _write(
    registry: Registry, ref: Reference, request: RegistryRequest, deadline: float, expected: int
) -> Mapping[str, str]:
    """Send a write request; return the headers of the response."""
    with registry.send(ref.registry, ref.repository, request, _ACTIONS, deadline) as response:
        if response.status != expected:
            raise failure(ref, response.status, "written", response.headers.get("Retry-After", ""))
        read_body(response, MAX_RESPONSE_BYTES, deadline)
        return response.headers
