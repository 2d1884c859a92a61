"""What the built-in controllers change in objects that exist, and what they leave alone."""

from typing import Any

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry
from gkm_operator.cliques import writer
from support.grove.driver import CLIQUES, GROUPS, PODS, SERVICES, SETS
from support.grove.objects import NAMESPACE
from support.kube.fake_api import FakeApi
from support.operator.cliques import CLAIM, ON, WEBHOOKS, InjectingApi, Mortal, Stepper, a_set, observed, set_key

Json = dict[str, Any]


@pytest.fixture
def api() -> InjectingApi:
    """An API with a set that is done."""
    api = InjectingApi()
    api.create(SETS, a_set())
    Stepper(api).settle()
    return api


def change_clique(api: FakeApi, number: int, **fields: Any) -> None:  # noqa: ANN401 -- JSON
    """Change the container of a clique template."""
    cliques = api.get(SETS, "set", NAMESPACE)["spec"]["template"]["cliques"]
    cliques[number]["spec"]["podSpec"]["containers"][0] |= fields
    api.merge(SETS, "set", {"spec": {"template": {"cliques": cliques}}}, NAMESPACE)


def uids(api: FakeApi, kind: Any) -> dict[str, str]:  # noqa: ANN401 -- a Resource
    return {name: one["metadata"]["uid"] for name, one in observed(api, kind).items()}


def set_phase(api: FakeApi, name: str, phase: str, *, ready: bool = False) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}}
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"status": {"phase": phase, "conditions": conditions}}
    api.apply(PODS, body | status, field_manager="kubelet", subresource="status")


def test_a_changed_template_replaces_the_pods_of_its_cliques_and_no_others(api: InjectingApi) -> None:
    cliques, pods = uids(api, CLIQUES), uids(api, PODS)
    change_clique(api, 2, image="registry.test/app:2")
    Stepper(api).settle()
    assert uids(api, CLIQUES) == cliques
    replaced = {name for name, uid in uids(api, PODS).items() if pods[name] != uid}
    assert replaced == {f"set-0-decode-{replica}-worker-{index}" for replica in (0, 1) for index in (0, 1)}
    claims = observed(api, CLIQUES)["set-0-decode-0-worker"]["spec"]["podSpec"]["resourceClaims"]
    assert claims == [CLAIM]


def test_a_field_that_leaves_the_template_leaves_the_clique(api: InjectingApi) -> None:
    change_clique(api, 0, workingDir="/x")
    Stepper(api).settle()
    cliques = api.get(SETS, "set", NAMESPACE)["spec"]["template"]["cliques"]
    del cliques[0]["spec"]["podSpec"]["containers"][0]["workingDir"]
    api.merge(SETS, "set", {"spec": {"template": {"cliques": cliques}}}, NAMESPACE)
    Stepper(api).settle()
    assert "workingDir" not in observed(api, CLIQUES)["set-0-router"]["spec"]["podSpec"]["containers"][0]
    assert "workingDir" not in observed(api, PODS)["set-0-router-0"]["spec"]["containers"][0]


def test_labels_and_annotations_of_others_stay_until_the_template_changes(api: InjectingApi) -> None:
    own = {"metadata": {"labels": {"own": "1"}, "annotations": {"own": "2"}}}
    api.merge(CLIQUES, "set-0-router", own, NAMESPACE)
    Stepper(api).settle()
    assert observed(api, CLIQUES)["set-0-router"]["metadata"]["labels"]["own"] == "1"
    change_clique(api, 0, image="registry.test/app:2")
    Stepper(api).settle()
    metadata = observed(api, CLIQUES)["set-0-router"]["metadata"]
    assert ("own" in metadata["labels"], "own" in metadata["annotations"]) == (False, False)


def test_a_clique_that_somebody_edited_is_repaired_without_a_restart(api: InjectingApi) -> None:
    pods = uids(api, PODS)
    edited = {"spec": {"roleName": "other", "podSpec": {"containers": [{"name": "x", "image": "y", "resources": {}}]}}}
    api.merge(CLIQUES, "set-0-router", edited, NAMESPACE)
    Stepper(api).settle()
    spec = observed(api, CLIQUES)["set-0-router"]["spec"]
    assert (spec["roleName"], spec["podSpec"]["containers"][0]["name"]) == ("router", "main")
    assert uids(api, PODS) == pods


def test_replicas_belong_to_whoever_scales(api: InjectingApi) -> None:
    api.merge(CLIQUES, "set-0-router", {"spec": {"replicas": 5}}, NAMESPACE)
    api.merge(GROUPS, "set-0-decode", {"spec": {"replicas": 1}}, NAMESPACE)
    change_clique(api, 0, image="registry.test/app:2")
    Stepper(api).settle()
    assert observed(api, CLIQUES)["set-0-router"]["spec"]["replicas"] == 5
    assert sorted(observed(api, CLIQUES)) == ["set-0-decode-0-leader", "set-0-decode-0-worker", "set-0-router"]
    assert len(observed(api, PODS)) == 5 + 3


def test_a_clique_scaled_to_zero_has_no_pods(api: InjectingApi) -> None:
    api.merge(CLIQUES, "set-0-router", {"spec": {"replicas": 0}}, NAMESPACE)
    Stepper(api).settle()
    assert not [name for name in observed(api, PODS) if name.startswith("set-0-router")]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_is_replaced(api: InjectingApi, phase: str) -> None:
    before = uids(api, PODS)
    set_phase(api, "set-0-router-0", phase)
    Stepper(api).settle()
    assert {name for name, uid in uids(api, PODS).items() if before[name] != uid} == {"set-0-router-0"}


def test_a_pod_that_replaced_an_ended_one_survives_a_watch_that_lags(api: InjectingApi) -> None:
    set_phase(api, "set-0-router-0", "Failed")
    late = Stepper(api)
    late.observe()
    Stepper(api).settle()
    replaced = uids(api, PODS)["set-0-router-0"]
    late.reconcile()
    assert uids(api, PODS)["set-0-router-0"] == replaced
    assert any("UID" in why for why in late.retries)


def test_a_pod_that_is_being_deleted_keeps_its_name(api: InjectingApi) -> None:
    api.merge(PODS, "set-0-router-0", {"metadata": {"finalizers": ["test.gkm.io/waits"]}}, NAMESPACE)
    api.delete(PODS, "set-0-router-0", NAMESPACE)
    writes = Mortal(api)
    Stepper(writes).settle()
    assert [call for call in writes.writes if call[1] == "pods"] == []
    api.merge(PODS, "set-0-router-0", {"metadata": {"finalizers": []}}, NAMESPACE)
    Stepper(writes).settle()
    assert "set-0-router-0" in observed(api, PODS)


def test_status_counts_pods_and_replicas_and_is_written_on_change_only(api: InjectingApi) -> None:
    set_phase(api, "set-0-router-0", "Running", ready=True)
    Stepper(api).settle()
    assert observed(api, CLIQUES)["set-0-router"]["status"] == {"replicas": 2, "readyReplicas": 1}
    assert observed(api, GROUPS)["set-0-decode"]["status"] == {"replicas": 2}
    assert observed(api, SETS)["set"]["status"] == {"replicas": 1}


def test_the_status_of_an_older_set_of_the_name_is_not_written_to_a_new_one(api: InjectingApi) -> None:
    api.merge(SETS, "set", {"spec": {"replicas": 3}}, NAMESPACE)
    late = Stepper(api)
    late.observe()
    late.reconcile()
    late.observe()
    api.delete(SETS, "set", NAMESPACE)
    api.create(SETS, a_set(0))
    late.reconcile()
    assert "status" not in observed(api, SETS)["set"]


def test_children_of_a_set_that_is_being_deleted_are_left_to_the_garbage_collector(api: InjectingApi) -> None:
    api.merge(SETS, "set", {"metadata": {"finalizers": ["test.gkm.io/waits"]}}, NAMESPACE)
    api.delete(SETS, "set", NAMESPACE)
    api.delete(CLIQUES, "set-0-router", NAMESPACE)
    writes = Mortal(api)
    Stepper(writes).settle()
    assert [call for call in writes.writes if call[0] == "create"] == []


def test_a_deleted_set_leaves_nothing(api: InjectingApi) -> None:
    api.delete(SETS, "set", NAMESPACE)
    Stepper(api).settle()
    assert [observed(api, kind) for kind in (SETS, GROUPS, CLIQUES, PODS, SERVICES)] == [{}] * 5


def test_children_of_an_older_set_of_the_name_are_left_to_the_garbage_collector(api: InjectingApi) -> None:
    api.delete(SETS, "set", NAMESPACE)
    api.create(SETS, a_set())
    api.delete(PODS, "set-0-router-0", NAMESPACE)
    process = Stepper(api)
    process.observe()
    process.reconcile()
    assert "set-0-router-0" not in observed(api, PODS)
    process.settle()
    assert len(observed(api, PODS)) == 8


def test_a_patch_that_was_made_of_an_older_clique_changes_nothing(api: InjectingApi) -> None:
    change_clique(api, 0, image="registry.test/app:2")
    late = Stepper(api)
    late.observe()
    change_clique(api, 0, image="registry.test/app:3")
    Stepper(api).settle()
    late.reconcile()
    assert observed(api, CLIQUES)["set-0-router"]["spec"]["podSpec"]["containers"][0]["image"] == "registry.test/app:3"


def test_a_pass_ends_when_the_grove_operator_appears() -> None:
    api = FakeApi()
    api.create(SETS, a_set())
    process = Stepper(api)
    process.observe()

    def appear(verb: str, plural: str) -> None:
        if (verb, plural) == ("create", "services"):
            api.create(WEBHOOKS, {"metadata": {"name": "podcliqueset-defaulting-webhook"}})
            process.observe("mutatingwebhookconfigurations")

    api.fault = appear
    process.reconcile()
    assert (len(observed(api, SERVICES)), len(observed(api, CLIQUES))) == (1, 0)
    assert process.retries == ["the Grove operator was installed meanwhile"]


def test_a_clique_without_a_set_gets_no_pods(api: InjectingApi) -> None:
    loose = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "metadata": {"name": "loose", "namespace": NAMESPACE},
    }
    api.create(CLIQUES, loose | {"spec": observed(api, CLIQUES)["set-0-router"]["spec"]})
    Stepper(api).settle()
    assert not [name for name in observed(api, PODS) if name.startswith("loose")]


def owned(resource: Any, name: str, owner: Json, spec: Json, namespace: str = NAMESPACE) -> Json:  # noqa: ANN401
    """An object that names another one as its controller, as any user may."""
    reference = owner | {"controller": True}
    labels = {"app.kubernetes.io/managed-by": "grove-operator"}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [reference]}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def test_owners_that_own_no_cliques_lead_to_no_pods_and_no_defect(api: InjectingApi) -> None:
    cliques = observed(api, CLIQUES)
    uid, spec = cliques["set-0-router"]["metadata"]["uid"], cliques["set-0-router"]["spec"]
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "y"}
    router = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "set-0-router", "uid": uid}
    api.create(CLIQUES, owned(CLIQUES, "foreign", foreign, spec))
    api.create(GROUPS, owned(GROUPS, "odd", router, {"cliqueNames": ["worker"], "replicas": 1}))
    before = observed(api, PODS)
    process = Stepper(api)
    process.observe()
    process.reconcile()
    assert observed(api, PODS) == before


def test_an_object_of_another_namespace_is_nobodys_child(api: InjectingApi) -> None:
    metadata = observed(api, CLIQUES)["set-0-router"]["metadata"]
    router = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "set-0-router", "uid": metadata["uid"]}
    api.delete(PODS, "set-0-router-0", NAMESPACE)
    spec = observed(api, PODS)["set-0-router-1"]["spec"]
    api.create(PODS, owned(PODS, "set-0-router-0", router, spec, namespace="other"))
    process = Stepper(api)
    process.observe()
    process.reconcile()
    assert api.get(PODS, "set-0-router-0", NAMESPACE)["metadata"]["namespace"] == NAMESPACE
    assert api.get(PODS, "set-0-router-0", "other")


def test_a_name_that_belongs_to_another_object_is_named_and_tried_again() -> None:
    api = FakeApi()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "set-0", "namespace": NAMESPACE}, "spec": {}}
    api.create(SERVICES, service)
    api.create(SETS, a_set())
    process = Stepper(api)
    for _ in range(6):
        process.observe()
        process.reconcile()
    assert process.retries[-1] == "Service set-0: services 'set-0' already exists"
    assert len(observed(api, PODS)) == 8


def test_a_pass_full_of_taken_names_pauses_as_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_REQUESTS", 1)
    api = FakeApi()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "set-0", "namespace": NAMESPACE}, "spec": {}}
    api.create(SERVICES, service)
    api.create(SETS, a_set())
    process = Stepper(api)
    process.observe()
    with pytest.raises(Retry, match="already exists"):
        process.controller.reconcile(set_key())


def test_admission_that_refuses_cliques_is_asked_again_and_an_event_says_why() -> None:
    api = FakeApi()
    api.create(SETS, a_set())
    api.fault = lambda verb, plural: (
        ApiError(403, "Forbidden", "ComputeDomain set-0 does not exist yet")
        if (verb, plural) == ("create", "podcliques")
        else None
    )
    process = Stepper(api, ON)
    for _ in range(3):
        process.observe()
        process.reconcile()
    assert [(event["reason"], event["note"], event["regarding"]["name"]) for event in api.stored("events")] == [
        ("CreateFailed", "PodClique set-0-router: ComputeDomain set-0 does not exist yet", "set")
    ]
    # One request a pass: the next PodClique would be refused, too.
    assert [name for verb, _, name in api.calls if verb == "create"].count("set-0-router") == 3
    api.fault = lambda _verb, _plural: None
    process.settle()
    assert len(observed(api, PODS)) == 8
