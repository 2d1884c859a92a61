"""A real agent, a real API server, a gate between them, and a token file that can be replaced: nothing is faked."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gkm.hoststate import pointers, records
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHES
from support.agent.api_gate import Gate
from support.agent.machine import HURRIED, REPOSITORY, Machine
from support.cluster.cluster import Cluster
from support.host import listening, pages
from support.host.processes import Process
from support.kube.our_kinds import install, install_agents_rights, status_writer

ACCOUNT, ACCOUNT_NAMESPACE = "gkm-agent", "gkm-system"
LABELS = {"kubernetes.io/hostname": "host-of-agent"}
VERIFIED = {
    "type": "Verified",
    "status": "True",
    "reason": "CosignSuccess",
    "message": "signed",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@dataclass
class Agent:
    """A running agent and what it says of itself."""

    process: Process

    def page(self, name: str) -> tuple[int, str]:
        """Return the status and the text of a page; (0, "") before anybody serves it."""
        found = listening.addresses_of(self.process.pid)
        return pages.fetch(found[0], name) if found else (0, "")

    def heard(self, verb: str, code: str) -> bool:
        """Tell whether a request of this verb was answered so; `none` is no answer."""
        return f'gkm_api_requests_total{{code="{code}",verb="{verb}"}}' in self.page("metrics")[1]


@dataclass
class Site:
    """One namespace of a cluster and one machine; `token` is the file that the agent's kubeconfig names."""

    cluster: Cluster
    machine: Machine
    gate: Gate
    namespace: str

    @property
    def token(self) -> Path:
        return self.machine.root / "token"

    def node(self, name: str) -> None:
        """Register a Node, as its kubelet does."""
        self.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}})

    def issue(self, kind: str, name: str) -> str:
        """Put a token of the agent, bound to an object, into the file, in one step and as an editor does; return it."""
        fresh = self.cluster.objects.token(ACCOUNT, ACCOUNT_NAMESPACE, (kind, name))
        written = self.token.with_suffix(".new")
        written.write_text(f"{fresh}\n")
        written.rename(self.token)
        return fresh

    def issue_for(self, node: str) -> str:
        """Put in a token that is bound to a Node: it dies with it."""
        return self.issue("Node", node)

    def declare(self, *names: str) -> None:
        """Make caches, and say of them what the controller says of a signed image."""
        image = f"{self.machine.registry.host}/{REPOSITORY}:1"
        status = {"image": image, "resolvedDigest": self.machine.digest, "conditions": [VERIFIED]}
        writer = connect(str(status_writer(self.cluster)))
        for name in names:
            metadata = {"name": name, "namespace": self.namespace}
            kind = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache"}
            self.cluster.apply(kind | {"metadata": metadata, "spec": {"image": image}})
            writer.merge(GKMCACHES, name, {"status": status}, self.namespace, subresource="status")

    def delete(self, name: str) -> None:
        self.cluster.objects.delete_patiently("gkmcache", name, self.namespace)

    def object_of(self, node: str) -> dict[str, Any]:
        """Return the object that a node wrote; {} when there is none."""
        return self.cluster.objects.get("gkmcachenode", node, self.namespace)

    def states(self, node: str) -> dict[str, str]:
        """Return {cache: state} as the API server has it."""
        caches = self.object_of(node).get("status", {}).get("caches", {})
        return {name: cache["state"] for name, cache in caches.items()}

    def owners(self, node: str) -> list[tuple[str, str]]:
        """Return (name, uid) of every owner of a node's object."""
        owners = self.object_of(node).get("metadata", {}).get("ownerReferences", [])
        return [(owner["name"], owner["uid"]) for owner in owners]

    def uid(self, node: str) -> str:
        found: str = self.cluster.get("node", node)["metadata"]["uid"]
        return found

    def pointer(self, name: str) -> Pointer | None:
        return pointers.load(self.machine.layout, CacheRef(self.namespace, name))

    def entry(self) -> int:
        """Return what tells the one entry of the store from a second download of it."""
        return self.machine.layout.entry(self.machine.digest).stat().st_ino

    def mount(self, name: str) -> None:
        """Record a volume of a pod, as the CSI process does; kubelet starts pods also without an API server."""
        ref = CacheRef(self.namespace, name)
        record = VolumeRecord("csi-1", "/pods/x/mount", "pod-x", self.namespace, "uid", ref, self.machine.digest, 1, "")
        records.save(self.machine.layout, replace(record, start_time="2026-01-01T00:00:00Z"))

    @contextmanager
    def agent(self, node: str) -> Iterator[Agent]:
        """Run the real agent as this node, through the gate."""
        machine = self.machine
        user: dict[str, object] = {"tokenFile": str(self.token)}
        name = f"{self.namespace}_{node}"
        layout, config = machine.layout, machine.root / "config.yaml"
        places: list[str | Path] = ["--state", layout.state, "--run", layout.run, "--config", config]
        kubeconfig = self.cluster.control_plane.kubeconfig(name, user, server=self.gate.url)
        options: list[str | Path] = ["--kubeconfig", kubeconfig, "--node", node, "--health", "127.0.0.1:0"]
        command = [sys.executable, *HURRIED, *places, *options, "--log-level", "debug"]
        process = Process.start("gkm-agent", command, machine.root / "agent.log", machine.variables)
        try:
            yield Agent(process)
        finally:
            process.stop(40)


@contextmanager
def site(cluster: Cluster, machine: Machine, namespace: str, *nodes: str) -> Iterator[Site]:
    """Make a place for tests of one namespace and these Nodes, and take all of it away again."""
    install(cluster)
    install_agents_rights(cluster)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with Gate.before(cluster.control_plane.port) as gate:
        made = Site(cluster, machine, gate, namespace)
        for node in nodes:
            made.node(node)
        try:
            yield made
        finally:
            for kind in ("gkmcaches", "gkmcachenodes"):
                cluster.objects.delete_every(kind, namespace)
            for node in nodes:
                cluster.objects.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
