"""Layouts with what others write into them, byte by byte, and copies between places."""

import json
import tempfile
from pathlib import Path
from typing import Any

from gkm.images.copying import ImageCopy
from gkm.images.image_store import ImageSource, ImageStore
from gkm.images.reference import Reference
from support.registry.store import OCI_EMPTY, OCI_MANIFEST, digest_of


def copied(source: ImageSource, origin: Reference, target: ImageStore, destination: Reference) -> str:
    """Copy an image with what is attached to it; return its digest."""
    pinned = origin.pinned(source.resolve(origin))
    with tempfile.TemporaryDirectory() as work:
        ImageCopy(source, pinned, pinned, target, destination, Path(work)).run()
    return pinned.target


def blob_at(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def stored(layout: Path, data: bytes, kind: str) -> dict[str, Any]:
    """Add a blob to the layout; return its descriptor."""
    found = {"mediaType": kind, "digest": digest_of(data), "size": len(data)}
    blob_at(layout, str(found["digest"])).write_bytes(data)
    return found


def listed(layout: Path, manifest: bytes | dict[str, Any], media_type: str = OCI_MANIFEST, **annotations: str) -> str:
    """Add a manifest to the layout and its index; return its digest."""
    raw = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    described = stored(layout, raw, media_type)
    index = json.loads((layout / "index.json").read_bytes())
    index["manifests"].insert(0, described | {"annotations": annotations})
    (layout / "index.json").write_text(json.dumps(index))
    return str(described["digest"])


def artifact(layout: Path, subject: str | None, text: bytes = b"a note") -> dict[str, Any]:
    """Return the manifest of an artifact, a referrer of `subject` if there is one; its blobs are in the layout."""
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": stored(layout, b"{}", OCI_EMPTY),
        "layers": [stored(layout, text, "text/plain")],
    }
    return manifest | ({"subject": {"mediaType": OCI_MANIFEST, "digest": subject, "size": 1}} if subject else {})


def name_of(digest: str, suffix: str = "") -> dict[str, str]:
    return {"org.opencontainers.image.ref.name": digest.replace(":", "-") + suffix}
