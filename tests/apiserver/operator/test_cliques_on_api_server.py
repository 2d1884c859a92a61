"""The built-in controllers of PodCliqueSets as a process with the rights that ship, on a real API server."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.cluster import Cluster
from support.grove.installation import install_kinds
from support.grove.objects import clique, pod_clique_set, scaling_group
from support.host.processes import Process
from support.kube.our_kinds import CONTROLLERS
from support.operator.deployment import ROOT, manifests, operator, refused_requests

NAMESPACE = "cliques"
RIGHTS = ROOT / "deploy" / "components" / "cliques" / "rights.yaml"
KINDS = ("podcliquesets", "podcliquescalinggroups", "podcliques", "services", "pods")
SET = pod_clique_set(
    "set",
    clique("router", gpus=0, replicas=2),
    clique("leader"),
    clique("worker", replicas=2),
    scaling_groups=[scaling_group("decode", "leader", "worker")],
    namespace=NAMESPACE,
)
PODS = {
    "set-0-router-0",
    "set-0-router-1",
    "set-0-decode-0-leader-0",
    "set-0-decode-0-worker-0",
    "set-0-decode-0-worker-1",
}
ROLE = "grove:system:grove-operator"
GROVE_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": ROLE},
    "rules": [],
}
Json = dict[str, Any]


@dataclass
class Running:
    """A cluster with Grove's kinds and running controllers."""

    cluster: Cluster
    process: Process

    def objects(self, kind: str) -> dict[str, Json]:
        found = self.cluster.objects.every(kind, NAMESPACE)
        return {one["metadata"]["name"]: one for one in found}

    def until_pods(self, names: set[str]) -> dict[str, Json]:
        self.cluster.until(lambda: self.objects("pods").keys() == names, f"the pods {sorted(names)}")
        return self.objects("pods")

    def scale(self, kind: str, name: str, replicas: int) -> None:
        self.cluster.kubectl("scale", kind, name, f"--replicas={replicas}", "--namespace", NAMESPACE)


def controllers(cluster: Cluster, directory: Path) -> tuple[str, ...]:
    config = directory / "config.yaml"
    config.write_text("grove: {builtInControllers: true}", encoding="utf-8")
    account = cluster.kubeconfig_for(CONTROLLERS)
    return "controllers", f"--config={config}", "--health=127.0.0.1:0", f"--kubeconfig={account}"


def log_of(process: Process) -> str:
    return process.log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def prepared(gkm_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster with Grove's kinds and, until this module ends, the rights of the component."""
    install_kinds(gkm_cluster)
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    gkm_cluster.until(lambda: gkm_cluster.exists("serviceaccount", "default", NAMESPACE), "a service account")
    gkm_cluster.apply(RIGHTS)
    gkm_cluster.until(lambda: has_rights(gkm_cluster), "the API server to know the rights")
    try:
        yield gkm_cluster
    finally:
        gkm_cluster.kubectl("delete", "--filename", str(RIGHTS))
        gkm_cluster.until(lambda: not has_rights(gkm_cluster), "the API server to forget the rights")


def has_rights(cluster: Cluster) -> bool:
    """Whether the API server gives the controllers a right that deploy/base alone does not give."""
    return "podcliques" in cluster.kubectl("auth", "can-i", "--list", f"--as={CONTROLLERS}")


@pytest.fixture
def running(prepared: Cluster, tmp_path: Path) -> Iterator[Running]:
    with operator(tmp_path, *controllers(prepared, tmp_path)) as process:
        process.ready(lambda: '"event": "cliques synced"' in log_of(process), "it is synced")
        yield Running(prepared, process)
        process.stop()
        assert process.popen.returncode == 0, process.tail()
        assert refused_requests(log_of(process)) == []
        assert "handler failed" not in log_of(process)


def test_a_set_runs_to_pods_scales_and_leaves_nothing(running: Running) -> None:
    running.cluster.apply(SET)
    pods = running.until_pods(PODS)
    running.cluster.until(
        lambda: running.objects("podcliques")["set-0-router"].get("status") == {"replicas": 2, "readyReplicas": 0},
        "the status of a PodClique",
    )
    (owner,) = pods["set-0-decode-0-worker-1"]["metadata"]["ownerReferences"]
    clique_uid = running.objects("podcliques")["set-0-decode-0-worker"]["metadata"]["uid"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PodClique", "set-0-decode-0-worker", clique_uid)

    running.scale("podcliqueset", "set", 2)
    running.until_pods(PODS | {name.replace("set-0", "set-1") for name in PODS})
    running.scale("podcliqueset", "set", 1)
    running.until_pods(PODS)
    running.scale("podcliquescalinggroup", "set-0-decode", 2)
    running.until_pods(PODS | {name.replace("decode-0", "decode-1") for name in PODS})
    running.scale("podclique", "set-0-router", 0)
    running.scale("podcliquescalinggroup", "set-0-decode", 1)
    grouped = {name for name in PODS if "decode" in name}
    before = running.until_pods(grouped)

    changed = json.loads(json.dumps(SET))
    changed["spec"]["template"]["cliques"][2]["spec"]["podSpec"]["containers"][0]["image"] = "registry.test/app:2"
    running.cluster.apply(changed)
    running.cluster.until(
        lambda: (
            {
                name
                for name, pod in running.objects("pods").items()
                if pod["spec"]["containers"][0]["image"] == "registry.test/app:2"
            }
            == {"set-0-decode-0-worker-0", "set-0-decode-0-worker-1"}
        ),
        "the pods of a changed clique to be replaced",
    )
    same = {
        name
        for name, pod in running.until_pods(grouped).items()
        if pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
    }
    assert same == {"set-0-decode-0-leader-0"}

    failed = ("patch", "pod", "set-0-decode-0-leader-0", "--namespace", NAMESPACE, "--subresource=status")
    running.cluster.kubectl(*failed, "--type=merge", "--patch", json.dumps({"status": {"phase": "Failed"}}))
    running.cluster.until(
        lambda: (
            running.objects("pods").get("set-0-decode-0-leader-0", before["set-0-decode-0-leader-0"])["metadata"]["uid"]
            != before["set-0-decode-0-leader-0"]["metadata"]["uid"]
        ),
        "a failed pod to be replaced",
    )

    running.cluster.kubectl("delete", "podcliqueset", "set", "--namespace", NAMESPACE)
    running.cluster.until(lambda: not any(running.objects(kind) for kind in KINDS), "nothing to be left")


def test_they_stop_while_the_grove_operator_is_installed(running: Running) -> None:
    running.cluster.apply(GROVE_ROLE)
    try:
        running.cluster.until(lambda: '"built_in": "stopped"' in log_of(running.process), "it to be found")
        running.cluster.apply(SET)
        words = {"fieldSelector": "reason=BuiltInControllersStopped"}
        running.cluster.until(lambda: running.cluster.objects.every("events", NAMESPACE, **words), "an event")
        assert not running.objects("podcliques")
    finally:
        running.cluster.kubectl("delete", "clusterrole", ROLE)
    running.until_pods(PODS)
    running.cluster.kubectl("delete", "podcliqueset", "set", "--namespace", NAMESPACE)
    running.cluster.until(lambda: not running.objects("pods"), "the pods to go")


def test_the_process_ends_at_its_start_beside_the_grove_operator(prepared: Cluster, tmp_path: Path) -> None:
    prepared.apply(GROVE_ROLE)
    try:
        with operator(tmp_path, *controllers(prepared, tmp_path)) as process:
            assert process.popen.wait(60) == 1
            last = json.loads(log_of(process).splitlines()[-1])
    finally:
        prepared.kubectl("delete", "clusterrole", ROLE)
    assert last["error"] == "GroveOperatorPresent"
    assert f"the Grove operator is installed (ClusterRole {ROLE} exists): switch it off" in last["why"]


def test_the_process_ends_at_its_start_without_the_component(prepared: Cluster, tmp_path: Path) -> None:
    prepared.kubectl("delete", "clusterrolebinding", "gkm-cliques")
    try:
        with operator(tmp_path, *controllers(prepared, tmp_path)) as process:
            assert process.popen.wait(60) == 1
            last = json.loads(log_of(process).splitlines()[-1])
    finally:
        prepared.apply(RIGHTS)
    assert last["error"] == "BuiltInControllersBlocked"
    assert "mutatingwebhookconfigurations cannot be listed" in last["why"]
    assert "deploy/components/cliques" in last["why"]


def test_the_component_adds_its_rights_to_the_base(cluster: Cluster, tmp_path: Path) -> None:
    where = {name: os.path.relpath(ROOT / "deploy" / name, tmp_path) for name in ("base", "components/cliques")}
    overlay = {"resources": [where["base"]], "components": [where["components/cliques"]]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay), encoding="utf-8")
    built = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(tmp_path))))
    added = {(one["kind"], one["metadata"]["name"]) for one in built} - {
        (one["kind"], one["metadata"]["name"]) for one in manifests()
    }
    assert added == {("ClusterRole", "gkm-cliques"), ("ClusterRoleBinding", "gkm-cliques")}
