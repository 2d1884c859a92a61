"""Stand-ins behind the agent's own Protocols; the store they fill is made by the code that fills the real one."""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from gkm.api.errors import GKMError, Reason
from gkm.api.nodes import NodeStatus
from gkm.api.signers import Signer
from gkm.api.targets import GpuTarget
from gkm.gpus.values import Gpu, Inventory
from gkm.hoststate.layout import Layout
from gkm.images.cache import CacheImage, Format, RuntimeCache
from gkm.images.pulling import entry
from gkm.images.pulling.disk_reservations import DiskReservation
from gkm.images.pulling.entry import FileList, ListedFile, StoreEntry
from gkm.images.pulling.pull import Progress, PullStage
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict
from gkm_agent.caches.model import WantedCache
from gkm_agent.interfaces import NotWritten

H100 = Gpu(0, "cuda", model="NVIDIA H100 80GB HBM3", driver_version="570.86.15", arch="90", warp_size=32)
A100 = Gpu(0, "cuda", model="NVIDIA A100-SXM4-80GB", driver_version="570.86.15", arch="80", warp_size=32)
TRUSTED = Verdict(verified=True, allowed=True, reason=Reason.COSIGN_SUCCESS, message="signed")


def digest_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass
class FakeImages:
    """A registry of images named by their content: `tags` says what a reference names now."""

    layout: Layout
    tags: dict[str, str] = field(default_factory=dict)
    archs: tuple[str, ...] = ("90",)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    """{step: what it raises}, until it is taken out."""
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    """{step: what is called before it}."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    _lock: Lock = field(default_factory=Lock)

    def check_allowed(self, image: str, namespace: str | None) -> None:
        del image, namespace
        if "check" in self.failures:
            raise self.failures["check"]

    def opened_for(self, wanted: WantedCache) -> "FakeImages":
        del wanted
        return self

    def resolve(self, image: str) -> str:
        self._step("resolve", image)
        digest = Reference.parse(image).digest or self.tags.get(image)
        if digest is None:
            raise GKMError(Reason.NOT_FOUND, f"{image} does not exist in its registry")
        return digest

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        self._step("verify", digest)
        del image, namespace
        return self.verdicts.get(digest, TRUSTED)

    def revoked(self, image: str, digest: str, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        del image, digest, namespace, signers
        return None

    def describe(self, image: str, digest: str) -> CacheImage:
        self._step("describe", digest)
        targets = tuple(GpuTarget("cuda", arch, 32) for arch in self.archs)
        ref = Reference.parse(image).pinned(digest)
        return CacheImage(ref, digest, (RuntimeCache(Format.TRITON, targets, None, None),), (), {})

    def fetch(
        self,
        image: CacheImage,
        progress: Progress,
        reservation: DiskReservation | None,  # noqa: ARG002 -- the Protocol's names
    ) -> StoreEntry:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self._fetch(image, progress)
        finally:
            with self._lock:
                self.at_once -= 1

    def _fetch(self, image: CacheImage, progress: Progress) -> StoreEntry:
        present = entry.find(self.layout, image.digest)
        if present is not None:
            return present
        self._step("fetch", image.digest)
        work = Path(tempfile.mkdtemp(dir=self.layout.work))
        try:
            for percent in (0, 50, 100):
                progress(PullStage.DOWNLOADING, percent)
            content = work / entry.CONTENT
            content.mkdir()
            progress(PullStage.EXTRACTING, 0)
            (content / "kernel.cubin").write_text(image.digest)
            listed = ListedFile("kernel.cubin", len(image.digest), hashlib.sha256(image.digest.encode()).hexdigest())
            self._step("publish", image.digest)
            return entry.publish(self.layout, work, FileList(image.digest, "triton", listed.size, [listed]), b"{}")
        finally:
            entry.remove_tree(work)

    def _step(self, step: str, what: str) -> None:
        with self._lock:
            self.calls.append((step, what))
        if step in self.before:
            self.before[step]()
        if step in self.failures:
            raise self.failures[step]

    def steps(self) -> list[str]:
        return [step for step, _ in self.calls]


@dataclass
class FakeSource:
    """The CacheSource of a list."""

    wanted: list[WantedCache] = field(default_factory=list)
    complete: bool = True

    @property
    def synced(self) -> bool:
        return self.complete

    def caches(self) -> list[WantedCache]:
        return list(self.wanted)

    def start(self) -> None:
        """Nothing to watch."""

    def wait(self, seconds: float) -> bool:
        del seconds
        return True

    def stop(self) -> None:
        """Nothing to end."""


@dataclass
class FakeSink:
    """The StatusSink of a dictionary; `away` makes it refuse."""

    held: dict[str | None, NodeStatus] = field(default_factory=dict)
    writes: list[str | None] = field(default_factory=list)
    away: bool = False

    def scopes(self) -> set[str | None]:
        self._check()
        return set(self.held)

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        self._check()
        self.writes.append(scope)
        self.held[scope] = status

    def remove(self, scope: str | None) -> None:
        self._check()
        self.writes.append(scope)
        self.held.pop(scope, None)

    def _check(self) -> None:
        if self.away:
            raise NotWritten("away")


@dataclass
class FakeGpus:
    """What the next reading of the GPUs says."""

    now: Inventory = field(default_factory=lambda: Inventory((H100,)))

    def __call__(self) -> Inventory:
        return self.now
