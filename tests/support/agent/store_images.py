"""Small cache images as registries hold them, put straight into the testbed's registry."""

import gzip
import io
import json
import random
import tarfile
from collections.abc import Mapping

from support.registry.push import OCI_CONFIG, OCI_LAYER_GZIP
from support.registry.store import OCI_MANIFEST, Store

SUMMARY = {"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]}


def files_of(seed: str, count: int, size: int = 2000) -> dict[str, bytes]:
    """Return files that are the same for the same seed, and of no other."""
    source = random.Random(seed)
    return {f"{number % 7:02d}/kernel-{number:04d}.cubin": source.randbytes(size) for number in range(count)}


def put_image(store: Store, repository: str, files: Mapping[str, bytes], tag: str | None = None) -> str:
    """Store an image for H100 that holds `files`, in two layers; return its digest."""
    names = sorted(files)
    halves = [names[::2], names[1::2]] if len(names) > 1 else [names]
    layers = [_layer({name: files[name] for name in half}) for half in halves]
    labels = {
        "cache.triton.image/summary": json.dumps(SUMMARY),
        "cache.triton.image/cache-size-bytes": str(sum(map(len, files.values()))),
        "cache.triton.image/entry-count": str(len(files)),
    }
    config = json.dumps({"config": {"Labels": labels}}).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": store.put_blob(repository, config), "size": len(config)},
        "layers": [
            {"mediaType": OCI_LAYER_GZIP, "digest": store.put_blob(repository, layer), "size": len(layer)}
            for layer in layers
        ],
    }
    return store.put_manifest(repository, manifest, tag=tag)


def _layer(files: Mapping[str, bytes]) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"io.triton.cache/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(output.getvalue(), 1, mtime=0)
