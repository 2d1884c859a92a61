"""Manifests: bytes that match a digest, decoded into the fields that GKM uses.

Types of OCI image-spec 1.1 and docker's schema 2; every size and count is bounded.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.hoststate import names

MAX_MANIFEST_BYTES = 4 << 20
MAX_LAYERS = 64
MAX_SIZE = 1 << 63
"""Limit of the size of a blob in bytes: an int64 (OCI image-spec, "Descriptor")."""

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
ACCEPTED_MEDIA_TYPES = (OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_LIST)

PREDICATE_ANNOTATION = "dev.sigstore.bundle.predicateType"
"""The only annotation of a referrer that GKM reads: the type of the statement in its bundle."""

T = TypeVar("T")


class Platform(Struct, frozen=True):
    """The platform of an image in an index, in Go's spelling."""

    architecture: str
    os: str


class Descriptor(Struct, frozen=True, rename="camel"):
    """The type, size in bytes and digest of a blob or manifest; the digest is always a canonical sha256."""

    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = field(default_factory=dict)
    artifact_type: str = ""
    platform: Platform | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid digest or size."""
        names.digest(self.digest)
        if not 0 <= self.size < MAX_SIZE:
            raise ValueError(f"a size of {self.digest} is negative, or more than any disk has")

    def to_json(self) -> dict[str, Any]:
        """Return the descriptor as JSON for a manifest that GKM writes."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


class ImageManifest(Struct, frozen=True, rename="camel"):
    """An image manifest, of OCI or docker schema 2."""

    schema_version: int
    config: Descriptor
    layers: list[Descriptor]
    media_type: str = ""
    artifact_type: str = ""
    subject: Descriptor | None = None
    annotations: dict[str, str] = field(default_factory=dict)


class ImageIndex(Struct, frozen=True, rename="camel"):
    """An index of images; `manifests` is None where a registry writes `null` for an empty list."""

    manifests: list[Descriptor] | None = None
    artifact_type: str = ""
    subject: Descriptor | None = None
    annotations: dict[str, str] = field(default_factory=dict)

    def select(self, platform: Platform, name: str) -> Descriptor:
        """Return the descriptor of the image for a platform; errors name the index `name`.

        An image without a platform fits every platform, because cache files run on GPUs.

        Raises:
            GKMError: METADATA_INVALID when no image or several images fit.
        """
        images = [found for found in self.manifests or [] if found.media_type in (OCI_MANIFEST, DOCKER_MANIFEST)]
        fitting = [found for found in images if found.platform == platform] or [
            found for found in images if found.platform is None
        ]
        if len(fitting) == 1:
            return fitting[0]
        offered = sorted({f"{found.platform.os}/{found.platform.architecture}" for found in images if found.platform})
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{name} is an index with {len(fitting)} images for {platform.os}/{platform.architecture}"
            + (f"; it has {', '.join(offered)[:200]!r}" if offered else ""),
            "name the digest of one image",
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The bytes of a manifest, the media type that the registry stated, and the digest of the bytes."""

    raw: bytes
    media_type: str
    digest: str

    @classmethod
    def from_bytes(cls, raw: bytes, media_type: str) -> "Manifest":
        """Return the manifest that these bytes encode, with their digest."""
        return cls(raw, media_type, f"sha256:{hashlib.sha256(raw).hexdigest()}")

    @property
    def is_index(self) -> bool:
        """Return whether the media type is an index of images."""
        return self.media_type in (OCI_INDEX, DOCKER_LIST)

    def index(self) -> ImageIndex:
        """Return the index of images that the bytes encode.

        Raises:
            GKMError: METADATA_INVALID.
        """
        return decode(self.raw, ImageIndex, f"index {self.digest}")

    def image(self) -> ImageManifest:
        """Return the image manifest that the bytes encode.

        Raises:
            GKMError: METADATA_INVALID for an index or an invalid manifest.
        """
        if self.is_index:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"{self.digest} is an index of images, not an image",
                "name the digest of the image inside it",
            )
        image = decode(self.raw, ImageManifest, f"manifest {self.digest}")
        if image.media_type and image.media_type != self.media_type:
            # If registry and manifest state different types, two readers disagree on the meaning.
            raise GKMError(
                Reason.METADATA_INVALID,
                f"manifest {self.digest} calls itself {image.media_type[:100]!r}, "
                f"the registry calls it {self.media_type[:100]!r}",
            )
        if len(image.layers) > MAX_LAYERS:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"manifest {self.digest} has {len(image.layers)} layers, at most {MAX_LAYERS} are read",
            )
        return image

    def attached(self) -> tuple[str, Descriptor]:
        """Return the digest of the subject, "" without one, and the descriptor in a list of referrers.

        Raises:
            GKMError: METADATA_INVALID.
        """
        found = self.index() if self.is_index else self.image()
        kind = found.artifact_type or (found.config.media_type if isinstance(found, ImageManifest) else "")
        described = Descriptor(self.media_type, self.digest, len(self.raw), found.annotations, kind)
        return found.subject.digest if found.subject else "", described


def decode(raw: bytes, kind: type[T], what: str, check: Callable[[bytes], None] = json_limits.check) -> T:
    """Decode JSON from outside into a typed value; `check` limits the memory it takes (gkm.api.json_limits).

    Raises:
        GKMError: METADATA_INVALID, with the path of the wrong field, without content.
    """
    try:
        check(raw)
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise GKMError(Reason.METADATA_INVALID, f"{what} cannot be read: {str(error)[:200]}") from error


class _Stated(Struct):
    predicate: Any = field(default="", name=PREDICATE_ANNOTATION)


class _Referrer(Struct, rename="camel"):
    media_type: str = ""
    digest: str = ""
    size: int = 0
    artifact_type: str = ""
    annotations: _Stated | None = None


class _Referrers(Struct):
    manifests: list[_Referrer] | None = None


def parse_referrers(raw: bytes, name: str) -> list[Descriptor]:
    """Return the referrers of an image, possible signatures first; skip entries that cannot be checked (no sha256).

    Every user with push permission can add to this list, so no entry may hide the others.

    Raises:
        GKMError: METADATA_INVALID.
    """
    found = [
        Descriptor(entry.media_type, entry.digest, entry.size, _annotations(entry), entry.artifact_type)
        for entry in decode(raw, _Referrers, f"referrers of {name}").manifests or []
        if names.is_digest(entry.digest) and 0 <= entry.size < MAX_SIZE
    ]
    # cosign's fallback index gives bundles the artifact type "empty": they come first too.
    return sorted(found, key=lambda entry: not any(word in entry.artifact_type for word in ("sigstore", "oci.empty")))


def _annotations(entry: _Referrer) -> dict[str, str]:
    stated = entry.annotations.predicate if entry.annotations else ""
    return {PREDICATE_ANNOTATION: stated} if stated and isinstance(stated, str) else {}
