"""Reviews of TaskGroups and their pods on a real kube-apiserver; who writes a status, and what an outage refuses."""

from typing import Any

import pytest
from gkm.api.mnnvl_metadata import DOMAIN_LABEL
from gkm.api.task_groups import GROUP_LABEL, USER_CONTAINER_LABEL
from gkm.kube.errors import ApiError
from support.operator.group_templates import (
    DOMAIN,
    GROUPS,
    POOL_OBJECTS,
    TEMPLATES,
    Json,
    config_map,
    group,
    planned,
    pool,
    task_pod,
    template,
)
from support.operator.template_admission import TEAM, Site

MY_WORKFLOW = {"id": "my-workflow"}
RULE = {"expression": "TASKS | length >= 4", "message": "NVLink needs four tasks"}


def test_a_group_is_refused_with_its_fault(site: Site) -> None:
    site.create(template("named", config_map("{{ WF_ID }}"), validation=[RULE]))
    site.create(pool("named", "named"))
    assert "Pool 'elsewhere' does not exist" in site.refusal(group("g", of="elsewhere"))
    assert "NVLink needs four tasks" in site.refusal(group("g", of="named", tasks=3, workflow=MY_WORKFLOW))
    assert "WF_ID" in site.refusal(group("g", of="named"))
    message = site.refusal(group("g", of="named", workflow={"id": "My_Workflow"}))
    assert "'ConfigMap' 'My_Workflow': no object can have this name" in message
    assert site.refusal(group("g", of="named", workflow=MY_WORKFLOW)) == ""
    site.api.merge(GROUPS, "g", {"spec": {"phase": "Succeeded"}}, TEAM)


def test_a_group_of_a_pool_without_templates_is_admitted(site: Site) -> None:
    site.create(pool("empty"))
    assert site.refusal(group("empty", of="empty", tasks=0)) == ""


PLANNED_DOMAIN = DOMAIN | {
    "metadata": {"name": "compute-domain-1"},
    "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "osmo-1"}}},
}


def named(pod: Json, name: str) -> Json:
    metadata = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
    made: Json = pod | {"metadata": metadata | {"name": name}}
    for one in made["spec"]["containers"]:
        one["image"] = "registry.test/app:1"
    return made


def test_the_real_api_server_accepts_a_pod_with_the_injected_claim(site: Site) -> None:
    site.plan(planned("train", PLANNED_DOMAIN))
    made = site.create(named(task_pod("train"), "worker"))
    claim = {"name": "compute-domain-channel", "resourceClaimTemplateName": "osmo-1"}
    assert made["spec"]["resourceClaims"] == [claim]
    claims = [one["resources"].get("claims") for one in made["spec"]["containers"]]
    assert claims == [[{"name": "compute-domain-channel"}], None]
    (term,) = made["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"] == {"matchLabels": {GROUP_LABEL: "train"}}
    named_container = task_pod("train", labels={USER_CONTAINER_LABEL: "side"})
    made = site.create(named(named_container, "side"))
    claims = [one["resources"].get("claims") for one in made["spec"]["containers"]]
    assert claims == [None, [{"name": "compute-domain-channel"}]]
    both = task_pod("train", labels={DOMAIN_LABEL: "job"}, resourceClaims=[claim | {"name": "mnnvl-claim"}])
    assert [one["name"] for one in site.create(named(both, "both"))["spec"]["resourceClaims"]] == ["mnnvl-claim"]


def test_a_pod_waits_for_its_group(site: Site) -> None:
    site.create(pool("early"))
    pod = named(task_pod("early"), "early")
    assert "TaskGroup 'early' does not exist here" in site.refusal(pod)
    site.create(group("early", of="early"))
    assert "not planned yet; try again in a moment" in site.refusal(pod)


def test_only_the_controllers_write_a_status(site: Site) -> None:
    site.create(pool("status"))
    for resource, name, status in (
        (POOL_OBJECTS, "status", {"observedGeneration": 7}),
        (GROUPS, "empty-status", {"phase": "Running"}),
    ):
        if resource is GROUPS:
            site.create(group(name, of="status"))
        metadata: dict[str, Any] = {"name": name} | ({"namespace": TEAM} if resource.namespaced else {})
        value = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "status": status}
        with pytest.raises(ApiError, match="only system:serviceaccount:gkm-system:gkm-controllers writes the status"):
            site.api.apply(resource, value, field_manager="x", subresource="status")


def test_an_outage_refuses_templates_and_pools_and_nothing_else(site: Site) -> None:
    site.create(template("before"))
    site.create(pool("before", "before"))
    site.create(group("before", of="before"))
    site.process.stop()
    try:
        outage(site)
    finally:
        site.start()
    assert "Pool 'elsewhere' does not exist" in site.refusal(group("later", of="elsewhere"))


def outage(site: Site) -> None:
    for value in (template("during"), pool("during")):
        assert "failed calling webhook" in site.refusal(value)
    with pytest.raises(ApiError, match="failed calling webhook"):
        site.api.delete(TEMPLATES, "before")
    site.api.merge(TEMPLATES, "before", {"metadata": {"labels": {"a": "b"}}})
    site.api.merge(POOL_OBJECTS, "before", {"metadata": {"labels": {"a": "b"}}})
    assert site.refusal(group("during", of="elsewhere")) == ""
    assert "resourceClaims" not in site.create(named(task_pod("before"), "during"))["spec"]
    site.api.merge(GROUPS, "before", {"spec": {"phase": "Canceled"}}, TEAM)
    site.api.delete(GROUPS, "during", TEAM)
    site.api.delete(POOL_OBJECTS, "before")
