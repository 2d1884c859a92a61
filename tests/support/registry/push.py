"""Pushing to any registry over HTTP, ours or a real one: what tests put there, exactly as they say.

No retries, no authentication by Bearer: this is the hand that sets the scene, not a client under test.
"""

import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gkm.images.manifest import ACCEPTED_MEDIA_TYPES
from support.host.waiting import scaled
from support.registry.store import OCI_EMPTY, OCI_INDEX, OCI_MANIFEST, digest_of

OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY_CONFIG = b"{}"


class PushFailed(RuntimeError):
    """The registry refused; the message holds its status and body."""


@dataclass(frozen=True)
class Target:
    """One repository of one registry."""

    host: str
    repository: str
    ca_file: Path | None = None
    """Given: https, trusting this authority."""
    basic: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"

    def blob(self, data: bytes, media_type: str = "application/octet-stream") -> dict[str, Any]:
        """Push a blob; return its descriptor."""
        digest = digest_of(data)
        base = f"/v2/{self.repository}/blobs"
        status, headers, body = self.request("POST", f"{base}/uploads/")
        _expect(status, 202, "starting an upload", body)
        location = urllib.parse.urlsplit(headers["location"])
        query = "&".join(filter(None, [location.query, urllib.parse.urlencode({"digest": digest})]))
        kind = {"Content-Type": "application/octet-stream"}
        status, _, body = self.request("PUT", f"{location.path}?{query}", data, kind)
        _expect(status, 201, "pushing a blob", body)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def manifest(
        self,
        manifest: Mapping[str, Any] | bytes,
        tag: str | None = None,
        media_type: str = OCI_MANIFEST,
    ) -> dict[str, Any]:
        """Push a manifest by tag or by digest; keep the referrers' fallback tag where the registry needs it."""
        data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        digest = digest_of(data)
        path = f"/v2/{self.repository}/manifests/{tag or digest}"
        status, headers, body = self.request("PUT", path, data, {"Content-Type": media_type})
        _expect(status, 201, f"pushing manifest {tag or digest}", body)
        descriptor = {"mediaType": media_type, "digest": digest, "size": len(data)}
        if isinstance(manifest, Mapping) and (subject := manifest.get("subject")) and "oci-subject" not in headers:
            self._list_in_fallback_tag(str(subject["digest"]), descriptor, manifest)
        return descriptor

    def image(
        self,
        layers: Sequence[tuple[bytes, str]],
        *,
        tag: str | None = None,
        config: bytes = EMPTY_CONFIG,
        config_type: str = OCI_CONFIG,
        annotations: Mapping[str, str] | None = None,
    ) -> str:
        """Push layers (bytes, media type), config and manifest; return the digest."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": self.blob(config, config_type),
            "layers": [self.blob(data, kind) for data, kind in layers],
            **({"annotations": dict(annotations)} if annotations else {}),
        }
        return str(self.manifest(manifest, tag)["digest"])

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of GET /v2/<repository>/<path>."""
        accept = {"Accept": ", ".join((*ACCEPTED_MEDIA_TYPES, "*/*"))}
        status, _, body = self.request("GET", f"/v2/{self.repository}/{path}", headers=accept)
        return status, body

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request on a connection of its own; return status, lower-case headers and body."""
        sent = dict(headers or {})
        if self.basic:
            sent["Authorization"] = "Basic " + base64.b64encode(":".join(self.basic).encode()).decode()
        connection: http.client.HTTPConnection
        if self.ca_file:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            connection = http.client.HTTPSConnection(self.host, timeout=scaled(30), context=context)
        else:
            connection = http.client.HTTPConnection(self.host, timeout=scaled(30))
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def _list_in_fallback_tag(self, subject: str, descriptor: dict[str, Any], manifest: Mapping[str, Any]) -> None:
        tag = subject.replace(":", "-")
        status, body = self.get(f"manifests/{tag}")
        listed = json.loads(body)["manifests"] if status == http.HTTPStatus.OK else []
        kind = manifest.get("artifactType") or manifest.get("config", {}).get("mediaType") or OCI_EMPTY
        entry = {**descriptor, "artifactType": kind, "annotations": manifest.get("annotations", {})}
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, entry]}
        self.manifest(json.dumps(index).encode(), tag, OCI_INDEX)


def _expect(status: int, wanted: int, what: str, body: bytes) -> None:
    if status != wanted:
        raise PushFailed(f"{what}: the registry answered {status}: {body[:300].decode(errors='replace')}")
