"""GKM on one node as bench_peers measures it: the agent's pull, the CSI driver's mount, the agent's removal."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from csi_calls import Caller, Volume
from gkm.hoststate.names import CacheRef
from gkm.images.pulling.blob_files import BlobFiles
from gkm.mounts import syscalls
from gkm_agent.store import pointers
from gkm_agent.store.trash import Trash
from support.csi.nodes import NAMESPACE, NODE, NodeFiles
from support.host.processes import Process

MOUNT_PATH = "/root/.triton/cache"
CACHE = "bench"


@dataclass(frozen=True)
class Pulled:
    """What a pull took: seconds, and CPU seconds of its process, both without the start of the interpreter."""

    seconds: float
    cpu_s: float
    rss_mib: float


@dataclass(frozen=True)
class Node:
    """The files of a node."""

    files: NodeFiles

    @classmethod
    def at(cls, directory: Path) -> "Node":
        """Return a node with all its files below the new directory."""
        files = NodeFiles(directory)
        files.layout.run.mkdir(parents=True)
        syscalls.mount("run", str(files.layout.run), "tmpfs", 0, "")  # as /run of a node
        files.layout.make_directories()
        (files.kubelet / "plugins_registry").mkdir(parents=True)
        return cls(files)

    def close(self) -> None:
        """Unmount what `at` mounted."""
        syscalls.umount2(str(self.files.layout.run), syscalls.MNT_DETACH)

    def pull(self, host: str, digest: str, key: Path) -> Pulled:
        """Verify and pull an image in a process of its own."""
        task = {"peer": "ours", "host": host, "name": "cache", "digest": digest, "key": str(key)}
        words = [sys.executable, str(Path(__file__).with_name("pull_peer.py"))]
        words.append(json.dumps(task | {"directory": str(self.files.root)}))
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the pull failed: {done.stderr[-800:]}")
        said = json.loads(done.stdout.splitlines()[-1])
        self.files.pointer(CacheRef(NAMESPACE, CACHE), digest=digest, size_bytes=1)
        return Pulled(said["seconds"], said["cpu"], said["rss_mib"])

    @contextmanager
    def driver(self) -> Iterator[Caller]:
        """Run gkm-csi."""
        files = self.files
        words: list[str | Path] = [sys.executable, "-m", "gkm_csi.main", "--state", files.layout.state]
        words += ["--run", files.layout.run, "--kubelet", files.kubelet, "--node", NODE]
        words += ["--driver-version-file", files.driver_file]
        process = Process.start("gkm-csi", words, files.root / "csi.log")
        caller = Caller(files.kubelet / "plugins" / "csi.gkm.io" / "csi.sock")
        try:
            process.ready(caller.answers, "Probe is answered")
            yield caller
        finally:
            caller.close()
            process.stop()

    def volume(self, name: str) -> Volume:
        """Return a volume of the pulled cache, with its relocated files."""
        return Volume.of(name, self.files.target(name), {"cacheName": CACHE, "mountPath": MOUNT_PATH})

    def delete(self, digest: str) -> None:
        """Remove the entry as the agent's store does, and the blobs that waited for another image."""
        trash = Trash(self.files.layout.trash)
        assert pointers.move_to_trash(self.files.layout, digest)
        assert trash.is_emptying()
        trash.wait()
        BlobFiles(self.files.layout.blobs).evict_unused()
