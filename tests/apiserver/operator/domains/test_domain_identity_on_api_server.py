"""Who may change by what GKM finds the ComputeDomains that it made, and their owners: the policy, on a real API server.

A domain with another replica, set or owner is excess: GKM or the garbage collector would delete it under its pods.
"""

from pathlib import Path

import pytest
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from support.cluster.gkm_objects import namespace
from support.grove.objects import compute_domain, pod_clique_set
from support.operator.domain_cluster import UID_LABEL, DomainCluster, Json, job
from support.operator.domains import DOMAINS, ENROLLED, TEMPLATES

TEAM = "identity"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000000"}
RELABELED: dict[str, Json] = {
    key: {"labels": {key: value}}
    for key, value in (
        ("grove.io/podcliqueset-replica-index", "9"),
        ("grove.io/mnnvl-group", "other"),
        ("app.kubernetes.io/part-of", "other"),
        ("gkm.io/compute-domain", "other"),
        ("gkm.io/written-by", None),
    )
}


@pytest.fixture(scope="module")
def place(place: DomainCluster) -> DomainCluster:
    """The cluster with a domain of a set, used by a pod, and one of a label."""
    place.cluster.apply(namespace(TEAM))
    place.cluster.apply([pod_clique_set("my-pcs", annotations=ENROLLED, namespace=TEAM), job("one", "train", TEAM)])
    place.until_names(TEAM, "my-pcs-0", "train")
    place.make_template("my-pcs-0", TEAM)
    place.use("my-pcs-0", TEAM)
    return place


def refusal(account: Path, resource: Resource[Json], name: str, metadata: Json) -> str:
    """Return why an account may not change an object; "" if it may."""
    try:
        connect(str(account)).merge(resource, name, {"metadata": metadata}, TEAM)
    except ApiError as error:
        return error.message
    return ""


def accounts(place: DomainCluster) -> tuple[Path, Path]:
    """The administrator, who is in system:masters, and NVIDIA's controller."""
    return place.cluster.kubeconfig, place.nvidia


@pytest.mark.parametrize("name", ["my-pcs-0", "train"])
@pytest.mark.parametrize("key", RELABELED)
def test_only_the_controllers_relabel_their_domains(place: DomainCluster, name: str, key: str) -> None:
    before = place.domain(name, TEAM)["labels"]
    for account in accounts(place):
        assert f"change {key} of ComputeDomain {TEAM}/{name}" in refusal(account, DOMAINS, name, RELABELED[key])
    assert place.domain(name, TEAM)["labels"] == before


@pytest.mark.parametrize("name", ["my-pcs-0", "train"])
def test_only_the_controllers_and_the_garbage_collector_change_owners(place: DomainCluster, name: str) -> None:
    before = place.domain(name, TEAM)["ownerReferences"]
    for owners in ([], [OWNER], [*before, OWNER]):
        for account in accounts(place):
            said = refusal(account, DOMAINS, name, {"ownerReferences": owners})
            assert f"change ownerReferences of ComputeDomain {TEAM}/{name}" in said
    assert place.domain(name, TEAM)["ownerReferences"] == before


def test_what_does_not_identify_a_domain_is_free(place: DomainCluster) -> None:
    finalizers = place.domain("my-pcs-0", TEAM)["finalizers"]
    for account in accounts(place):
        for metadata in (
            {"labels": {"team": "a"}},
            {"annotations": {"note": "a"}},
            {"finalizers": [*finalizers, "resource.nvidia.com/computeDomain"]},
            {"finalizers": finalizers},
        ):
            assert refusal(account, DOMAINS, "my-pcs-0", metadata) == ""


def test_the_status_is_no_way_around_it(place: DomainCluster) -> None:
    before = place.domain("my-pcs-0", TEAM)
    metadata = {"labels": {"grove.io/podcliqueset-replica-index": "9"}, "ownerReferences": None}
    patch = {"metadata": metadata, "status": {"status": "NotReady"}}
    connect(str(place.nvidia)).merge(DOMAINS, "my-pcs-0", patch, TEAM, subresource="status")
    found = place.cluster.get("computedomain", "my-pcs-0", TEAM)
    assert found["status"]["status"] == "NotReady"
    assert {key: found["metadata"][key] for key in ("labels", "ownerReferences")} == {
        key: before[key] for key in ("labels", "ownerReferences")
    }


def test_the_template_of_running_pods_belongs_to_its_domain(place: DomainCluster) -> None:
    for account in accounts(place):
        said = refusal(account, TEMPLATES, "my-pcs-0", {"labels": {UID_LABEL: "other"}})
        assert f"change {UID_LABEL} of ResourceClaimTemplate {TEAM}/my-pcs-0" in said


def test_domains_of_others_are_theirs(place: DomainCluster) -> None:
    """Of users, and of Grove where its own feature is on; only GKM may call one its own."""
    labels = {"app.kubernetes.io/part-of": "set", "grove.io/podcliqueset-replica-index": "0"}
    place.cluster.apply(compute_domain("theirs", namespace=TEAM, labels=labels))
    for key, metadata in RELABELED.items():
        assert refusal(place.cluster.kubeconfig, DOMAINS, "theirs", metadata) == "", key
    claimed = {"labels": {"gkm.io/written-by": "gkm"}}
    assert "change gkm.io/written-by" in refusal(place.cluster.kubeconfig, DOMAINS, "theirs", claimed)
    assert refusal(place.cluster.kubeconfig, DOMAINS, "theirs", {"ownerReferences": [OWNER]}) == ""


def test_the_owners_of_a_used_domain_are_frozen_whoever_made_it(place: DomainCluster) -> None:
    """The garbage collector deletes what refers to no existing owner, also a domain that pods use."""
    place.cluster.apply(compute_domain("users-own", namespace=TEAM))
    place.make_template("users-own", TEAM)
    place.use("users-own", TEAM, pod="own-user")
    place.cluster.until(lambda: place.mark("computedomain", "users-own", TEAM) == "1", "the mark of the domain")
    for account in accounts(place):
        said = refusal(account, DOMAINS, "users-own", {"ownerReferences": [OWNER]})
        assert f"change ownerReferences of ComputeDomain {TEAM}/users-own, which pods use" in said
    assert refusal(place.cluster.kubeconfig, DOMAINS, "users-own", {"labels": {"grove.io/mnnvl-group": "x"}}) == ""
    assert "ownerReferences" not in place.domain("users-own", TEAM)


@pytest.mark.parametrize(
    "labels",
    [
        {"gkm.io/written-by": "gkm"},
        {"gkm.io/written-by": "gkm", "gkm.io/compute-domain": "forged"},
        {"gkm.io/written-by": "gkm", "app.kubernetes.io/part-of": "my-pcs"},
    ],
    ids=len,
)
def test_a_new_domain_is_judged_as_a_changed_one(place: DomainCluster, labels: Json) -> None:
    """Whoever may create a ComputeDomain must not make one that GKM takes for its own."""
    forged = compute_domain("forged", namespace=TEAM, labels=labels)
    for account in accounts(place):
        with pytest.raises(ApiError, match=r"change .*gkm\.io/written-by.* of ComputeDomain identity/forged"):
            connect(str(account)).create(DOMAINS, forged)
    assert "forged" not in place.names(TEAM)


def test_an_empty_mark_is_a_mark(place: DomainCluster) -> None:
    for key in ("gkm.io/used-by", "gkm.io/pods-using"):
        said = refusal(place.cluster.kubeconfig, DOMAINS, "train", {"annotations": {key: ""}})
        assert "writes the annotations gkm.io/pods-using" in said, key
