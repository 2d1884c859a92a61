"""What a person sees of our kinds: kubectl on a real kube-apiserver, with the definitions that ship."""

from datetime import UTC, datetime, timedelta

import pytest
from gkm.api.meta import timestamp
from gkm.kube.client import connect
from operator_plans import RAW_PLANS
from testbed.cluster import Cluster

pytestmark = pytest.mark.peers
NAMESPACE = "seen"
CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"
SHA = "a" * 64
SIZES = {"gpus": 8, "gpusPerPod": 8, "groupGPUs": 8}
PLACE = {"region": "r", "cluster": "c", "block": "b", "domain": "d"}
NUMBERS = ("domains", "lowerBound", "gap", "strandedGPUs", "blocks", "pristineDomains", "sparesElsewhere")


@pytest.fixture(scope="module")
def seen(gkm_cluster: Cluster) -> Cluster:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return gkm_cluster


def columns(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """What `kubectl get` shows of an object, by the names of its columns; none of them may hold a space."""
    head, row = cluster.kubectl("get", kind, name, "--namespace", NAMESPACE).splitlines()
    return dict(zip(head.split(), row.split(), strict=True))


def test_when_a_plan_expires_is_shown_as_a_time(seen: Cluster) -> None:
    expires = timestamp(datetime.now(UTC) + timedelta(hours=1))
    plan = {
        "hash": SHA,
        "inventoryVersion": SHA,
        "policy": "fewest-domains",
        "flavor": "h100",
        "gpus": 8,
        "request": SIZES,
        "groups": [{"index": 0, "gpus": 8, "nodes": [{"name": "n1", "gpus": 8}]} | PLACE],
        "metrics": dict.fromkeys(NUMBERS, 0),
        "run": "llama",
        "expiresAt": expires,
    }
    meta = {"name": "llama-1", "namespace": NAMESPACE}
    whole = {"apiVersion": "gkm.io/v1alpha1", "kind": "PlacementPlan", "metadata": meta, "spec": plan}
    connect(str(seen.kubeconfig_for(CONTROLLERS))).create(RAW_PLANS, whole)
    assert columns(seen, "gkmp", "llama-1")["EXPIRES"] == expires
