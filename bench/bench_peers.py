"""One signed cache image by GKM and by containerd, which unpacks it for an image volume: pull, first mount, deletion.

At full size the image is Triton's cache 116 times (14,848 files, 1.09 GB), as `gkm cache build` packs it, signed by
key; the registry is olareg on loopback. GKM verifies the signature, hashes every file, and publishes the entry only
when it is durable. containerd verifies no signature and hashes no single file, and leaves the unpacked files in the
page cache; `settled` is the time until they are durable. Both sides run by turns in one run, on a tmpfs and on a disk,
each time on empty directories. A mount of containerd includes the start of ctr (`ctr_s`); one of GKM includes the files
that are rewritten for the path of the mount. Needs root, containerd and ctr.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pull_images
from figures import Result
from gkm.hoststate import files, trees
from peers_containerd import Containerd
from peers_gkm import Node
from support.host import private_mounts
from support.registry.olareg import Olareg
from support.registry.push import Target
from support.sigstore.key_signatures import SigningKey, sign_bundle

PLACES = {"tmpfs": Path("/dev/shm"), "disk": Path(tempfile.gettempdir())}


@dataclass(frozen=True)
class PeersSize:
    """How many runs count, how many warm up, and how often the image has Triton's cache."""

    runs: int
    warm_ups: int
    copies: int


FULL = PeersSize(runs=5, warm_ups=1, copies=pull_images.COPIES)
SMALLEST = PeersSize(runs=1, warm_ups=0, copies=1)


@dataclass(frozen=True)
class Image:
    """The image in its registry, and the public key of its signature."""

    host: str
    digest: str
    key: Path


def run(size: PeersSize) -> Result:
    """Measure both on both file systems."""
    private_mounts.enter()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", dir=PLACES["tmpfs"])))
        host = stack.enter_context(Olareg.start(directory / "registry")).host
        digest = pull_images.built(directory / "image", f"{host}/bench/cache", size.copies)
        key = SigningKey()
        sign_bundle(Target(host, "bench/cache"), digest, key)
        (directory / "cosign.pub").write_bytes(key.public_pem)
        image = Image(host, digest, directory / "cosign.pub")
        roots = {name: _spread(stack, place) for name, place in PLACES.items()}
        rows = [_turn(image, roots, number) for number in range(1 - size.warm_ups, size.runs + 1)][size.warm_ups :]
    return Result.of(rows)


def _spread(stack: ExitStack, place: Path) -> Path:
    """Return a new directory whose directories lie in different parts of an ext4 (chattr(1), "T").

    ext4 steps over inodes that were deleted in the last minutes one by one, so that what one turn deletes would cost
    the next ones seconds: more than the pull itself (measured).
    """
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", dir=place)))
    subprocess.run(["chattr", "+T", root], capture_output=True, check=False)
    return root


def _turn(image: Image, roots: Mapping[str, Path], number: int) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, root in roots.items():
        sides = (_gkm, _containerd) if number % 2 else (_containerd, _gkm)
        measured = sides[0](image, root) | sides[1](image, root)
        measured["ratio"] = measured["containerd_pull_s"] / measured["gkm_pull_s"]
        measured["cpu_ratio"] = measured["containerd_pull_cpu_s"] / measured["gkm_pull_cpu_s"]
        row |= {f"{name}_{figure}": value for figure, value in measured.items()}
        shown = ", ".join(f"{figure} {value:.3f}" for figure, value in measured.items())
        sys.stderr.write(f"peers: {name}, {f'run {number}' if number > 0 else 'to warm up'}: {shown}\n")
    return row


def _gkm(image: Image, root: Path) -> dict[str, float]:
    with ExitStack() as stack:
        node = Node.at(_directory(stack, root))
        stack.callback(node.close)
        pulled = node.pull(image.host, image.digest, image.key)
        with node.driver() as driver:
            first, second = node.volume("first"), node.volume("second")
            mount_s = driver.published(first)
            again_s = driver.published(second)
            for volume in (first, second):
                driver.unpublished(volume)
        return {
            "gkm_pull_s": pulled.seconds,
            "gkm_pull_cpu_s": pulled.cpu_s,
            "gkm_rss_mib": pulled.rss_mib,
            "gkm_mount_s": mount_s,
            "gkm_mount_again_s": again_s,
            "gkm_delete_s": _seconds(lambda: node.delete(image.digest)),
        }


def _containerd(image: Image, root: Path) -> dict[str, float]:
    name = f"{image.host}/bench/cache@{image.digest}"
    with ExitStack() as stack:
        directory = _directory(stack, root)
        target = directory / "target"
        target.mkdir()
        containerd = stack.enter_context(Containerd.start(directory / "containerd"))
        cpu_s = containerd.cpu_s()
        pull_s = _seconds(lambda: containerd.pull(name))
        cpu_s = containerd.cpu_s() - cpu_s
        settled_s = _seconds(lambda: files.sync_file_system(directory))
        figures = {
            "containerd_pull_s": pull_s,
            "containerd_pull_cpu_s": cpu_s,
            "containerd_settled_s": pull_s + settled_s,
            "containerd_mount_s": _seconds(lambda: containerd.mount(name, target)),
            "ctr_s": _seconds(lambda: containerd.ctr("version")),
        }
        containerd.unmount(target)
        return figures | {"containerd_delete_s": _seconds(lambda: containerd.delete(name))}


def _directory(stack: ExitStack, root: Path) -> Path:
    """Return a new directory; what earlier turns left to write is written before."""
    directory = Path(tempfile.mkdtemp(dir=root))
    stack.callback(trees.remove, directory)
    os.sync()
    return directory


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began
