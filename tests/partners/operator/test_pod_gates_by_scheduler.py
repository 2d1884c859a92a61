"""Runs of random sizes on a real kube-scheduler and kwok: every pod is bound where the plan of its Run said."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from gkm.api.node_names import unfold
from gkm.api.runs import GATE
from gkm.kube.resources import Json
from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.operator.deployment import HURRIED, component, deployed
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site
from support.peers import require

DOMAINS, NODES_PER_DOMAIN, GPUS, PER_POD = 6, 6, 8, 4
RUNS = 8
GPU = "nvidia.com/gpu"


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


def job(run: str, pods: int) -> Json:
    """An indexed Job whose template has the gate itself."""
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(PER_POD)}}}
    spec = {"containers": [container], "restartPolicy": "Never", "schedulingGates": [{"name": GATE}]}
    template = {"metadata": {"labels": {"gkm.io/run": run}}, "spec": spec}
    numbered = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": template}
    meta = {"name": run, "namespace": NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": numbered}


def planned(site: Site, run: str) -> list[str]:
    """The node of each pod by its number."""
    (plan,) = (one for one in site.plans() if one["spec"]["run"] == run)
    nodes: list[str] = []
    for entry in plan["spec"]["groups"]:
        count = entry.get("count", 1)
        shares = [(unfold(share["name"]), share["gpus"] // PER_POD) for share in entry["nodes"]]
        for at in range(count):
            for names, pods in shares:
                each = len(names) // count
                nodes += [name for name in names[at * each : (at + 1) * each] for _ in range(pods)]
    return nodes


def bound(site: Site, run: str) -> list[str]:
    index = "batch.kubernetes.io/job-completion-index"
    pods = site.cluster.objects.every("pods", NAMESPACE, labelSelector=f"gkm.io/run={run}")
    placed = {int(pod["metadata"]["labels"][index]): pod["spec"].get("nodeName", "") for pod in pods}
    return [placed[number] for number in sorted(placed)]


def test_every_pod_is_bound_where_the_plan_said(site: Site, tmp_path: Path) -> None:
    kwok.create_nodes(site.cluster, fleet())
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"packing": {"podGates": True, "namespaceShare": 100}}))
    site.start("gates", main=HURRIED, arguments=(f"--config={config}",))
    rng = random.Random(44)
    sizes = {f"run-{number}": rng.randint(1, 8) for number in range(RUNS)}
    for run, pods in sizes.items():
        site.cluster.objects.create(job(run, pods))
        site.ask(run, pods * PER_POD, gpusPerPod=PER_POD, groupGPUs=PER_POD * rng.choice([1, pods]))
    for run, pods in sizes.items():
        site.cluster.until(lambda run=run, pods=pods: len([*filter(None, bound(site, run))]) == pods, f"{run} to run")  # type: ignore[misc] # bound now
        assert bound(site, run) == planned(site, run), run
