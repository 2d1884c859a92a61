"""Parse the frame of a file of `torch.compiler.save_cache_artifacts()`, without its content.

The file has 4 bytes of CRC-32 (of all that follows), the version 1, and then groups: the kind of artifact, a count, and
for each artifact its key and its content. Numbers have 8 bytes, big-endian; texts are base64 behind their length
(torch/utils/_appending_byte_serializer.py and torch/compiler/_cache.py, 2.15). The contents are pickles: they are
skipped, in constant memory.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

MAX_ARTIFACTS: Final = 20_000
"""Limit of artifacts in one file; a large model has hundreds. Their keys are held in memory."""
MAX_GROUPS: Final = 1_000
"""Limit of groups in one file: torch has ten kinds of artifacts, and adds one group for each at each save."""
MAX_TEXT_BYTES: Final = 1024
"""Limit of the base64 length of a kind or key. Keys of torch are 52 characters of a hash with a short prefix."""
HEAD_BYTES: Final = 4096
"""The number of bytes at the start of a file that `is_artifact_file` needs."""
_VERSION: Final = 1
_CHECKSUM_BYTES: Final = 4
_NUMBER_BYTES: Final = 8
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)


class NotAnArtifactFile(ValueError):
    """The bytes are not a file of `torch.compiler.save_cache_artifacts()`."""


class DamagedArtifactFile(ValueError):
    """The file begins as a file of `torch.compiler.save_cache_artifacts()`, but is damaged; the message says how."""


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """One artifact in a file of torch: its kind (`inductor`, `aot_autograd`, `autotune`, `pgo`…) and its key."""

    kind: str
    key: str


def artifact_keys(pieces: Iterable[bytes], most: int | None = None) -> list[ArtifactKey]:
    """Return the first `most` artifacts of a file of torch in order (None: up to MAX_ARTIFACTS).

    Raises:
        NotAnArtifactFile: it is another file.
        DamagedArtifactFile: it is cut off, was changed, or has more artifacts or longer texts.
    """
    reader = _PieceReader(pieces)
    kind = _first_kind(reader)
    keys: list[ArtifactKey] = []
    limit = MAX_ARTIFACTS if most is None else most
    for _ in range(MAX_GROUPS):
        for _ in range(reader.number(limit - len(keys))):
            keys.append(ArtifactKey(kind, _text(reader)))
            reader.skip(reader.number())
        if reader.at_end():
            break
        kind = _kind(_text(reader))
    else:
        raise DamagedArtifactFile(f"it has more than {MAX_GROUPS} groups, as after too many saves")
    if reader.checksum != reader.stated_checksum:
        raise DamagedArtifactFile("its checksum is wrong")
    return keys


def is_artifact_file(head: bytes) -> bool:
    """Return whether the first HEAD_BYTES of a file begin a file of `torch.compiler.save_cache_artifacts()`."""
    try:
        _first_kind(_PieceReader([head]))
    except NotAnArtifactFile:
        return False
    return True


def _first_kind(reader: "_PieceReader") -> str:
    try:
        if reader.number() != _VERSION:
            raise NotAnArtifactFile
        return _kind(_text(reader))
    except DamagedArtifactFile as error:
        raise NotAnArtifactFile from error


def _kind(text: str) -> str:
    if not _KIND.fullmatch(text):
        raise DamagedArtifactFile("it has an artifact of a kind that has no name")
    return text


def _text(reader: "_PieceReader") -> str:
    encoded = reader.take(reader.number(MAX_TEXT_BYTES))
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise DamagedArtifactFile("it has a name that is no text") from error
    if not text or not text.isprintable():
        raise DamagedArtifactFile("it has a name that cannot be printed")
    return text


class _PieceReader:
    """Reads pieces in order: holds one of them, and adds up the checksum."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._piece = b""
        self._position = 0
        self.checksum = 0
        try:
            self.stated_checksum = int.from_bytes(self.take(_CHECKSUM_BYTES))
        except DamagedArtifactFile as error:
            raise NotAnArtifactFile from error
        self.checksum = zlib.crc32(self._piece[self._position :])

    def take(self, size: int) -> bytes:
        """Return the next bytes, few."""
        parts = bytearray()
        while len(parts) < size:
            parts += self._next(size - len(parts))
        return bytes(parts)

    def skip(self, size: int) -> None:
        """Pass over the next bytes, any number."""
        while size:
            size -= len(self._next(size))

    def number(self, most: int = (1 << 63) - 1) -> int:
        """Return the next number."""
        value = int.from_bytes(self.take(_NUMBER_BYTES))
        if value > most:
            raise DamagedArtifactFile(f"it states {value} where at most {most} is possible")
        return value

    def at_end(self) -> bool:
        """Return whether no byte is left."""
        try:
            self._fill()
        except DamagedArtifactFile:
            return True
        return False

    def _next(self, most: int) -> memoryview:
        """Return some of the next bytes, without a copy: 1 to `most`."""
        self._fill()
        found = memoryview(self._piece)[self._position : self._position + most]
        self._position += len(found)
        return found

    def _fill(self) -> None:
        while self._position == len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                raise DamagedArtifactFile("it is cut off")
            self._piece, self._position = piece, 0
            self.checksum = zlib.crc32(piece, self.checksum)
