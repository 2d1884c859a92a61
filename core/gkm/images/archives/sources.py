"""Open a local image to push it; the content decides its format."""

from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives import docker_archive, oci_layout
from gkm.images.archives.compression import GZIP_MAGIC
from gkm.images.local_image import LocalImage

_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257


def open_image(path: Path, work: Path) -> LocalImage:
    """Return the image at `path`: an OCI layout, or a docker-archive.

    `work` is an empty directory of the caller; both must exist until the image is stored.

    Raises:
        GKMError: NOT_FOUND, METADATA_INVALID when the format is unknown; as the reader of the format raises.
        OSError: it cannot be read, or the disk refused.
    """
    if path.is_dir():
        return oci_layout.open_layout(path)
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
    return docker_archive.open_archive(path, work)
