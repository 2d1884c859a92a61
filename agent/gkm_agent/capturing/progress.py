"""How far each capture has come, as files beside its content: a killed agent continues with the next step.

`captured.json` comes from the CSI process and says whose files they are. `progress.json` is ours. Each step ends by one
rename of it, and each is idempotent: a step that was killed is done again and has the same result.
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
"""The list of the files of one image; the attestation repeats it."""
_MAX_BYTES: Final = 64 << 10

_Short = Annotated[str, Meta(max_length=64)]
_Count = Annotated[int, Meta(ge=0)]


class CaptureState(StrEnum):
    """The states of a capture; each names the last completed step."""

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
        """Return whether all steps are done."""
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
    left_out: _Count = 0
    """Files and directories that belong to no cache."""
    digest: Annotated[str, Meta(max_length=71)] = ""
    """Digest of the image, from PACKED on."""
    repository: Annotated[str, Meta(max_length=525)] = ""
    """Where it is pushed, from PUSHED on."""
    base: Annotated[str, Meta(max_length=525)] = ""
    """The image that this image extends, by digest; "" if absent."""
    base_layers: _Count = 0
    """How many of the image's layers belong to the base, which the registry has; from PACKED on."""
    attempts: _Count = 0
    """How often the capture was packed again on top of a newer generation."""

    @property
    def base_digest(self) -> str:
        """Return the digest of the base, "" if absent."""
        return self.base.partition("@")[2]


class CaptureOrigin(Struct, frozen=True, rename="camel"):
    """captured.json: the volume whose files these are. `digest` is the digest of the cache below them, "" if absent.

    `cache_namespace` is None for a ClusterGKMCache.
    """

    volume_id: str
    pod_namespace: str
    pod_name: Annotated[str, Meta(max_length=253)]
    digest: Annotated[str, Meta(max_length=71)]
    mount_path: Annotated[str, Meta(max_length=4096)]
    start_time: Annotated[str, Meta(max_length=64)]
    cache_namespace: Annotated[str, Meta(max_length=63)] | None = None
    family: Annotated[str, Meta(max_length=253)] = ""
    """The name in the pod; "" in captures of earlier versions."""


def origin(directory: Path) -> CaptureOrigin:
    """Return whose files a capture holds.

    Raises:
        UnreadableState: the CSI process did not write this file, or it is missing.
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
    """Return how far a capture has come; its beginning where the file is missing or not ours."""
    try:
        return msgspec.convert(files.read_object(directory / PROGRESS_FILE, _MAX_BYTES), type=Progress)
    except (FileNotFoundError, UnreadableState, msgspec.ValidationError):
        return Progress()


def save(directory: Path, progress: Progress) -> None:
    """Record how far a capture has come, in one step; raises OSError."""
    files.replace(directory / PROGRESS_FILE, msgspec.json.encode(progress))


def save_files(directory: Path, listed: list[PackedFile]) -> None:
    """Record the files of the image; raises OSError."""
    files.replace(directory / FILES_FILE, msgspec.json.encode(listed))


def load_files(directory: Path) -> list[PackedFile]:
    """Return the files of the image.

    Raises:
        UnreadableState: they are missing, or `save_files` did not write them.
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
