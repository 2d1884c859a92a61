"""The volume attributes that say how a cache is mounted (docs/design/volumes.md, "Attributes"). Pure."""

from collections.abc import Mapping
from typing import Final

from gkm.hoststate.records import VolumeOptions
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath

from gkm_csi import quantity
from gkm_csi.status_errors import invalid_argument

READ_ONLY: Final = "readOnly"
MOUNT_PATH: Final = "mountPath"
SIZE_LIMIT: Final = "sizeLimit"
IF_UNAVAILABLE: Final = "ifUnavailable"
CAPTURE: Final = "capture"
NAMES: Final = frozenset({READ_ONLY, MOUNT_PATH, SIZE_LIMIT, IF_UNAVAILABLE, CAPTURE})

DEFAULT_SIZE: Final = 1 << 30
MIN_SIZE: Final = 1 << 20
MAX_SIZE: Final = 1 << 40
"""A pod's own memory limit comes long before."""


def volume_options(attributes: Mapping[str, str]) -> VolumeOptions:
    """Return what the attributes ask for besides the cache.

    Raises:
        Refusal: a value is not one of those that there are, or two contradict each other.
    """
    private = _enum_value(attributes, READ_ONLY, ("true", "false")) == "false"
    or_empty = _enum_value(attributes, IF_UNAVAILABLE, ("wait", "empty")) == "empty"
    capture = _enum_value(attributes, CAPTURE, ("false", "true")) == "true"
    for name, given in ((SIZE_LIMIT, SIZE_LIMIT in attributes), (CAPTURE, capture)):
        if given and not (private or or_empty):
            raise invalid_argument(
                f'volume attribute {name} is for a volume that the pod can write to: say {READ_ONLY}: "false", or '
                f"take {name} out"
            )
    return VolumeOptions(
        private=private,
        mount_path=_mount_path(attributes),
        size_limit=_size_limit(attributes) if private or or_empty else 0,
        or_empty=or_empty,
        capture=capture,
    )


def _enum_value(attributes: Mapping[str, str], name: str, values: tuple[str, str]) -> str:
    """Return the value of an attribute; the first of `values` is the default."""
    value = attributes.get(name, values[0])
    if value not in values:
        raise invalid_argument(f'volume attribute {name} must be "{values[0]}" or "{values[1]}", not {quoted(value)}')
    return value


def _mount_path(attributes: Mapping[str, str]) -> str:
    if MOUNT_PATH not in attributes:
        return ""
    try:
        return MountPath(attributes[MOUNT_PATH]).text
    except InvalidMountPath as error:
        raise invalid_argument(f"volume attribute {error}") from error


def _size_limit(attributes: Mapping[str, str]) -> int:
    text = attributes.get(SIZE_LIMIT, str(DEFAULT_SIZE))
    size = quantity.parse_bytes(text)
    if size is None or not MIN_SIZE <= size <= MAX_SIZE:
        least, most = quantity.format_bytes(MIN_SIZE), quantity.format_bytes(MAX_SIZE)
        raise invalid_argument(
            f'volume attribute {SIZE_LIMIT} must be a size like "512Mi", {least} to {most}, not {quoted(text)}'
        )
    return size


def quoted(value: str) -> str:
    """Return what somebody wrote, as it may stand in an event: escaped, and no more than a glance of it."""
    limit = 80
    return repr(value if len(value) <= limit else value[:limit] + "…")
