"""Kernels of Debian for arm64, by the size of their pages: an arm64 node may have pages of 4, 16 or 64 KiB."""

import lzma
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.arm64 import packages
from support.product_images import build as product_images
from support.product_images.build_steps import Builder, Step

SUITE = "trixie"
"""Its kernel maps the ids of a tmpfs (Linux 6.3), which pods in user namespaces need; that of bookworm does not."""
PACKAGES = {4: "linux-image-cloud-arm64", 16: "linux-image-arm64-16k"}
"""KiB of a page to the package that depends on its newest kernel. Debian has no kernel with 64 KiB."""


@dataclass(frozen=True)
class Kernel:
    """The kernel, and its module for overlays."""

    image: Path
    overlay: Path


def kernel(page_kib: int) -> Kernel:
    """Return a kernel, which is downloaded once.

    Raises:
        RuntimeError: it could not be; the message holds the end of the log.
    """
    cache = product_images.cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"kernel-arm64-{SUITE}-{page_kib}k"
    with product_images.locked(cache):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".base-", dir=cache) as name:
                _download(PACKAGES[page_kib], Path(name)).rename(target)
    return Kernel(target / "vmlinuz", target / "overlay.ko")


def _download(package: str, directory: Path) -> Path:
    builder = Builder(directory / "log")
    unpacked, kept = directory / "unpacked", directory / "kept"
    # The package with a version in its name has the files; the other one depends on it.
    (file,) = (
        path
        for path in packages.fetch([package], SUITE, directory / "fetched", builder)
        if re.match(r"linux-image-[0-9]", path.name)
    )
    builder.run(Step(package, ["dpkg-deb", "--extract", str(file), str(unpacked)]))
    kept.mkdir()
    (image,) = unpacked.glob("boot/vmlinuz-*")
    image.rename(kept / "vmlinuz")
    (module,) = unpacked.glob("usr/lib/modules/*/kernel/fs/overlayfs/overlay.ko.xz")
    (kept / "overlay.ko").write_bytes(lzma.decompress(module.read_bytes()))
    return kept
