"""The CSI process: from start to an answered Probe, memory when idle, and time of publish and unpublish."""

import hashlib
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from figures import Result
from gkm.hoststate import pointers
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from testbed import private_mounts
from testbed.csi_client import CSIClient
from testbed.processes import Process

RUNS = 5
PAIRS = 200
POD = {"pod.name": "server", "pod.namespace": "bench", "pod.uid": "u", "ephemeral": "true"}


def run() -> Result:
    """Measure; the first of the runs warms up and is not counted."""
    private_mounts.enter()
    return Result.of([_once() for _ in range(RUNS + 1)][1:])


def _once() -> dict[str, float]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-")))
        layout = Layout(directory / "state", directory / "run")
        layout.make()
        _ready_cache(layout)
        kubelet = directory / "kubelet"
        kubelet.mkdir()
        where: list[str | Path] = ["--state", layout.state, "--run", layout.run, "--kubelet", kubelet]
        started = time.monotonic()
        process = Process.start(
            "gkm-csi", [sys.executable, "-m", "gkm_csi.main", "--node", "bench", *where], directory / "csi.log"
        )
        stack.callback(process.stop)
        socket = kubelet / "plugins" / "csi.gkm.io" / "csi.sock"
        while not socket.exists():
            time.sleep(0.002)
        client = CSIClient(socket)
        stack.callback(client.close)
        process.ready(client.answers, "Probe is answered")
        ready = time.monotonic() - started
        idle = _rss_mib(process.pid)
        publish, unpublish = _pairs(client, kubelet)
        return {
            "ready_s": ready,
            "idle_rss_mib": idle,
            "rss_after_pairs_mib": _rss_mib(process.pid),
            "publish_p50_ms": median(publish) * 1000,
            "publish_p99_ms": sorted(publish)[len(publish) * 99 // 100] * 1000,
            "unpublish_p50_ms": median(unpublish) * 1000,
        }


def _ready_cache(layout: Layout) -> None:
    digest = f"sha256:{hashlib.sha256(b'bench').hexdigest()}"
    content = layout.entry(digest) / "cache"
    content.mkdir(parents=True)
    (content / "kernel.cubin").write_bytes(bytes(1000))
    ref = CacheRef("bench", "llama")
    pointers.save(layout, Pointer(ref, "registry.example/llama:1", CacheState.READY, digest, size_bytes=1000))


def _pairs(client: CSIClient, kubelet: Path) -> tuple[list[float], list[float]]:
    publish, unpublish = [], []
    for number in range(PAIRS):
        target = kubelet / "pods" / f"p{number}" / "mount"
        target.parent.mkdir(parents=True)
        begun = time.monotonic()
        client.publish(f"csi-{number}", target, POD, {"cacheName": "llama"})
        mounted = time.monotonic()
        client.unpublish(f"csi-{number}", target)
        publish.append(mounted - begun)
        unpublish.append(time.monotonic() - mounted)
    return publish, unpublish


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
