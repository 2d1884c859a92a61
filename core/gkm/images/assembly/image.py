"""Build the image of cache directories: scan, pack the files through gzip into one layer, describe it with labels.

The layer does not depend on the machine: no times, no owners, two modes. It has MCV's member names, `io.triton.cache/…`
without a leading "./", and the manifest of each cache behind its files.
"""

import re
import tarfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import BLOCK
from gkm.images.archives.compression import deflated
from gkm.images.assembly.contents import CacheContents
from gkm.images.assembly.replacements import replacement
from gkm.images.assembly.selection import with_directories
from gkm.images.assembly.several import image_labels
from gkm.images.assembly.tree import walk
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import MOUNT_PATH_LABEL, host_platform
from gkm.images.configuration import OCI_LAYER, assemble_image, encode_config
from gkm.images.local_image import ByteCounter, LocalImage, ProgressCallback, StreamHasher, write_blob
from gkm.images.manifest import Descriptor
from gkm.runtimes import Runtime
from gkm.runtimes.placement import directory_of
from gkm.runtimes.vllm import FACTORS

TITLE = "org.opencontainers.image.title"
_LAYER_FILE = "layer.tar.gz"
_MAX_LISTED = 8
_DIRECTORY_MODE, _FILE_MODE, _EXECUTABLE_MODE = 0o755, 0o644, 0o755
_MAX_OCTAL_SIZE = 8**11 - 1
"""POSIX.1-2017, pax, ustar Interchange Format: a size has eleven octal digits."""
_VARIABLE = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BaseLayers:
    """The layers of a base image in order, each with the digest of its unpacked bytes.

    `files` are the paths in them. A path is relative to the content of a store entry.
    """

    layers: tuple[Descriptor, ...]
    diff_ids: tuple[str, ...]
    files: frozenset[str] = frozenset()


def pack(
    caches: Sequence[CacheContents],
    title: str,
    work: Path,
    *,
    versions: DependencyVersions,
    report: ProgressCallback = lambda _done, _of: None,
    base: BaseLayers | None = None,
    mount_path: str = "",
) -> LocalImage:
    """Return the image of scanned caches, one of each runtime; the same files give the same digest.

    The manifest has one layer and OCI types: every version of MCV reads those, an OCI layout requires them, and every
    registry accepts them.

    Args:
        caches: the contents of the directories that the variables of the runtimes named. No program may write to
            them meanwhile.
        title: the title of the image: the base name of its repository.
        work: a directory of the caller, without a layer as yet; it must exist until the image is stored.
        versions: versions from the user of the programs that wrote the cache.
        report: called with the packed bytes and the total for every piece; an exception from it ends the build.
        base: layers that the image has before its own, which then holds the other files, and the manifests of all.
            The image has the bytes of its own layer only.
        mount_path: the path that the files name; "" for the path where they were compiled.

    Raises:
        GKMError: METADATA_INVALID when the user states another version than the kernels, CONTENT_MISMATCH when a
            program writes to the cache, TOO_LARGE when no node would accept it.
        OSError: it cannot be read, or a disk operation failed.
    """
    base = base or BaseLayers((), ())
    unpacked = StreamHasher()
    layer = write_blob(deflated(unpacked.through(_tar(caches, base.files, report))), work / _LAYER_FILE, OCI_LAYER)
    for cache in caches:
        versions = versions.with_triton(cache.triton)
    stated = {MOUNT_PATH_LABEL: mount_path} if mount_path else {}
    labels = {**image_labels(caches), **versions.labels, **stated, TITLE: title}
    config = encode_config(host_platform(), labels, [*base.diff_ids, unpacked.digest])
    return assemble_image(config, [layer], labels, base.layers)


def _tar(caches: Sequence[CacheContents], present: Collection[str], report: ProgressCallback) -> Iterator[bytes]:
    count = ByteCounter(report, sum(cache.size_bytes for cache in caches))
    names = [cache.format.value for cache in caches]
    for cache in caches:
        place = directory_of(cache.format.value, names)
        prefix = f"{place}/" if place else ""
        inside = (path.removeprefix(prefix) for path in present if path.startswith(prefix))
        yield from _members(cache, with_directories(inside), count)
    yield bytes(2 * BLOCK)


def _members(contents: CacheContents, present: Collection[str], count: ByteCounter) -> Iterator[bytes]:
    """Yield the members of a cache without the files and directories that are `present` in earlier layers."""
    before = count.done
    root = contents.format.content_directory
    directories = {""}
    for entry in walk(contents.directory, contents.selection):
        name = f"{root}/{entry.path}"
        if entry.directory:
            directories.add(entry.path)
        if entry.path in present:
            count.add(entry.size)
            continue
        if entry.directory:
            yield _header(name, tarfile.DIRTYPE, 0, _DIRECTORY_MODE)
            continue
        mode = _EXECUTABLE_MODE if entry.executable else _FILE_MODE
        replaced = replacement(contents, entry)
        size = entry.size if replaced is None else len(replaced)
        yield _header(name, tarfile.REGTYPE, size, mode)
        yield from count.through(entry.pieces() if replaced is None else [replaced])
        yield bytes(-size % BLOCK)
    for path in missing_directories(contents.selection.runtime, directories):
        yield _header(f"{root}/{path}", tarfile.DIRTYPE, 0, _DIRECTORY_MODE)
    if (packed := count.done - before) != contents.size_bytes:
        raise GKMError(
            Reason.CONTENT_MISMATCH,
            f"{contents.directory} had {contents.size_bytes} bytes, then {packed}: a program writes to it",
            "build when no program writes to the cache",
        )
    yield _header(contents.format.manifest_path.rpartition("/")[0], tarfile.DIRTYPE, 0, _DIRECTORY_MODE)
    yield _header(contents.format.manifest_path, tarfile.REGTYPE, len(contents.manifest), _FILE_MODE)
    yield contents.manifest + bytes(-len(contents.manifest) % BLOCK)


def missing_directories(runtime: Runtime | None, directories: Collection[str]) -> list[str]:
    """Return the directories that the runtime creates at each start, even on a read-only mount, and the cache lacks."""
    wanted = {
        f"{parent}/{name}".lstrip("/")
        for pattern, name in (runtime.empty if runtime else ())
        for parent in directories
        if re.fullmatch(pattern, parent, re.ASCII)
    }
    return sorted(wanted.difference(directories))


def _header(name: str, kind: bytes, size: int, mode: int) -> bytes:
    """Return the header of a member, as tarfile writes it.

    tarfile takes 25 µs for each of thousands; most differ in the name, the size and the checksum only.
    """
    if kind == tarfile.DIRTYPE:
        name += "/"
    if len(name) > tarfile.LENGTH_NAME or not name.isascii() or size > _MAX_OCTAL_SIZE:
        return _tarfile_header(name, kind, size, mode)  # with a record of PAX
    block = bytearray(_tarfile_header("", kind, 0, mode))
    block[: len(name)] = name.encode()
    block[124:136] = b"%011o\0" % size
    block[148:156] = b" " * 8  # the checksum counts itself as spaces
    block[148:155] = b"%06o\0" % sum(block)
    return bytes(block)


@lru_cache(maxsize=8)
def _tarfile_header(name: str, kind: bytes, size: int, mode: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.mode = kind, size, mode
    return member.tobuf(tarfile.PAX_FORMAT)


def warnings(contents: CacheContents) -> list[str]:
    """Return warnings for the user about a cache before it is packed."""
    return [_secrets_warning(contents.secrets)] if contents.secrets else []


def _secrets_warning(names: Sequence[str]) -> str:
    listed = ", ".join(name if _VARIABLE.fullmatch(name) else ascii(name[:64]) for name in names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (
        f"{FACTORS} holds {listed}{more}: the image has null in their place; compile without secrets in the "
        "environment, and replace the secrets that others could read there"
    )
