"""The progress of each capture, as files beside its content: a restarted agent continues with the next step.

The CSI driver writes `captured.json`, which names the volume and pod of the files. The agent writes `progress.json`:
each step ends with one rename of this file. Each step is idempotent, so a killed step is repeated with the same result.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
from gkm.api import json_limits
from gkm.hoststate import files, names
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import CAPTURED_FILE
from gkm.hoststate.names import InvalidName
from gkm.images.captured.content import Hardware, PackedFile
from msgspec import Meta, Struct

PROGRESS_FILE: Final = "progress.json"
FILES_FILE: Final = "image-files.json"
IMAGE: Final = "image"
MAX_FILES_BYTES: Final = 10 << 20
"""Size limit of the file list of one image; the attestation repeats the list."""
_MAX_BYTES: Final = 64 << 10

_Short = Annotated[str, Meta(max_length=64)]
_Count = Annotated[int, Meta(ge=0)]


class CaptureState(StrEnum):
    """The states of a capture; each is named after the last completed step."""

    CAPTURED = "Captured"
    INSPECTED = "Inspected"
    PACKED = "Packed"
    PUSHED = "Pushed"
    SIGNED = "Signed"
    ANNOUNCED = "Announced"
    DUPLICATE = "Duplicate"
    REFUSED = "Refused"

    @property
    def is_final(self) -> bool:
        """Return whether no further step of the capture follows."""
        return self in (CaptureState.ANNOUNCED, CaptureState.DUPLICATE, CaptureState.REFUSED)


class Progress(Struct, frozen=True, rename="camel"):
    """The state of one capture with the results of its steps. `files` and `size_bytes` describe the image."""

    state: CaptureState = CaptureState.CAPTURED
    reason: _Short = ""
    message: Annotated[str, Meta(max_length=2048)] = ""
    hardware: Hardware | None = None
    content_digest: Annotated[str, Meta(max_length=71)] = ""
    files: _Count = 0
    size_bytes: _Count = 0
    digest: Annotated[str, Meta(max_length=71)] = ""
    """Digest of the image; set from the state PACKED on."""
    repository: Annotated[str, Meta(max_length=525)] = ""
    """The repository of the pushed image; set from the state PUSHED on."""
    base: Annotated[str, Meta(max_length=525)] = ""
    """The base image that this image extends, by digest; "" without a base."""
    base_layers: _Count = 0
    """The number of layers that the image shares with its base; set from the state PACKED on."""
    attempts: _Count = 0
    """How often the agent packed the capture again because the node had a newer generation of the family."""

    @property
    def base_digest(self) -> str:
        """Return the digest of the base image, "" without a base."""
        return self.base.partition("@")[2]


class LostCapture(Struct, frozen=True):
    """Why the CSI driver could not copy the files of a volume: a reason of GKM's API and a sentence."""

    reason: _Short
    message: Annotated[str, Meta(max_length=2048)]


class CaptureOrigin(Struct, frozen=True, rename="camel"):
    """The content of captured.json: the volume that the files come from.

    `digest` is the digest of the cache that the volume had mounted, "" if the volume was empty. `cache_namespace` is
    None for a ClusterGKMCache.
    """

    volume_id: str
    pod_namespace: str
    pod_name: Annotated[str, Meta(max_length=253)]
    digest: Annotated[str, Meta(max_length=71)]
    start_time: Annotated[str, Meta(max_length=64)]
    cache_namespace: Annotated[str, Meta(max_length=63)] | None = None
    family: Annotated[str, Meta(max_length=253)] = ""
    """The cache or family that the pod's volume names; "" in files of earlier versions."""
    lost: LostCapture | None = None
    """Set if the copy failed: the capture has no files."""


def origin(directory: Path) -> CaptureOrigin:
    """Return the volume that captured files come from.

    Raises:
        UnreadableState: captured.json is missing, or the CSI driver did not write it.
    """
    path = directory / CAPTURED_FILE
    try:
        found = msgspec.convert(files.read_object(path, _MAX_BYTES), type=CaptureOrigin)
        names.volume_id(found.volume_id)
        names.namespace(found.pod_namespace)
        if found.family:
            names.cache_name(found.family)
    except FileNotFoundError as error:
        raise UnreadableState(f"{path} is missing") from error
    except (msgspec.ValidationError, InvalidName) as error:
        raise UnreadableState(f"{path}: {str(error)[:200]}") from error
    return found


def load(directory: Path) -> Progress:
    """Return the progress of a capture; the state before the first step if progress.json is missing or damaged.

    Raises:
        OSError: it cannot be read now (files.PASSING).
    """
    try:
        return msgspec.convert(files.read_object(directory / PROGRESS_FILE, _MAX_BYTES), type=Progress)
    except (FileNotFoundError, UnreadableState, msgspec.ValidationError):
        return Progress()


def save(directory: Path, progress: Progress) -> None:
    """Write the progress of a capture atomically; raises OSError."""
    files.replace(directory / PROGRESS_FILE, msgspec.json.encode(progress))


def load_files(directory: Path) -> list[PackedFile]:
    """Return the list of the files in a captured image.

    Raises:
        UnreadableState: the list is missing, or no step wrote it.
    """
    path = directory / FILES_FILE
    try:
        raw = files.read_bounded(path, MAX_FILES_BYTES)
        json_limits.check(raw)
        return msgspec.json.decode(raw, type=list[PackedFile])
    except FileNotFoundError as error:
        raise UnreadableState(f"{path} is missing") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise UnreadableState(f"{path}: {str(error)[:200]}") from error
