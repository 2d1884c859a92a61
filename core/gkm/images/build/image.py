"""Making an image of a cache directory: find what is in it, pack it, and describe it."""

import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import BLOCK
from gkm.images.archives.deflate import deflated
from gkm.images.build.contents import CacheContents, scan_directory
from gkm.images.build.factors_file import NAME, redact
from gkm.images.build.tree import walk
from gkm.images.build.versions import DependencyVersions
from gkm.images.cache import GpuTarget, host_platform
from gkm.images.configuration import OCI_LAYER, assemble_image, encode_config
from gkm.images.local_image import LocalBlob, LocalImage, ProgressCallback, StreamHasher, write_blob

TITLE = "org.opencontainers.image.title"
_LAYER_FILE = "layer.tar.gz"
_MAX_LISTED = 8
_DIRECTORY_MODE, _FILE_MODE, _EXECUTABLE_MODE = 0o755, 0o644, 0o755
_VARIABLE = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)


def build(
    directory: Path,
    title: str,
    work: Path,
    *,
    stated: Sequence[GpuTarget] = (),
    versions: DependencyVersions | None = None,
    report: ProgressCallback = lambda _done, _of: None,
    warn: Callable[[str], None] = lambda _: None,
) -> LocalImage:
    """Return the image of a Triton or vLLM cache; the same files give the same digest.

    Manifests of one layer and of OCI's types throughout: every MCV reads those, old ones too
    (prior-art/gkm-02-mcv-image-format.md, "Layer"), an OCI layout asks for them, and every registry takes them.

    Args:
        directory: what TRITON_CACHE_DIR or VLLM_CACHE_ROOT pointed to. Nothing may write to it meanwhile.
        title: what the image is called: the base name of its repository.
        work: an empty directory of the caller; the layer is written there, and must stay until the image is stored.
        stated: GPUs that a person names, for a vLLM cache that does not say what it was compiled for.
        versions: what a person states of the programs that made the cache.
        report: told for every piece how many bytes of how many are packed; what it raises ends the build.
        warn: is called with a sentence that a person must read, before anything is packed.

    Raises:
        GKMError: METADATA_MISSING when it is no cache or nothing tells the GPU, METADATA_INVALID when its parts
            contradict each other about the GPU, UNSAFE_CONTENT when it holds links or devices, CONTENT_MISMATCH
            when something writes to it, TOO_LARGE when no node would accept it.
        OSError: it cannot be read, or the disk refused.
    """
    versions = versions or DependencyVersions()
    contents = scan_directory(directory, stated, versions)
    if contents.secrets:
        warn(_secrets_warning(contents.secrets))
    layer, unpacked = _pack(directory, contents, work / _LAYER_FILE, report)
    labels = {**contents.labels, **versions.labels, TITLE: title}
    return assemble_image(encode_config(host_platform(), labels, [unpacked]), [layer], labels)


def _pack(directory: Path, contents: CacheContents, target: Path, report: ProgressCallback) -> tuple[LocalBlob, str]:
    """Write the layer to the new file `target`; return it, and the digest of what it unpacks to (its diff id).

    Raises:
        GKMError: CONTENT_MISMATCH when the directory is not what it was when `contents` was made, and what `walk` does.
        OSError: it cannot be read, or the disk refused.
    """
    unpacked = StreamHasher()
    blob = write_blob(deflated(unpacked.through(_tar(directory, contents, report))), target, OCI_LAYER)
    return blob, unpacked.digest


def _tar(directory: Path, contents: CacheContents, report: ProgressCallback) -> Iterator[bytes]:
    done = 0
    for entry in walk(directory):
        name = f"{contents.format.content_directory}/{entry.path}"
        if entry.directory:
            yield _header(name, tarfile.DIRTYPE, 0, _DIRECTORY_MODE)
            continue
        mode = _EXECUTABLE_MODE if entry.executable else _FILE_MODE
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
    yield _header(contents.format.manifest_path.rpartition("/")[0], tarfile.DIRTYPE, 0, _DIRECTORY_MODE)
    yield _header(contents.format.manifest_path, tarfile.REGTYPE, len(contents.manifest), _FILE_MODE)
    yield contents.manifest + bytes(-len(contents.manifest) % BLOCK)
    yield bytes(2 * BLOCK)


def _header(name: str, kind: bytes, size: int, mode: int) -> bytes:
    member = tarfile.TarInfo(f"{name}/" if kind == tarfile.DIRTYPE else name)
    member.type, member.size, member.mode = kind, size, mode
    return member.tobuf(tarfile.PAX_FORMAT)


def _secrets_warning(names: Sequence[str]) -> str:
    shown = ", ".join(name if _VARIABLE.fullmatch(name) else ascii(name[:64]) for name in names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (
        f"{NAME} holds {shown}{more}: the image has null in their place; compile without secrets in the environment, "
        "and replace those that others could read there"
    )
