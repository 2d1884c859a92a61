"""Images on this machine: what is opened has the digests that it states, and nothing else of the disk is in it."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz_images import MEMORY
from gkm.api.errors import GKMError, Reason
from gkm.images.archives.docker_archive import open_archive
from gkm.images.archives.oci_layout import open_layout
from gkm.images.local_image import LocalImage
from gkm.images.manifest import MAX_LAYERS, decode
from msgspec import Struct, json

FOREIGN = b"a file of somebody else"
MAX_UNPACKED = 64 << 20


class Layout(Struct):
    """A layout as a seed: `@config`, `@manifest` and `@layer0` … in it stand for the digests of those parts."""

    mark: Any
    index: Any
    manifest: Any
    config: Any
    layers: list[str]
    links: dict[str, str] = {}
    """{path in the layout: what a symbolic link there leads to}."""


def docker_archive(data: bytes) -> None:
    """What is made lies in the directory for it."""
    with _directory() as directory:
        archive, work = directory / "image.tar", directory / "work"
        archive.write_bytes(data)
        work.mkdir()
        try:
            _check(open_archive(archive, work), directory)
        finally:
            made = [path.relative_to(work).as_posix() for path in work.rglob("*")]
            assert all(name.startswith("layer-") and name.endswith(".tar.gz") for name in made), made
            assert sum(path.stat().st_size for path in work.iterdir()) <= MAX_UNPACKED
            assert archive.read_bytes() == data


def oci_layout(data: bytes) -> None:
    """No link in a layout is followed, whatever it leads to."""
    seed = decode(data, Layout, "seed")
    with _directory() as directory:
        (directory / "foreign").write_bytes(FOREIGN)
        root = directory / "layout"
        try:
            _write(seed, root)
        except (OSError, ValueError) as error:  # a name that no disk takes
            raise GKMError(Reason.NODE_ERROR, "the seed cannot be written") from error
        image = open_layout(root)
        _check(image, root)
        for blob in image.blobs:
            assert FOREIGN not in b"".join(blob.pieces())


def _write(seed: Layout, root: Path) -> None:
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    known: dict[str, str] = {}
    for name, part in [(f"@layer{number}", text) for number, text in enumerate(seed.layers)] + [
        ("@config", seed.config),
        ("@manifest", seed.manifest),
    ]:
        raw = part.encode() if isinstance(part, str) and name.startswith("@layer") else _encoded(part, known)
        digest = hashlib.sha256(raw).hexdigest()
        (blobs / digest).write_bytes(raw)
        known |= {name: f"sha256:{digest}", f"{name}.size": str(len(raw))}
    (root / "oci-layout").write_bytes(_encoded(seed.mark, known))
    (root / "index.json").write_bytes(_encoded(seed.index, known))
    for name, target in seed.links.items():
        path = root / _filled(name, known).replace("sha256:", "")
        if root not in path.parents or ".." in path.parts:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _encoded(part: object, known: dict[str, str]) -> bytes:
    text = json.encode(part).decode()
    for name in known:
        # A size is a number: it stands there as a text of its own.
        text = text.replace(f'"{name}.size"', known.get(f"{name}.size", "0"))
    return _filled(text, known).encode()


def _filled(text: str, known: dict[str, str]) -> str:
    for name, digest in known.items():
        text = text.replace(name, digest)
    return text


def _check(image: LocalImage, below: Path) -> None:
    assert 1 <= len(image.blobs) <= MAX_LAYERS + 1
    for blob in image.blobs:
        raw = b"".join(blob.pieces())
        assert len(raw) == blob.descriptor.size
        assert blob.descriptor.digest == f"sha256:{hashlib.sha256(raw).hexdigest()}"
        if isinstance(blob.source, Path):
            assert below in blob.source.resolve().parents
            assert not blob.source.is_symlink()
    assert all(isinstance(value, str) for value in image.labels.values())


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gkm-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory).resolve()
