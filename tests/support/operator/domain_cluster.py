"""A real API server with the kinds of Grove and of ComputeDomains, GKM's controllers as processes, and an audit log.

NVIDIA's controller does not run: `make_template` makes what it would. The garbage collector and the controllers of Jobs
and Deployments are those of kube-controller-manager; no pod is scheduled.
"""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.chart.deploy_files import rendered
from support.cluster.audit import Audit
from support.cluster.audited_cluster import audited_cluster
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.cluster.policies import until_policies_hold
from support.cluster.rights import until_rights_hold
from support.grove import kinds
from support.grove.objects import GPU, claim_template
from support.host import listening, pages
from support.host.processes import Process
from support.kube.our_kinds import CONTROLLERS, status_writer
from support.operator.deployment import HURRIED, deployed, operator

FILES = ("controllers.yaml", "policies.yaml")
NVIDIA = "system:serviceaccount:nvidia-dra:compute-domain-controller"
LABEL, UID_LABEL, MARK = "gkm.io/compute-domain", "resource.nvidia.com/computeDomain", "gkm.io/pods-using"
CHANNEL = "compute-domain-default-channel.nvidia.com"
TASKS = ("computedomains", "domain-status", "domain-capacity")
"""What the controller of ComputeDomains does once it has listed everything, as metrics name it."""
Json = dict[str, Any]
OTHERS = (("jobset.x-k8s.io", "v1alpha2", "JobSet"), ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"))


@dataclass
class DomainCluster:
    """A cluster with the component `domains` for controllers installed, without webhooks."""

    cluster: Cluster
    audit: Audit
    directory: Path
    stack: ExitStack
    health: dict[int, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def install(self) -> None:
        deployed(self.cluster)
        install_kinds(self.cluster)
        self.cluster.apply([document for name in FILES for document in documents(name)])
        until_policies_hold(self.cluster)
        self.cluster.apply(
            [namespace("nvidia-dra"), account("compute-domain-controller", "nvidia-dra"), *nvidia_rights()]
        )
        until_rights_hold(self.cluster)

    def controllers(self, *, second: bool = False) -> Process:
        """Start the controllers with their account, or `second`, which leads by a lease of its own at the same time."""
        number = next(self._numbers)
        directory = self.directory / f"controllers-{number}"
        directory.mkdir()
        config = directory / "config.yaml"
        config.write_text("network: {autoMNNVLEnabled: true}\n", encoding="utf-8")
        kubeconfig = status_writer(self.cluster) if second else self.cluster.kubeconfig_for(CONTROLLERS)
        words = [f"--config={config}", f"--kubeconfig={kubeconfig}", f"--identity=controllers-{number}"]
        words += ["--health=127.0.0.1:0", *(["--lease=second"] if second else [])]
        process = self.stack.enter_context(operator(directory, "controllers", *words, main=HURRIED))
        address = self.health[number] = listening.address(process)
        process.ready(lambda: pages.has_succeeded(address, *TASKS), "it knows the domains")
        return process

    def names(self, space: str) -> list[str]:
        """The ComputeDomains of a namespace."""
        return sorted(one["metadata"]["name"] for one in self.cluster.objects.every("computedomains", space))

    def domain(self, name: str, space: str) -> Json:
        found: Json = self.cluster.objects.get("computedomain", name, space).get("metadata", {})
        return found

    def until_names(self, space: str, *names: str, seconds: float = 60.0) -> None:
        self.cluster.until(lambda: self.names(space) == sorted(names), f"the domains {names}", seconds)

    def make_template(self, name: str, space: str) -> None:
        """Make the claim template of a domain, as NVIDIA's controller does."""
        labels = {UID_LABEL: self.domain(name, space)["uid"]}
        made = claim_template(name, CHANNEL, namespace=space, labels=labels)
        self.cluster.apply(made)

    @property
    def nvidia(self) -> Path:
        """A kubeconfig of NVIDIA's controller."""
        return self.cluster.kubeconfig_for(NVIDIA)

    def use(self, name: str, space: str, pod: str = "user") -> None:
        """Create a pod with a claim of a domain's template, and wait until both are marked."""
        spec = pod_spec(0) | {"resourceClaims": [{"name": "channel", "resourceClaimTemplateName": name}]}
        self.cluster.apply(object_of("v1", "Pod", pod, space) | {"spec": spec})
        for kind in ("computedomain", "resourceclaimtemplate"):
            self.cluster.until(lambda kind=kind: self.mark(kind, name, space) == "1", f"the mark of the {kind}")  # type: ignore[misc]

    def mark(self, kind: str, name: str, space: str) -> str:
        found = self.cluster.objects.get(kind, name, space).get("metadata", {})
        return str(found.get("annotations", {}).get(MARK, ""))

    def has_condition(self, kind: str, status: str) -> bool:
        """Whether the ConfigMap gkm-domains has a condition with this status."""
        found = self.cluster.objects.get("configmap", "gkm-domains", "gkm-system")
        conditions = json.loads(found.get("data", {}).get("conditions", "[]"))
        return (kind, status) in [(one["type"], one["status"]) for one in conditions]

    def has_counted(self, line: str) -> bool:
        """Whether the metrics of the first controllers have a line that contains this."""
        return line in pages.fetch(self.health[1], "metrics")[1]

    def events(self, space: str) -> list[tuple[str, str]]:
        found = self.cluster.objects.every("events", space)
        return sorted((event["reason"], event["message"]) for event in found)


@contextmanager
def domain_cluster(directory: Path) -> Iterator[DomainCluster]:
    """Start a control plane with everything installed, and no process of GKM."""
    with ExitStack() as stack:
        cluster, audit = stack.enter_context(audited_cluster(directory))
        cluster.until(lambda: cluster.exists("serviceaccount", "default", "default"), "a service account")
        made = DomainCluster(cluster, audit, directory, stack)
        made.install()
        yield made


def install_kinds(cluster: Cluster) -> None:
    """Define the kinds of Grove, of ComputeDomains, and of workloads that own some; wait for all definitions."""
    cluster.apply([*kinds.ALL, *(any_kind(*other) for other in OTHERS)])
    cluster.until_kinds_established()


def documents(name: str) -> list[Json]:
    """The objects of a file of the component."""
    text = (rendered() / "components" / "domains" / name).read_text(encoding="utf-8")
    return list(yaml.load_all(text, yaml.CSafeLoader))


def object_of(version: str, kind: str, name: str, space: str, **metadata: object) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": space, **metadata}}


def account(name: str, space: str) -> Json:
    return object_of("v1", "ServiceAccount", name, space)


def nvidia_rights() -> list[Json]:
    """What NVIDIA's chart grants its controller of what the policies watch."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {
            "apiGroups": ["resource.nvidia.com"],
            "resources": ["computedomains", "computedomains/status"],
            "verbs": ["*"],
        },
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates"], "verbs": ["*"]},
    ]
    name = {"name": "nvidia-compute-domain-controller"}
    head = {"apiVersion": f"{group}/v1", "metadata": name}
    subject = {"kind": "ServiceAccount", "name": "compute-domain-controller", "namespace": "nvidia-dra"}
    role = {"apiGroup": group, "kind": "ClusterRole", **name}
    return [
        head | {"kind": "ClusterRole", "rules": rules},
        head | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]


def any_kind(group: str, version: str, kind: str) -> Json:
    """A definition of a kind that takes any fields."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"kind": kind, "plural": plural}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return head | {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


def pod_spec(gpus: int = 8) -> Json:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {"containers": [{"name": "main", "image": "registry.test/app:1", "resources": resources}]}


def labeled(label: str, **more: str) -> Json:
    """A pod template whose pods name a ComputeDomain."""
    return {"metadata": {"labels": {LABEL: label, **more}}, "spec": pod_spec() | {"restartPolicy": "Always"}}


def job(name: str, label: str, space: str, **metadata: object) -> Json:
    template = labeled(label)
    template["spec"]["restartPolicy"] = "Never"
    return object_of("batch/v1", "Job", name, space, **metadata) | {"spec": {"template": template, "backoffLimit": 0}}


def replicated(kind: str, name: str, label: str, space: str, **metadata: object) -> Json:
    """A Deployment or StatefulSet of one pod."""
    app = {"app": name}
    spec: Json = {"replicas": 1, "selector": {"matchLabels": app}, "template": labeled(label, **app)}
    return object_of("apps/v1", kind, name, space, **metadata) | {
        "spec": spec | {"serviceName": name} if kind == "StatefulSet" else spec
    }


def reference(found: Json) -> Json:
    """A controller reference to an object as the API server has it."""
    meta = found["metadata"]
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": meta["name"], "uid": meta["uid"]} | {
        "controller": True
    }


def workloads_of_every_kind(cluster: Cluster, space: str) -> dict[str, tuple[str, str]]:
    """Create a workload of every kind that may own a ComputeDomain; return the owner to be of each domain."""
    for version, kind, name in (
        ("jobset.x-k8s.io/v1alpha2", "JobSet", "js"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws"),
    ):
        cluster.apply(object_of(version, kind, name, space))
    cluster.apply([job("one", "job", space), replicated("Deployment", "two", "deployment", space)])
    cluster.apply(job("js-0", "jobset", space, ownerReferences=[reference(cluster.get("jobset", "js", space))]))
    group = reference(cluster.get("leaderworkerset", "lws", space))
    cluster.apply(replicated("StatefulSet", "lws", "leaders", space, ownerReferences=[group]))
    cluster.until(lambda: cluster.exists("pod", "lws-0", space), "the pod of the leader")
    # As in a LeaderWorkerSet, the pod of the leader controls the StatefulSet of its workers.
    leader = reference(cluster.get("pod", "lws-0", space))
    cluster.apply(replicated("StatefulSet", "lws-0", "workers", space, ownerReferences=[leader]))
    return {
        "job": ("Job", "one"),
        "deployment": ("Deployment", "two"),
        "jobset": ("JobSet", "js"),
        "leaders": ("LeaderWorkerSet", "lws"),
        "workers": ("LeaderWorkerSet", "lws"),
    }
