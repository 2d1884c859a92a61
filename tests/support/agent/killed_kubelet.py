"""kubelet's side of the kill test: pods that come and go all the while, and look at what they were given."""

import hashlib
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from gkm.hoststate import records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from support.agent.killed_machine import CACHES, FILE_BYTES, FILES, IMAGES
from support.agent.store_images import files_of
from support.csi.driver import Client
from support.host.waiting import until

PODS_AT_ONCE = 4
TRIES = 40
LOOKS = (1, 3, 60)
"""How often a pod looks at its files before it goes."""

START_SECONDS = 60.0


@dataclass
class Kubelet:
    """Publishes and unpublishes until `stop` exists; `digests` are those of the images, in their order."""

    layout: Layout
    directory: Path
    socket: Path
    digests: list[str]
    stop: Path
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> dict[str, object]:
        """Work until told to stop; leave nothing mounted; return what was counted."""
        until(self.socket.exists, "the CSI process to answer", START_SECONDS)
        self._contents = {
            digest: {
                name: hashlib.sha256(data).hexdigest()
                for name, data in files_of(f"image-{number}", FILES, FILE_BYTES).items()
            }
            for number, digest in zip(range(IMAGES), self.digests, strict=True)
        }
        threads = [threading.Thread(target=self._pods, args=(number,)) for number in range(PODS_AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"counts": dict(self.counts), "violations": self.violations}

    def _pods(self, number: int) -> None:
        generator = random.Random(f"{self.seed}-{number}")
        pod = 0
        while not self.stop.exists():
            pod += 1
            try:
                self._pod(f"csi-{number}-{pod}", generator)
            except Exception as error:  # noqa: BLE001 -- it is what the test is after
                self._violation(f"kubelet failed: {error!r}")

    def _pod(self, volume: str, generator: random.Random) -> None:
        target = self.directory / "pods" / volume / "volumes" / "mount"
        target.parent.mkdir(parents=True, exist_ok=True)
        cache = generator.choice(CACHES)
        if self._called("publish", volume, target, cache, TRIES):
            self._count("published")
            # Most pods are short, some outlive several agents: those are the ones that a collection could hurt.
            for _ in range(generator.choice(LOOKS)):
                self._look(volume, target, generator)
                time.sleep(generator.random() * 0.1)
        else:
            self._count("given up")
        if self._called("unpublish", volume, target, cache, 1000):
            self._count("unpublished")
            if target.exists() or records.load(self.layout, volume) is not None:
                self._violation(f"{volume}: something is left after its unpublish")
        else:
            self._violation(f"{volume}: not unpublished")

    def _called(self, call: str, volume: str, target: Path, cache: str, tries: int) -> bool:
        for _ in range(tries):
            try:
                with Client(self.socket) as client:
                    if call == "publish":
                        client.publish(volume, target, {"cacheName": cache})
                    else:
                        client.unpublish(volume, target)
            except grpc.RpcError as error:
                self._count(f"{call} {error.code().name}")
                if call == "publish" and self.stop.exists():
                    return False
                time.sleep(0.02)
            else:
                return True
        return False

    def _look(self, volume: str, target: Path, generator: random.Random) -> None:
        """Hold what a pod sees against its record, and both against the store."""
        try:
            record = records.load(self.layout, volume)
        except UnreadableState as error:
            self._violation(f"{volume}: its record cannot be read: {error}")
            return
        if record is None:
            self._violation(f"{volume}: its record is lost")
            return
        if not self.layout.entry(record.digest).is_dir():
            self._violation(f"{volume}: the entry {record.digest} it mounts was collected")
        expected = self._contents[record.digest]
        name = generator.choice(sorted(expected))
        try:
            found = hashlib.sha256((target / name).read_bytes()).hexdigest()
        except OSError as error:
            found = repr(error)
        self._count("looks")
        if found != expected[name]:
            self._violation(f"{volume}: {name} of {record.digest} is {found}")

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _violation(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)
