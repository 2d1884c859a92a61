"""A cache directory as the one layer of an image, straight from its files through gzip into a file.

Nothing of this machine is in it: no times, no owners, two modes. MCV's entry names: `io.triton.cache/…` without a
leading "./", the manifest last (prior-art/gkm-02-mcv-image-format.md, "Layer").
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import BLOCK
from gkm.images.archives.deflate import deflated
from gkm.images.archives.hashing import StreamHasher
from gkm.images.build.contents import CacheContents
from gkm.images.build.factors_file import redact
from gkm.images.build.tree import walk
from gkm.images.local_image import LocalBlob, ProgressCallback, write_blob

DIRECTORY_MODE, FILE_MODE, EXECUTABLE_MODE = 0o755, 0o644, 0o755


def pack(
    directory: Path, contents: CacheContents, target: Path, media_type: str, report: ProgressCallback
) -> tuple[LocalBlob, str]:
    """Write the layer to the new file `target`; return it, and the digest of what it unpacks to (its diff id).

    Raises:
        GKMError: CONTENT_MISMATCH when the directory is not what it was when `contents` was made, and what `walk` does.
        OSError: it cannot be read, or the disk refused.
    """
    unpacked = StreamHasher()
    blob = write_blob(deflated(unpacked.through(_tar(directory, contents, report))), target, media_type)
    return blob, unpacked.digest


def _tar(directory: Path, contents: CacheContents, report: ProgressCallback) -> Iterator[bytes]:
    done = 0
    for entry in walk(directory):
        name = f"{contents.format.content_directory}/{entry.path}"
        if entry.directory:
            yield _header(name, tarfile.DIRTYPE, 0, DIRECTORY_MODE)
            continue
        mode = EXECUTABLE_MODE if entry.executable else FILE_MODE
        without_secrets = redact(entry)
        size = len(without_secrets.data) if without_secrets else entry.size
        yield _header(name, tarfile.REGTYPE, size, mode)
        for piece in [without_secrets.data] if without_secrets else entry.pieces():
            yield piece
            done += len(piece)
            report(done, contents.size_bytes)
        yield bytes(-size % BLOCK)
    if done != contents.size_bytes:
        raise GKMError(
            Reason.CONTENT_MISMATCH,
            f"{directory} had {contents.size_bytes} bytes, then {done}: something writes to it",
            "build when nothing writes to the cache any more",
        )
    yield _header(contents.format.manifest_path.rpartition("/")[0], tarfile.DIRTYPE, 0, DIRECTORY_MODE)
    yield _header(contents.format.manifest_path, tarfile.REGTYPE, len(contents.manifest), FILE_MODE)
    yield contents.manifest + bytes(-len(contents.manifest) % BLOCK)
    yield bytes(2 * BLOCK)


def _header(name: str, kind: bytes, size: int, mode: int) -> bytes:
    member = tarfile.TarInfo(f"{name}/" if kind == tarfile.DIRTYPE else name)
    member.type, member.size, member.mode = kind, size, mode
    return member.tobuf(tarfile.PAX_FORMAT)
