"""The configuration and the manifest of images that we make, always the same bytes for the same content."""

import json
from collections.abc import Sequence

from gkm.api.errors import GKMError, Reason
from gkm.images.configuration import MAX_CONFIG_BYTES
from gkm.images.local_image import LocalBlob, LocalImage
from gkm.images.manifest import OCI_MANIFEST, Platform

OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def encode_config(platform: Platform, labels: dict[str, str], diff_ids: list[str]) -> bytes:
    """Return a configuration (OCI image-spec 1.1, "Image Configuration"): docker reads the same fields.

    It has no time of creation: the same content is to have the same digest.

    Raises:
        GKMError: TOO_LARGE when the labels are more than a reader of ours takes.
    """
    stated = {
        "architecture": platform.architecture,
        "os": platform.os,
        "config": {"Labels": dict(sorted(labels.items()))},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created_by": "gkm"}],
    }
    raw = _compact(stated)
    if len(raw) > MAX_CONFIG_BYTES:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the configuration of the image would have {len(raw)} bytes, at most {MAX_CONFIG_BYTES} are read",
            "build several images",
        )
    return raw


def assemble_image(config: bytes, layers: Sequence[LocalBlob], labels: dict[str, str]) -> LocalImage:
    """Return the image of a configuration and its layers."""
    packed = LocalBlob.from_bytes(config, OCI_CONFIG)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": packed.descriptor.to_json(),
        "layers": [layer.descriptor.to_json() for layer in layers],
    }
    return LocalImage(_compact(manifest), OCI_MANIFEST, (packed, *layers), labels)


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
