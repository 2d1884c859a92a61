"""Runs, nodes with GPUs and pods on an API in memory, the controller that plans, and who has which GPUs."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gkm.api.config import Config, parse
from gkm.api.node_names import unfold
from gkm.kube.api import Api
from gkm.kube.resources import CLAIMS, EVENTS, NODES, PLACEMENTPLANS, RUNS, SERVICE_ACCOUNTS, Json, Resource
from gkm_operator.plans.controller import PlansController
from gkm_operator.plans.state.node_loss import GracePeriod
from gkm_operator.plans.state.objects import REPLAN_ANNOTATION
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.kube.leading import leading
from support.operator.nodes import put
from support.topology.claims import claim

if TYPE_CHECKING:
    from gkm.topology.trees.merge import Named

PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=Json)
RAW_RUNS: Resource[Json] = Resource(RUNS.api_version, "Run", "runs", namespaced=True, type=Json)
RAW_PLANS: Resource[Json] = Resource(
    PLACEMENTPLANS.api_version, "PlacementPlan", "placementplans", namespaced=True, type=Json
)
RAW_CLAIMS: Resource[Json] = Resource(CLAIMS.api_version, "ResourceClaim", "resourceclaims", namespaced=True, type=Json)
NAMESPACE = "team"


def gpu_node(name: str, domain: str, gpus: int = 8, *, ready: str = "True", **labels: str) -> Json:
    """A Node with GPUs of flavor h100, in block b1 unless a label names another."""
    place = {"fabric.domain": domain, "block": "b1", "gpu.flavor": "H100"} | labels
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {key.replace("__", "."): value for key, value in place.items()}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "capacity": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def gpu_pod(name: str, node: str, gpus: int, run: str = "", namespace: str = NAMESPACE) -> Json:
    """A pod that takes GPUs of a node."""
    meta: Json = {"name": name, "namespace": namespace}
    if run:
        meta["labels"] = {"gkm.io/run": run}
    asked = {"nvidia.com/gpu": str(gpus)}
    containers = [{"name": "a", "image": "a", "resources": {"requests": asked, "limits": asked}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node, "containers": containers},
        "status": {"phase": "Running"},
    }


def run(name: str, gpus: int, namespace: str = NAMESPACE, *, again: str = "", **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    """A Run of h100s in groups of one domain each."""
    meta: Json = {"name": name, "namespace": namespace}
    if again:
        meta["annotations"] = {REPLAN_ANNOTATION: again}
    whole = {"flavor": "h100", "gpus": gpus, "groupGPUs": min(gpus, 16)} | spec
    return {"apiVersion": "gkm.io/v1alpha1", "kind": "Run", "metadata": meta, "spec": whole}


def claims(plan: Mapping[str, Any]) -> Counter[str]:
    """GPUs by node that a PlacementPlan names, read from its text alone."""
    spec = plan["spec"]
    found: Counter[str] = Counter()
    for group in spec["groups"]:
        for share in group["nodes"]:
            for node in unfold(share["name"]):
                found[node] += share["gpus"]
        for spare in group.get("spares", []):
            for node in unfold(spare["node"]):
                found[node] += spare["gpus"]
    return found


def newest(plans: list[Json]) -> dict[tuple[str, str], Json]:
    """The plan with the highest number of every Run."""
    found: dict[tuple[str, str], Json] = {}
    for plan in sorted(plans, key=lambda plan: int(plan["spec"]["number"])):
        found[plan["metadata"]["namespace"], plan["spec"]["run"]] = plan
    return found


def overallocated(plans: list[Json], nodes: Mapping[str, int]) -> dict[str, int]:
    """The GPUs by node that the newest plans of all runs claim beyond those of the node."""
    total: Counter[str] = Counter()
    for plan in newest(plans).values():
        total += claims(plan)
    return {node: count - nodes.get(node, 0) for node, count in total.items() if count > nodes.get(node, 0)}


def everything(api: Api, resource: Resource[Json]) -> list[Json]:
    """All objects of a kind."""
    return [entry.value for page in api.list_pages(resource) for entry in page.entries]


class PlansSite:
    """A controller on an API in memory."""

    def __init__(self, config: str = "") -> None:
        self.api = FakeApi()
        self.config: Config = parse(config.encode()) if config else Config()
        self.leads = True
        self.patience = 0.0
        self.sources: Callable[[], Named | None] | None = None
        self.controller = self.new()

    def new(self, leads: Callable[[], bool] | None = None) -> PlansController:
        """Another replica."""
        return PlansController(
            leading(self.api, leads or (lambda: self.leads)),
            self.config,
            calm=0.001,
            pause=0.001,
            grace=GracePeriod(self.patience),
            sources=self.sources,
        )

    def restart(self) -> None:
        self.controller.close()
        self.controller = self.new()
        self.controller.work()

    def nodes(self, *nodes: Json) -> None:
        for node in nodes:
            put(self.api, NODES, node)

    def rack(self, domain: str, count: int = 4, gpus: int = 8, **labels: str) -> None:
        self.nodes(*(gpu_node(f"{domain}-n{number}", domain, gpus, **labels) for number in range(count)))

    def pod(self, name: str, node: str, gpus: int, run: str = "", namespace: str = NAMESPACE) -> None:
        """Create a pod that runs; return once the controller counts its GPUs, if it watches pods already.

        The controller watches pods and plans apart: a later change of a plan may otherwise reach it before the pod.
        """
        watcher = self.controller.watcher
        watched = watcher._pods.synced.is_set()
        before = watcher._pod_usage.usage().usage.gpus.get(node, 0)
        pod = gpu_pod(name, node, gpus, run, namespace)
        self.api.create(PODS, pod)
        self.api.apply(PODS, pod, field_manager="test", subresource="status")
        if watched:
            until(lambda: watcher._pod_usage.usage().usage.gpus.get(node, 0) == before + gpus, f"pod {name} counts")

    def claim(self, name: str, node: str, gpus: int, *pods: str) -> None:
        """Create a ResourceClaim to which GPUs of a node are allocated, and that pods use."""
        found = claim(name, node, *(f"gpu-{number}" for number in range(gpus)), pods=pods, namespace=NAMESPACE)
        put(self.api, RAW_CLAIMS, found)

    def ask(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 -- those of run
        self.api.create(RAW_RUNS, run(*arguments, **options))

    def change(self, name: str, patch: Json) -> None:
        self.api.merge(RAW_RUNS, name, patch, NAMESPACE)

    def cordon(self, node: str) -> None:
        self.api.merge(NODES, node, {"spec": {"unschedulable": True}})

    def status(self, name: str, namespace: str = NAMESPACE) -> Json:
        found: Json = self.api.get(RAW_RUNS, name, namespace).get("status", {})
        return found

    def planned(self, name: str, namespace: str = NAMESPACE) -> tuple[str, str, str]:
        """Status, reason and message of the condition."""
        for condition in self.status(name, namespace).get("conditions", []):
            return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def plan(self, name: str) -> Json:
        return self.api.get(RAW_PLANS, name, NAMESPACE)

    def plans(self) -> list[Json]:
        return everything(self.api, RAW_PLANS)

    def until(self, name: str, reason: str, plan: str | None = None) -> Json:
        """Wait for a reason of the condition, and for the plan that the status names."""

        def so() -> bool:
            ref = self.status(name).get("planRef", {}).get("name")
            return self.planned(name)[1] == reason and plan in (None, ref)

        until(so, f"{name} is {reason}")
        return self.status(name)

    def events(self) -> list[tuple[str, str]]:
        """Which Run, and reason."""
        return sorted((event["regarding"]["name"], event["reason"]) for event in everything(self.api, EVENTS))

    def flavors(self) -> str:
        found = {item["metadata"]["name"]: item for item in everything(self.api, SERVICE_ACCOUNTS)}
        return str(found["gkm-flavors"]["metadata"]["annotations"]["gkm.io/flavors"]) if found else "-"

    def expire(self, name: str) -> None:
        """Let a plan have expired long ago."""
        self.rewrite(name, {"expiresAt": "2020-01-01T00:00:00Z"})

    def rewrite(self, name: str, spec: Json) -> None:
        """Change a plan, which the rules of the CRD forbid on a real API server.

        Return once a controller that watches plans has the change: a later change of a Run, which it watches apart, may
        otherwise reach it before.
        """
        watcher, changed = self.controller.watcher, self.api.merge(RAW_PLANS, name, {"spec": spec}, NAMESPACE)
        version = int(changed["metadata"]["resourceVersion"])

        def is_seen() -> bool:
            shown = watcher._index._shown.get((NAMESPACE, name))
            if shown is None:  # superseded and deleted meanwhile
                return all(plan["metadata"]["name"] != name for plan in self.plans())
            return int(shown[0].metadata.resource_version) >= version

        if watcher._plans.synced.is_set() and not self.controller._stop.is_set():
            until(is_seen, f"plan {name} is seen as it is")
