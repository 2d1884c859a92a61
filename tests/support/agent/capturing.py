"""A node with captures as the CSI process leaves them, and the agent's worker over a real registry and signer."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from gkm.api.config import Capture, CaptureSigning, Config, Registries, RegistryHost
from gkm.api.nodes import CapturedImage
from gkm.gpus.values import Gpu, Inventory
from gkm.hoststate.layout import Layout
from gkm.hoststate.pacing import Backoff
from gkm.images.registries.credentials import PullSecrets
from gkm.images.signing.keys import PrivateKey, encrypted
from gkm_agent.capturing import progress
from gkm_agent.capturing.destination import RegistryDestination
from gkm_agent.capturing.progress import Progress
from gkm_agent.capturing.steps import CaptureSteps
from gkm_agent.capturing.worker import CaptureWorker
from gkm_agent.store.captures import CapturesInUse
from support.agent.fakes import H100

KERNELS = Path(__file__).parents[2] / "data" / "triton-cache"
H100_KERNEL, B200_KERNEL = (
    "22LBKEP6UHWG6XZE534C3DQO5RUUTA4675O65IYNBUPOZHZ3NHCA",
    "4WFROAG7ZKDEBMQS76XHJE2TP3CBMZE7N5MAMKVODZ7MVFAWXN4A",
)
"""Real kernels of Triton for sm_90 and sm_100."""
PASSWORD = b"secret"


class NoSecrets:
    """A cluster without Secrets."""

    def data(self, namespace: str, name: str) -> dict[str, str]:
        raise AssertionError(f"nobody named Secret {namespace}/{name}")


def write_key(path: Path) -> PrivateKey:
    """Write a new private key as `cosign generate-key-pair` does, with PASSWORD, which is as cheap to try as can be."""
    key = PrivateKey.new()
    path.write_bytes(encrypted(key, PASSWORD, scrypt_n=2))
    return key


@dataclass
class CaptureNode:
    """The captures of one node. `registry` is host:port."""

    root: Path
    registry: str
    gpus: tuple[Gpu, ...] = (H100,)
    settings: Mapping[str, object] = field(default_factory=dict)
    password: bytes = PASSWORD
    spare_bytes: int = 1 << 40
    """What captures may take of the disk, whatever this machine's disk has."""
    now: float = 0.0
    place: Layout | None = None
    """Where the captures are; a node of its own below `root` without it."""

    @property
    def layout(self) -> Layout:
        return self.place or Layout(self.root / "state", self.root / "run")

    @property
    def key_file(self) -> Path:
        return self.root / "cosign.key"

    @property
    def config(self) -> Config:
        capture = Capture(
            registry=f"{self.registry}/captured",
            signing=CaptureSigning(key_file=str(self.key_file)),
            bytes_per_second=1 << 30,
            **self.settings,  # type: ignore[arg-type]
        )
        return Config(capture=capture, registries=Registries(hosts={self.registry: RegistryHost(plain_http=True)}))

    def capture(
        self,
        volume: str = "csi-1",
        *,
        namespace: str = "ml-apps",
        digest: str = "",
        kernels: tuple[str, ...] = (H100_KERNEL,),
        copies: tuple[str, ...] = (),
        start_time: str = "2026-01-01T00:00:00Z",
        family: str = "",
    ) -> Path:
        """Leave the real kernels in a volume; return the directory of the files. The pod named `family`.

        `copies` are further directories with the first kernel, so that the content is another one.
        """
        self.layout.make_state_directories()
        place = self.layout.captured / volume
        content = place / "content"
        content.mkdir(parents=True)
        for kernel in kernels:
            shutil.copytree(KERNELS / kernel, content / kernel)
        for copy in copies:
            # Its group file names the directory.
            shutil.copytree(KERNELS / kernels[0], content / copy, ignore=shutil.ignore_patterns("__grp__*"))
        described = {
            "volumeId": volume,
            "podName": "trainer-0",
            "podNamespace": namespace,
            "cacheNamespace": namespace,
            "cacheName": "llama",
            "digest": digest,
            "mountPath": "/cache",
            "files": 7,
            "bytes": 100_000,
            "startTime": start_time,
            "family": family,
        }
        (place / "captured.json").write_text(json.dumps(described))
        return content

    def worker(
        self,
        in_use: CapturesInUse | None = None,
        changed: Callable[[], object] = lambda: None,
        *,
        name: str = "",
        clock: Callable[[], float] | None = None,
    ) -> CaptureWorker:
        """Return a worker as a starting agent has it; its clock is `now`. One with a `name` waits before it pushes."""
        config = self.config
        secrets = PullSecrets(NoSecrets(), config.registries, "gkm-system")
        destination = RegistryDestination(config, secrets, {"COSIGN_PASSWORD": self.password.decode()})
        steps = CaptureSteps(
            self.layout, config.capture, destination, lambda: Inventory(self.gpus), Event(), lambda *_: self.spare_bytes
        )
        return CaptureWorker(
            steps,
            in_use or CapturesInUse(),
            changed,
            node=name,
            clock=clock or (lambda: self.now),
            backoff=Backoff(1.0, 10.0),
        )

    def announced(self, volume: str) -> CapturedImage:
        """Let the worker make images of all captures; return the report of one, of whatever namespace."""
        worker = self.worker()
        worker.make_images()
        (report,) = (each for listed in worker.reports().values() for each in listed if each.volume == volume)
        assert report.state == "Announced", report.message
        return report

    def progress(self, volume: str = "csi-1") -> Progress:
        return progress.load(self.layout.captured / volume)
