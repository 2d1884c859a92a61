"""Reviews of pods with the label gkm.io/task-group: claim, container and placement, and when they must wait."""

import pytest
from gkm.api.mnnvl_metadata import DOMAIN_LABEL
from gkm.api.network_settings import Network
from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import GROUP_LABEL, USER_CONTAINER_LABEL
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLAIM_TEMPLATES
from gkm.templates.rendering.process import RenderingProcess
from support.grove.objects import claim_template, compute_domain, container
from support.grove.tables import table
from support.operator.group_templates import GroupTemplates, Json, config_map, group, planned, task_pod
from support.operator.workloads import as_json, workloads

CHANNEL = "compute-domain-default-channel.nvidia.com"
DOMAIN = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomain",
    "metadata": {"name": "compute-domain-1"},
    "spec": {"channel": {"resourceClaimTemplate": {"name": "osmo-1"}}},
}
CLAIMED = {"compute-domain-channel": "osmo-1"}
MINE = {"main": ["compute-domain-channel"]}


@pytest.fixture
def joined(site: GroupTemplates) -> GroupTemplates:
    """A cluster with a group that has a ComputeDomain."""
    site.put(planned("train", config_map(), DOMAIN))
    return site


def test_the_claim_of_the_rendered_domain_is_added_where_gpus_are_requested(joined: GroupTemplates) -> None:
    found = joined.admit(task_pod())
    assert found.templates("") == CLAIMED
    assert found.claims("") == MINE
    again = joined.admit(found.object)
    assert (again.changed, again.warnings) == (False, "")


@table(
    "phase, changed",
    [("planned, not created", "Pending", True), ("created", "Running", True)],
)
def test_a_pod_need_not_wait_for_the_creation(site: GroupTemplates, phase: str, changed: bool) -> None:  # noqa: FBT001 -- a row
    site.put(planned("train", DOMAIN, phase=phase))
    assert site.admit(task_pod()).changed is changed


def test_a_pod_waits_until_the_objects_are_planned(site: GroupTemplates) -> None:
    site.put(group("train"))
    found = site.admit(task_pod())
    assert not found.allowed
    assert "the objects of TaskGroup 'train' are not planned yet; try again in a moment" in found.message


def test_a_pod_is_told_when_no_group_is_planned_because_the_feature_is_off(renderer: RenderingProcess) -> None:
    site = GroupTemplates(renderer, TaskGroups(enabled=False))
    site.put(group("train"))
    found = site.admit(task_pod())
    assert not found.allowed
    assert "are not planned yet; taskGroups.enabled is off in gkm-config" in found.message


def test_a_pod_of_a_group_without_objects_is_left_alone(site: GroupTemplates) -> None:
    site.put(planned("empty", phase="Running"), planned("maps", config_map()))
    for name in ("empty", "maps"):
        found = site.admit(task_pod(name))
        assert (found.allowed, found.changed, found.warnings) == (True, False, "")


@pytest.mark.parametrize("name", ["missing", "No_Name", "..", "a" * 63])
def test_a_pod_of_a_group_that_does_not_exist_is_refused(joined: GroupTemplates, name: str) -> None:
    found = joined.admit(task_pod(name))
    assert not found.allowed
    assert f"TaskGroup '{name}' does not exist here" in found.message


@pytest.mark.parametrize("phase", ["Ending", "Succeeded", "Failed", "Canceled"])
def test_a_pod_of_an_ended_group_is_refused(site: GroupTemplates, phase: str) -> None:
    site.put(planned("train", DOMAIN, phase=phase), planned("empty", phase=phase))
    assert "TaskGroup 'train' has ended" in site.admit(task_pod()).message
    assert site.admit(task_pod("empty")).allowed


def test_a_group_of_another_namespace_counts_for_nothing(joined: GroupTemplates) -> None:
    pod = task_pod()
    pod["metadata"]["namespace"] = "elsewhere"
    assert not joined.admit(pod).allowed


@table(
    "name, claims",
    [
        ("the one with GPUs", "main", {"main": ["compute-domain-channel"]}),
        ("one without GPUs", "side", {"side": ["compute-domain-channel"]}),
        ("an init container", "setup", {"setup": ["compute-domain-channel"]}),
        ("one without resources", "bare", {"bare": ["compute-domain-channel"]}),
    ],
)
def test_the_named_container_alone_gets_the_claim(joined: GroupTemplates, name: str, claims: Json) -> None:
    pod = task_pod(labels={USER_CONTAINER_LABEL: name}, initContainers=[container("setup")])
    pod["spec"]["containers"].append({"name": "bare"} if name == "bare" else container("other", 8))
    found = joined.admit(pod)
    assert found.templates("") == CLAIMED
    assert found.claims("") == claims
    assert not joined.admit(found.object).changed


def test_a_container_that_does_not_exist_gets_no_claim_and_the_pod_a_warning(joined: GroupTemplates) -> None:
    found = joined.admit(task_pod(labels={USER_CONTAINER_LABEL: "elsewhere"}))
    assert (found.allowed, found.changed) == (True, False)
    assert "the pod has no container 'elsewhere'" in found.warnings


def test_a_pod_without_gpus_gets_no_claim(joined: GroupTemplates) -> None:
    found = joined.admit(task_pod(gpus=0))
    assert (found.allowed, found.changed, found.warnings) == (True, False, "")


@table(
    "claims, said",
    [
        ("with our name", [{"name": "compute-domain-channel", "resourceClaimTemplateName": "own"}], "its own claim"),
        ("by name of a claim", [{"name": "compute-domain-channel", "resourceClaimName": "osmo-1"}], "its own claim"),
        ("a channel", [{"name": "imex", "resourceClaimTemplateName": "channel"}], "'imex' is a channel"),
    ],
)
def test_a_claim_of_the_user_is_never_replaced(joined: GroupTemplates, claims: list[Json], said: str) -> None:
    joined.api.create(as_json(CLAIM_TEMPLATES), claim_template("channel", CHANNEL, namespace="team"))
    found = joined.admit(task_pod(resourceClaims=claims))
    assert (found.allowed, found.changed) == (True, False)
    assert said in found.warnings


def test_the_claim_that_a_workflow_engine_has_written_itself_is_completed(joined: GroupTemplates) -> None:
    claims = [{"name": "compute-domain-channel", "resourceClaimTemplateName": "osmo-1"}]
    found = joined.admit(task_pod(resourceClaims=claims))
    assert found.object["spec"]["resourceClaims"] == claims
    assert found.claims("") == MINE


def test_a_pod_with_both_labels_gets_one_channel_in_either_order(joined: GroupTemplates) -> None:
    domains = workloads(compute_domain("job"))
    pod = task_pod(labels={DOMAIN_LABEL: "job"})
    first = domains.review("/pods", pod).object
    both = joined.admit(first)
    assert both.templates("") == {"mnnvl-claim": "job"}
    assert "'mnnvl-claim' is a channel to another ComputeDomain" in both.warnings
    other = joined.admit(pod).object
    reverse = domains.review("/pods", other)
    assert reverse.templates("") == CLAIMED
    assert "'compute-domain-channel' is a channel to another ComputeDomain" in reverse.warnings


@pytest.mark.parametrize("placement", ["required", "preferred"])
def test_pods_of_a_group_are_placed_together(renderer: RenderingProcess, placement: str) -> None:
    site = GroupTemplates(renderer, network=Network(placement=placement))  # type: ignore[arg-type] # one of the values
    site.put(planned("train", DOMAIN))
    found = site.admit(task_pod())
    ((field, (entry,)),) = found.object["spec"]["affinity"]["podAffinity"].items()
    assert field.startswith(placement)
    term = entry if placement == "required" else entry["podAffinityTerm"]
    assert term["labelSelector"] == {"matchLabels": {GROUP_LABEL: "train"}}
    assert not site.admit(found.object).changed
    assert not site.admit(task_pod(gpus=0)).changed


def test_an_api_server_that_does_not_answer_never_blocks_a_pod(joined: GroupTemplates) -> None:
    joined.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    found = joined.admit(task_pod())
    assert (found.allowed, found.changed) == (True, False)
    assert "TaskGroup train cannot be read" in found.warnings


def test_a_pod_joins_although_its_claims_cannot_be_read(joined: GroupTemplates) -> None:
    joined.api.fault = lambda _, plural: (
        ApiError(0, "Unreachable", "away") if plural == "resourceclaimtemplates" else None
    )
    found = joined.admit(task_pod(resourceClaims=[{"name": "nic", "resourceClaimTemplateName": "nic"}]))
    assert found.templates("") == {"nic": "nic"} | CLAIMED
    assert "did not see whether claim 'nic' requests GPUs" in found.warnings


def test_an_update_and_a_pod_without_the_label_are_left_alone(joined: GroupTemplates) -> None:
    assert not joined.review("/taskgroups/pods", task_pod(), task_pod()).changed
    pod = task_pod()
    pod["metadata"]["labels"] = None
    assert joined.admit(pod).allowed


def test_a_group_is_read_once_for_pods_of_one_moment(joined: GroupTemplates) -> None:
    for _ in range(20):
        assert joined.admit(task_pod()).changed
    reads = [call for call in joined.api.calls if call[:2] == ("get", "taskgroups")]
    assert len(reads) == 1


@table(
    "manifest",
    [
        ("none", None),
        ("no channel", {"spec": {}}),
        ("another type", {"spec": {"channel": "x"}}),
        ("an empty name", {"spec": {"channel": {"resourceClaimTemplate": {"name": ""}}}}),
    ],
)
def test_a_domain_without_a_claim_template_gives_no_claim(site: GroupTemplates, manifest: Json | None) -> None:
    broken = planned("train", DOMAIN)
    broken["status"]["objects"][0]["manifest"] = manifest and DOMAIN | manifest
    site.put(broken)
    found = site.admit(task_pod())
    assert (found.allowed, found.changed) == (True, False)
