"""The controllers of task groups as processes with the rights that ship, on a real API server with its collectors."""

from typing import Any

import pytest
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from support.cluster.cluster import KubectlFailed
from support.cluster.objects import RequestFailed
from support.operator.group_cluster import (
    CONFIG,
    DOMAIN,
    FIVE,
    POD_GROUPS,
    SERVICE,
    TEAM,
    UID_LABEL,
    GroupCluster,
    template,
)
from support.operator.group_witness import GROUPS

pytestmark = pytest.mark.timeout(900)
Json = dict[str, Any]


@pytest.mark.usefixtures("running")
def test_a_group_gets_its_objects_and_loses_them(place: GroupCluster) -> None:
    place.pool("life", *FIVE)
    place.groups("life", pool="life")
    place.until_phase("Running", "life")
    group = place.group("life")
    uid = group["metadata"]["uid"]
    made = {each["kind"]: each for each in group["status"]["objects"]}
    assert list(made) == ["ComputeDomain", "ConfigMap", "PodGroup", "Service", "Deployment"]
    domain = place.of_kind("computedomains")[f"domain-{uid}"]
    assert domain["spec"] == {
        "numNodes": 4,
        "channel": {"resourceClaimTemplate": {"name": f"claim-{uid}"}, "allocationMode": "Single"},
    }
    assert place.of_kind("configmaps")["life"]["data"] == {"WORKFLOW": "workflow"}
    for kind, name in (("computedomain", domain["metadata"]["name"]), ("service", "life"), ("deployment", "life")):
        metadata = place.cluster.get(kind, name, TEAM)["metadata"]
        assert metadata["labels"].items() >= {UID_LABEL: uid, "gkm.io/task-group": "life"}.items()
        assert metadata["labels"]["osmo.submitted_by"] == "user"
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner.get("controller")) == ("TaskGroup", uid, None)
        assert metadata["uid"] in {each["uid"] for each in group["status"]["objects"]}
    place.until(lambda: "pods" in str(place.left()), "the Deployment to have a pod")

    place.end("life")
    place.until_phase("Succeeded", "life")
    assert place.left() == []
    assert {each["state"] for each in place.group("life")["status"]["objects"]} == {"Deleted"}
    assert place.condition("ObjectsDeleted", "life")[:2] == ("True", "Deleted")
    place.delete("life")
    place.until_gone("life")


@pytest.mark.usefixtures("running")
def test_foreign_objects_are_neither_adopted_nor_deleted(place: GroupCluster) -> None:
    place.cluster.apply(CONFIG | {"metadata": {"name": "mine", "namespace": TEAM}, "data": {"mine": "yes"}})
    before = place.cluster.get("configmap", "mine", TEAM)
    place.pool("foreign", DOMAIN, CONFIG, SERVICE)
    place.groups("mine", pool="foreign")
    place.until_phase("Failed", "mine")
    status, reason, message = place.condition("ObjectsCreated", "mine")
    assert (status, reason) == ("False", "NameTaken")
    assert message.startswith("ConfigMap mine exists")
    assert place.left() == []
    place.delete("mine")
    place.until_gone("mine")
    assert place.cluster.get("configmap", "mine", TEAM) == before


@pytest.mark.usefixtures("running")
def test_a_definition_that_is_removed_does_not_hold_the_group(place: GroupCluster) -> None:
    group, version = POD_GROUPS[1]
    definition = place.cluster.get("customresourcedefinition", f"podgroups.{group}")
    place.pool("removed", CONFIG, template(f"{group}/{version}", "PodGroup", spec={"minMember": 2}))
    place.groups("removed", pool="removed")
    place.until_phase("Running", "removed")
    place.cluster.kubectl("delete", "customresourcedefinition", f"podgroups.{group}")
    try:
        place.delete("removed")
        place.until_gone("removed")
        assert place.left() == []
    finally:
        metadata = {"name": definition["metadata"]["name"]}
        place.cluster.apply({key: definition[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": metadata})
        place.cluster.until_kinds_established()
    # What is installed again is found again: discovery is remembered for a minute at most.
    place.groups("again", pool="removed")
    place.until_phase("Running", "again")
    place.delete("again")
    place.until_gone("again")


@pytest.mark.usefixtures("running")
def test_a_finalizer_of_another_is_waited_for_and_named(place: GroupCluster) -> None:
    place.pool("held", CONFIG, SERVICE)
    place.groups("held", pool="held")
    place.until_phase("Running", "held")
    words = ("patch", "service", "held", "--namespace", TEAM, "--type=merge", "--patch")
    place.cluster.kubectl(*words, '{"metadata": {"finalizers": ["a.test/b"]}}')
    place.delete("held")
    pending = "Service held (finalizers: a.test/b)"
    place.until(lambda: pending in place.condition("ObjectsDeleted", "held")[2], "it to be named")
    assert place.condition("ObjectsDeleted", "held")[1] == "FinalizersPending"
    place.until(lambda: place.left() == ["services/held"], "the other object to go")
    assert place.group("held")["metadata"]["finalizers"] == ["gkm.io/task-group"]
    place.cluster.kubectl(*words, '{"metadata": {"finalizers": null}}')
    place.until_gone("held")
    assert place.left() == []


@pytest.mark.usefixtures("running")
def test_what_is_left_without_our_finalizer_goes(place: GroupCluster) -> None:
    place.pool("forced", *FIVE)
    place.groups("forced", pool="forced")
    place.until_phase("Running", "forced")
    words = ("patch", "taskgroup", "forced", "--namespace", TEAM, "--type=merge", "--patch")
    place.cluster.kubectl(*words, '{"metadata": {"finalizers": null}}')
    place.delete("forced")
    place.until_gone("forced")
    place.until(lambda: not place.left(), "the objects to go")


@pytest.mark.usefixtures("running")
def test_a_quota_is_waited_for(place: GroupCluster) -> None:
    quota = template("v1", "ResourceQuota", "small", spec={"hard": {"count/services": "0"}})
    quota["metadata"]["namespace"] = TEAM
    place.cluster.apply(quota)
    try:
        place.until(lambda: "exceeded quota: small" in refused_service(place), "the quota to count")
        place.pool("quota", CONFIG, SERVICE)
        place.groups("quota", pool="quota")
        cause = "exceeded quota: small"
        place.until(lambda: cause in place.condition("ObjectsCreated", "quota")[2], "the cause to be shown")
        assert place.condition("ObjectsCreated", "quota")[1] == "Retrying"
    finally:
        place.cluster.objects.delete(quota)
    place.until_phase("Running", "quota")
    place.delete("quota")
    place.until_gone("quota")


def refused_service(place: GroupCluster) -> str:
    """Return why the API server refuses a Service, which it does not store."""
    service = template("v1", "Service", "tried", spec={"ports": [{"port": 80}]})
    service["metadata"]["namespace"] = TEAM
    try:
        place.cluster.objects.create(service, dry_run=True)
    except RequestFailed as refused:
        return str(refused)
    return ""


@pytest.mark.usefixtures("running")
def test_an_object_that_its_schema_refuses_fails_the_group(place: GroupCluster) -> None:
    place.pool("refused", CONFIG, template("v1", "Service", spec={"ports": [{"port": 99999}]}))
    place.groups("refused", pool="refused")
    place.until_phase("Failed", "refused")
    assert place.condition("ObjectsCreated", "refused")[1] == "Refused"
    assert "99999" in place.condition("ObjectsCreated", "refused")[2]
    assert place.left() == []
    place.delete("refused")
    place.until_gone("refused")


@pytest.mark.usefixtures("running")
def test_a_namespace_that_is_deleted_takes_its_groups_with_it(place: GroupCluster) -> None:
    place.cluster.apply(template("v1", "Namespace", "passing"))
    place.pool("passing", *FIVE)
    api = connect(str(place.cluster.kubeconfig))
    body = template("gkm.io/v1alpha1", "TaskGroup", "g", spec={"pool": "passing", "workflow": {"id": "w"}})
    body["metadata"]["namespace"] = "passing"
    api.create(GROUPS, body)

    def phase() -> str:
        return str(place.cluster.objects.get("taskgroup", "g", "passing").get("status", {}).get("phase"))

    place.until(lambda: phase() == "Running", "the group to run")
    try:
        place.cluster.kubectl("delete", "namespace", "passing", "--wait=false")
    except KubectlFailed as error:
        raise AssertionError(error.stderr) from error
    place.until(lambda: not place.cluster.exists("namespace", "passing"), "the namespace to go", 120)
    with pytest.raises(ApiError) as caught:
        api.get(GROUPS, "g", "passing")
    assert caught.value.not_found


def test_nothing_that_a_failed_test_leaves_reaches_the_next_one(place: GroupCluster) -> None:
    """What the fixture `place` does after each test, with a finalizer that holds an object."""
    place.controllers()
    place.pool("failed", *FIVE)
    place.groups("failed", pool="failed")
    place.until_phase("Running", "failed")
    place.cluster.objects.merge("service", "failed", {"metadata": {"finalizers": ["a.test/b"]}}, TEAM)
    assert {"services/failed", "deployments/failed"} <= set(place.left())
    place.end_processes()
    place.clear()
    assert (place.phases(), place.left()) == ({}, [])
