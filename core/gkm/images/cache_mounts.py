"""MCV's label `io.kserve.km/cache-mounts`: trees of a vLLM image beside its main one, and where each must lie.

GKM mounts an image at one path and writes no such image, so it only shows what the label states. It is hostile text.
"""

from typing import Annotated

from msgspec import Meta, Struct

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import decode

LABEL = "io.kserve.km/cache-mounts"
MAX_LABEL = 4096
"""Bytes of the label, as MCV bounds it."""
_MAX_MOUNTS = 64


class CacheMount(Struct, frozen=True, rename="camel"):
    """A tree of an image: its directory there, the exact path in a container, and the variable that names the path."""

    sub_path: str
    abs_path: str
    env: str = ""
    requires_writable: bool = False


CacheMounts = Annotated[tuple[CacheMount, ...], Meta(max_length=_MAX_MOUNTS)]


def cache_mounts(labels: dict[str, str]) -> CacheMounts:
    """Return the further trees that the labels of an image state.

    Raises:
        GKMError: METADATA_INVALID, the label cannot be read, or is longer than MAX_LABEL.
    """
    label = labels.get(LABEL, "").encode(errors="replace")
    if len(label) > MAX_LABEL:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"the label {LABEL} has {len(label)} bytes, at most {MAX_LABEL} are read: the further trees are not known",
        )
    return decode(label, CacheMounts, f"the label {LABEL}") if label else ()
