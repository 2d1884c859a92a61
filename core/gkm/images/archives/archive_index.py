"""An index of the members of a tar file, to read them in place: without extraction and without following links."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import ByteStream, members
from gkm.images.archives.member_names import checked_path
from gkm.images.local_image import file_pieces

MAX_MEMBERS = 10_000
"""An image of 64 layers has a few hundred at most."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The content of a member: `size` bytes of the file from `offset` on."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ArchiveIndex:
    """The regular members of a tar file, by name."""

    path: Path
    ranges: dict[str, ByteRange]

    @classmethod
    def from_file(cls, path: Path) -> "ArchiveIndex":
        """Return the index of a tar file.

        Raises:
            GKMError: UNSAFE_CONTENT for devices and for names that lead elsewhere or occur twice, TOO_LARGE for more
                than MAX_MEMBERS, CONTENT_MISMATCH for a damaged or truncated file.
            OSError: it cannot be read.
        """
        ranges: dict[str, ByteRange] = {}
        target = path.resolve()
        stream = ByteStream(file_pieces(target, 0, target.stat().st_size))
        for number, (member, _) in enumerate(members(stream, skip_links=True)):
            if number >= MAX_MEMBERS:
                raise GKMError(Reason.TOO_LARGE, f"{path} has more than {MAX_MEMBERS} members: it holds no image")
            name = checked_path(member.name)
            if member.directory:
                continue
            if name in ranges:
                raise GKMError(Reason.UNSAFE_CONTENT, f"{path} holds {name[:80]!r} twice")
            ranges[name] = ByteRange(stream.position, member.size)
        return cls(target, ranges)

    def pieces(self, byte_range: ByteRange) -> Iterator[bytes]:
        """Yield the bytes of a range.

        Raises:
            OSError: it cannot be read, or the file became shorter.
        """
        return file_pieces(self.path, byte_range.offset, byte_range.size)

    def small(self, name: str, limit: int) -> bytes:
        """Return the content of a small member.

        Raises:
            GKMError: METADATA_MISSING for a missing member, TOO_LARGE beyond `limit` bytes.
            OSError: it cannot be read.
        """
        byte_range = self.find(name)
        if byte_range.size > limit:
            raise GKMError(
                Reason.TOO_LARGE, f"{name[:80]} in {self.path} has {byte_range.size} bytes, at most {limit} are read"
            )
        return b"".join(self.pieces(byte_range))

    def find(self, name: str) -> ByteRange:
        """Return the range of a member; raises METADATA_MISSING if the archive has no plain file of that name."""
        byte_range = self.ranges.get(name)
        if byte_range is None:
            raise GKMError(Reason.METADATA_MISSING, f"{self.path} holds no plain file {name[:80]!r}")
        return byte_range
