"""One body of statements that hold for every registry tests use: ours and the real olareg."""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from support.registry.push import Target
from support.registry.store import OCI_EMPTY, OCI_INDEX, OCI_MANIFEST, digest_of

LAYER = "application/vnd.oci.image.layer.v1.tar"
KIND = "application/vnd.example.note"


@dataclass(frozen=True)
class Contract:
    """The statements, about one registry."""

    host: str

    def target(self) -> Target:
        return Target(self.host, f"contract/{secrets.token_hex(4)}")

    def content_comes_back_as_it_was_pushed(self) -> None:
        target = self.target()
        digest = target.image([(b"one layer", LAYER)], tag="v1")
        status, manifest = target.get("manifests/v1")
        assert (status, digest_of(manifest)) == (200, digest)
        layer = json.loads(manifest)["layers"][0]["digest"]
        assert target.get(f"blobs/{layer}") == (200, b"one layer")

    def head_says_what_get_would(self) -> None:
        target = self.target()
        digest = target.image([(b"one layer", LAYER)], tag="v1")
        # Without Accept olareg answers 404; every real client sends it.
        accept = {"Accept": OCI_MANIFEST}
        status, headers, body = target.request("HEAD", f"/v2/{target.repository}/manifests/v1", headers=accept)
        assert (status, body) == (200, b"")
        assert headers["docker-content-digest"] == digest
        assert int(headers["content-length"]) == len(target.get("manifests/v1")[1])
        assert headers["content-type"] == OCI_MANIFEST

    def a_blob_is_read_from_the_middle(self) -> None:
        target = self.target()
        digest = target.blob(b"0123456789")["digest"]
        path = f"/v2/{target.repository}/blobs/{digest}"
        status, headers, body = target.request("GET", path, headers={"Range": "bytes=4-6"})
        assert (status, headers["content-range"], body) == (206, "bytes 4-6/10", b"456")

    def a_blob_arrives_in_chunks(self) -> None:
        target = self.target()
        data = b"first half, second half"
        _, headers, _ = target.request("POST", f"/v2/{target.repository}/blobs/uploads/")
        for start, end in ((0, 11), (11, len(data))):
            sent = {"Content-Range": f"{start}-{end - 1}", "Content-Type": "application/octet-stream"}
            status, headers, _ = target.request("PATCH", headers["location"], data[start:end], sent)
            assert status == 202
        digest = digest_of(data)
        joint = "&" if "?" in headers["location"] else "?"
        assert target.request("PUT", f"{headers['location']}{joint}digest={digest}")[0] == 201
        assert target.get(f"blobs/{digest}") == (200, data)

    def a_blob_under_a_false_digest_is_refused(self) -> None:
        target = self.target()
        _, headers, _ = target.request("POST", f"/v2/{target.repository}/blobs/uploads/")
        joint = "&" if "?" in headers["location"] else "?"
        false = digest_of(b"something else")
        assert target.request("PUT", f"{headers['location']}{joint}digest={false}", b"data")[0] == 400
        assert target.get(f"blobs/{false}")[0] == 404

    def what_is_not_there_is_404(self) -> None:
        target = self.target()
        target.image([(b"x", LAYER)], tag="v1")
        nothing = digest_of(b"nothing")
        statuses = [target.get(path)[0] for path in (f"blobs/{nothing}", f"manifests/{nothing}", "manifests/v2")]
        assert statuses == [404, 404, 404]

    def tags_are_listed_in_order(self) -> None:
        target = self.target()
        for tag in ("v2", "v10", "v1"):
            target.image([(b"x", LAYER)], tag=tag)
        assert json.loads(target.get("tags/list")[1])["tags"] == ["v1", "v10", "v2"]

    def a_tag_moves(self) -> None:
        target = self.target()
        target.image([(b"old", LAYER)], tag="v1")
        new = target.image([(b"new", LAYER)], tag="v1")
        assert digest_of(target.get("manifests/v1")[1]) == new

    def referrers_are_listed_and_filtered(self) -> None:
        target = self.target()
        subject = target.image([(b"x", LAYER)], tag="v1")
        note = self._note(target, subject)
        listed = self._referrers(target, subject)
        assert [(entry["digest"], entry["artifactType"]) for entry in listed] == [(note, KIND)]
        assert self._referrers(target, subject, "?artifactType=application/x-other") == []

    def an_image_without_referrers_has_an_empty_list(self) -> None:
        target = self.target()
        assert self._referrers(target, target.image([(b"x", LAYER)], tag="v1")) == []

    def _note(self, target: Target, subject: str) -> str:
        empty = target.blob(b"{}", OCI_EMPTY)
        size = len(target.get(f"manifests/{subject}")[1])
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": KIND,
            "config": empty,
            "layers": [empty],
            "subject": {"mediaType": OCI_MANIFEST, "digest": subject, "size": size},
        }
        return str(target.manifest(manifest)["digest"])

    def _referrers(self, target: Target, subject: str, query: str = "") -> list[dict[str, Any]]:
        status, body = target.get(f"referrers/{subject}{query}")
        index = json.loads(body)
        assert (status, index["mediaType"]) == (200, OCI_INDEX)
        # olareg writes null for none.
        return list(index["manifests"] or [])


STATEMENTS = [
    name for name, value in vars(Contract).items() if callable(value) and not name.startswith("_") and name != "target"
]
