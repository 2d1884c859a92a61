"""Storing in a registry: blobs in one piece each, then the manifest (distribution-spec 1.1, "Pushing")."""

from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote, urljoin

from gkm.images.bodies import read_body
from gkm.images.hosts import NOT_FOUND, OK, failure
from gkm.images.manifest import Descriptor, Manifest
from gkm.images.packed import PackedBlob, PackedImage, Report
from gkm.images.reference import Reference
from gkm.images.registry import Registry
from gkm.images.transport import Request

MAX_STORED_ANSWER = 64 << 10
"""Nothing of it is used; it is read so that the connection can be used again."""
_CREATED, _ACCEPTED = 201, 202
_ACTIONS = "pull,push"


def image(registry: Registry, ref: Reference, packed: PackedImage, report: Report = lambda _done, _of: None) -> str:
    """Store an image under a reference and return its digest; blobs that are there already are not sent.

    Raises:
        GKMError: UNAUTHORIZED, NOT_ALLOWED or REGISTRY_UNAVAILABLE.
        OSError: a blob cannot be read.
    """
    total = sum(blob.descriptor.size for blob in packed.blobs)
    done = 0

    def sent(count: int) -> None:
        nonlocal done
        done += count
        report(done, total)

    for blob in packed.blobs:
        if is_there(registry, ref, blob.descriptor):
            sent(blob.descriptor.size)
        else:
            _store(registry, ref, blob.descriptor, partial(_counted, blob, sent))
    return manifest(registry, ref, packed.manifest, packed.media_type)


def blob(registry: Registry, ref: Reference, packed: PackedBlob) -> str:
    """Store a blob and return its digest; raises as `image` does."""
    _store(registry, ref, packed.descriptor, packed.pieces)
    return packed.descriptor.digest


def manifest(registry: Registry, ref: Reference, raw: bytes, media_type: str) -> str:
    """Store a manifest under the tag or digest of `ref` and return its digest; raises as `image` does."""
    hosts = registry.hosts
    hosts.check_allowed(ref)
    url = hosts.url(ref.registry, ref.repository, f"manifests/{ref.target}")
    _write(registry, ref, Request("PUT", url, {"Content-Type": media_type}, body=raw), hosts.deadline(), _CREATED)
    return Manifest.of(raw, media_type).digest


def is_there(registry: Registry, ref: Reference, descriptor: Descriptor) -> bool:
    """Return whether the repository holds a blob; raises as `image` does."""
    hosts = registry.hosts
    hosts.check_allowed(ref)
    request = Request("HEAD", hosts.url(ref.registry, ref.repository, f"blobs/{descriptor.digest}"))
    with hosts.send(ref.registry, ref.repository, request, _ACTIONS, hosts.deadline()) as response:
        if response.status not in (OK, NOT_FOUND):
            raise failure(ref, response.status, "written")
        return bool(response.status == OK)


def _store(registry: Registry, ref: Reference, descriptor: Descriptor, body: Callable[[], Iterator[bytes]]) -> None:
    hosts = registry.hosts
    hosts.check_allowed(ref)
    deadline = hosts.deadline(descriptor.size)
    uploads = hosts.url(ref.registry, ref.repository, "blobs/uploads/")
    location = urljoin(uploads, _write(registry, ref, Request("POST", uploads, body=b""), deadline, _ACCEPTED))
    separator = "&" if "?" in location else "?"
    request = Request(
        "PUT",
        f"{location}{separator}digest={quote(descriptor.digest)}",
        {"Content-Type": "application/octet-stream", "Content-Length": str(descriptor.size)},
        body=body,
    )
    _write(registry, ref, request, deadline, _CREATED)


def _counted(blob: PackedBlob, sent: Callable[[int], None]) -> Iterator[bytes]:
    """Yield a blob; a try that breaks off, and is made again, takes back what it told."""
    told = 0
    try:
        for piece in blob.pieces():
            yield piece
            told += len(piece)
            sent(len(piece))
    except GeneratorExit:
        sent(-told)
        raise


def _write(registry: Registry, ref: Reference, request: Request, deadline: float, expected: int) -> str:
    """Send what stores something; return where it lies, or where to go on."""
    with registry.hosts.send(ref.registry, ref.repository, request, _ACTIONS, deadline) as response:
        if response.status != expected:
            raise failure(ref, response.status, "written")
        read_body(response, MAX_STORED_ANSWER, deadline)
        return response.headers.get("Location", "")
