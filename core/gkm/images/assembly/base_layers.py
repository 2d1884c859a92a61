"""The layers of a base image, which the registry already has.

An image that extends it adds one layer with new files.
"""

from dataclasses import dataclass
from typing import Final

from gkm.images.manifest import Descriptor

MAX_BASE_LAYERS: Final = 7
"""Limit of layers in a base image. An image beyond it is packed as a single layer with all files again."""


@dataclass(frozen=True, slots=True)
class BaseLayers:
    """The layers of a base image in order, each with the digest of its unpacked bytes.

    `files` are the paths in them. A path is relative to the content of a store entry.
    """

    layers: tuple[Descriptor, ...]
    diff_ids: tuple[str, ...]
    files: frozenset[str] = frozenset()
