"""Ways to bring one kernel cache to pods: GKM, an image that containerd unpacks (baked, image volume), a copy a pod.

The cache is Triton's, 116 times (over 14,000 files, over 1 GB), as `gkm cache build` packs it; the registry is olareg
on loopback, the file system a tmpfs, so the figures are what the programs cost, not the disk or the network. A copy is
what an init container does that fills an emptyDir from a volume claim. Last, what a hit spares: Triton compiles one
kernel that adds two vectors, and then finds it. Needs root, containerd and ctr.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from figures import Result
from gkm.mounts import overlay
from pull_images import COPIES, DATA
from support.host import private_mounts
from support.host.processes import Process
from support.registry.olareg import Olareg
from support.triton.cache import compiled

RUNS = int(os.environ.get("RUNS", "3"))
SHARED_MEMORY = Path("/dev/shm")


def run() -> Result:
    """Measure all ways."""
    private_mounts.enter()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", dir=SHARED_MEMORY)))
        stack.callback(_unseal, place)
        host = stack.enter_context(Olareg.start(place / "registry")).host
        digest = _push(place, f"{host}/bench/cache")
        rows = [_once(place, f"{host}/bench/cache@{digest}") for _ in range(RUNS)]
    return Result.of(rows)


def _once(place: Path, image: str) -> dict[str, float]:
    task = {"peer": "ours", "host": image.partition("/")[0], "name": "cache", "digest": image.partition("@")[2]}
    entry = place / "entry"
    entry.mkdir()
    words = [
        sys.executable,
        str(Path(__file__).with_name("pull_peer.py")),
        json.dumps(task | {"directory": str(entry)}),
    ]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    figures = {"gkm_pull_s": float(json.loads(said.stdout.splitlines()[-1])["seconds"])}
    with _containerd(place / "containerd") as ctr:
        figures["containerd_pull_and_unpack_s"] = _seconds(lambda: ctr("images", "pull", "--plain-http", image))
    (content,) = entry.glob("state/store/sha256/*/cache")
    figures["copy_for_a_pod_s"] = _seconds(lambda: shutil.copytree(content, place / "copy"))
    figures["read_plain_s"] = _seconds(lambda: _read(place / "copy"))
    with _mounted(content, place) as target:
        figures["read_gkm_s"] = _seconds(lambda: _read(target))
    for directory in (place / "copy", entry, place / "containerd"):
        _unseal(directory)
        shutil.rmtree(directory)
    cache = place / "triton"
    missed, hit = compiled(cache), compiled(cache)
    assert (missed.hit, hit.hit) == (False, True)
    shutil.rmtree(cache)
    return figures | {"triton_compiles_ms": 1000 * missed.seconds, "triton_hits_ms": 1000 * hit.seconds}


def _push(place: Path, name: str) -> str:
    """Make a directory of many caches, and push it as one image; return its digest."""
    one, many = place / "one", place / "many"
    with tarfile.open(DATA) as archive:
        archive.extractall(one, filter="data")
    many.mkdir()
    for entry in {path.parent for path in one.rglob("__grp__*")}:
        for copy in range(COPIES):
            shutil.copytree(entry, many / f"{copy:03d}{entry.name}", dirs_exist_ok=True)
    words = ["cache", "build", str(many), "--image", f"{name}:1", "--push", "--plain-http", "-o", "json"]
    built = subprocess.run([sys.executable, "-m", "gkm_cli.main", *words], capture_output=True, text=True, check=True)
    shutil.rmtree(one)
    shutil.rmtree(many)
    return str(json.loads(built.stdout)["digest"])


@contextmanager
def _containerd(directory: Path) -> Iterator[Callable[..., object]]:
    """Run a containerd of its own; yield ctr."""
    directory.mkdir()
    socket = directory / "socket"
    config = directory / "config.toml"
    config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    where: list[str | Path] = ["--root", directory / "root", "--state", directory / "state", "--address", socket]
    words: list[str | Path] = ["containerd", "--config", config, *where]
    process = Process.start("containerd", words, directory / "log")
    try:
        process.ready(socket.exists, "its socket", 15)
        yield lambda *words: subprocess.run(["ctr", "-a", socket, *words], capture_output=True, text=True, check=True)
    finally:
        process.stop()


@contextmanager
def _mounted(content: Path, place: Path) -> Iterator[Path]:
    """Mount content as the CSI driver does, read-only."""
    target, empty = place / "target", place / "empty"
    target.mkdir(exist_ok=True)
    empty.mkdir(exist_ok=True)
    descriptors = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (content, empty, target)]
    try:
        overlay.mount_read_only(descriptors[:2], descriptors[2], "bench")
        yield target
        subprocess.run(["umount", target], check=True)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _unseal(directory: Path) -> None:
    subprocess.run(["chmod", "-R", "u+w", directory], check=True)


def _read(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            path.read_bytes()


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began
