"""What a person sees of our kinds: kubectl on a real kube-apiserver, with the definitions that ship."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from gkm.api.crds import KINDS
from gkm.api.meta import timestamp
from gkm.kube.client import connect
from support.cluster.cluster import Cluster
from support.operator.flavors_path import FLAVORS_PATH
from support.operator.plans import RAW_PLANS

NAMESPACE = "seen"
CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"
POLICY = {"mode": "Pinned", "interval": "15m", "allowRollback": False}
SHA = "a" * 64
SIZES = {"gpus": 8, "gpusPerPod": 8, "groupGPUs": 8}
PLACE = {"region": "r", "cluster": "c", "block": "b", "domain": "d"}
NUMBERS = ("domains", "lowerBound", "gap", "strandedGPUs", "blocks", "pristineDomains", "sparesElsewhere")


@pytest.fixture
def seen(gkm_cluster: Cluster) -> Iterator[Cluster]:
    """A namespace in the cluster that tests share; nothing is left in it for the controllers of others."""
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield gkm_cluster
    gkm_cluster.kubectl("delete", "gkmcaches,runs,placementplans", "--all", "--namespace", NAMESPACE)


def columns(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """What `kubectl get` shows of an object, by the names of its columns; a column may be empty."""
    head, row = cluster.kubectl("get", kind, name, "--namespace", NAMESPACE).splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", head)]
    return {head[at:to].strip(): row[at:to].strip() for at, to in pairwise([*starts, None])}


def test_the_expiry_of_a_plan_is_printed_as_a_time(seen: Cluster) -> None:
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


@pytest.mark.parametrize("plural", [kind.plural for kind in KINDS])
def test_every_field_is_explained(seen: Cluster, plural: str) -> None:
    """`kubectl explain` describes the fields one level below its argument."""
    left, asked = [plural], 0
    while left:
        path = left.pop()
        text = seen.kubectl("explain", path)
        asked += 1
        assert "<empty>" not in text, text
        assert "<no description>" not in text, text
        fields = [line.split() for line in text.partition("FIELDS:")[2].splitlines() if "\t<" in line]
        left += [f"{path}.{name}" for name, kind, *_ in fields if "Object" in kind and name != "metadata"]
    assert asked > 1


def a_flavor(cluster: Cluster) -> str:
    """A flavor that the policy gkm-runs-flavor lets pass: other tests may have made nodes in this cluster."""
    words = ("get", "serviceaccount", "gkm-flavors", "-n", "gkm-system", "--ignore-not-found")
    return cluster.kubectl(*words, f"--output={FLAVORS_PATH}").split(",")[0] or "h100"


def test_omitted_fields_get_their_defaults(seen: Cluster) -> None:
    flavor = a_flavor(seen)
    for kind, name, spec in (
        ("GKMCache", "short", {"image": "registry.test/a:1"}),
        ("Run", "short", {"flavor": flavor, "gpus": 8, "tolerations": [{"key": "a"}]}),
    ):
        meta = {"name": name, "namespace": NAMESPACE}
        seen.apply({"apiVersion": "gkm.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec})
    spec = seen.get("gkmcache", "short", NAMESPACE)["spec"]
    assert spec == {"image": "registry.test/a:1", "updatePolicy": POLICY}
    assert seen.get("run", "short", NAMESPACE)["spec"] == {
        "flavor": flavor,
        "gpus": 8,
        "gpusPerPod": 8,
        "balanced": False,
        "allowCrossGroupSpread": True,
        "spares": 0,
        "priority": 0,
        "tolerations": [{"key": "a", "operator": "Equal"}],
    }
