"""Recognize a local image by its content."""

from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.compression import GZIP_MAGIC
from gkm.images.local_reference import ARCHIVE, LAYOUT, LocalReference

_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257


def reference_to(path: Path) -> LocalReference:
    """Return the reference to the image at `path`: an OCI layout, or a docker-archive.

    Raises:
        GKMError: NOT_FOUND if the path does not exist, METADATA_INVALID if the format is unknown.
        OSError: it cannot be read.
    """
    if path.is_dir():
        return LocalReference(LAYOUT, str(path))
    if not path.is_file():
        raise GKMError(Reason.NOT_FOUND, f"{path} does not exist", "name the output of `gkm cache build`")
    with path.open("rb") as file:
        start = file.read(_TAR_MAGIC_AT + len(_TAR_MAGIC))
    if start.startswith(GZIP_MAGIC):
        raise GKMError(Reason.METADATA_INVALID, f"{path} is compressed with gzip", "decompress it: gunzip FILE")
    if start[_TAR_MAGIC_AT:] != _TAR_MAGIC:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} is no OCI layout and no docker-archive",
            "name the output of `gkm cache build --to` or `docker save`",
        )
    return LocalReference(ARCHIVE, str(path))
