"""Gated pods on a real kube-apiserver, with the webhook, the accounts, the rights and the policy that ship."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api.runs import GATE
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import NODES, Json
from support.cluster.cluster import Cluster
from support.cluster.rights import until_rights_hold
from support.operator.admission_process import AdmissionSite
from support.operator.deployment import HURRIED, called_here, component
from support.operator.nodes import put
from support.operator.plans import PODS, gpu_node, gpu_pod
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site

WAIT_SECONDS = 4.0
INDEX = "batch.kubernetes.io/job-completion-index"
CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"


@pytest.fixture
def admission(gkm_cluster: Cluster, tmp_path: Path) -> Iterator[AdmissionSite]:
    """The webhook, called by the API server; the processes end with the test."""
    with ExitStack() as stack:
        made = AdmissionSite(gkm_cluster, connect(str(gkm_cluster.kubeconfig)), stack, tmp_path / "admission")
        documents = [called_here(each, made.port) if "webhooks" in each else each for each in component("pod-gates")]
        gkm_cluster.apply(documents)
        stack.callback(gkm_cluster.objects.delete_named, "mutatingwebhookconfiguration", "gkm-pod-gates")
        made.directory.mkdir()
        made.serve({"packing": {"podGates": True}}, "gkm-pod-gates", "--pod-gates=on", ("mutating",))
        yield made


@pytest.fixture
def site(gkm_cluster: Cluster, admission: AdmissionSite, tmp_path: Path) -> Iterator[Site]:  # noqa: ARG001 -- it serves
    with plans_site(gkm_cluster, tmp_path) as made:
        gkm_cluster.until(lambda: gkm_cluster.exists("serviceaccount", "default", NAMESPACE), "its account")
        gkm_cluster.until(lambda: GATE in gates(gkm_cluster.objects.create(pod("probe", "r"), dry_run=True)), "a gate")
        until_rights_hold(gkm_cluster)
        yield made


def pod(name: str, run: str, number: int | None = None, **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    made = gpu_pod(name, "", 8, run, NAMESPACE)
    made["spec"] = {"containers": made["spec"]["containers"]} | spec
    del made["status"]
    if number is not None:
        made["metadata"]["labels"][INDEX] = str(number)
    return made


def gates(found: Json) -> list[str]:
    return [gate["name"] for gate in found["spec"].get("schedulingGates", [])]


def rack(site: Site, domain: str, count: int) -> None:
    """Nodes whose label of their host is not their name."""
    for number in range(count):
        name = f"gates-{domain}-n{number}"
        node = gpu_node(name, domain, gpu__flavor=FLAVOR) | {"spec": {"taints": []}}
        node["metadata"]["labels"]["kubernetes.io/hostname"] = f"host-{name}"
        site.names.append(name)
        put(site.api, NODES, node)


def controllers(site: Site, name: str, directory: Path) -> None:
    config = directory / f"{name}.yaml"
    config.write_text(yaml.safe_dump({"packing": {"podGates": True, "podGateWait": WAIT_SECONDS}}))
    site.start(name, main=HURRIED, arguments=(f"--config={config}",))


def host(site: Site, name: str) -> str:
    """The host that the nodeSelector of a pod names once its gate is gone."""
    found: Json = {}

    def free() -> bool:
        found.update(site.cluster.get("pod", name, NAMESPACE))
        return not gates(found)

    site.cluster.until(free, f"pod {name} to be free")
    return str(found["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname", ""))


def planned(site: Site, plan: str) -> list[str]:
    lines = site.cluster.kubectl("get", "placementplan", plan, "-n", NAMESPACE, "-o", "json")
    groups = json.loads(lines)["spec"]["groups"]
    names = [share["name"] for group in groups for share in group["nodes"]]
    assert not any("[" in name or "*" in name for name in names), names
    return [name for text in names for name in text.split(",")]


def bind(site: Site, name: str, node: str) -> None:
    """Do what a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    meta = {"name": name, "namespace": NAMESPACE}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding"
    site.cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))


def followed(site: Site, run: str) -> tuple[Json, str, str]:
    status = site.cluster.get("run", run, NAMESPACE)["status"]
    found = [each for each in status["conditions"] if each["type"] == "Followed"]
    return status.get("pods", {}), *((found and (found[0]["status"], found[0]["reason"])) or ("", ""))


def test_pods_start_where_the_plan_says_by_their_numbers(site: Site, tmp_path: Path) -> None:
    rack(site, "pg1", 1)
    rack(site, "pg2", 1)
    # Pods of a Run that does not exist are released after WAIT_SECONDS, which a slow machine needs to go on here.
    site.ask("ranked", 16, groupGPUs=8)
    for number in (1, 0):
        made = site.api.create(PODS, pod(f"ranked-{'ba'[number]}", "ranked", number))
        assert gates(made) == [GATE]
    controllers(site, "first", tmp_path)
    site.until("ranked", "Planned", "ranked-1")
    nodes = planned(site, "ranked-1")
    assert len(nodes) == 2
    assert [host(site, "ranked-b"), host(site, "ranked-a")] == [f"host-{node}" for node in nodes]
    site.cluster.until(lambda: followed(site, "ranked") == ({"waiting": 2}, "False", "PodsWaiting"), "it waits")
    bind(site, "ranked-b", nodes[0])
    bind(site, "ranked-a", nodes[1])
    site.cluster.until(lambda: followed(site, "ranked") == ({"followed": 2}, "True", "PodsWherePlanned"), "it follows")


def test_a_run_that_does_not_fit_releases_its_pods_only_if_its_user_chose_so(site: Site, tmp_path: Path) -> None:
    rack(site, "pg3", 1)
    controllers(site, "first", tmp_path)
    site.ask("waits", 64)
    site.ask("releases", 64, onNoPlan="release")
    for run in ("waits", "releases", "deleted-run"):
        site.api.create(PODS, pod(f"{run}-0", run))
    assert (host(site, "releases-0"), host(site, "deleted-run-0")) == ("", "")
    assert gates(site.api.get(PODS, "waits-0", NAMESPACE)) == [GATE]
    site.cluster.kubectl("delete", "run", "waits", "-n", NAMESPACE)
    assert host(site, "waits-0") == ""


def test_a_person_frees_pods_while_gkm_is_away(site: Site) -> None:
    site.api.create(PODS, pod("stranded", "nobody"))
    patch = json.dumps({"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}})
    site.cluster.kubectl("patch", "pod", "stranded", "-n", NAMESPACE, "--type=strategic", "-p", patch)
    assert gates(site.api.get(PODS, "stranded", NAMESPACE)) == []


def test_a_pod_that_starts_elsewhere_diverges_and_keeps_its_node(site: Site, tmp_path: Path) -> None:
    rack(site, "pg4", 2)
    controllers(site, "first", tmp_path)
    site.ask("astray", 8)
    site.until("astray", "Planned", "astray-1")
    (node,) = planned(site, "astray-1")
    (other,) = set(site.names) - {node}
    made = pod("astray-0", "astray", nodeName=other)
    assert gates(site.api.create(PODS, made)) == []
    site.cluster.until(lambda: followed(site, "astray")[2] == "PodsDiverged", "the divergence is reported")
    message = next(
        each["message"]
        for each in site.cluster.get("run", "astray", NAMESPACE)["status"]["conditions"]
        if each["type"] == "Followed"
    )
    assert message == f"pod astray-0 is on node {other}, and there is no free place in astray-1 for it there"


def test_pods_with_a_node_of_their_own_choice_or_without_gpus_get_no_gate(site: Site) -> None:
    def made(**spec: Any) -> list[str]:  # noqa: ANN401 -- JSON
        return gates(site.cluster.objects.create(pod("tried", "r", **spec), dry_run=True))

    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert made(affinity={"nodeAffinity": required}) == []
    assert made(nodeSelector={"kubernetes.io/hostname": "n"}) == []
    assert made(containers=[{"name": "launcher", "image": "a"}]) == []
    assert made(schedulingGates=[{"name": "example.com/first"}]) == ["example.com/first", GATE]


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ({"spec": {"activeDeadlineSeconds": 1}}, "only to remove its last gate"),
        ({"metadata": {"labels": {"x": "y"}}}, "only to remove its last gate"),
        ({"spec": {"schedulingGates": None, "nodeSelector": {"other": "x"}}}, "but kubernetes.io/hostname"),
        ({"metadata": {"annotations": {"x": "y"}}, "spec": {"schedulingGates": None}}, "but its gate"),
    ],
)
def test_the_account_of_the_controllers_changes_nothing_else_of_pods(site: Site, patch: Json, reason: str) -> None:
    site.api.create(PODS, pod("guarded", "r"))
    stolen = connect(str(site.cluster.kubeconfig_for(CONTROLLERS)))
    with pytest.raises(ApiError, match=reason):
        stolen.merge(PODS, "guarded", patch, NAMESPACE)
