"""The description of a cache image from its manifest and labels, without its content.

The format is MCV's (github.com/redhat-et/GKM, folder mcv). Labels are hostile text: GKM types and bounds them and never
uses one as a path (a trusted label led to containerd CVE-2026-53488).
"""

import platform
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.configuration import CREATED_ANNOTATION, MAX_CONFIG_BYTES, creation_time, read_config
from gkm.images.image_store import ImageSource
from gkm.images.manifest import Descriptor, ImageManifest, Platform, decode
from gkm.images.reference import Reference
from gkm.runtimes import BY_NAME
from gkm.runtimes.placement import joined, names_in

CACHES_LABEL = "gkm.io/caches"
"""The runtimes of an image with several caches (gkm.runtimes.placement)."""
MOUNT_PATH_LABEL = "gkm.io/mount-path"
"""Label: the path at which containers must see the caches, because their files contain it (--for-path)."""
MAX_TARGETS = 256
MAX_VERSION = 32
"""Limit of characters of a version in a label."""
_BACKEND = re.compile(r"[a-z][a-z0-9_]{0,15}", re.ASCII)
_ARCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,31}", re.ASCII)
_MAX_WARP = 1024
_NUMBER = re.compile(r"([0-9]{1,18})", re.ASCII)
_COUNT = re.compile(r"([0-9]{1,18}), one of [^\n]*", re.ASCII)
"""The entries of a cache among several (`entry_label`)."""


def entry_label(count: str, runtimes: str) -> str:
    """Return the label with the number of entries, for an image with several caches.

    A GKM that knows only images of one cache would mount the first cache without a word of the others. It refuses this
    text before it fetches anything, because it is not a number; MCV does not read the label.
    """
    return f"{count}, one of several caches: {runtimes}"


class Format(StrEnum):
    """The runtime that wrote the cache: MCV's formats, and one for each other row of the table of runtimes."""

    _ignore_ = "members runtime member"
    TRITON = "triton"
    VLLM = "vllm"
    INDUCTOR = "inductor"
    """TorchInductor's: an extension of GKM; MCV has no labels or directories of it (docs/reference/formats.md)."""
    members = vars()
    for runtime in BY_NAME:
        if (member := runtime.upper()) not in members:
            members[member] = runtime

    def __init__(self, runtime: str) -> None:
        self.summary_label = f"cache.{runtime}.image/summary"
        """The label with the GPUs that the cache is for."""
        self.size_label = f"cache.{runtime}.image/cache-size-bytes"
        """The label with the sum of the file sizes."""
        self.count_label = f"cache.{runtime}.image/entry-count"
        """The label with the number of entries."""
        self.content_directory = f"io.{runtime}.cache"
        """The directory of the layer that holds the cache."""
        self.manifest_path = f"io.{runtime}.manifest/manifest.json"
        """The file of the layer that describes the entries."""
        self.artifact_layer = f"application/cache.{runtime}.content.layer.v1+{runtime}"
        """The media type of the one layer in the legacy artifact variant, which no current tool writes."""


@dataclass(frozen=True, slots=True)
class RuntimeCache:
    """The cache of one runtime in an image, from its labels. `size_bytes` and `entry_count` are None if not stated."""

    format: Format
    targets: tuple[GpuTarget, ...]
    size_bytes: int | None
    entry_count: int | None


@dataclass(frozen=True, slots=True)
class CacheImage:
    """A cache image as its labels describe it: one cache, or one for each of several runtimes.

    `created` is a claim too, from the annotation, the label or the configuration.
    """

    ref: Reference
    digest: str
    caches: tuple[RuntimeCache, ...]
    layers: tuple[Descriptor, ...]
    labels: dict[str, str]
    created: datetime | None = None

    @property
    def formats(self) -> tuple[Format, ...]:
        """Return the format of each cache in the image."""
        return tuple(cache.format for cache in self.caches)

    @property
    def runtime(self) -> str:
        """Return the names of the runtimes, joined by a dash."""
        return joined(kind.value for kind in self.formats)

    @property
    def targets(self) -> tuple[GpuTarget, ...]:
        """Return the GPUs that can use every cache."""
        return common_targets([cache.targets for cache in self.caches])

    @property
    def size_bytes(self) -> int | None:
        """Return the size of all caches as the labels state it, None if they do not."""
        return _sum(cache.size_bytes for cache in self.caches)

    @property
    def entry_count(self) -> int | None:
        """Return the number of entries of all caches as the labels state it, None if they do not."""
        return _sum(cache.entry_count for cache in self.caches)

    @property
    def download_bytes(self) -> int:
        """Return how many bytes a pull downloads, by the manifest."""
        return sum(layer.size for layer in self.layers)


def common_targets(caches: Sequence[Collection[GpuTarget]]) -> tuple[GpuTarget, ...]:
    """Return the GPUs that can use every cache, each with the newest versions of CUDA and PTX that a cache needs.

    A cache may state a GPU with several versions of CUDA, which are alternatives: the oldest is used.
    """
    if len(caches) == 1:
        return tuple(caches[0])
    needs = [{_hardware(target): target for target in sorted(cache, key=_versions, reverse=True)} for cache in caches]
    common = set(needs[0]).intersection(*needs[1:])
    return tuple(sorted(max((need[hardware] for need in needs), key=_versions) for hardware in common))


def _hardware(target: GpuTarget) -> tuple[str, str]:
    return target.backend, target.arch


def _versions(target: GpuTarget) -> tuple[list[int], int]:
    return [int(number) for number in re.findall(r"[0-9]{1,6}", target.cuda_version)], target.ptx_version


def _sum(claims: Iterable[int | None]) -> int | None:
    known = list(claims)
    return None if None in known else sum(filter(None, known))


class _SummaryTarget(Struct):
    backend: str
    arch: str | int
    warp_size: int
    ptx_version: int | None = None
    cuda_version: str | None = None


class _Summary(Struct):
    targets: list[_SummaryTarget] | None = None


def describe(registry: ImageSource, ref: Reference) -> CacheImage:
    """Return the description of a pinned image; for an index, the description of its image for this machine.

    A signature binds the requested digest. The bytes of an index name its images by digest, so the signature binds
    those too (cosign does not sign the images of an index one by one).

    Raises:
        GKMError: METADATA_MISSING if the image is no cache image, METADATA_INVALID for invalid labels; as the registry
        raises.
    """
    manifest = registry.manifest(ref)
    if manifest.is_index:
        manifest = registry.manifest(ref.pinned(manifest.index().select(host_platform(), str(ref)).digest))
    image = manifest.image()
    config = read_config(registry.small_blob(ref, image.config, MAX_CONFIG_BYTES), str(ref))
    stated = image.annotations.get(CREATED_ANNOTATION), config.labels.get(CREATED_ANNOTATION), config.created
    return replace(from_labels(ref, image, config.labels), created=creation_time(stated))


def host_platform() -> Platform:
    """Return the platform of this machine in Go's spelling, such as linux/amd64."""
    machine = platform.machine()
    return Platform({"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine), "linux")


def from_labels(ref: Reference, image: ImageManifest, labels: dict[str, str]) -> CacheImage:
    """Return the description of a cache image from its labels; raises as `describe` does."""
    formats = _formats(ref, image, labels)
    _check_artifact(ref, image, formats[0])
    caches = tuple(_runtime_cache(ref, labels, kind) for kind in formats)
    described = CacheImage(ref, ref.target, caches, tuple(image.layers), labels)
    if not described.targets:
        raise GKMError(Reason.METADATA_INVALID, f"the caches in {ref} are for different GPUs")
    return described


def stated_targets(labels: Mapping[str, str], kind: Format, name: str) -> tuple[GpuTarget, ...]:
    """Return the GPUs that the labels of an image state for one of its caches.

    Raises:
        GKMError: METADATA_INVALID.
    """
    # MCV writes `null` for a cache whose GPU it cannot determine.
    text = labels[kind.summary_label] if labels[kind.summary_label] != "null" else "{}"
    stated = decode(text.encode(), _Summary, f"label {kind.summary_label} of {name}").targets or []
    if not stated or len(stated) > MAX_TARGETS:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"label {kind.summary_label} of {name} names {len(stated)} targets, not 1 to {MAX_TARGETS}",
        )
    return tuple(sorted({_target(target, name) for target in stated}))


def _formats(ref: Reference, image: ImageManifest, labels: Mapping[str, str]) -> tuple[Format, ...]:
    """Return the formats of the caches in an image: several only where CACHES_LABEL lists them."""
    if CACHES_LABEL in labels:
        names = names_in(labels[CACHES_LABEL])
        if len(names) < 2 or any(Format(name).summary_label not in labels for name in names):  # noqa: PLR2004 -- several
            raise GKMError(
                Reason.METADATA_INVALID,
                f"label {CACHES_LABEL} of {ref} is {labels[CACHES_LABEL][:80]!r}: it does not list runtimes that this "
                "GKM knows and that have labels in the image",
                "use the version of GKM that built the image, or a later one",
            )
        return tuple(Format(name) for name in names)
    kind = next((kind for kind in Format if kind.summary_label in labels), None)
    if kind is None:
        raise _labels_missing(ref, image)
    return (kind,)


def _runtime_cache(ref: Reference, labels: Mapping[str, str], kind: Format) -> RuntimeCache:
    return RuntimeCache(
        kind,
        stated_targets(labels, kind, str(ref)),
        _number(labels, kind.size_label, ref),
        _number(labels, kind.count_label, ref, _COUNT if CACHES_LABEL in labels else _NUMBER),
    )


def _labels_missing(ref: Reference, image: ImageManifest) -> GKMError:
    """Return the error for an image without labels.

    The legacy artifact variant of the format may have no labels. Its layer contains the GPUs, but GKM decides from the
    labels alone whether a node downloads the layer, so it refuses the image.
    """
    variant = next(
        (kind for kind in Format if any(layer.media_type == kind.artifact_layer for layer in image.layers)), None
    )
    if variant is not None:
        return GKMError(
            Reason.METADATA_MISSING,
            f"{ref} is of the legacy artifact variant ({variant.artifact_layer}) and has no label "
            f"{variant.summary_label}: its GPUs are unknown",
            "unpack its layer and build it again with `gkm cache build` or MCV",
        )
    return GKMError(
        Reason.METADATA_MISSING,
        f"{ref} lacks the labels {', '.join(kind.summary_label for kind in Format)}: it is no cache image",
        "build one with `gkm cache build` or MCV",
    )


def _check_artifact(ref: Reference, image: ImageManifest, kind: Format) -> None:
    """Refuse artifact layers that MCV would not read: it accepts exactly one, of the cache's own type."""
    types = [layer.media_type for layer in image.layers]
    if any(other.artifact_layer in types for other in Format) and types != [kind.artifact_layer]:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{ref} is labelled as a {kind.value} cache, but its {len(types)} layers are not one {kind.artifact_layer}",
        )


def is_valid_target(target: GpuTarget) -> bool:
    """Return whether the backend, architecture and warp size of a target have a valid form."""
    named = _BACKEND.fullmatch(target.backend) and _ARCH.fullmatch(target.arch)
    return bool(named) and 1 <= target.warp_size <= _MAX_WARP


def _target(stated: _SummaryTarget, name: str) -> GpuTarget:
    target = GpuTarget(
        stated.backend,
        str(stated.arch).removeprefix("sm_"),
        stated.warp_size,
        stated.ptx_version or 0,
        (stated.cuda_version or "")[:MAX_VERSION],
    )
    if not is_valid_target(target):
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{name} states an invalid GPU: backend {target.backend[:40]!r}, arch {target.arch[:40]!r}, "
            f"warp size {target.warp_size}",
        )
    return target


def _number(labels: Mapping[str, str], label: str, ref: Reference, pattern: re.Pattern[str] = _NUMBER) -> int | None:
    if label not in labels:
        return None
    found = pattern.fullmatch(labels[label])
    if not found:
        raise GKMError(Reason.METADATA_INVALID, f"label {label} of {ref} is {labels[label][:40]!r}, not a number")
    return int(found[1])
