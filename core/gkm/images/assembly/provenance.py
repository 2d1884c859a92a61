"""Write a statement about how a cache image was built: in-toto with SLSA's predicate, version 1. Pure.

It states what the build knows: its parameters, and the versions of the programs that compiled the cache, as the cache
or the user names them. It names no path and no host of the machine. docs/reference/provenance.md describes the fields.
Source: in-toto Statement v1; slsa.dev, "Provenance", version 1.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gkm.api.targets import GpuTarget
from gkm.images.assembly.versions import DependencyVersions, stated_versions
from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference

PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
BUILD_TYPE: Final = "https://gkm.io/cache/v1"
LOCAL_BUILDER: Final = "https://gkm.io/cache/local"
"""The builder id for a person who ran the command, without a build platform."""
_PYTHON_PACKAGES: Final = frozenset({"torch", "triton", "vllm"})


@dataclass(frozen=True, slots=True)
class CacheBuild:
    """Facts about the build of a cache image: GPUs and versions that the user stated, builder, GKM's version, times."""

    stated: Sequence[GpuTarget]
    versions: DependencyVersions
    builder: str
    gkm_version: str
    started: datetime
    finished: datetime


def statement(ref: Reference, image: LocalImage, build: CacheBuild) -> bytes:
    """Return the provenance statement about an image as JSON."""
    versions = dict(sorted({**stated_versions(image.labels), **_cuda(build.versions)}.items()))
    predicate: dict[str, Any] = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "image": str(ref),
                "gpus": [f"{gpu.backend}:{gpu.arch}:{gpu.warp_size}" for gpu in build.stated],
            },
            "internalParameters": {},
            "resolvedDependencies": [{"uri": _uri(name, version)} for name, version in versions.items()],
        },
        "runDetails": {
            "builder": {"id": build.builder, "version": {"gkm": build.gkm_version}},
            "metadata": {"startedOn": _text(build.started), "finishedOn": _text(build.finished)},
        },
    }
    subject = {"name": ref.name, "digest": {"sha256": image.digest.removeprefix("sha256:")}}
    document = {
        "_type": STATEMENT_TYPE,
        "subject": [subject],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _cuda(versions: DependencyVersions) -> dict[str, str]:
    return {"cuda": versions.cuda} if versions.cuda else {}


def _uri(name: str, version: str) -> str:
    return f"pkg:{'pypi' if name in _PYTHON_PACKAGES else 'generic'}/{name}@{version.replace('+', '%2B')}"


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
