"""A disk that is really full: a small tmpfs in a mount namespace of its own.

    python full_disk.py SCENARIO DIRECTORY

Prints what came of it as JSON; an assertion that fails ends it with 1.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gkm.api.config import Config, Registries, RegistryHost, Store, Verification
from gkm.api.nodes import NodeCacheStatus
from gkm.hoststate.names import CacheRef
from gkm.images.cache import CacheImage
from gkm.images.pulling import entry
from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.images import NodeImages
from gkm_agent.store import integrity
from support.agent.fakes import digest_of
from support.agent.node import REF, Node
from support.agent.store_images import files_of, put_image
from support.agent.store_node import SizedImages, bounded, fill, inspector, node_in, tmpfs, want
from support.host import private_mounts
from support.registry.server import Registry as RealRegistry

FREE = Store(min_free_percent=0)
KEEPING = Store(min_free_percent=20, keep_seconds=1e9)
ONE = digest_of("one")
LATER = CacheRef("ml-apps", "later")
CHANGES = {"os.rename", "os.mkdir"}
MANY = 400


class Filler:
    """Fills the disk just before the n-th change below `root`, by whatever thread."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._file = root / "filler"
        self._left = 0
        self.hit = False
        sys.addaudithook(self._hook)

    def arm(self, steps: int) -> None:
        self._left, self.hit = steps, False

    def empty(self) -> None:
        self._left = 0
        self._file.unlink(missing_ok=True)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if self._left <= 0 or not (writes or event in CHANGES):
            return
        if not str(arguments[0]).startswith(self._root):
            return
        self._left -= 1
        if self._left == 0:
            self.hit = True
            fill(self._file)


def status(node: Node, ref: CacheRef = REF) -> NodeCacheStatus:
    node.publisher.write()
    return node.status(ref)


def whole(node: Node) -> bool:
    """Return whether every entry of the store is what its list says."""
    return all(integrity.check(node.layout, digest) is None for digest in node.entries())


def every_write(root: Path) -> dict[str, int]:
    """The disk is full at one write of a real pull after the other, and has room again afterwards."""
    filler = Filler(root / "state")
    reported = tried = 0
    with RealRegistry.start() as registry:
        registries = Registries(hosts={registry.host: RegistryHost(plain_http=True)})
        reference = f"{registry.host}/team/cache:1"
        digest = put_image(registry.store, "team/cache", files_of("one", 20), "1")
        config = Config(verification=Verification(mode="off"), registries=registries)
        for step in range(1, MANY):
            with tmpfs(root / "state", "8m"):
                node = node_in(root)
                node.images = NodeImages.of(config, node.layout)  # type: ignore[assignment]
                bounded(node, FREE)
                node.source.wanted = [WantedCache(REF, reference, digest)]
                filler.arm(step)
                ready = node.settle()
                if not filler.hit:
                    break
                tried += 1
                assert whole(node), step
                if not ready:
                    reported += 1
                    assert (status(node).state, status(node).reason) == ("Failed", "DiskFull"), (step, status(node))
                    assert status(node).next_try, step
                filler.empty()
                assert node.settle() or node.settle(), (step, status(node))
                assert status(node).state == "Ready", step
                assert whole(node), step
                assert not list(node.layout.work.iterdir()), step
    return {"tried": tried, "reported": reported}


def declared_later(root: Path) -> dict[str, int]:
    """Nothing at all can be written when a cache is declared: that is said, and is over when there is room."""
    with tmpfs(root / "state", "4m,nr_inodes=200"):
        node = node_in(root)
        bounded(node, FREE)
        want(node, "llama")
        assert node.settle()
        fill(node.layout.state / "filler")
        _take_inodes(node.layout.state)
        want(node, "llama", "later")

        assert not node.settle()
        said = status(node, LATER)
        assert (said.state, said.reason) == ("Failed", "DiskFull"), said
        assert "the pointer was not written" in said.message, said
        assert said.next_try
        assert not node.layout.pointer(LATER).exists()
        assert status(node).state == "Ready"
        writes = len(node.sink.writes)
        node.settle()
        assert status(node, LATER) == said
        assert len(node.sink.writes) == writes, "the object was written without a change"

        _give_back(node.layout.state)
        assert node.settle() or node.settle(), status(node, LATER)
        assert status(node, LATER).state == "Ready"
    return {}


def unwanted_goes(root: Path) -> dict[str, int]:
    """Without a free byte or inode, what nobody wants can still be collected, and that is what mends it."""
    with tmpfs(root / "state", "4m,nr_inodes=200"):
        node = node_in(root)
        bounded(node, FREE)
        want(node, "llama")
        assert node.settle()
        fill(node.layout.state / "filler")
        _take_inodes(node.layout.state)
        want(node)
        node.settle()
        assert node.entries() == set()
        assert not list(node.layout.trash.iterdir())
    return {}


def damage_on_a_full_disk(root: Path) -> dict[str, int]:
    """Nobody can write that a damaged cache is no longer Ready: then nothing is said of it, and no pod is given it."""
    with tmpfs(root / "state", "4m,nr_inodes=200"):
        node = node_in(root)
        store = bounded(node, FREE)
        node.want("llama", digest=ONE)
        assert node.settle()
        path = node.layout.entry(ONE) / entry.CONTENT / "kernel.cubin"
        path.chmod(0o644)
        path.write_text("x" * path.stat().st_size)
        fill(node.layout.state / "filler")
        _take_inodes(node.layout.state)
        node.now += 90_000
        assert inspector(node, store).step()
        assert not node.layout.pointer(REF).exists()
        assert not node.settle()
        assert status(node).reason == "DiskFull", status(node)
        _give_back(node.layout.state)
        assert node.settle() or node.settle(), status(node)
        assert whole(node)
    return {}


def under_pressure(root: Path) -> dict[str, int]:
    """Below store.minFreePercent what can be fetched again goes first, and nothing new begins until there is room."""
    with tmpfs(root / "state", "16m"):
        node = node_in(root)
        bounded(node, KEEPING)
        want(node, "llama", "other")
        assert node.settle()
        want(node, "llama")
        node.settle()
        assert len(node.entries()) == 2
        blob = node.layout.blobs / ("0" * 16 + "-" + "0" * 64)
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(bytes(1 << 20))
        part = blob.with_name(blob.name + ".part")
        part.write_bytes(bytes(1 << 20))
        old = node.layout.trash / "old"
        old.mkdir()
        node.settle()
        assert len(node.entries()) == 2
        assert blob.exists()

        _leave(node.layout.state, 3 << 20)  # 2 MiB of it come back with the blob and its part, and 20 % are 3.2 MiB
        want(node, "llama")
        node.settle()
        assert not blob.exists()
        assert not old.exists()
        assert len(node.entries()) == 2, "what could be kept was not"

        _leave(node.layout.state, 1 << 20)
        node.settle()
        assert not part.exists()
        assert node.entries() == {digest_of("llama")}
        want(node, "llama", "later")
        assert not node.settle()
        said = status(node, LATER)
        assert (said.state, said.reason) == ("Failed", "DiskFull"), said
        assert f"of {16 << 20} bytes free, of which {(16 << 20) // 5} must stay free" in said.message, said
        assert "fetch" not in [step for step, what in node.images.calls if what == digest_of("later")]
        assert status(node).state == "Ready"

        (node.layout.state / "filler").unlink()
        assert node.settle() or node.settle(), status(node, LATER)
    return {}


def too_large_for_what_must_stay_free(root: Path) -> dict[str, int]:
    """What would bring the disk below store.minFreePercent is not begun."""

    class Large(SizedImages):
        def describe(self, image: str, digest: str) -> CacheImage:
            found = super().describe(image, digest)
            return replace(found, caches=(replace(found.caches[0], size_bytes=14 << 20),))

    with tmpfs(root / "state", "16m"):
        node = node_in(root)
        node.images = Large(node.layout)
        bounded(node, KEEPING)
        want(node, "llama")
        assert not node.settle()
        assert status(node).reason == "DiskFull"
        assert f"{14 << 20} more are needed" in status(node).message, status(node)
        assert "fetch" not in node.images.steps()
    return {}


def _take_inodes(root: Path) -> None:
    for number in range(1000):
        try:
            (root / f"inode-{number}").touch()
        except OSError:
            return
    raise AssertionError("there is no end of inodes")


def _give_back(root: Path) -> None:
    (root / "filler").unlink()
    for path in root.glob("inode-*"):
        path.unlink()


def _leave(root: Path, free: int) -> None:
    """Write so much that `free` bytes are left."""
    disk = os.statvfs(root)
    with (root / "filler").open("ab") as file:
        file.write(bytes(max(0, disk.f_bavail * disk.f_frsize - free)))


SCENARIOS: dict[str, Callable[[Path], dict[str, int]]] = {
    scenario.__name__: scenario
    for scenario in (
        every_write,
        declared_later,
        unwanted_goes,
        damage_on_a_full_disk,
        under_pressure,
        too_large_for_what_must_stay_free,
    )
}

if __name__ == "__main__":
    private_mounts.enter()
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))))
