"""The layers of an image that another image extends: the registry has them, so only what is new becomes a layer."""

from dataclasses import dataclass
from typing import Final

from gkm.images.manifest import Descriptor

MAX_BASE_LAYERS: Final = 7
"""An image has one layer more. The next one after it has a single layer again, with all files."""


@dataclass(frozen=True, slots=True)
class BaseLayers:
    """Layers in their order, each with the digest of its unpacked bytes; `files` are the paths of their files.

    A path is relative to the content of a store entry.
    """

    layers: tuple[Descriptor, ...]
    diff_ids: tuple[str, ...]
    files: frozenset[str] = frozenset()
