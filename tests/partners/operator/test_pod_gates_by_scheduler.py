"""Runs of random sizes on a real kube-scheduler and kwok: every pod is bound where the plan of its Run said."""

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from gkm.api.runs import GATE
from gkm.kube.resources import Json
from gkm_operator.plans.state.objects import REPLAN_ANNOTATION
from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.docs.placement_page import PAGE, manifest
from support.operator.deployment import HURRIED, component, deployed
from support.operator.gated_jobs import (
    INDEX,
    bound_nodes,
    bound_pods,
    gated_job,
    in_order,
    planned_nodes,
    pod_template,
)
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site
from support.peers import require

DOMAINS, NODES_PER_DOMAIN, GPUS, PER_POD = 6, 6, 8, 4
RUNS = 8


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"):
        require.peer(command)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(tmp_path / "cluster", scheduler=True))
        deployed(cluster)
        cluster.apply([each for each in component("pod-gates") if "webhooks" not in each])
        stack.enter_context(kwok.kwok(cluster, tmp_path / "kwok"))
        yield stack.enter_context(plans_site(cluster, tmp_path))


def fleet() -> Iterator[Json]:
    for domain in range(DOMAINS):
        labels = {"fabric.domain": f"d{domain}", "block": "b1", "gpu.flavor": FLAVOR}
        for number in range(NODES_PER_DOMAIN):
            yield kwok.node(f"gated-{domain}-{number}", gpus=GPUS, labels=labels.items())


def start(site: Site, directory: Path) -> None:
    """Start the controllers, which place pods."""
    config = directory / "config.yaml"
    config.write_text(yaml.safe_dump({"packing": {"podGates": True, "namespaceShare": 100}}))
    site.start("gates", main=HURRIED, arguments=(f"--config={config}",))


def test_every_pod_is_bound_where_the_plan_said(site: Site, tmp_path: Path) -> None:
    kwok.create_nodes(site.cluster, fleet())
    start(site, tmp_path)
    rng = random.Random(44)
    sizes = {f"run-{number}": rng.randint(1, 8) for number in range(RUNS)}
    for run, pods in sizes.items():
        site.cluster.objects.create(gated_job(run, pods, PER_POD))
        site.ask(run, pods * PER_POD, gpusPerPod=PER_POD, groupGPUs=PER_POD * rng.choice([1, pods]))
    wanted = sum(sizes.values())
    site.cluster.until(lambda: bound_pods(site.cluster) == wanted, f"{wanted} pods to be bound")
    planned = {plan["spec"]["run"]: planned_nodes(plan, PER_POD) for plan in site.plans()}
    assert {run: in_order(nodes) for run, nodes in bound_nodes(site.cluster).items()} == planned


def test_a_run_whose_planned_node_a_foreign_pod_took_says_so_and_what_it_says_to_do_helps(
    site: Site, tmp_path: Path
) -> None:
    kept, taken = late_run(site, tmp_path)
    until_followed(site, "late", "PodsUnschedulable", {"followed": 1, "waiting": 1})
    message = followed(site, "late")["message"]
    assert f"on node {taken}" in message
    assert "Insufficient nvidia.com/gpu" in message
    assert f"annotate the Run with {REPLAN_ANNOTATION}=<any new value>, and delete the pod" in message

    site.cluster.kubectl("annotate", "run", "late", "-n", NAMESPACE, f"{REPLAN_ANNOTATION}=1")
    site.until("late", "Planned", "late-2")
    site.cluster.kubectl("delete", "pod", "-n", NAMESPACE, "-l", f"{INDEX}=1")
    until_followed(site, "late", "PodsWherePlanned", {"followed": 2})
    first, second = in_order(bound_nodes(site.cluster)["late"])
    assert first == kept
    assert second not in {kept, taken}


def test_a_run_of_a_higher_priority_takes_its_planned_node_back(site: Site, tmp_path: Path) -> None:
    meta = {"name": "runs"}
    site.cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000})
    kept, taken = late_run(site, tmp_path, priorityClassName="runs")
    until_followed(site, "late", "PodsWherePlanned", {"followed": 2})
    assert in_order(bound_nodes(site.cluster)["late"]) == [kept, taken]
    assert not site.cluster.exists("pod", "foreign", NAMESPACE)


def late_run(site: Site, directory: Path, **of_pod: str) -> tuple[str, str]:
    """Create a run whose second node a foreign pod takes before its pods come; return both nodes."""
    kwok.create_nodes(site.cluster, fleet())
    start(site, directory)
    site.ask("late", 2 * GPUS, gpusPerPod=GPUS, groupGPUs=2 * GPUS)
    site.until("late", "Planned", "late-1")
    kept, taken = planned_nodes(site.plans()[0], GPUS)
    site.cluster.objects.create(foreign(taken))
    job = gated_job("late", 2, GPUS)
    job["spec"]["template"]["spec"] |= of_pod
    site.cluster.objects.create(job)
    return kept, taken


def foreign(node: str) -> Json:
    """Return a pod of another owner that fills a node, and asks no scheduler."""
    spec = pod_template("", GPUS)["spec"]
    del spec["schedulingGates"]
    meta = {"name": "foreign", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec | {"nodeName": node}}


def followed(site: Site, run: str) -> Json:
    """Return the condition Followed of a run, {} without it."""
    conditions = site.cluster.get("run", run, NAMESPACE).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Followed"), {})


def until_followed(site: Site, run: str, reason: str, pods: Json) -> None:
    def so() -> bool:
        is_reason = followed(site, run).get("reason") == reason
        return is_reason and site.cluster.get("run", run, NAMESPACE)["status"]["pods"] == pods

    site.cluster.until(so, f"{run} to be {reason}")


def test_the_job_of_the_page_starts_where_its_run_is_planned(site: Site, tmp_path: Path) -> None:
    asked, job = (placed(manifest(kind)) for kind in ("Run", "Job"))
    # This site has no webhook: the gate is in the template, as the page says for that case.
    job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
    per_pod, pods = asked["spec"]["gpusPerPod"], job["spec"]["completions"]
    kwok.create_nodes(site.cluster, racks(asked))
    start(site, tmp_path)
    site.cluster.apply([job, asked])
    site.cluster.until(lambda: bound_pods(site.cluster) == pods, f"{pods} pods to be bound")
    (plan,) = site.plans()
    assert in_order(bound_nodes(site.cluster)[asked["metadata"]["name"]]) == planned_nodes(plan, per_pod)
    shown = site.cluster.kubectl("get", "runs", "-n", NAMESPACE).splitlines()[1].split()
    assert shown[:-1] == re.findall(r"^llama .*$", PAGE, re.MULTILINE)[0].split()[:-1]


def placed(document: Json) -> Json:
    """Return an object of the page in the namespace of these tests."""
    document["metadata"]["namespace"] = NAMESPACE
    return document


def racks(asked: Json) -> Iterator[Json]:
    """Racks of 18 nodes, such as a GB200 NVL72: each has room for three groups of four pods and a spare."""
    spec = asked["spec"]
    groups = spec["gpus"] // spec["groupGPUs"]
    for rack in range(-(-groups // 3)):
        labels = {"fabric.domain": f"rack-{rack}", "block": "b1", "gpu.flavor": spec["flavor"]}
        for number in range(18):
            yield kwok.node(f"page-{rack}-{number}", gpus=spec["gpusPerPod"], labels=labels.items())
