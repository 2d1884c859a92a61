"""A node as agent and kubelet prepare it: store entries, pointers, pods' directories. Plain files, no mounts."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import pointers
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm_csi.proto.csi_pb2 import NodePublishVolumeRequest, VolumeCapability
from support.host.sealed import unseal

NODE = "node-7"
NAMESPACE = "ml-apps"


@dataclass(frozen=True)
class NodeFiles:
    """The directories of one node below `root`."""

    root: Path

    @property
    def layout(self) -> Layout:
        return Layout(self.root / "state", self.root / "run")

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"

    @property
    def driver_file(self) -> Path:
        return self.root / "driver-version"

    def entry(self, content: Mapping[str, str]) -> str:
        """Make a store entry, as sealed as the agent makes it, and return its digest."""
        digest = "sha256:" + hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
        cache = self.layout.entry(digest) / "cache"
        if cache.exists():
            return digest
        cache.mkdir(parents=True)
        for name, text in content.items():
            path = cache / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o444)
        for directory in [cache, *(path for path in cache.rglob("*") if path.is_dir())]:
            directory.chmod(0o555)
        return digest

    def pointer(self, ref: CacheRef, state: CacheState = CacheState.READY, **values: str | int) -> Pointer:
        """Write the pointer of a cache."""
        pointer = Pointer(ref, "registry.example/team/cache:1", state, **values)  # type: ignore[arg-type]
        pointers.save(self.layout, pointer)
        return pointer

    def ready(self, name: str = "llama", content: Mapping[str, str] | None = None) -> CacheRef:
        """Make a cache that is Ready, and return its name."""
        ref = CacheRef(NAMESPACE, name)
        digest = self.entry(content or {"kernel/one.cubin": f"kernel of {name}"})
        self.pointer(ref, digest=digest, size_bytes=80415)
        return ref

    def target(self, volume: str) -> Path:
        """Return the target of a volume; kubelet has made its parent."""
        parent = self.kubelet / "pods" / f"uid-{volume}" / "volumes" / "kubernetes.io~csi" / "cache"
        parent.mkdir(parents=True, exist_ok=True)
        return parent / "mount"


@contextmanager
def node_files() -> Iterator[NodeFiles]:
    """Make the directories of a node; their paths are short, because a socket's path has 107 bytes at most."""
    root = Path(tempfile.mkdtemp(prefix="gkm-csi-"))
    try:
        files = NodeFiles(root)
        files.layout.make_directories()
        (files.kubelet / "plugins_registry").mkdir(parents=True)
        yield files
    finally:
        unseal(root)
        shutil.rmtree(root)


def publish_message(volume: str, target: Path, attributes: Mapping[str, str], **pod: str) -> NodePublishVolumeRequest:
    """Return kubelet's request for an inline volume; `pod` overrides name, namespace and uid."""
    told = {"name": "trainer-0", "namespace": NAMESPACE, "uid": f"uid-{volume}"} | pod
    context = dict(attributes) | {f"csi.storage.k8s.io/pod.{key}": value for key, value in told.items()}
    return NodePublishVolumeRequest(
        volume_id=volume,
        target_path=str(target),
        volume_capability=VolumeCapability(
            mount=VolumeCapability.MountVolume(),
            access_mode=VolumeCapability.AccessMode(mode=VolumeCapability.AccessMode.SINGLE_NODE_WRITER),
        ),
        volume_context=context | {"csi.storage.k8s.io/ephemeral": "true"},
    )
