"""The configuration of an image: GKM writes it with its manifest, and reads some fields of others.

GKM writes the same bytes for the same content. The fields of foreign images are hostile text. Creation times are RFC
3339 (OCI image-spec, annotations.md and config.md); the signature of the digest covers them.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import LocalBlob, LocalImage
from gkm.images.manifest import OCI_MANIFEST, Descriptor, Platform, decode

MAX_CONFIG_BYTES = 1 << 20
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CREATED_ANNOTATION = "org.opencontainers.image.created"
_MAX_TIME_LENGTH = 64
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
"""Reproducible builds state 1970, and Go the year 1, for an unknown time."""


class _ContainerConfig(Struct):
    labels: dict[str, str] | None = field(default=None, name="Labels")


class _RootFilesystem(Struct):
    diff_ids: list[str] = field(default_factory=list)


class ImageConfig(Struct):
    """The fields of an image configuration that GKM reads; `created` may be of any type."""

    config: _ContainerConfig = field(default_factory=_ContainerConfig)
    created: Any = None
    rootfs: Any = None

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """Return the digests of the unpacked layers; empty if the configuration has no such list."""
        try:
            return tuple(msgspec.convert(self.rootfs, type=_RootFilesystem).diff_ids)
        except msgspec.ValidationError:
            return ()

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the image."""
        return self.config.labels or {}


def read_config(raw: bytes, name: str) -> ImageConfig:
    """Decode the configuration of the image `name`.

    Raises:
        GKMError: METADATA_INVALID.
    """
    return decode(raw, ImageConfig, f"configuration of {name}")


def creation_time(stated: Iterable[object]) -> datetime | None:
    """Return the first valid time among the texts, to the second; None if no text is a valid time."""
    return next((time for text in stated if (time := _time(text)) is not None), None)


def encode_config(platform: Platform, labels: dict[str, str], diff_ids: list[str]) -> bytes:
    """Return a configuration (OCI image-spec 1.1, "Image Configuration"); docker reads the same fields.

    It states no creation time, so that the same content has the same digest.

    Raises:
        GKMError: TOO_LARGE when the labels exceed the size that GKM reads.
    """
    stated = {
        "architecture": platform.architecture,
        "os": platform.os,
        "config": {"Labels": dict(sorted(labels.items()))},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created_by": "gkm"}],
    }
    raw = msgspec.json.encode(stated)
    if len(raw) > MAX_CONFIG_BYTES:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the configuration of the image would have {len(raw)} bytes, at most {MAX_CONFIG_BYTES} are read",
            "build several images",
        )
    return raw


def assemble_image(
    config: bytes, layers: Sequence[LocalBlob], labels: dict[str, str], base: Sequence[Descriptor] = ()
) -> LocalImage:
    """Return an image with a configuration and its layers.

    `base` are layers before them, which only the registry has.
    """
    packed = LocalBlob.from_bytes(config, OCI_CONFIG)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": packed.descriptor.to_json(),
        "layers": [each.to_json() for each in (*base, *(layer.descriptor for layer in layers))],
    }
    return LocalImage(msgspec.json.encode(manifest), OCI_MANIFEST, (packed, *layers), labels)


def _time(text: object) -> datetime | None:
    if not isinstance(text, str) or len(text) > _MAX_TIME_LENGTH:
        return None
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            return None
        time = time.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        return None
    return time if time >= _EARLIEST else None
