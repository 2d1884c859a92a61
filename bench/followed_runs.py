"""Runs of random sizes whose Jobs wait behind gates: how many pods are bound where the plan said, and how soon.

Pods take half of a node, so a node has room for pods of two runs, and for a pod in a place of another.
"""

import random
import time
from dataclasses import dataclass

from gkm.kube.resources import Json
from support.host.waiting import until
from support.operator.gated_jobs import INDEX, bound_nodes, bound_pods, gated_job, in_order, planned_nodes, pod_template
from support.operator.plans_site import NAMESPACE, Site

PER_POD, NODE_GPUS, NODES_A_DOMAIN = 4, 8, 18
LONGEST_SECONDS = 600.0


@dataclass(frozen=True)
class Sizes:
    """Groups of a run, and pods of a group."""

    groups: int
    pods: int

    @property
    def all_pods(self) -> int:
        return self.groups * self.pods


def random_sizes(count: int) -> dict[str, Sizes]:
    """Return runs by name, the same ones each time."""
    chance = random.Random("followed")
    return {f"run-{number:03}": Sizes(chance.randint(1, 4), chance.randint(1, 8)) for number in range(count)}


def placed(site: Site, runs: dict[str, Sizes]) -> dict[str, float]:
    """Create the runs one after the other; return how their pods ended."""
    began = time.monotonic()
    for run, size in runs.items():
        site.cluster.objects.create(gated_job(run, size.all_pods, PER_POD))
        ask(site, run, size)
    wanted = sum(size.all_pods for size in runs.values())
    until(lambda: bound_pods(site.cluster) == wanted, f"{wanted} pods to be bound", LONGEST_SECONDS, every=0.5)
    seconds = time.monotonic() - began
    bound = {run: in_order(nodes) for run, nodes in bound_nodes(site.cluster).items()}
    plans = {plan["spec"]["run"]: planned_nodes(plan, PER_POD) for plan in site.plans()}
    right = sum(one == other for run in runs for one, other in zip(bound[run], plans[run], strict=True))
    return {"runs": len(runs), "pods": wanted, "followed_percent": 100 * right / wanted, "bound_s": seconds}


def milliseconds(site: Site, runs: dict[str, Sizes]) -> list[float]:
    """Return the time from the request that creates a Run to the last pod without its gate, one run at a time."""
    return [_milliseconds(site, run, size) for run, size in runs.items()]


def ask(site: Site, run: str, size: Sizes) -> None:
    """Create a Run."""
    site.ask(run, size.all_pods * PER_POD, gpusPerPod=PER_POD, groupGPUs=size.pods * PER_POD)


def _milliseconds(site: Site, run: str, size: Sizes) -> float:
    for number in range(size.all_pods):
        site.cluster.objects.create(_pod(run, number))
    began = time.monotonic()
    ask(site, run, size)
    until(lambda: _free(site, run) == size.all_pods, f"the pods of {run} to be free", every=0.005)
    return 1000 * (time.monotonic() - began)


def _pod(run: str, number: int) -> Json:
    template = pod_template(run, PER_POD)
    labels = template["metadata"]["labels"] | {INDEX: str(number)}
    meta = {"name": f"{run}-{number}", "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def _free(site: Site, run: str) -> int:
    pods = site.cluster.objects.every("pods", NAMESPACE, labelSelector=f"gkm.io/run={run}")
    return sum(not pod["spec"].get("schedulingGates") for pod in pods)
