"""Where `make demo` lives: a directory, a registry, a key, and our own processes started in it as a person would."""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.csi.client import CSIClient
from support.fakes import nvml_library
from support.host.processes import Process
from support.host.waiting import scaled, until
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey

from demo.story import StoryBroken, expect

NAMESPACE = "ml-apps"


@dataclass(frozen=True)
class Place:
    """Where the demo lives, and its parts."""

    directory: Path
    registry: Registry
    key: SigningKey
    library: Path

    @property
    def manifests(self) -> Path:
        """Return the directory that the agents read caches from."""
        return self.directory / "manifests"

    @property
    def image(self) -> str:
        """Return the name of the image, without a tag."""
        return f"{self.registry.host}/{NAMESPACE}/vector-add"

    def gkm(self, *arguments: object) -> Any:  # noqa: ANN401 -- JSON is what it is
        """Run the command line and return its JSON."""
        words = [sys.executable, "-m", "gkm_cli.main", *map(str, arguments), "--plain-http", "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=scaled(60), check=False)  # noqa: S603 -- our own words
        expect(done.returncode == 0, f"gkm {' '.join(map(str, arguments))}: {done.stderr or done.stdout}")
        return json.loads(done.stdout)

    def declare(self, name: str, reference: str) -> None:
        """Write a GKMCache where `kubectl apply` would send it to an API server."""
        cache = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"image": reference},
        }
        self.manifests.mkdir(exist_ok=True)
        (self.manifests / f"{name}.yaml").write_text(yaml.safe_dump(cache))

    def agent(self, stack: ExitStack, node: str, gpu: nvml_library.Gpu) -> Process:
        """Start an agent whose machine has this GPU."""
        home = self.directory / node
        home.mkdir()
        config = {
            "verification": {"policies": [{"keys": [self.key.public_pem.decode()]}]},
            "store": {"minFreePercent": 0},
            "registries": {"hosts": {self.registry.host: {"plainHTTP": True}}},
        }
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        machine = nvml_library.environment(home, library=self.library, gpus=[gpu])
        options: list[str | Path] = [
            "--static",
            self.manifests,
            "--status",
            home / "nodes",
            "--config",
            home / "config.yaml",
        ]
        where: list[str | Path] = ["--state", home / "state", "--run", home / "run", "--node", node]
        words = [sys.executable, "-m", "gkm_agent.main", *options, *where]
        process = Process.start(f"gkm-agent on {node}", words, home / "agent.log", machine)
        stack.callback(process.stop)
        return process

    def state(self, node: str, cache: str, *wanted: str) -> Mapping[str, Any]:
        """Wait for a state of a cache on a node, and return what the node object says of it."""
        path = self.directory / node / "nodes" / NAMESPACE / f"{node}.yaml"

        def said() -> Mapping[str, Any] | None:
            if not path.exists():
                return None
            status = yaml.load(path.read_text(), yaml.CSafeLoader)["status"]["caches"].get(cache)
            return status if status and status["state"] in wanted else None

        try:
            return until(said, f"{cache} to be {' or '.join(wanted)} on {node}", 30.0)
        except TimeoutError as late:
            raise StoryBroken(f"{late}; the node says: {path.read_text() if path.exists() else 'nothing'}") from late

    def csi(self, stack: ExitStack, node: str) -> CSIClient:
        """Start the CSI driver beside the agent of `node` and return a client of its socket."""
        home = self.directory / node
        kubelet = home / "kubelet"
        kubelet.mkdir()
        words: list[str | Path] = [sys.executable, "-m", "gkm_csi.main", "--kubelet", kubelet, "--node", node]
        process = Process.start("gkm-csi", [*words, "--state", home / "state", "--run", home / "run"], home / "csi.log")
        stack.callback(process.stop)
        client = CSIClient(kubelet / "plugins" / "csi.gkm.io" / "csi.sock")
        stack.callback(client.close)
        process.ready(client.answers, "its socket answers", 30.0)
        return client
