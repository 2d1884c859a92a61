"""Pods that run real Triton on a volume: published by the real gkm-csi, then bound into place as a runtime does it."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import grpc
from gkm.hoststate.names import CacheRef
from gkm.images import cache
from gkm.images.local_image import LocalImage
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from gkm_csi.proto import csi_pb2
from support.csi.nodes import NAMESPACE
from support.csi.rig import Rig
from support.host.waiting import until
from support.images.cache_registry import filled
from support.registry.server import Registry
from support.triton.cache import Compiled, compiled

ROOT: tuple[str, ...] = ()
_PLAIN_USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# The interpreter may lie in root's home: this user may read and pass everywhere, and write only where modes let it.
ANOTHER_USER = (*_PLAIN_USER, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
_MAX_BYTES = 1 << 30
_numbers = count()


@dataclass(frozen=True)
class Stored:
    """A cache that is Ready on a node."""

    ref: CacheRef
    content: Path
    """What pods see of its entry in the store."""


def stored(rig: Rig, registry: Registry, image: LocalImage) -> Stored:
    """Push an image and pull it as the agent does: extracted, listed, sealed, and then Ready."""
    site = filled(registry, image)
    return pulled(rig, site.client, site.ref)


def pulled(rig: Rig, client: Client, image: Reference) -> Stored:
    """Pull an image as the agent does: extracted, listed, sealed, and then Ready."""
    entry = pull.fetch(client, cache.describe(client, image), rig.files.layout, max_bytes=_MAX_BYTES)
    ref = CacheRef(NAMESPACE, f"triton-{next(_numbers)}")
    rig.files.pointer(ref, digest=entry.digest, size_bytes=entry.size_bytes)
    return Stored(ref, entry.path / "cache")


@dataclass(frozen=True)
class Pod:
    """A pod whose container sees `volume` at `cache`."""

    rig: Rig
    volume: str
    target: Path
    cache: Path

    @classmethod
    def start(cls, rig: Rig, name: str, *, says_where: bool = True, **attributes: str) -> "Pod":
        """Publish a volume of the cache `name`; with `says_where` its attributes hold the mount path."""
        volume, target = rig.volume()
        seen = rig.files.root / "containers" / volume / "triton-cache"
        seen.mkdir(parents=True)
        where = {"mountPath": str(seen)} if says_where else {}
        rig.client.publish(volume, target, {"cacheName": name, **where, **attributes})
        bound = rig.namespace.run("mount", "--bind", target, seen)
        assert bound.returncode == 0, bound.stderr
        return cls(rig, volume, target, seen)

    def compiles(self, block: int = 128, user: tuple[str, ...] = ROOT) -> Compiled:
        """Have Triton compile a kernel on the volume.

        Raises:
            TritonFailed: with Python's traceback.
        """
        return compiled(self.cache, block, within=self.rig.namespace.command(user))

    @property
    def inside(self) -> Path:
        """Return a path from out here to what the container sees."""
        return self.rig.namespace.inside(self.cache)

    def used(self) -> Mapping[str, int]:
        """Return the bytes and inodes that the private layer holds."""
        asked = csi_pb2.NodeGetVolumeStatsRequest(volume_id=self.volume, volume_path=str(self.target))
        answer = self.rig.client.call("NodeGetVolumeStats", asked)
        return {csi_pb2.VolumeUsage.Unit.Name(usage.unit): usage.used for usage in answer.usage}

    def run_as_another(self, script: str) -> str:
        """Run a shell script in the volume as a plain user; return what it complained of."""
        # A container is given the volume itself; out here only root may pass kubelet's directories.
        entered = ("sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", self.cache, *_PLAIN_USER, "sh", "-c", script)
        return self.rig.namespace.run(*entered).stderr

    def end(self) -> Path:
        """End the pod as runtime and kubelet do; return where what it added is kept, if it asked for that."""
        gone = self.rig.namespace.run("umount", self.cache)
        assert gone.returncode == 0, gone.stderr
        until(self._unpublished, f"{self.volume} to go")
        return self.rig.files.layout.captured / self.volume / "content"

    def _unpublished(self) -> bool:
        try:
            self.rig.client.unpublish(self.volume, self.target)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.ABORTED, error.details()
            return False
        return True
