"""A machine that runs the real agent: its registry, its signed image, its GPUs by the NVML library for tests."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from gkm.hoststate import pointers
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.reference import Reference
from gkm.images.registries import push
from support.fakes import nvml_library
from support.fakes.nvml_library import H100
from support.host import fork_server
from support.host.fork_server import ForkedProcess
from support.host.waiting import scaled
from support.images.archives import cache_image
from support.registry.clients import plain_client
from support.registry.push import Target
from support.registry.server import Registry as RealRegistry
from support.sigstore.key_signatures import SigningKey, sign_bundle

CACHE = Path(__file__).parents[2] / "data" / "triton-cache"
REPOSITORY = "team/vector-add"
HURRIED = ("-P", str(Path(__file__).with_name("hurried.py")))
"""Arguments of Python for the agent with shorter waits."""
AGENT, HURRIED_AGENT = "gkm_agent.main:main", "support.agent.hurried:main"
"""The agent, and the agent with shorter waits, for a server that forks it."""
REF = CacheRef("ml-apps", "vector-add")


@dataclass
class Machine:
    """A machine without Kubernetes, its registry, its GPUs, and the key it trusts."""

    root: Path
    registry: RealRegistry
    nvml: Path
    key: SigningKey
    digest: str

    def __post_init__(self) -> None:
        self.manifests = self.root / "manifests"
        self.manifests.mkdir()
        self.layout = Layout(self.root / "state", self.root / "run")
        self.gpus(H100)
        configuration = {
            "registries": {"hosts": {self.registry.host: {"plainHTTP": True}}},
            "verification": {"policies": [{"keys": [self.key.public_pem.decode()]}]},
            "store": {"minFreePercent": 0},
        }
        (self.root / "config.yaml").write_text(yaml.safe_dump(configuration))
        self.declare(REF.name)

    def gpus(self, *gpus: nvml_library.Gpu, **machine: Any) -> None:  # noqa: ANN401 -- as the library takes it
        self.variables = nvml_library.environment(self.root, library=self.nvml, gpus=gpus, **machine)

    def declare(self, name: str, kind: str = "GKMCache", tag: str = "1", **spec: object) -> None:
        metadata = {"name": name} | ({"namespace": "ml-apps"} if kind == "GKMCache" else {})
        value = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": {"image": f"{self.registry.host}/{REPOSITORY}:{tag}", **spec},
        }
        (self.manifests / f"{kind}-{name}.yaml").write_text(yaml.safe_dump(value))

    @property
    def log(self) -> Path:
        """The standard error of the agent that `running` started last."""
        return self.root / "agent.log"

    def arguments(self, *more: str) -> list[str]:
        """Return the arguments of the agent."""
        options = {
            "--static": self.manifests,
            "--config": self.root / "config.yaml",
            "--state": self.layout.state,
            "--run": self.layout.run,
            "--node": "node-1",
        }
        return [*(str(part) for pair in options.items() for part in pair), *more]

    def once(self) -> subprocess.CompletedProcess[str]:
        environment = os.environ | self.variables
        return fork_server.server(AGENT, environment).run(self.arguments("--once"), environment, scaled(60))

    @contextmanager
    def running(self, arguments: Sequence[str], program: str = AGENT) -> Iterator[ForkedProcess]:
        """Run the agent until the block ends, and kill it then; `program` is AGENT or HURRIED_AGENT."""
        environment = os.environ | self.variables
        with Path(os.devnull).open("r+b") as nothing, self.log.open("wb") as log:
            process = fork_server.server(program, environment).start(arguments, environment, (nothing, nothing, log))
        try:
            yield process
        finally:
            process.kill()

    def pointer(self, ref: CacheRef = REF) -> Pointer | None:
        return pointers.load(self.layout, ref)

    def node_object(self, scope: str = "ml-apps") -> dict[str, Any]:
        found: dict[str, Any] = yaml.load((self.root / "nodes" / scope / "node-1.yaml").read_text(), yaml.CSafeLoader)
        return found


def machine_in(root: Path, nvml: Path, registry: RealRegistry) -> Machine:
    """Return a machine whose registry holds a real cache, signed by the key it trusts."""
    key = SigningKey()
    client = plain_client(registry.host)
    digest = push.image(client, Reference.parse(f"{registry.host}/{REPOSITORY}:1"), cache_image())
    sign_bundle(Target(registry.host, REPOSITORY), digest, key)
    return Machine(root, registry, nvml, key, digest)


def is_ready(machine: Machine) -> bool:
    pointer = machine.pointer()
    return pointer is not None and pointer.state is CacheState.READY
