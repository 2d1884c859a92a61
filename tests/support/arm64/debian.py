"""What Debian has for arm64: packages, fetched by this machine's apt without a change of it, and kernels."""

import lzma
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from support.product_images import build as product_images
from support.product_images.build_steps import Builder, Step

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITE = "trixie"
"""Its kernel maps the ids of a tmpfs (Linux 6.3), which pods in user namespaces need; that of bookworm does not."""
KERNELS = {4: "linux-image-cloud-arm64", 16: "linux-image-arm64-16k"}
"""KiB of a page to the package that depends on its newest kernel. Debian has no kernel with 64 KiB."""


def fetch(packages: Sequence[str], suite: str, directory: Path, builder: Builder) -> list[Path]:
    """Return the files of packages of a suite and of all that they depend on; `directory` must not exist.

    Raises:
        RuntimeError: apt failed; the message holds the end of its log. Or this machine's apt knows no mirror of Debian.
    """
    source = f"deb [arch=arm64 signed-by={KEYRING}] {_mirror()} {suite} main\n"
    for name in ("lists/partial", "cache/archives/partial"):
        (directory / name).mkdir(parents=True)
    (directory / "status").touch()
    (directory / "sources").write_text(source)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State": directory,
        "Dir::State::status": directory / "status",
        "Dir::Cache": directory / "cache",
        "Dir::Etc::sourcelist": directory / "sources",
        "Dir::Etc::sourceparts": "-",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    builder.run(Step(f"the list of {suite}'s packages for arm64", [*apt, "update"]))
    install = ["install", "--yes", "--no-install-recommends", "--download-only", *packages]
    builder.run(Step(f"{packages[0]} and others for arm64 (download)", [*apt, *install]))
    return sorted((directory / "cache" / "archives").glob("*.deb"))


def _mirror() -> str:
    """Return the address from which this machine's apt has Debian's packages."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian", "Identifier: Packages"]
    found = subprocess.run(targets, capture_output=True, text=True, check=False).stdout.split()
    if not found:
        raise RuntimeError("apt knows no mirror of Debian on this machine; 'apt-get update' reads those it has")
    return found[0]


def kernel(page_kib: int) -> Path:
    """Return the directory of a kernel: `vmlinuz`, and `overlay.ko`, its module for overlays. It is downloaded once.

    Raises:
        RuntimeError: a step failed; the message holds the end of its log.
    """
    target = product_images.cache_directory() / f"kernel-arm64-{SUITE}-{page_kib}k"
    return product_images.made_once(target, partial(_download, KERNELS[page_kib]))


def _download(package: str, directory: Path) -> Path:
    builder = Builder(directory / "log")
    unpacked, kept = directory / "unpacked", directory / "kept"
    fetched = fetch([package], SUITE, directory / "fetched", builder)
    # The package with a version in its name has the files; the other one depends on it.
    (file,) = (path for path in fetched if path.match("linux-image-[0-9]*"))
    builder.run(Step(package, ["dpkg-deb", "--extract", str(file), str(unpacked)]))
    kept.mkdir()
    (image,) = unpacked.glob("boot/vmlinuz-*")
    image.rename(kept / "vmlinuz")
    (module,) = unpacked.glob("usr/lib/modules/*/kernel/fs/overlayfs/overlay.ko.xz")
    (kept / "overlay.ko").write_bytes(lzma.decompress(module.read_bytes()))
    return kept
