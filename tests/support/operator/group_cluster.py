"""A real API server with the component `task-groups`, GKM's controllers as processes, and an audit log.

NVIDIA's controller does not run. The garbage collector and the controller of Deployments are those of
kube-controller-manager; no pod is scheduled.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gkm.api import task_group_rights
from support.cluster.audit import Audit, Request
from support.cluster.audited_cluster import audited_cluster
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.cluster.objects import RequestFailed
from support.cluster.rights import until_rights_hold
from support.grove import kinds
from support.host import listening, pages
from support.host.processes import Process
from support.kube.our_kinds import CONTROLLERS, status_writer
from support.operator.deployment import HURRIED, SHORT_LEASE, component, deployed, has_lost_its_lease, operator
from support.operator.domain_cluster import any_kind

TEAM, SYSTEM = "team", "gkm-system"
UID_LABEL = "gkm.io/task-group-uid"
POD_GROUPS = (
    ("scheduling.volcano.sh", "v1beta1"),
    ("scheduling.x-k8s.io", "v1alpha1"),
    ("scheduling.run.ai", "v2alpha2"),
)
NAME = "{{ WF_GROUP_NAME }}"
LABELS = {"app": NAME}
POD = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "proxy", "image": "registry.test/proxy:1"}]}}
Json = dict[str, Any]
T = TypeVar("T")


def template(api_version: str, kind: str, name: str = NAME, **more: Any) -> Json:  # noqa: ANN401 -- JSON
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}} | more


CLAIM_TEMPLATE = {"name": "claim-{{ WF_GROUP_UUID }}"}
DOMAIN = template(
    "resource.nvidia.com/v1beta1",
    "ComputeDomain",
    "domain-{{ WF_GROUP_UUID }}",
    spec={"numNodes": "{{ TASKS | length | int }}", "channel": {"resourceClaimTemplate": CLAIM_TEMPLATE}},
)
CONFIG = template("v1", "ConfigMap", data={"WORKFLOW": "{{ WF_ID }}"})
SERVICE = template("v1", "Service", spec={"selector": LABELS, "ports": [{"port": 80}]})
PROXY = template("apps/v1", "Deployment", spec={"selector": {"matchLabels": LABELS}, "template": POD})
GANG = template("scheduling.volcano.sh/v1beta1", "PodGroup", spec={"minMember": "{{ TASKS | length | int }}"})
FIVE = (PROXY, DOMAIN, CONFIG, GANG, SERVICE)
KINDS = ("deployments", "replicasets", "computedomains", "configmaps", "services", "pods")


@dataclass
class GroupCluster:
    """A cluster in which TaskGroups work while controllers run."""

    cluster: Cluster
    audit: Audit
    directory: Path
    stack: ExitStack
    processes: list[Process] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def install(self) -> None:
        deployed(self.cluster)
        self.cluster.apply([kinds.COMPUTE_DOMAIN, *(any_kind(*group, "PodGroup") for group in POD_GROUPS)])
        self.cluster.until_kinds_established()
        # Without webhooks: admission does not run here.
        left_out = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
        self.cluster.apply([each for each in component("task-groups") if each["kind"] not in left_out])
        self.cluster.apply(namespace(TEAM))
        until_rights_hold(self.cluster)

    def controllers(self, *, second: bool = False, main: tuple[str, ...] = HURRIED) -> Process:
        """Start the controllers with their account, or `second`, which leads by a lease of its own at the same time."""
        number = next(self._numbers)
        directory = self.directory / f"controllers-{number}"
        directory.mkdir()
        config = directory / "config.yaml"
        config.write_text("taskGroups: {enabled: true}\n", encoding="utf-8")
        kubeconfig = status_writer(self.cluster) if second else self.cluster.kubeconfig_for(CONTROLLERS)
        words = [f"--config={config}", f"--kubeconfig={kubeconfig}", f"--identity=controllers-{number}"]
        words += ["--health=127.0.0.1:0", *(["--lease=second"] if second else [])]
        process = self.stack.enter_context(operator(directory, "controllers", *words, main=main))
        self.processes.append(process)
        address = listening.address(process)
        process.ready(lambda: pages.leads(address), "it leads")
        if self.cluster.objects.every("pools"):
            process.ready(lambda: pages.has_succeeded(address, "pools"), "it knows the pools and the groups")
        return process

    def until(self, probe: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
        """Wait as a cluster does; controllers that lost their lease meanwhile start again, as kubelet restarts them."""

        def probe_beside_controllers() -> T | None:
            if self.processes and has_lost_its_lease(self.processes[-1]):
                self.controllers(main=SHORT_LEASE)
            return probe()

        return self.cluster.until(probe_beside_controllers, what, seconds)

    def pool(self, name: str, *templates: Json) -> None:
        """Create a pool and the templates that it names, and wait until the controllers have read both."""
        names = [f"{name}-{number}" for number in range(len(templates))]
        made = [
            template("gkm.io/v1alpha1", "GroupTemplate", each, spec={"template": value})
            for each, value in zip(names, templates, strict=True)
        ]
        self.cluster.apply([*made, _pool(name, names)])
        self._until_pool(name, "Parsed")

    def pool_without_template(self, name: str) -> None:
        """Create a pool that names a template which does not exist, and wait until the controllers know it."""
        self.cluster.apply(_pool(name, ["missing"]))
        self._until_pool(name, "TemplateMissing")

    def groups(self, *names: str, pool: str) -> None:
        tasks = [{"name": f"task-{number}", "gpus": 8} for number in range(4)]
        spec = {"pool": pool, "workflow": {"id": "workflow", "submittedBy": "user@mail.test"}, "tasks": tasks}
        made = [template("gkm.io/v1alpha1", "TaskGroup", name, spec=spec) for name in names]
        self.cluster.apply([each | {"metadata": each["metadata"] | {"namespace": TEAM}} for each in made])

    def group(self, name: str) -> Json:
        return self.cluster.objects.get("taskgroup", name, TEAM)

    def of_kind(self, plural: str) -> dict[str, Json]:
        """Return the objects of a kind in the namespace of the groups, by name."""
        return {each["metadata"]["name"]: each for each in self.cluster.objects.every(plural, TEAM)}

    def phase(self, name: str) -> str:
        return str(self.group(name).get("status", {}).get("phase"))

    def condition(self, type_: str, name: str) -> tuple[str, str, str]:
        found = (each for each in self.group(name).get("status", {}).get("conditions", []) if each["type"] == type_)
        return next(((each["status"], each["reason"], each["message"]) for each in found), ("", "", ""))

    def phases(self) -> dict[str, str]:
        found = self.cluster.objects.every("taskgroups", TEAM)
        return {each["metadata"]["name"]: each.get("status", {}).get("phase", "") for each in found}

    def until_phase(self, phase: str, *names: str, seconds: float = 120.0) -> None:
        def reached() -> bool:
            found = self.phases()
            return all(found.get(name) == phase for name in names)

        self.until(reached, f"{names} to be {phase}", seconds)

    def end(self, *names: str, phase: str = "Succeeded") -> None:
        for name in names:
            self.cluster.objects.merge("taskgroup", name, {"spec": {"phase": phase}}, TEAM)

    def delete(self, *names: str) -> None:
        for name in names:
            self.cluster.objects.ask_to_delete("taskgroup", name, TEAM)

    def until_gone(self, *names: str, seconds: float = 120.0) -> None:
        self.until(lambda: not set(names) & self.phases().keys(), f"{names} to be gone", seconds)

    def left(self) -> list[str]:
        """Everything in the namespace that a group or a controller of its objects made."""
        return [f"{kind}/{each['metadata']['name']}" for kind, each in self._left()]

    def end_processes(self) -> None:
        """End the controllers of a test as a crash would."""
        for process in self.processes:
            process.kill()
        self.processes.clear()

    def clear(self) -> None:
        """Delete what a test left: groups, whatever holds them, their objects, and the kinds that controllers remember.

        No controllers run. In the next test they make the ConfigMap again: this one's may have been made by a second
        leader, which has every right.
        """
        self.cluster.objects.delete_named("configmap", task_group_rights.NAME, "gkm-system")
        for group in self.cluster.objects.every("taskgroups", TEAM):
            self.cluster.objects.delete(group)
        for kind, each in self._left():
            self.cluster.objects.delete_named(kind, each["metadata"]["name"], TEAM)
        # A Deployment that is deleted may have made another pod before.
        self.cluster.until(lambda: not self.left(), "what the test left to be gone", 120)

    def _left(self) -> Iterator[tuple[str, Json]]:
        """Yield kind and object; the kind of a PodGroup has its API group."""
        for kind in KINDS:
            yield from ((kind, each) for each in self.cluster.objects.every(kind, TEAM) if _is_of_a_group(each))
        for group, _ in POD_GROUPS:
            with suppress(RequestFailed):  # its definition may be gone
                found = self.cluster.objects.every(f"podgroups.{group}", TEAM)
                yield from ((f"podgroups.{group}", each) for each in found if _is_of_a_group(each))

    def requests(self) -> list[Request]:
        """The requests of the controllers for objects of groups so far."""
        return [each for each in self.audit.requests() if each.user == CONTROLLERS]

    def _until_pool(self, name: str, reason: str) -> None:
        """Wait until the controllers have read the pool: only then do they make groups from it."""

        def has_reason() -> bool:
            status = self.cluster.objects.get("pool", name).get("status", {})
            return any(each["reason"] == reason for each in status.get("conditions", []))

        self.until(has_reason, f"pool {name} to have reason {reason}")


def _pool(name: str, templates: list[str]) -> Json:
    return template("gkm.io/v1alpha1", "Pool", name, spec={"commonGroupTemplates": templates})


def _is_of_a_group(found: Json) -> bool:
    metadata = found["metadata"]
    owners = {owner["kind"] for owner in metadata.get("ownerReferences", [])}
    return UID_LABEL in metadata.get("labels", {}) or bool(owners & {"TaskGroup", "Deployment", "ReplicaSet"})


@contextmanager
def group_cluster(directory: Path) -> Iterator[GroupCluster]:
    """Start a control plane with everything installed, and no process of GKM."""
    with ExitStack() as stack:
        cluster, audit = stack.enter_context(audited_cluster(directory))
        cluster.until(lambda: cluster.exists("serviceaccount", "default", "default"), "a service account")
        made = GroupCluster(cluster, audit, directory, stack)
        made.install()
        yield made
