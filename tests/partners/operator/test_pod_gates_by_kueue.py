"""Gated pods in a queue of Kueue: Kueue gives the quota, the plan of the Run the places, kube-scheduler binds."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from gkm.kube.resources import Json
from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.operator.deployment import HURRIED, component, deployed
from support.operator.gated_jobs import bound_nodes, bound_pods, gated_job, in_order, planned_nodes
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site
from support.peers import require
from support.topology.kueue import kueue
from support.topology.kueue_cluster import QUEUE, queues, until_active

pytestmark = pytest.mark.heavy

GPUS, NODES = 8, 6
QUOTA = 2 * GPUS
LABELS = {"gpu.flavor": FLAVOR}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Kueue with a queue whose quota is two of six nodes, and whose flavor has no Topology."""
    require.root()
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kueue"):
        require.peer(command)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(tmp_path / "cluster", scheduler=True))
        deployed(cluster)
        cluster.apply([each for each in component("pod-gates") if "webhooks" not in each])
        stack.enter_context(kwok.kwok(cluster, tmp_path / "kwok"))
        kwok.create_nodes(cluster, (node(number) for number in range(NODES)))
        stack.enter_context(kueue(cluster, tmp_path / "kueue"))
        made = stack.enter_context(plans_site(cluster, tmp_path))
        cluster.apply(list(queues(QUOTA, LABELS, namespace=NAMESPACE, topology="")))
        until_active(cluster)
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump({"packing": {"podGates": True, "namespaceShare": 100}}))
        made.start("gates", main=HURRIED, arguments=(f"--config={config}",))
        yield made


def node(number: int) -> Json:
    labels = {**LABELS, "fabric.domain": f"d{number // 2}", "block": "b1"}
    return kwok.node(f"queued-{number}", gpus=GPUS, labels=labels.items())


def queued(run: str) -> Json:
    """Return a Job of two gated pods that waits for quota."""
    job = gated_job(run, 2, GPUS)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}
    job["spec"]["suspend"] = True
    return job


def test_kueue_gives_the_quota_and_the_plan_the_places(site: Site) -> None:
    for run in ("first", "second"):
        site.ask(run, QUOTA, gpusPerPod=GPUS, groupGPUs=QUOTA)
        site.until(run, "Planned", f"{run}-1")
        site.cluster.objects.create(queued(run))
    planned = {plan["spec"]["run"]: planned_nodes(plan, GPUS) for plan in site.plans()}
    site.cluster.until(lambda: bound_pods(site.cluster) == 2, "the pods of the first run to be bound")
    # The second one is planned, and beyond the quota: it has no pods.
    assert {run: in_order(nodes) for run, nodes in bound_nodes(site.cluster).items()} == {"first": planned["first"]}
    site.cluster.kubectl("delete", "job", "first", "-n", NAMESPACE, "--cascade=foreground", "--wait=true")
    site.cluster.until(lambda: bound_pods(site.cluster) == 2, "the pods of the second run to be bound")
    assert {run: in_order(nodes) for run, nodes in bound_nodes(site.cluster).items()} == {"second": planned["second"]}
