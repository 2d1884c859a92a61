"""Every process of GKM as its own ServiceAccount, under the shipped rights and policies, with an audit log.

The processes run beside the API server instead of in pods. The agent belongs to a Node that exists only by name: it
mounts and measures on this machine, as in tests/unit/agent.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from gkm.images.signing.keys import PrivateKey, encrypted
from support.agent.machine import HURRIED as HURRIED_AGENT
from support.agent.machine import REPOSITORY, Machine, machine_in
from support.cluster.audit import Audit
from support.cluster.audited_cluster import audited_cluster
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import cache, namespace
from support.cluster.objects import RequestFailed
from support.cluster.rights import until_rights_hold
from support.fakes import nvml_library
from support.host import pages, ports
from support.host.processes import Process
from support.operator.deployment import HURRIED, MAIN, ROOT, called_here, component, manifests
from support.operator.domain_cluster import any_kind, install_kinds
from support.operator.rights import SYSTEM, sample
from support.operator.seen import NODE, TEAM, Seen
from support.registry.server import Registry

SECRET, WEBHOOKS = "registry", "gkm-caches"
WEBHOOK_KIND = "ValidatingWebhookConfiguration"
NOT_RUN_HERE = frozenset({"Deployment", "DaemonSet", "Service", "PodDisruptionBudget", WEBHOOK_KIND})
WEBHOOK_KINDS, COMPONENTS = ("mutating", "validating"), ("gkm-domains", "gkm-task-groups")
POD_GROUPS = ("scheduling.run.ai", "scheduling.volcano.sh", "scheduling.x-k8s.io")
"""The groups with a kind PodGroup that templates may create by default."""
SURVEYED = ROOT / "tests" / "data" / "fabric" / "ibnetdiscover-40-switches.out"
Json = dict[str, Any]
SHARED = "shared"
"""A namespace whose captures are for the cluster."""
TOPOLOGY: Json = {
    "levels": [{"name": "rack", "keys": ["rack"]}],
    "providers": [{"name": "labels"}, {"name": "infiniband"}],
    "hyperNodes": {"enabled": True},
    "nodeLabels": True,
    "kueue": "racks",
    "kai": "racks",
}

CONFIGURATIONS: tuple[str, ...] = (
    f"--webhook-configuration={WEBHOOKS}",
    *(f"--webhook-configuration={kind}/{name}" for kind, name in product(WEBHOOK_KINDS, COMPONENTS)),
    "--webhook-configuration=mutating/gkm-pod-caches",
)
"""The flags of admission, and of the controllers."""


@dataclass
class Accounts:
    """A control plane, a machine, and the processes that were started on it, by name."""

    cluster: Cluster
    audit: Audit
    machine: Machine
    stack: ExitStack
    webhook_port: int = field(default_factory=ports.free)
    processes: dict[str, Process] = field(default_factory=dict)
    address: Callable[[str], str] = lambda _: "127.0.0.1:0"
    """Where a process of that name serves its metrics."""

    @property
    def image(self) -> str:
        return f"{self.machine.registry.host}/{REPOSITORY}:1"

    @property
    def seen(self) -> Seen:
        return Seen(self.cluster, self.machine)

    @property
    def token(self) -> Path:
        """The file that the agent's kubeconfig names, as the one that kubelet keeps fresh in a pod."""
        return self.machine.root / "token"

    def install(self) -> None:
        """Apply crds/, deploy/base, all components and the sample; webhooks are called on this machine."""
        self.cluster.apply(ROOT / "crds")
        self.cluster.apply([any_kind(group, "v1", "PodGroup") for group in POD_GROUPS])
        install_kinds(self.cluster)
        install_topology_kinds(self.cluster)
        spaces, documents = [namespace(name) for name in (SYSTEM, TEAM, SHARED)], [*manifests(), *sample()]
        found = [document for document in documents if document["kind"] not in NOT_RUN_HERE]
        self.cluster.apply([*spaces, *found, self._pull_secret()])
        self.configure_webhook()
        added = [*component("domains"), *component("task-groups")]
        added += [*component("topology"), *component("topology-labels"), *component("pod-caches")]
        added += [one for one in component("topology-infiniband") if one["kind"] not in NOT_RUN_HERE]
        self.cluster.apply([called_here(one, self.webhook_port) if "webhooks" in one else one for one in added])
        until_rights_hold(self.cluster)

    def configure_webhook(self) -> None:
        """Apply the webhook configuration as a person does, who knows no CA."""
        found = next(one for one in manifests() if one["kind"] == WEBHOOK_KIND)
        url = f"https://127.0.0.1:{self.webhook_port}/validate"
        hooks = [hook | {"clientConfig": {"url": url, "caBundle": None}} for hook in found["webhooks"]]
        # Not server-side: what is no longer said must go, also where another wrote it.
        if self.cluster.exists("validatingwebhookconfiguration", WEBHOOKS):
            self.cluster.objects.merge("validatingwebhookconfiguration", WEBHOOKS, {"webhooks": hooks})
        else:
            self.cluster.apply(found | {"webhooks": [hook | {"clientConfig": {"url": url}} for hook in hooks]})

    def register_node(self) -> None:
        """Register the Node, as its kubelet does, and give the agent the token of a pod on it."""
        labels = {"kubernetes.io/hostname": "host-of-agent"}
        self.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}})
        written = self.token.with_suffix(".new")
        written.write_text(self.cluster.token("gkm-agent", SYSTEM, node=NODE))
        written.rename(self.token)

    def agent(self) -> Process:
        """Start the agent (again)."""
        user: dict[str, object] = {"tokenFile": str(self.token)}
        kubeconfig = self.cluster.control_plane.kubeconfig("audited-agent", user)
        layout = self.machine.layout
        places = ("--state", layout.state, "--run", layout.run, "--node", NODE)
        health = f"--health={self.address('agent')}"
        return self._run("agent", HURRIED_AGENT, "--kubeconfig", kubeconfig, *places, health)

    def controllers(self, identity: str) -> Process:
        """Start a replica of the controllers and wait until it has listed everything."""
        account = self._account("gkm-controllers")
        health = f"--health={self.address(identity)}"
        words = ("--kubeconfig", account, health, f"--identity={identity}")
        process = self._run(identity, MAIN, "controllers", *words, *CONFIGURATIONS)
        pages.wait_until_ready(process)
        return process

    def provider(self) -> Process:
        """Start the pod of the topology provider infiniband, and wait until it has written its ProviderTree."""
        words = ("--name=infiniband", f"--health={self.address('provider')}")
        account = self._account("gkm-provider-infiniband")
        process = self._run("provider", MAIN, "provider", "--kubeconfig", account, *words)
        pages.wait_until_ready(process)
        return process

    def admission(self) -> Process:
        """Start the webhook and wait until the API server calls it."""
        account = self._account("gkm-admission")
        listen = (f"--listen=127.0.0.1:{self.webhook_port}", f"--health={self.address('admission')}")
        tls = ("--self-signed", self.machine.root / "tls", "--tls-names=127.0.0.1")
        switches = ("--domains=on", "--task-groups=on", "--pod-caches=on")
        words: list[str | Path] = ["admission", "--kubeconfig", account, *listen, *tls, *CONFIGURATIONS, *switches]
        # It looks for its CA in the configuration once a minute; a life is not to wait for that.
        process = self._run("admission", HURRIED, *words)
        process.ready(self.is_judged, "the API server asks it")
        return process

    def is_judged(self) -> bool:
        """Return whether the API server calls our webhook and trusts it."""
        refused = cache("not-allowed", TEAM, "127.0.0.1:9/not/allowed:1")
        try:
            self.cluster.objects.create(refused, dry_run=True)
        except RequestFailed as refusal:
            return "is an address of this machine" in str(refusal)
        return False

    def declare(self, name: str, place: str | None) -> None:
        """Make a cache; one of a namespace names the pull secret."""
        wanted = cache(name, place, self.image)
        wanted["spec"] |= {"imagePullSecrets": [{"name": SECRET}]} if place else {}
        self.cluster.apply(wanted)

    def _run(self, name: str, main: tuple[str, ...], *words: str | Path) -> Process:
        config = ("--config", self.machine.root / "config.yaml")
        log = self.machine.root / f"{name}.log"
        command = [sys.executable, *main, *words, *config]
        process = Process.start(f"gkm-{name}", command, log, self.machine.variables)
        self.stack.callback(process.stop, 30)
        self.processes[name] = process
        return process

    def _account(self, name: str) -> Path:
        return self.cluster.kubeconfig_for(f"system:serviceaccount:{SYSTEM}:{name}")

    def _pull_secret(self) -> Json:
        auths = {"auths": {self.machine.registry.host: {"username": "team", "password": "of-a-test"}}}
        data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
        metadata = {"name": SECRET, "namespace": TEAM}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson"}
        return kind | {"metadata": metadata, "data": data}


def install_topology_kinds(cluster: Cluster) -> None:
    """Define the kinds that the topology is written to, without the schemas that tests/partners/topology has."""
    named = (("topology.volcano.sh", "v1alpha1", "HyperNode"), ("kueue.x-k8s.io", "v1beta1", "Topology"))
    definitions = [any_kind(*one) for one in (*named, ("kai.scheduler", "v1alpha1", "Topology"))]
    for definition in definitions:
        definition["spec"]["scope"] = "Cluster"
        group, names = definition["spec"]["group"], definition["spec"]["names"]
        names["plural"] = {"HyperNode": "hypernodes", "Topology": "topologies"}[names["kind"]]
        definition["metadata"]["name"] = f"{names['plural']}.{group}"
    cluster.apply(definitions)
    cluster.until_kinds_established()


@contextmanager
def accounts(directory: Path) -> Iterator[Accounts]:
    """Start a control plane with all of GKM installed, and nothing of it running."""
    with ExitStack() as stack:
        cluster, audit = stack.enter_context(audited_cluster(directory))
        registry = stack.enter_context(Registry.start())
        (directory / "machine").mkdir()
        library = nvml_library.build()
        machine = machine_in(directory / "machine", library, registry)
        _configure(machine)
        made = Accounts(cluster, audit, machine, stack)
        made.install()
        yield made


def _configure(machine: Machine) -> None:
    """Switch on what writes to the API besides: labels of caches, ComputeDomains, and a survey by a stand-in."""
    program = machine.root / "ibnetdiscover"
    program.write_text(f"#!/bin/sh\ncat {SURVEYED}\n")
    program.chmod(0o755)
    path = machine.root / "config.yaml"
    config = yaml.load(path.read_text(), yaml.CSafeLoader)
    config["fabric"] = {"cacheLabels": True, "ibnetdiscover": {"nodes": [NODE], "command": str(program)}}
    config["network"] = {"autoMNNVLEnabled": True}
    # Its key has no password: the agent's environment has none.
    key = PrivateKey.new()
    (machine.root / "cosign.key").write_bytes(encrypted(key, b""))
    config["verification"]["policies"][0]["keys"].append(key.public.pem.decode())
    config["capture"] = {
        "registry": f"{machine.registry.host}/captured",
        "signing": {"keyFile": str(machine.root / "cosign.key")},
        "minFreePercent": 0,
        "caches": {"maxAge": 3e9, "versions": 1, "clusterNamespaces": [SHARED]},
    }
    config["topology"] = TOPOLOGY
    path.write_text(yaml.safe_dump(config))
