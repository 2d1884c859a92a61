"""Files in a directory that came from somebody else: regular ones only, and no link is followed on the way to them."""

import os
import stat
from pathlib import Path

from gkm.api.errors import GKMError, Reason


def read_small(root: Path, parts: tuple[str, ...], limit: int) -> bytes:
    """Return the content of the file at `parts` below `root`.

    Raises:
        GKMError: TOO_LARGE beyond `limit` bytes, and what `opened` raises.
        OSError: it cannot be read.
    """
    with os.fdopen(open_file(root, parts), "rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise GKMError(Reason.TOO_LARGE, f"{root.joinpath(*parts)} has more than {limit} bytes")
    return raw


def open_file(root: Path, parts: tuple[str, ...]) -> int:
    """Return a descriptor of the file at `parts` below `root`; it does not block at a pipe.

    Raises:
        GKMError: METADATA_MISSING when it is not there, UNSAFE_CONTENT when it is no plain file in plain directories.
        OSError: `root` is no directory.
    """
    path = root.joinpath(*parts)
    # `root` was named by the person who asks: that one may be a link.
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            parent, descriptor = descriptor, os.open(part, flags, dir_fd=descriptor)
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
