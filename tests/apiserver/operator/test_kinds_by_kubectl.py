"""What a person sees of our kinds: kubectl on a real kube-apiserver, with the definitions that ship."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from gkm.api.crds import KINDS, Kind, definition
from gkm.api.meta import timestamp
from gkm.kube.client import connect
from gkm.kube.resources import Json
from support.cluster.cluster import Cluster
from support.operator.plans import RAW_PLANS

NAMESPACE = "seen"
GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"
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
    for kind in ("gkmcaches", "runs", "placementplans"):
        gkm_cluster.objects.delete_every(kind, NAMESPACE)


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


def undescribed(schema: Json, path: str) -> Iterator[str]:
    """Yield each field without a description; those of metadata are the API server's."""
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            yield f"{path}.{name}"
        if name != "metadata":
            for part in (field, field.get("items", {}), field.get("additionalProperties", {})):
                yield from undescribed(part, f"{path}.{name}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_every_field_is_explained(seen: Cluster, kind: Kind) -> None:
    """`kubectl explain` reads this document of the API server, the fields of one level at a time."""
    schemas = seen.objects.schemas("gkm.io", "v1alpha1")
    name = definition(kind)["spec"]["names"]["kind"]
    (schema,) = (one for one in schemas if [name] == [each["kind"] for each in one.get(GROUP_VERSION_KIND, ())])
    assert len(schema["properties"]) > 1
    assert schema["description"]
    assert list(undescribed(schema, kind.plural)) == []


@pytest.mark.parametrize("plural", [kind.plural for kind in KINDS])
def test_kubectl_explains_every_kind(seen: Cluster, plural: str) -> None:
    text = seen.kubectl("explain", plural)
    assert "FIELDS:" in text
    assert "<empty>" not in text, text
    assert "<no description>" not in text, text


def a_flavor(cluster: Cluster) -> str:
    """A flavor that the policy gkm-runs-flavor lets pass: other tests may have made nodes in this cluster."""
    found = cluster.objects.get("serviceaccount", "gkm-flavors", "gkm-system").get("metadata", {})
    return str(found.get("annotations", {}).get("gkm.io/flavors", "")).split(",")[0] or "h100"


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
        "onNoPlan": "wait",
        "tolerations": [{"key": "a", "operator": "Equal"}],
    }
