"""The OCI distribution API over a Store: pure answers to requests, no sockets."""

import json
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from support.registry.answers import created, refusal
from support.registry.faults import Answer
from support.registry.store import OCI_INDEX, OCI_MANIFEST, Repository, Store, digest_of
from support.registry.uploads import Uploads
from support.registry.wire import Request

NAME = r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
DIGEST = r"(?P<digest>sha256:[0-9a-f]{64})"
REFERENCE = rf"(?P<reference>{DIGEST}|[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})"
ROUTES = [
    (rf"/v2/{NAME}/blobs/uploads/", "start_upload"),
    (rf"/v2/{NAME}/blobs/uploads/(?P<upload>[\w-]+)", "upload"),
    (rf"/v2/{NAME}/blobs/{DIGEST}", "blob"),
    (rf"/v2/{NAME}/manifests/{REFERENCE}", "manifest"),
    (rf"/v2/{NAME}/tags/list", "tags"),
    (rf"/v2/{NAME}/referrers/{DIGEST}", "referrers"),
]
MANIFEST_BYTES = 4 << 20
Found = Mapping[str, str]
"""Named parts of a path or query."""


def repository_of(path: str) -> str:
    """Return the repository a path is about, or an empty string."""
    for pattern, _ in ROUTES:
        if match := re.fullmatch(pattern, path):
            return match["name"]
    return ""


@dataclass
class Routes:
    """The API; `with_referrers=False` makes it a registry from before the referrers API."""

    store: Store
    with_referrers: bool = True
    refusal_to_change: int = 0
    """The status for a write to a tag that exists, of a registry with immutable tags; 0: tags can change."""
    uploads: Uploads = field(default_factory=Uploads)

    def answer(self, request: Request) -> Answer:
        """Return what a proper registry says."""
        if request.plain_path in ("/v2/", "/v2"):
            return Answer(200, {"Content-Type": "application/json"}, b"{}")
        for pattern, method in ROUTES:
            if match := re.fullmatch(pattern, request.plain_path):
                query = dict(urllib.parse.parse_qsl(request.query))
                with self.store.lock:
                    repository = self.store.repository(match["name"])
                    answer: Answer = getattr(self, f"_{method}")(request, match.groupdict(), repository, query)
                    return answer
        return refusal(404, "NAME_UNKNOWN", "no such path")

    def _start_upload(self, request: Request, found: Found, repository: Repository, query: Found) -> Answer:
        if (mount := query.get("mount")) and (source := query.get("from")):
            blob = self.store.repository(source).blobs.get(mount)
            if blob is not None:
                repository.blobs[mount] = blob
                return created(f"/v2/{found['name']}/blobs/{mount}", mount)
        return self.uploads.start(request, found["name"], repository, query.get("digest"))

    def _upload(self, request: Request, found: Found, repository: Repository, query: Found) -> Answer:
        return self.uploads.go_on(request, found["name"], found["upload"], repository, query.get("digest", ""))

    def _blob(self, request: Request, found: Found, repository: Repository, _: Found) -> Answer:
        digest = found["digest"]
        data = repository.blobs.get(digest)
        if data is None:
            return refusal(404, "BLOB_UNKNOWN", "no such blob")
        if request.method == "DELETE":
            del repository.blobs[digest]
            return Answer(202, {}, b"")
        headers = {
            "Content-Type": "application/octet-stream",
            "Docker-Content-Digest": digest,
            "Accept-Ranges": "bytes",
        }
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if asked is None:
            return Answer(200, headers, data)
        first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        if first > last:
            return Answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
        return Answer(206, {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1])

    def _manifest(self, request: Request, found: Found, repository: Repository, _: Found) -> Answer:
        reference = found["reference"]
        if request.method == "PUT":
            digest = digest_of(request.body)
            if self.refusal_to_change and repository.tags.get(reference, digest) != digest:
                return refusal(self.refusal_to_change, "TAG_INVALID", "the tag is immutable")
            return self._put_manifest(request, found["name"], reference, repository)
        stored = repository.find(reference)
        if stored is None:
            return refusal(404, "MANIFEST_UNKNOWN", "no such manifest")
        digest = repository.tags.get(reference, reference)
        if request.method == "DELETE":
            if repository.tags.pop(reference, None) is None:
                del repository.manifests[reference]
                repository.tags = {tag: to for tag, to in repository.tags.items() if to != reference}
            return Answer(202, {}, b"")
        return Answer(200, {"Content-Type": stored.media_type, "Docker-Content-Digest": digest}, stored.data)

    def _put_manifest(self, request: Request, name: str, reference: str, repository: Repository) -> Answer:
        if len(request.body) > MANIFEST_BYTES:
            return refusal(413, "SIZE_INVALID", "a manifest is at most 4 MiB")
        try:
            content = json.loads(request.body)
        except ValueError:
            return refusal(400, "MANIFEST_INVALID", "not JSON")
        digest = digest_of(request.body)
        if ":" in reference and reference != digest:
            return refusal(400, "DIGEST_INVALID", "the bytes do not hash to the digest")
        needed = [part["digest"] for part in [content.get("config"), *(content.get("layers") or [])] if part]
        if missing := [blob for blob in needed if blob not in repository.blobs]:
            return refusal(400, "MANIFEST_BLOB_UNKNOWN", f"not here: {missing[0]}")
        media_type = request.headers.get("content-type") or content.get("mediaType") or OCI_MANIFEST
        tag = None if ":" in reference else reference
        self.store.put_manifest(name, request.body, tag=tag, media_type=media_type)
        accepted = created(f"/v2/{name}/manifests/{digest}", digest)
        if self.with_referrers and (subject := content.get("subject")):
            return accepted._replace(headers={**accepted.headers, "OCI-Subject": subject["digest"]})
        return accepted

    def _tags(self, _: Request, found: Found, repository: Repository, query: Found) -> Answer:
        tags = sorted(tag for tag in repository.tags if tag > query.get("last", ""))
        count = int(query.get("n", len(tags)))
        headers = {"Content-Type": "application/json"}
        if 0 < count < len(tags):
            headers["Link"] = f'</v2/{found["name"]}/tags/list?n={count}&last={tags[count - 1]}>; rel="next"'
        return Answer(200, headers, json.dumps({"name": found["name"], "tags": tags[:count]}).encode())

    def _referrers(self, _: Request, found: Found, repository: Repository, query: Found) -> Answer:
        if not self.with_referrers:
            return refusal(404, "UNSUPPORTED", "no referrers API")
        headers = {"Content-Type": OCI_INDEX}
        listed = repository.referrers(found["digest"])
        if kind := query.get("artifactType"):
            listed = [descriptor for descriptor in listed if descriptor.get("artifactType") == kind]
            headers["OCI-Filters-Applied"] = "artifactType"
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
        return Answer(200, headers, json.dumps(index).encode())
