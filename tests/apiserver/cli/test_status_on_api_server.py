"""`gkm status` on a real API server: what it shows, the rights of readers, and a watch that Ctrl-C ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.chart.deploy_files import rendered
from support.cli.command import SECONDS, gkm
from support.cli.plan_files import Json, racks, run
from support.cli.why_site import NAMESPACE, NODE, why_site
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import pod
from support.cluster.rights import cluster_role_binding, until_rights_hold
from support.peers import require

READER = "reader"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two racks of four nodes with GPUs and one without, a cache that is ready, a run, and a pod that waits for it."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with why_site(tmp_path_factory.mktemp("status")) as made, made.made():
        cluster = made.cluster
        for item in racks(2):
            cluster.apply([{key: value for key, value in item.items() if key != "status"}])
            capacity = {"status": item["status"] | {"capacity": item["status"]["allocatable"]}}
            cluster.objects.merge("node", item["metadata"]["name"], capacity, subresource="status")
        waiting = pod("hangs", NAMESPACE, {"cacheName": "llama"}, "true")
        cluster.apply([waiting, run() | {"metadata": {"name": "train", "namespace": NAMESPACE}}])
        cluster.apply(rendered() / "base" / "users.yaml")
        cluster.apply(cluster_role_binding("readers", "gkm-reader", {"kind": "User", "name": READER}))
        until_rights_hold(cluster)
        yield cluster


def asked(site: Cluster, *arguments: object, user: str = READER) -> subprocess.CompletedProcess[str]:
    return gkm("status", *arguments, "--kubeconfig", site.kubeconfig_for(user))


def test_a_reader_sees_all_parts(site: Cluster) -> None:
    done = asked(site, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found: Json = json.loads(done.stdout)
    nodes = found["nodes"]
    assert (nodes["total"], nodes["withGPUs"], nodes["served"]) == (9, 8, 0)
    assert NODE not in nodes["unserved"]
    (cache,) = found["caches"]["caches"]
    assert (cache["namespace"], cache["name"], cache["state"], cache["readyNodes"]) == (NAMESPACE, "llama", "ready", 1)
    (volume,) = found["waitingPods"]["volumes"]
    assert (volume["cache"], volume["first"], volume["pods"]) == ("GKMCache llama", "hangs", 1)
    assert volume["next"] == f"gkm why hangs -n {NAMESPACE}"
    domains = {one["name"].rpartition("/")[2]: one["nodes"] for one in found["fabricDomains"]["domains"]}
    assert domains == {"rack0": 4, "rack1": 4}
    assert [(one["name"], one["state"]) for one in found["runs"]] == [("train", "waits")]
    assert found["computeDomains"] == []
    missing = {one["check"]: one["problems"] for one in found["problems"]["found"]}
    assert missing["agent/missing"] == 1


def test_people_read_the_same_on_one_screen(site: Cluster) -> None:
    done = asked(site)
    assert (done.returncode, done.stderr) == (0, "")
    assert "9 nodes, 8 ready; 8 with GPUs, 0 of these with a ready agent" in done.stdout
    assert f"next: gkm why hangs -n {NAMESPACE}" in done.stdout
    assert len(done.stdout.splitlines()) < 60


def test_a_namespace_has_no_nodes_and_only_its_own_caches(site: Cluster) -> None:
    found: Json = json.loads(asked(site, "-n", "kube-system", "-o", "json").stdout)
    assert (found["nodes"], found["fabricDomains"], found["caches"]["caches"]) == (None, None, [])
    done = asked(site, "-n", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: there is no namespace nowhere; kubectl get namespaces lists all\n"


def test_without_rights_no_part_is_known(site: Cluster) -> None:
    done = asked(site, user="stranger")
    assert done.returncode == 1
    assert done.stderr.startswith("error: not known: nodes, caches, waitingPods, fabricDomains, computeDomains, runs, ")
    assert "not known: missing right: list nodes" in done.stdout
    assert "0 nodes" not in done.stdout


def test_a_watch_shows_the_state_again_until_it_is_interrupted(site: Cluster) -> None:
    kubeconfig = str(site.kubeconfig_for(READER))
    # A shell makes its background processes ignore Ctrl-C, and their children inherit that.
    command = ["env", "--default-signal=INT", sys.executable]
    command += ["-m", "gkm_cli.main", "status", "--watch", "--kubeconfig", kubeconfig]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        seen = 0
        while seen < 2 and (text := watch.stdout.readline()):
            seen += text.startswith("status at ")
        os.kill(watch.pid, signal.SIGINT)
        _, errors = watch.communicate(timeout=SECONDS)
    assert (seen, watch.returncode, errors) == (2, 128 + signal.SIGINT, "")
