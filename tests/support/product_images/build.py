"""Builds our container images as users build them (`python -m support.product_images.build`), once, elsewhere.

The Dockerfiles are used as they are. Only their base image is made here, from Debian packages, because a test may not
depend on an image registry. The results are docker-archives for `Cluster.load_image`, in a directory that is named
after a hash of all that goes into them.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.peers import build as peers
from support.peers.missing import Missing
from support.product_images import base_image, pip_outside
from support.product_images.build_steps import Builder, say
from support.product_images.image_store import ImageStore

ROOT = Path(__file__).resolve().parents[3]
PROCESSES = ("agent", "csi", "operator")
TAG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
KEPT = 2
"""Sets of images that stay: each has hundreds of megabytes, and every change of a source makes another."""


def cache_directory() -> Path:
    """Return where images live: beside the partners."""
    return peers.cache_directory().parent / "images"


def archives(architecture: str = "") -> Mapping[str, Path]:
    """Return process name to docker-archive, building what is not there yet.

    For another architecture than this machine's, such as arm64, `support.arm64.programs.enable` comes first.

    Raises:
        Missing: they must be built, and this machine cannot.
        RuntimeError: a build failed; the message holds the end of its log.
    """
    cache = cache_directory()
    target = cache / f"{architecture or 'gkm'}-{_key(_context())}"
    found = {process: target / f"gkm-{process}.tar" for process in PROCESSES}
    if not target.exists():
        check()
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache):
            if not target.exists():
                for unfinished in cache.glob(".b*-*"):  # the lock is held, so its builder was killed
                    shutil.rmtree(unfinished)
                _build(target, base_image.layer(cache, architecture), architecture)
    os.utime(target)  # what was used last is what stays
    return found


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Wait until no other process builds in this cache, and keep others out."""
    with (cache / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(target: Path, make: Callable[[Path], Path]) -> Path:
    """Return `target` in the cache directory; where it is missing, `make` makes it below an empty directory."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent):
            if not target.exists():
                with tempfile.TemporaryDirectory(prefix=".base-", dir=target.parent) as name:
                    make(Path(name)).rename(target)
    return target


def make_base(store: ImageStore, layer: Path, directory: Path, architecture: str = "") -> None:
    """Make the base image of its layer, below a directory that no longer is needed afterwards."""
    context = directory / f"base-{architecture}"
    context.mkdir()
    (context / "Containerfile").write_text(base_image.containerfile(architecture))
    os.link(layer, context / "base.tar")
    store.build(base_image.name(architecture), context, *platform(architecture))


def platform(architecture: str) -> list[str]:
    """Return the options of `buildah build` for an architecture; none for this machine's."""
    return [f"--platform=linux/{architecture}"] if architecture else []


def check() -> None:
    """Check that this machine can build images; raises Missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Missing("building our images needs Linux and root")
    if tools := [tool for tool in ("debootstrap", "buildah", "unshare", "tar") if not shutil.which(tool)]:
        raise Missing(f"building our images needs {', '.join(tools)}: run scripts/debian-packages as root")


def _context() -> list[Path]:
    """Return the files that the Dockerfiles may see, and the Dockerfiles themselves."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    tops = [ROOT / line.removeprefix("!") for line in lines if line.startswith("!")]
    inside = (path for top in tops for path in ([top] if top.is_file() else top.rglob("*")))
    files = [path for path in inside if path.is_file() and "__pycache__" not in path.parts]
    return [ROOT / ".dockerignore", *sorted(ROOT.glob("Dockerfile.*")), *sorted(files)]


def _key(files: Iterable[Path]) -> str:
    digest = hashlib.sha256(base_image.key().encode())
    for path in files:
        digest.update(f"\0{path.relative_to(ROOT)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _build(target: Path, base: Path, architecture: str) -> None:
    cache = target.parent
    with tempfile.TemporaryDirectory(prefix=".build-", dir=cache) as name:
        directory = Path(name)
        made = directory / "made"
        made.mkdir()
        with ImageStore.open(cache / "store", Builder(directory / "log")) as store:
            make_base(store, base, directory, architecture)
            # Mounted and not copied, so nothing of this machine is in the images.
            outside = [f"--volume={volume}" for volume in pip_outside.volumes(directory)]
            for process in PROCESSES:
                # Image names without a registry, as in deploy/base, stand below docker.io/library for containerd.
                image, archive = f"docker.io/library/gkm-{process}:{TAG}", made / f"gkm-{process}.tar"
                file = f"--file={ROOT / f'Dockerfile.{process}'}"
                arguments = (f"--build-arg=BASE={base_image.name(architecture)}", f"--build-arg=VERSION={TAG}")
                store.build(image, ROOT, *platform(architecture), *arguments, *outside, file)
                store.save(image, archive)
                say(f"gkm-{process} has {archive.stat().st_size / 1e6:.0f} MB")
        made.rename(target)
    others = sorted(cache.glob(f"{architecture or 'gkm'}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in others[KEPT:]:
        shutil.rmtree(old)


def main() -> int:
    """Build what is not there yet; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m support.product_images.build", description=__doc__)
    parser.add_argument("--if-possible", action="store_true", help="a machine that cannot build them is no failure")
    optional = parser.parse_args().if_possible
    started = time.monotonic()
    try:
        found = archives()
    except Missing as missing:
        say(str(missing))
        return 0 if optional else 1
    except RuntimeError as problem:
        say(str(problem))
        return 1
    (directory,) = {path.parent for path in found.values()}
    say(f"{len(found)} images ready in {time.monotonic() - started:.0f} s: {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
