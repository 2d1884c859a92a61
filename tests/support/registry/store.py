"""What the testbed's registry holds, in memory: blobs, manifests, tags, referrers. It knows nothing of HTTP."""

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Stored:
    """One manifest: its exact bytes and the media type it was pushed with."""

    data: bytes
    media_type: str

    def parsed(self) -> dict[str, Any]:
        """Return the manifest as an object; what is no JSON object is an empty one."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def descriptor(self) -> dict[str, Any]:
        """Return the descriptor a referrers list holds: artifactType falls back to the config's media type."""
        content = self.parsed()
        found: dict[str, Any] = {
            "mediaType": self.media_type,
            "digest": digest_of(self.data),
            "size": len(self.data),
        }
        if kind := content.get("artifactType") or content.get("config", {}).get("mediaType"):
            found["artifactType"] = kind
        if content.get("annotations"):
            found["annotations"] = content["annotations"]
        return found


@dataclass
class Repository:
    """One repository's content by digest and by tag."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, Stored] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def find(self, reference: str) -> Stored | None:
        """Return the manifest of a tag or digest."""
        return self.manifests.get(self.tags.get(reference, reference))

    def referrers(self, digest: str) -> list[dict[str, Any]]:
        """Return descriptors of all manifests whose subject is `digest`."""
        return [
            stored.descriptor()
            for stored in self.manifests.values()
            if (stored.parsed().get("subject") or {}).get("digest") == digest
        ]


@dataclass
class Store:
    """All repositories. The `put_…` methods check nothing, so that tests can plant what no registry would take."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def repository(self, name: str) -> Repository:
        with self.lock:
            return self.repositories.setdefault(name, Repository())

    def put_blob(self, repository: str, data: bytes, *, digest: str | None = None) -> str:
        """Store a blob, under a false `digest` if one is given; return the digest it is stored under."""
        digest = digest or digest_of(data)
        with self.lock:
            self.repository(repository).blobs[digest] = data
        return digest

    def put_manifest(
        self,
        repository: str,
        manifest: bytes | Mapping[str, Any],
        *,
        tag: str | None = None,
        media_type: str = OCI_MANIFEST,
        digest: str | None = None,
    ) -> str:
        """Store a manifest (bytes as they are), under a false `digest` if one is given; return the digest."""
        data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        digest = digest or digest_of(data)
        with self.lock:
            found = self.repository(repository)
            found.manifests[digest] = Stored(data, media_type)
            if tag:
                found.tags[tag] = digest
        return digest
