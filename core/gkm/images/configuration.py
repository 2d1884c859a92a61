"""The configuration of an image, as far as it is read: its labels, which are hostile text."""

from typing import Any

from msgspec import Struct, field

from gkm.images.manifest import decode

MAX_CONFIG_BYTES = 1 << 20


class _ContainerConfig(Struct):
    labels: dict[str, str] | None = field(default=None, name="Labels")


class _ImageConfig(Struct):
    config: _ContainerConfig = field(default_factory=_ContainerConfig)
    created: Any = None


def created_in(config: bytes, name: str) -> str:
    """Return what the configuration of an image says of its creation, "" where that is no text.

    Raises:
        GKMError: METADATA_INVALID.
    """
    stated = decode(config, _ImageConfig, f"configuration of {name}").created
    return stated if isinstance(stated, str) else ""


def labels_in(config: bytes, name: str) -> dict[str, str]:
    """Return the labels in the configuration of an image.

    Raises:
        GKMError: METADATA_INVALID.
    """
    return decode(config, _ImageConfig, f"configuration of {name}").config.labels or {}
