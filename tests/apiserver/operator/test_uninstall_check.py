"""What stops an uninstallation: pods with volumes of GKM, as a real API server has them."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from support.cli.command import gkm
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.kube.our_kinds import CONTROLLERS
from support.operator.deployment import operator_command

SPACE, NODE = "uninstalling", "node-of-users"


@pytest.fixture
def cluster_with_node(gkm_cluster: Cluster) -> Iterator[Cluster]:
    gkm_cluster.apply([namespace(SPACE), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}])
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SPACE}}
    gkm_cluster.apply(account)
    yield gkm_cluster
    gkm_cluster.objects.delete_every("pods", SPACE)
    gkm_cluster.objects.delete_named("node", NODE)


def pod(name: str, driver: str = "csi.gkm.io", node: str = NODE) -> dict[str, Any]:
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "cache", "csi": {"driver": driver}}]
    spec = {"containers": [{"name": "main", "image": "registry.test/app:1"}], "volumes": volumes}
    placed = {"nodeName": node} if node else {"schedulerName": "none"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}, "spec": spec | placed}


def check(cluster: Cluster, account: str = CONTROLLERS) -> tuple[int, str]:
    words = operator_command("uninstall-check", f"--kubeconfig={cluster.kubeconfig_for(account)}")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_person_gets_the_same_answer(cluster_with_node: Cluster) -> None:
    cluster_with_node.apply([pod("of-another", "secrets-store.csi.k8s.io")])
    flags = ("--check", "--kubeconfig", cluster_with_node.kubeconfig)
    free = gkm("uninstall", *flags)
    assert (free.returncode, free.stdout, free.stderr) == (0, "no pod uses a volume of GKM\n", "")

    cluster_with_node.apply([pod("first")])
    used = gkm("uninstall", *flags)
    assert (used.returncode, used.stderr) == (3, "")
    assert used.stdout.startswith(f"1 pod uses volumes of GKM, which only its CSI driver can unmount: {SPACE}/first;")
    found = gkm("uninstall", *flags, "-o", "json")
    assert json.loads(found.stdout) == {
        "ok": False,
        "pods": [{"namespace": SPACE, "name": "first"}],
        "gated": [],
    }

    no_rights = cluster_with_node.kubeconfig_for("system:serviceaccount:gkm-system:gkm-csi")
    denied = gkm("uninstall", "--check", "--kubeconfig", no_rights)
    assert (denied.returncode, denied.stdout) == (1, "")
    assert "missing right: list pods in all namespaces" in denied.stderr


def test_without_check_it_is_wrong_usage() -> None:
    done = gkm("uninstall")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "makes no changes" in done.stderr


def test_pods_with_our_volumes_on_a_node_stop_it_until_they_end(cluster_with_node: Cluster) -> None:
    cluster = cluster_with_node
    cluster.apply([pod("of-another", "secrets-store.csi.k8s.io"), pod("without-a-node", node="")])
    assert check(cluster) == (0, "gkm-operator: no pod uses a volume of GKM\n")

    cluster.apply([pod("first"), pod("second")])
    code, printed = check(cluster)
    assert code == 3
    assert printed.startswith("gkm-operator: 2 pods use volumes of GKM")
    assert f"{SPACE}/first, {SPACE}/second; delete them" in printed
    assert len(printed.splitlines()) == 1

    for name, phase in (("first", "Succeeded"), ("second", "Failed")):
        cluster.objects.merge("pod", name, {"status": {"phase": phase}}, SPACE, subresource="status")
    assert check(cluster)[0] == 0


def test_pods_behind_the_gate_stop_it(cluster_with_node: Cluster) -> None:
    cluster = cluster_with_node
    gated, other = pod("gated", "other.example", node=""), pod("other", "other.example", node="")
    gated["spec"]["schedulingGates"] = [{"name": "gkm.io/placement"}]
    other["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    cluster.apply([gated, other])
    code, printed = check(cluster)
    assert code == 3
    assert (
        f"1 pod waits behind the scheduling gate gkm.io/placement, which only the controllers remove: {SPACE}/gated;"
        in printed
    )
    found = gkm("uninstall", "--check", "--kubeconfig", cluster.kubeconfig, "-o", "json")
    assert json.loads(found.stdout) == {"ok": False, "pods": [], "gated": [{"namespace": SPACE, "name": "gated"}]}


def test_many_pods_are_counted_and_some_are_named(cluster_with_node: Cluster) -> None:
    cluster_with_node.apply([pod(f"user-{number:02}") for number in range(23)])
    code, printed = check(cluster_with_node)
    assert code == 3
    assert "23 pods" in printed
    assert f"{SPACE}/user-19 and 3 more" in printed
    assert "user-20" not in printed


def test_an_account_that_may_not_list_pods_is_no_permission_to_go_on(gkm_cluster: Cluster) -> None:
    code, printed = check(gkm_cluster, "system:serviceaccount:gkm-system:gkm-csi")
    assert code == 1
    assert "cannot list resource" in printed
