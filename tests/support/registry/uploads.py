"""Blob uploads under way in the testbed's registry: in one piece, or in chunks that must follow one another."""

import secrets
from dataclasses import dataclass, field

from support.registry.answers import created, refusal
from support.registry.faults import Answer
from support.registry.store import Repository, digest_of
from support.registry.wire import Request


@dataclass
class Uploads:
    """What has arrived so far, by upload."""

    data: dict[str, bytearray] = field(default_factory=dict)

    def start(self, request: Request, name: str, repository: Repository, digest: str | None) -> Answer:
        """Answer POST: with a digest the blob is complete, without it an upload begins."""
        if request.method != "POST":
            return refusal(405, "UNSUPPORTED", "POST starts an upload")
        if digest:
            return _finish(name, repository, request.body, digest)
        upload = secrets.token_hex(8)
        self.data[upload] = bytearray(request.body)
        return Answer(202, _progress(name, upload, len(request.body)), b"")

    def go_on(self, request: Request, name: str, upload: str, repository: Repository, digest: str) -> Answer:
        """Answer PATCH (a chunk), PUT (the last one), GET (how far) and DELETE (forget it)."""
        data = self.data.get(upload)
        if data is None:
            return refusal(404, "BLOB_UPLOAD_UNKNOWN", "no such upload")
        if request.method == "DELETE":
            del self.data[upload]
            return Answer(204, {}, b"")
        if request.method == "GET":
            return Answer(204, _progress(name, upload, len(data)), b"")
        start = request.headers.get("content-range", "").partition("-")[0]
        if start and start != str(len(data)):
            return Answer(416, _progress(name, upload, len(data)), b"")
        data += request.body
        if request.method != "PUT":
            return Answer(202, _progress(name, upload, len(data)), b"")
        del self.data[upload]
        return _finish(name, repository, bytes(data), digest)


def _finish(name: str, repository: Repository, data: bytes, digest: str) -> Answer:
    if digest_of(data) != digest:
        return refusal(400, "DIGEST_INVALID", "the bytes do not hash to the digest")
    repository.blobs[digest] = data
    return created(f"/v2/{name}/blobs/{digest}", digest)


def _progress(name: str, upload: str, size: int) -> dict[str, str]:
    return {
        "Location": f"/v2/{name}/blobs/uploads/{upload}",
        "Docker-Upload-UUID": upload,
        "Range": f"0-{max(size - 1, 0)}",
    }
