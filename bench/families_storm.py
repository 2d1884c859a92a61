"""Four pods on each of many nodes compile the same kernels for a new kind of GPU, and all end at the same moment.

The nodes are workers of the agent in this process, each with its disk, its name and a real clock; the registry counts
what reaches it. Each kernel is a real one of Triton, and the layer has some 20 kB.
"""

import shutil
import tempfile
import time
from pathlib import Path

from gkm.images.reference import Reference
from support.agent.capturing import CaptureNode, write_key
from support.registry.server import Registry

PODS = 4
SECONDS = 300.0
_FINAL = frozenset({"Announced", "Duplicate"})


def storm(nodes: int) -> dict[str, float]:
    """Return images, uploads of the layer, and the seconds until every capture has ended.

    Raises:
        RuntimeError: a capture was refused, or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory, Registry.start() as registry:
        places = [_node(Path(directory) / f"node-{number}", registry.host) for number in range(nodes)]
        workers = [place.worker(name=place.root.name, clock=time.monotonic) for place in places]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        try:
            while not all(_has_ended(worker.reports()["ml-apps"]) for worker in workers):
                if time.monotonic() - began > SECONDS:
                    raise RuntimeError("a capture did not end")
                time.sleep(0.1)
        finally:
            for worker in workers:
                worker.stop(SECONDS)
        ended = time.monotonic() - began
        announced = {each.image for worker in workers for each in worker.reports()["ml-apps"] if each.image}
        (repository,) = registry.store.repositories.values()
        layers = {
            layer["digest"]
            for image in announced
            for layer in repository.manifests[Reference.parse(image).target].parsed()["layers"]
        }
        sent = [request.path for request in registry.requests if request.method == "PUT" and "uploads" in request.path]
        uploads = sum(any(digest.removeprefix("sha256:") in path for digest in layers) for path in sent)
        return {"storm_images": float(len(announced)), "storm_layer_uploads": float(uploads), "storm_s": ended}


def _node(root: Path, host: str) -> CaptureNode:
    root.mkdir()
    made = CaptureNode(root, host)
    key = root.parent / "cosign.key"
    if not key.exists():
        write_key(key)
    shutil.copy(key, made.key_file)
    for pod in range(PODS):
        made.capture(f"csi-{pod}", family="llama")
    return made


def _has_ended(reports: object) -> bool:
    states = [each.state for each in reports]  # type: ignore[attr-defined]
    if "Refused" in states:
        raise RuntimeError("a capture was refused")
    return len(states) == PODS and set(states) <= _FINAL
