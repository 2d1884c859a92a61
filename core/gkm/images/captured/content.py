"""The content and the names of captures: agents make these names, and the controllers check them. Pure."""

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct

PREDICATE_TYPE: Final = "https://gkm.io/attestations/captured-files/v1"
"""The type of the statement about the files of an image."""
_SHORT: Final = slice(7, 19)
"""12 hexadecimal digits of a digest: enough to distinguish the captures of one namespace."""
_MAX_KEY: Final = 100
_MAX_NAME: Final = 253
"""Characters of a name in Kubernetes."""
_NOT_IN_TAGS: Final = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)

_Short = Annotated[str, Meta(max_length=64)]
_Count = Annotated[int, Meta(ge=0)]


class PackedFile(Struct, frozen=True):
    """A file as a captured image holds it: `path` relative to the cache, `size` in bytes."""

    path: Annotated[str, Meta(max_length=1024)]
    sha256: Annotated[str, Meta(max_length=64)]
    size: _Count


class Hardware(Struct, frozen=True, rename="camel"):
    """The hardware of a capture: measured GPU and driver of the node, and the runtime and version of the files."""

    backend: _Short
    arch: _Short
    warp_size: _Count
    driver: _Short
    runtime: _Short
    version: _Short = ""

    @property
    def key(self) -> str:
        """Return the hardware key; captures with equal keys replace each other.

        Only the driver's major version is part of it.
        """
        parts = (self.backend, self.arch, f"r{self.driver.partition('.')[0]}", self.runtime, self.version)
        return "-".join(part for part in parts if part)


def content_digest(hardware_key: str, files: Iterable[PackedFile]) -> str:
    """Return the digest of a capture: of hardware, paths and contents, for files in the order of their paths.

    Captures with equal digests are equal.
    """
    digest = hashlib.sha256(f"{hardware_key}\n".encode())
    for file in files:
        digest.update(f"{file.sha256}  {file.path}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def short(digest: str) -> str:
    """Return the first 12 hexadecimal digits of a digest, as in the names of captures."""
    return digest[_SHORT]


def repository(registry: str, namespace: str, runtime: str) -> str:
    """Return the repository for the captured images of a namespace and a runtime."""
    return f"{registry}/{namespace}/{runtime}"


def image_tag(hardware: Hardware, digest_of_content: str) -> str:
    """Return the tag of a captured image: its hardware key and a short digest of its content."""
    return f"{_NOT_IN_TAGS.sub('_', hardware.key)[:_MAX_KEY]}-{short(digest_of_content)}"


def cache_name(runtime: str, arch: str, digest_of_content: str) -> str:
    """Return the name of the GKMCache for a capture without a family."""
    return f"captured-{runtime}-{arch.replace('_', '')}-{short(digest_of_content)}"


def member_name(family: str, arch: str, digest_of_content: str) -> str:
    """Return the name of the GKMCache for a capture of a family member; a long family name is cut."""
    rest = f"-{arch.replace('_', '')}-{short(digest_of_content)}"
    return family[: _MAX_NAME - len(rest)].rstrip("-.") + rest
