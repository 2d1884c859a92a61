"""Where the members of a tar file lie in it: read in place, nothing is unpacked and no link is followed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import Stream, members
from gkm.images.archives.member_names import checked_path
from gkm.images.packed import PIECE_BYTES

MAX_MEMBERS = 10_000
"""An image of 64 layers has a few hundred at most."""


@dataclass(frozen=True, slots=True)
class Place:
    """A member's content: `size` bytes of the file from `offset` on."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ArchiveIndex:
    """The regular members of a tar file, by name."""

    path: Path
    places: dict[str, Place]

    @classmethod
    def of(cls, path: Path) -> "ArchiveIndex":
        """Return the index of a tar file.

        Raises:
            GKMError: UNSAFE_CONTENT for names that lead elsewhere or come twice and for devices, TOO_LARGE for more
                than MAX_MEMBERS, CONTENT_MISMATCH when it is damaged or cut.
            OSError: it cannot be read.
        """
        places: dict[str, Place] = {}
        stream = Stream(_pieces(path))
        for number, (member, _) in enumerate(members(stream, pass_links=True)):
            if number >= MAX_MEMBERS:
                raise GKMError(Reason.TOO_LARGE, f"{path} has more than {MAX_MEMBERS} members: it holds no image")
            name = checked_path(member.name)
            if member.directory:
                continue
            if name in places:
                raise GKMError(Reason.UNSAFE_CONTENT, f"{path} holds {name[:80]!r} twice")
            places[name] = Place(stream.position, member.size)
        return cls(path.resolve(), places)

    def pieces(self, place: Place) -> Iterator[bytes]:
        """Yield the content at a place.

        Raises:
            OSError: it cannot be read, or the file has become shorter.
        """
        with self.path.open("rb", buffering=0) as file:
            file.seek(place.offset)
            missing = place.size
            while missing:
                piece = file.read(min(PIECE_BYTES, missing))
                if not piece:
                    raise OSError(f"{self.path} has become shorter while it was read")
                missing -= len(piece)
                yield piece

    def small(self, name: str, limit: int) -> bytes:
        """Return the content of a small member.

        Raises:
            GKMError: METADATA_MISSING when there is none of that name, TOO_LARGE beyond `limit` bytes.
            OSError: it cannot be read.
        """
        place = self.find(name)
        if place.size > limit:
            raise GKMError(
                Reason.TOO_LARGE, f"{name[:80]} in {self.path} has {place.size} bytes, at most {limit} are read"
            )
        return b"".join(self.pieces(place))

    def find(self, name: str) -> Place:
        """Return where a member lies; raises METADATA_MISSING when there is no plain file of that name."""
        place = self.places.get(name)
        if place is None:
            raise GKMError(Reason.METADATA_MISSING, f"{self.path} holds no plain file {name[:80]!r}")
        return place


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
