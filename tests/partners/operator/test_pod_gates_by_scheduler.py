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
from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.docs.placement_page import PAGE, manifest
from support.operator.deployment import HURRIED, component, deployed
from support.operator.gated_jobs import bound_nodes, bound_pods, gated_job, in_order, planned_nodes
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


def test_every_pod_is_bound_where_the_plan_said(site: Site, tmp_path: Path) -> None:
    kwok.create_nodes(site.cluster, fleet())
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"packing": {"podGates": True, "namespaceShare": 100}}))
    site.start("gates", main=HURRIED, arguments=(f"--config={config}",))
    rng = random.Random(44)
    sizes = {f"run-{number}": rng.randint(1, 8) for number in range(RUNS)}
    for run, pods in sizes.items():
        site.cluster.objects.create(gated_job(run, pods, PER_POD))
        site.ask(run, pods * PER_POD, gpusPerPod=PER_POD, groupGPUs=PER_POD * rng.choice([1, pods]))
    wanted = sum(sizes.values())
    site.cluster.until(lambda: bound_pods(site.cluster) == wanted, f"{wanted} pods to be bound")
    planned = {plan["spec"]["run"]: planned_nodes(plan, PER_POD) for plan in site.plans()}
    assert {run: in_order(nodes) for run, nodes in bound_nodes(site.cluster).items()} == planned


def test_the_job_of_the_page_starts_where_its_run_is_planned(site: Site, tmp_path: Path) -> None:
    asked, job = (placed(manifest(kind)) for kind in ("Run", "Job"))
    # This site has no webhook: the gate is in the template, as the page says for that case.
    job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
    per_pod, pods = asked["spec"]["gpusPerPod"], job["spec"]["completions"]
    kwok.create_nodes(site.cluster, racks(asked))
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"packing": {"podGates": True, "namespaceShare": 100}}))
    site.start("page", main=HURRIED, arguments=(f"--config={config}",))
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
