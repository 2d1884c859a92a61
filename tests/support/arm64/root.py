"""A root file system for arm64 with the locked environment, in which our sources and tests run; made once.

Packages and wheels are unpacked by programs of this machine, so no step is emulated. No script of a package runs: the
root has what programs and libraries need, and no accounts but root.
"""

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from support.arm64 import debian
from support.product_images import base_image
from support.product_images import build as product_images
from support.product_images.build_steps import Builder, Step

PACKAGES = (
    *("python3", "gcc", "libc6-dev", "kmod", "iproute2"),
    *("bash", "coreutils", "dash", "findutils", "grep", "libc-bin", "mount", "sed", "util-linux"),
)
PYTHON = "3.11"
"""Of Debian bookworm, as in our images."""
SITE = "usr/local/lib/python3.11/dist-packages"
SOURCE = "/src"
"""The checkout in the root."""
PATHS = ("core", "agent", "csi", "operator", "cli", "tests", "scripts", "bench")
"""Directories of the checkout that Python searches, whatever the environment of a process is."""
LOCK = product_images.ROOT / "requirements.lock"
MERGED = ("bin", "sbin", "lib")
"""Directories that are links into usr on each Debian since bookworm; packages still name both."""
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "usr/bin/gkm": "#!/usr/bin/python3\nimport sys\nfrom gkm_cli.__main__ import main\nsys.exit(main())\n",
}
"""Files that scripts of packages and pip would write."""
_OTHER_MACHINES = re.compile(r"(?m)^\S+==\S+ ;[^\n]*platform_machine == 'x86_64'[^\n]*\n(?: +[^\n]*\n)*")
_PLATFORMS = tuple(f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28, 34, 35))
_PIP = (
    *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--require-hashes"),
    "--ignore-requires-python",  # the version of --python-version has no patch, and the lock was made for all
    *("--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON, *_PLATFORMS),
    "--platform=manylinux2014_aarch64",
)
# Bytecode has no architecture: this machine writes it in seconds. An interpreter of another version ignores it.
_COMPILE = (sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")


def archive() -> Path:
    """Return the cpio archive of the root, making it where it is missing.

    Raises:
        RuntimeError: a step failed; the message holds the end of its log.
    """
    return product_images.made_once(product_images.cache_directory() / f"root-arm64-{_key()}.cpio", _make)


def packing(directory: Path, archive: Path) -> str:
    """Return the shell command that appends a directory to a cpio archive; a kernel unpacks several in one file."""
    return f"cd {shlex.quote(str(directory))} && busybox find . | busybox cpio -o -H newc >>{shlex.quote(str(archive))}"


def unpack(directory: Path) -> None:
    """Unpack the root into an empty directory (root)."""
    with archive().open("rb") as packed:
        subprocess.run(["busybox", "cpio", "-idm"], cwd=directory, stdin=packed, stderr=subprocess.DEVNULL, check=True)


def copy_checkout(directory: Path) -> None:
    """Make a directory with our files: those that are not committed too, and without what was built here."""
    directory.mkdir(parents=True)
    copying = 'git -C "$0" ls-files -z -co --exclude-standard | tar -C "$0" --null -cT - | tar -xC "$1"'
    subprocess.run(["bash", "-euo", "pipefail", "-c", copying, str(product_images.ROOT), str(directory)], check=True)


def locked_for_arm64(lock: str) -> str:
    """Return a lock without the distributions of x86_64 alone: pip reads the markers of its own machine."""
    return _OTHER_MACHINES.sub("", lock)


def _key() -> str:
    made_of = f"{PACKAGES} {sys.version_info[:2]}".encode()
    return hashlib.sha256(made_of + LOCK.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]


def _make(directory: Path) -> Path:
    for old in directory.parent.glob("root-arm64-*"):
        old.unlink()
    builder = Builder(directory / "log")
    root, fetched, lock = directory / "root", directory / "fetched", directory / "lock"
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in debian.fetch(PACKAGES, base_image.SUITE, fetched, builder):
        # dpkg-deb alone would replace the links by directories.
        unpack = 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1"'
        subprocess.run(["bash", "-euo", "pipefail", "-c", unpack, str(package), str(root)], check=True)
    lock.write_text(locked_for_arm64(LOCK.read_text(encoding="utf-8")), encoding="utf-8")
    site = str(root / SITE)
    builder.run(Step("its environment (pip)", [*_PIP, "--target", site, "--requirement", str(lock)]))
    builder.run(Step("its bytecode", [*_COMPILE, site]))
    (root / SITE / "gkm.pth").write_text("".join(f"{SOURCE}/{name}\n" for name in PATHS), encoding="ascii")
    for name, text in FILES.items():
        (root / name).write_text(text, encoding="ascii")
    (root / "usr/bin/gkm").chmod(0o755)
    for unused in base_image.UNUSED:
        shutil.rmtree(root / unused, ignore_errors=True)
        (root / unused).mkdir(parents=True)
    made = directory / "root.cpio"
    builder.run(Step("its archive", ["sh", "-c", packing(root, made)]))
    return made
