"""A registry with signed and unsigned images, the configuration that trusts the key, and the operator as a process."""

import copy
import functools
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.chart.deploy_files import rendered
from support.cluster.cluster import Cluster
from support.cluster.policies import until_policies_hold
from support.cluster.rights import until_rights_hold
from support.host.processes import Process
from support.kube import our_kinds
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import Flaw, SigningKey, sign_bundle, sign_legacy

ROOT = Path(__file__).resolve().parents[3]
MAIN = ("-m", "gkm_operator.main")
HURRIED = ("-P", str(Path(__file__).with_name("hurried.py")))
SHORT_GRACE = (*HURRIED, "--short-grace")
SHORT_LEASE = (*HURRIED, "--short-lease")
"""For leaders that a test kills; a leader that must not end has the lease that ships."""
SIZE = 4096
_SUMMARY = json.dumps({"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]})
LABELS = {"cache.triton.image/summary": _SUMMARY, "cache.triton.image/cache-size-bytes": str(SIZE)}


@dataclass(frozen=True)
class Shelf:
    """Images in a registry of the testbed, by name; every one has another digest."""

    registry: Registry
    key: SigningKey
    closed_port: str = "127.0.0.1:1"

    def push(
        self, name: str, *, flaw: Flaw | None = Flaw.NONE, bundle: bool = False, salt: str = ""
    ) -> tuple[str, str]:
        """Push an image `team/<name>:1`, signed, or signed wrongly, or (None) not; return reference and digest."""
        target = Target(self.registry.host, f"team/{name}")
        config = json.dumps({"config": {"Labels": LABELS}, "author": f"{name}{salt}"}).encode()
        digest = target.image([], tag="1", config=config)
        if flaw is not None:
            (sign_bundle if bundle else sign_legacy)(target, digest, self.key, flaw)
        return f"{target}:1", digest

    def sign(self, name: str, digest: str) -> None:
        """Sign an image that is there."""
        sign_legacy(Target(self.registry.host, f"team/{name}"), digest, self.key)

    def config(self, mode: str = "enforce") -> str:
        """Return the configuration that trusts the key for every image."""
        hosts = {host: {"plainHTTP": True} for host in (self.registry.host, self.closed_port)}
        policy = {"images": ["*"], "keys": [self.key.public_pem.decode()]}
        return yaml.safe_dump({"verification": {"mode": mode, "policies": [policy]}, "registries": {"hosts": hosts}})


@contextmanager
def shelf() -> Iterator[Shelf]:
    """Serve images."""
    with Registry.start() as registry:
        yield Shelf(registry, SigningKey())


@contextmanager
def operator(directory: Path, *arguments: str, main: tuple[str, ...] = MAIN) -> Iterator[Process]:
    """Run gkm-operator until the block ends; `main` is HURRIED for shorter waits."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *main, *arguments]
    process = Process.start(arguments[0], command, directory / f"{arguments[0]}.log")
    try:
        yield process
    finally:
        process.stop()


def has_lost_its_lease(controllers: Process) -> bool:
    """Return whether controllers ended because the API server did not answer them for as long as a lease lasts."""
    return controllers.popen.poll() == 1 and "the lease was not renewed in time" in controllers.tail()


def operator_command(*arguments: str) -> list[str]:
    """Return the command line of gkm-operator."""
    return [sys.executable, *MAIN, *arguments]


def refused_requests(log: str) -> list[str]:
    """Return the lines of a log that report a missing right, but for ComputeDomains, whose component is optional."""
    optional = "ComputeDomains not available"
    return [line for line in log.splitlines() if "forbidden" in line.lower() and optional not in line]


def cache(name: str, image: str, namespace: str | None = None, **meta: object) -> dict[str, Any]:
    """Return a GKMCache, or without a namespace a ClusterGKMCache."""
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache" if namespace else "ClusterGKMCache",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **meta},
        "spec": {"image": image},
    }


def node(name: str, caches: Mapping[str, Mapping[str, Any]], namespace: str | None = None) -> dict[str, Any]:
    """Return the object of a node with this report of its caches."""
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCacheNode" if namespace else "ClusterGKMCacheNode",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"nodeName": name},
        "status": {"caches": dict(caches)},
    }


def deployed(cluster: Cluster) -> None:
    """Put crds/ and what the processes need of deploy/base into a cluster, without pods; wait until it is in force."""
    our_kinds.install(cluster)
    cluster.apply(rendered() / "base" / "namespace.yaml")
    left_out = {"Namespace", "ValidatingWebhookConfiguration", "Deployment", "DaemonSet"}
    cluster.apply([document for document in manifests() if document["kind"] not in left_out])
    until_policies_hold(cluster)
    until_rights_hold(cluster)


def manifests() -> list[dict[str, Any]]:
    """Return every object of deploy/base."""
    return _resources(rendered() / "base")


def component(name: str) -> list[dict[str, Any]]:
    """Return every object that a component of deploy/components adds."""
    return _resources(rendered() / "components" / name)


def called_here(configuration: dict[str, Any], port: int, *conditions: dict[str, str]) -> dict[str, Any]:
    """Return a webhook configuration that calls this machine instead of the Service, under further conditions."""
    found = copy.deepcopy(configuration)
    for hook in found["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}"}
        hook["matchConditions"] = [*hook.get("matchConditions", ()), *conditions]
    return found


def _resources(directory: Path) -> list[dict[str, Any]]:
    """Return the objects of a directory, which the caller may change."""
    return copy.deepcopy(_parsed(directory))


@functools.cache
def _parsed(directory: Path) -> list[dict[str, Any]]:
    names = yaml.load((directory / "kustomization.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)["resources"]
    texts = ((directory / name).read_text(encoding="utf-8") for name in names)
    return [document for text in texts for document in yaml.load_all(text, yaml.CSafeLoader)]
