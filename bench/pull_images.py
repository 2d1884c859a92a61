"""The images of the pull bench, made from seeds and pushed to a registry."""

import base64
import hashlib
import io
import json
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gkm.api.config import Registries, RegistryHost
from gkm.images.local_image import LocalBlob
from gkm.images.reference import Reference
from gkm.images.registries import push as pushing
from gkm.images.registries.registry import Registry
from isal import igzip

DATA = Path(__file__).parent.parent / "tests" / "data" / "triton" / "triton-3.9-caches.tar.xz"
COPIES = 116
"""How often the images of full size have Triton's cache: over 14,000 files and over 1 GB."""
RANDOM_FILES = 64
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True)
class Image:
    """One image: digest of its manifest and of its one layer, and how many files it holds."""

    name: str
    digest: str
    layer: str
    files: int


def push(host: str, directory: Path, copies: int, random_bytes: int) -> list[Image]:
    """Make and push both images to `host`/bench: Triton's cache so often, and so many bytes that do not compress."""
    triton, noise = partial(_triton, copies=copies), partial(_random, file_bytes=random_bytes // RANDOM_FILES)
    return [
        _push(host, "triton", _packed(directory / "triton.tar.gz", triton)),
        _push(host, "random", _packed(directory / "random.tar.gz", noise)),
    ]


def built(work: Path, name: str, copies: int) -> str:
    """Push the Triton image as `gkm cache build` makes it from a directory, as `name`:1; return its digest."""
    one, many = work / "one", work / "many"
    with tarfile.open(DATA) as archive:
        archive.extractall(one, filter="data")
    for entry in {path.parent for path in one.rglob("__grp__*")}:
        for copy in range(copies):
            shutil.copytree(entry, many / _key(f"{copy}{entry.name}"), dirs_exist_ok=True)
    words = ["cache", "build", str(many), "--image", f"{name}:1", "--push", "--plain-http", "-o", "json"]
    done = subprocess.run([sys.executable, "-m", "gkm_cli.main", *words], capture_output=True, text=True, check=True)
    shutil.rmtree(work)
    return str(json.loads(done.stdout)["digest"])


def _key(text: str) -> str:
    """Return a key as Triton names the directory of a kernel: another name is no part of a cache."""
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _packed(path: Path, fill: Callable[[tarfile.TarFile], tuple[int, int]]) -> tuple[Path, int, int]:
    opened = igzip.open(str(path), "wb", compresslevel=1)  # type: ignore[no-untyped-call]  # isal's stub leaves it out
    with opened as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        files, size = fill(archive)
    return path, files, size


def _triton(archive: tarfile.TarFile, copies: int) -> tuple[int, int]:
    count = size = 0
    with tarfile.open(DATA) as source:
        members = [(member, source.extractfile(member)) for member in source.getmembers() if member.isfile()]
        contents = [(member.name.split("/", 1)[1], file.read()) for member, file in members if file]
    for copy in range(copies):
        for name, data in contents:
            _add(archive, f"{copy:03d}{name}", data)
            count, size = count + 1, size + len(data)
    return count, size


def _random(archive: tarfile.TarFile, file_bytes: int) -> tuple[int, int]:
    source = random.Random(7)
    for number in range(RANDOM_FILES):
        _add(archive, f"{number:03d}/blob", source.randbytes(file_bytes))
    return RANDOM_FILES, RANDOM_FILES * file_bytes


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(f"io.triton.cache/{name}")
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _push(host: str, name: str, packed: tuple[Path, int, int]) -> Image:
    path, files, size = packed
    ref = Reference.parse(f"{host}/bench/{name}:1")
    client = Registry(Registries(hosts={host: RegistryHost(plain_http=True)}))
    layer = path.read_bytes()
    path.unlink()
    summary = json.dumps({"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]})
    labels = {"cache.triton.image/summary": summary, "cache.triton.image/cache-size-bytes": str(size)}
    config = json.dumps({"config": {"Labels": labels}}).encode()
    digests = [pushing.blob(client, ref, LocalBlob.from_bytes(blob, "")) for blob in (layer, config)]
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digests[1],
            "size": len(config),
        },
        "layers": [
            {
                # Of OCI's own type oras-py would unpack the layer by itself, before the hash is checked.
                "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                "digest": digests[0],
                "size": len(layer),
                "annotations": {TITLE: "layer.tar.gz"},
            }
        ],
    }
    raw = json.dumps(manifest).encode()
    pushing.manifest(client, ref, raw, OCI_MANIFEST)
    return Image(name, f"sha256:{hashlib.sha256(raw).hexdigest()}", digests[0], files)
