"""What the tests of the store start from: a node with bounds, entries of known sizes, a tmpfs that is really full."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

from gkm.api.config import Store
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.images.cache import CacheImage
from gkm.images.pulling import entry
from gkm_agent.caches.model import WantedCache
from gkm_agent.reconcile.reconciler import Reconciler
from gkm_agent.store import integrity
from gkm_agent.store.pointers import PointerStore
from gkm_agent.store.scrubber import Scrubber
from support.agent.fakes import FakeImages, digest_of
from support.agent.node import IMAGE, Node

ENTRY_BYTES = 71
"""Size of what the fake registry's images hold: their own digest."""
ONE = digest_of("one")
FREE = Store(min_free_percent=0)


class SizedImages(FakeImages):
    """Images that say how large they are, as real ones do."""

    def describe(self, image: str, digest: str) -> CacheImage:
        described = super().describe(image, digest)
        return replace(described, caches=tuple(replace(each, size_bytes=ENTRY_BYTES) for each in described.caches))


def bounded(node: Node, bounds: Store) -> PointerStore:
    """Start the node's agent anew with bounds; return its store."""
    node.restart()
    store = PointerStore(node.layout)
    node.agent = Reconciler(
        store=store,
        source=node.source,
        images=node.images,
        gpus=node.watch,
        publisher=node.publisher,
        policy=lambda: node.policy,
        wake=Event(),
        clock=lambda: node.now,
        bounds=bounds,
    )
    return store


def want(node: Node, *names: str) -> None:
    """Want caches whose image is named as they are."""
    node.source.wanted = [WantedCache(CacheRef("ml-apps", name), IMAGE, digest_of(name)) for name in names]


def names_of(node: Node, *names: str) -> set[str]:
    """Return which of these images are in the store."""
    return {name for name in names if digest_of(name) in node.entries()}


def inspector(node: Node, store: PointerStore, interval: float = 3600.0) -> Scrubber:
    """Return an inspector that does not wait between pieces."""
    return Scrubber(store, Event(), interval, clock=lambda: node.now, rate=1e15)


def ready(node: Node) -> PointerStore:
    store = bounded(node, FREE)
    node.want("llama", digest=ONE)
    assert node.settle()
    node.images.calls.clear()
    return store


def content_of(node: Node) -> Path:
    return node.layout.entry(ONE) / entry.CONTENT


def inspected(node: Node, store: PointerStore) -> None:
    """Let the check run until nothing is due, a day later."""
    node.now += 86_400
    looking = inspector(node, store)
    while looking.step():
        pass


def is_whole(node: Node) -> bool:
    return integrity.check(node.layout, ONE) is None


def node_in(root: Path) -> Node:
    layout = Layout(root / "state", root / "run")
    return Node(layout, SizedImages(layout))


@contextmanager
def tmpfs(path: Path, size: str) -> Iterator[None]:
    """Mount a small file system; the caller is in a mount namespace of its own.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    path.mkdir(parents=True, exist_ok=True)
    if libc.mount(b"gkm-test", bytes(path), b"tmpfs", 0, f"size={size}".encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    try:
        yield
    finally:
        libc.umount2(bytes(path), 2)


def fill(path: Path) -> None:
    """Write to `path` until there is no byte left."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for piece in (1 << 16, 1 << 12, 1):
            while _written(descriptor, piece):
                pass
    finally:
        os.close(descriptor)


def _written(descriptor: int, count: int) -> bool:
    try:
        return os.write(descriptor, bytes(count)) > 0
    except OSError:
        return False
