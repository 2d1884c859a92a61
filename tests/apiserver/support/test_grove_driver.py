"""The Grove operator that tests play, against a real API server and its garbage collector."""

from gkm.kube.client import connect
from support.cluster.cluster import Cluster
from support.grove.driver import CLIQUES, GROUPS, PODS, SERVICES, SETS, GroveDriver
from support.grove.installation import install_kinds, operator_api
from support.grove.objects import clique, pod_clique_set, scaling_group

NAMESPACE = "grove-driver"


def test_a_set_is_made_changed_scaled_and_deleted(cluster: Cluster) -> None:
    install_kinds(cluster)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.until(lambda: cluster.exists("serviceaccount", "default", NAMESPACE), "a service account")
    api = connect(str(cluster.kubeconfig))
    driver = GroveDriver(operator_api(cluster), NAMESPACE, pods=True)
    groups = [scaling_group("decode", "worker", replicas=2)]
    cliques = [clique("router", gpus=0), clique("worker", replicas=2)]
    api.create(SETS, pod_clique_set("set", *cliques, scaling_groups=groups, namespace=NAMESPACE))
    driver.settle()
    assert len(driver.every(PODS)) == 5

    injected = {"spec": {"podSpec": {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "y"}]}}}
    for name in ("set-0-router", "set-0-decode-0-worker"):
        api.merge(CLIQUES, name, injected, NAMESPACE)
    driver.settle()
    found = {one["metadata"]["name"]: "resourceClaims" in one["spec"]["podSpec"] for one in driver.every(CLIQUES)}
    assert found == {"set-0-router": False, "set-0-decode-0-worker": True, "set-0-decode-1-worker": False}

    api.merge(SETS, "set", {"spec": {"replicas": 0}}, NAMESPACE)
    cluster.until(lambda: driver.sync() and not driver.every(PODS), "nothing to run", 90)
    api.merge(SETS, "set", {"spec": {"replicas": 1}}, NAMESPACE)
    cluster.until(lambda: driver.sync() and len(driver.every(PODS)) == 5, "all to run again", 90)
    api.delete(SETS, "set", NAMESPACE)
    cluster.until(
        lambda: driver.sync() and not any(driver.every(kind) for kind in (SETS, GROUPS, CLIQUES, PODS, SERVICES)),
        "nothing to be left",
        90,
    )
