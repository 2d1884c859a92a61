"""The files of an OCI image layout, read without following a link.

A layout may come from a stranger, and GKM reads its files with its own permissions.
"""

import os
import stat
from functools import partial
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.files import READ_FILE
from gkm.images.local_image import PIECE_BYTES, LocalBlob, StreamHasher, check_blob
from gkm.images.manifest import Descriptor

LAYOUT_FILE, INDEX_FILE = "oci-layout", "index.json"
BLOBS = ("blobs", "sha256")


def blob_parts(digest: str) -> tuple[str, ...]:
    """Return the path of a blob's file in an OCI layout, in parts."""
    return *BLOBS, digest.removeprefix("sha256:")


def small_blob(root: Path, descriptor: Descriptor, limit: int) -> bytes:
    """Return the bytes of a small blob of an OCI layout after checking its digest; raises as `read_small`."""
    raw = read_small(root, blob_parts(descriptor.digest), limit)
    check_blob(LocalBlob.from_bytes(raw, "").descriptor, descriptor, str(root))
    return raw


def checked(root: Path, descriptor: Descriptor) -> Path:
    """Return the path of a blob's file in an OCI layout after checking its size and digest.

    Raises as `open_file`, or GKMError with the reason DIGEST_MISMATCH.
    """
    parts = blob_parts(descriptor.digest)
    hasher = StreamHasher()
    with os.fdopen(open_file(root, parts), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size == descriptor.size:  # a layer of another size is not worth reading
            hasher.read(iter(partial(file.read, PIECE_BYTES), b""))
    check_blob(Descriptor("", hasher.digest, size), descriptor, str(root))
    return root.joinpath(*parts)


def read_small(root: Path, parts: tuple[str, ...], limit: int) -> bytes:
    """Return the content of the file at `parts` below `root`.

    Raises:
        GKMError: TOO_LARGE beyond `limit` bytes; as `open_file`.
        OSError: it cannot be read.
    """
    with os.fdopen(open_file(root, parts), "rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise GKMError(Reason.TOO_LARGE, f"{root.joinpath(*parts)} has more than {limit} bytes")
    return raw


def open_file(root: Path, parts: tuple[str, ...]) -> int:
    """Return a descriptor of the regular file at `parts` below `root`; follows no link and does not block on a pipe.

    Raises:
        GKMError: METADATA_MISSING for a missing file, UNSAFE_CONTENT for anything but a plain file in plain
        directories.
        OSError: `root` is no directory.
    """
    path = root.joinpath(*parts)
    # The user named `root`, so `root` itself may be a link.
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            parent, descriptor = descriptor, os.open(part, READ_FILE, dir_fd=descriptor)
            os.close(parent)
    except FileNotFoundError as error:
        os.close(descriptor)
        raise GKMError(Reason.METADATA_MISSING, f"{path} is missing: the layout is not complete") from error
    except OSError as error:
        os.close(descriptor)
        raise GKMError(Reason.UNSAFE_CONTENT, f"{path} cannot be used: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GKMError(Reason.UNSAFE_CONTENT, f"{path} is not a plain file")
    return descriptor
