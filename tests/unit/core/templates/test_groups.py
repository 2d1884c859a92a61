"""The objects of a group: variables, labels, owner, namespace and order."""

import json
import re
from copy import deepcopy

import pytest
from gkm.api.runs import LABEL_VALUE
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.api.task_groups import MAX_GROUP_BYTES, Task, Workflow
from gkm.templates.encoding import stored_bytes
from gkm.templates.groups import SAMPLE_GROUP, check_size, group_objects, variables
from gkm.templates.pools import merged
from gkm.templates.values import VARIABLES, Json, TemplateInvalid, TooLarge
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.templates.objects import SETTINGS, UID, WITH_SECRETS, compute_domain, config_map, named, task_group

LONG = "a" * 62 + "-" + "b" * 9


def one(template: Json, settings: TaskGroups = SETTINGS) -> Json:
    """Return the only object of a group."""
    (only,) = group_objects([template], task_group(), settings)
    return only


def test_a_group_has_the_variables_of_the_design() -> None:
    group = task_group(Task(name="t", uuid="u", gpus=8, labels={"role": "any text"}), name="training", group_name="g")
    assert variables(group) == {
        "WF_ID": "wf",
        "WF_UUID": "wf-uuid",
        "WF_GROUP_NAME": "g",
        "WF_GROUP_UUID": "grp-1",
        "WF_POOL": "pool-a",
        "WF_SUBMITTED_BY": "alice",
        "TASKS": [{"WF_TASK_NAME": "t", "WF_TASK_UUID": "u", "USER_GPUS": 8, "LABELS": {"role": "any text"}}],
    }


def test_the_sample_has_every_variable() -> None:
    assert set(variables(SAMPLE_GROUP)) == VARIABLES
    assert {key for task in variables(SAMPLE_GROUP)["TASKS"] for key in task} == {
        "WF_TASK_NAME",
        "WF_TASK_UUID",
        "USER_GPUS",
        "LABELS",
    }


def test_the_name_and_the_uid_are_the_default() -> None:
    values = variables(task_group(group_uuid="", workflow=Workflow()))
    assert values == {"WF_GROUP_NAME": "training", "WF_GROUP_UUID": UID, "WF_POOL": "pool-a", "TASKS": []}


@pytest.mark.parametrize(
    ("submitter", "value"),
    [
        ("alice", "alice"),
        ("alice@example.com", "alice"),
        ("a" * 70 + "@example.com", "a" * 63),
        ("alice@", "alice"),
        ("@example.com", None),
        ("alice bob@example.com", None),
        ("ålice", None),
        ("", None),
    ],
)
def test_a_submitter_is_a_label_value_or_left_out(submitter: str, value: str | None) -> None:
    group = task_group(workflow=Workflow(id="wf", submitted_by=submitter))
    assert variables(group).get("WF_SUBMITTED_BY") == value
    (configured,) = group_objects([config_map()], group, SETTINGS)
    assert configured["metadata"]["labels"].get("osmo.submitted_by") == value


def test_values_are_cut_to_what_a_label_takes() -> None:
    group = task_group(group_name=LONG, pool="p" * 200, workflow=Workflow(id="x" * 62 + "..y", uuid="-" * 3))
    values = variables(group)
    assert values["WF_GROUP_NAME"] == "a" * 62
    assert values["WF_POOL"] == "p" * 63
    assert values["WF_ID"] == "x" * 62
    assert "WF_UUID" not in values


@given(st.text(max_size=80) | st.text("aB9-_.@", max_size=80), st.text("aB9-_.@", max_size=80))
def test_every_variable_and_label_is_a_label_value(text: str, name: str) -> None:
    workflow = Workflow(id=text, uuid=name, submitted_by=text + name, labels={"w": name})
    group = task_group(workflow=workflow, group_name=text, pool=name)
    (configured,) = group_objects([config_map()], group, SETTINGS)
    values = [value for value in variables(group).values() if isinstance(value, str)]
    for value in [*values, *configured["metadata"]["labels"].values()]:
        assert re.fullmatch(LABEL_VALUE, value, re.ASCII)


def test_an_object_belongs_to_its_group() -> None:
    metadata = one(config_map(metadata={"namespace": "kube-system", "finalizers": ["x"], "annotations": {"a": "b"}}))[
        "metadata"
    ]
    assert metadata == {
        "name": "my-cm",
        "namespace": "team-a",
        "annotations": {"a": "b"},
        "labels": {
            "osmo.workflow_id": "wf",
            "osmo.workflow_uuid": "wf-uuid",
            "osmo.group_name": "training",
            "osmo.group_uuid": "grp-1",
            "osmo.submitted_by": "alice",
            "gkm.io/task-group": "training",
            "gkm.io/task-group-uid": UID,
        },
        "ownerReferences": [{"apiVersion": "gkm.io/v1alpha1", "kind": "TaskGroup", "name": "training", "uid": UID}],
    }


def test_only_the_group_sets_a_system_label_even_if_it_has_no_value() -> None:
    forged = {"osmo.submitted_by": "root", "gkm.io/task-group-uid": "x", "own": "label"}
    group = task_group(workflow=Workflow(labels=forged))
    (configured,) = group_objects([config_map(metadata={"labels": forged})], group, SETTINGS)
    labels = configured["metadata"]["labels"]
    assert "osmo.submitted_by" not in labels
    assert (labels["gkm.io/task-group-uid"], labels["own"]) == (UID, "label")


def test_configuration_comes_first_and_the_order_of_the_pool_stays() -> None:
    kinds = [("Deployment", "apps"), ("RayCluster", "ray.io"), ("Service", ""), ("Secret", ""), ("ConfigMap", "")]
    settings = TaskGroups(allowed_kinds=[AllowedKind(kind, group) for kind, group in kinds])
    pool = [
        {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": {"name": "x"}}
        for kind, group in kinds
    ]
    ordered = [each["kind"] for each in group_objects(pool, task_group(), settings)]
    assert ordered == ["Service", "Secret", "ConfigMap", "Deployment", "RayCluster"]


def test_a_kind_that_left_the_list_is_refused_again() -> None:
    secret = {**config_map(), "kind": "Secret"}
    assert one(secret, WITH_SECRETS)["kind"] == "Secret"
    with pytest.raises(TemplateInvalid, match=r"'Secret my-cm': the kind 'Secret' is not allowed"):
        one(secret)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([config_map("a"), config_map("a")], "names must differ"),
        ([compute_domain("a"), compute_domain("b")], "at most one"),
        ([config_map("a" * 254)], "253"),
        ([config_map("")], "metadata.name"),
        ([config_map(metadata={"labels": ["a"]})], "labels is a list"),
        ([config_map(metadata={"annotations": "a"})], "annotations is a str"),
        ([config_map(data={"x": "x" * MAX_GROUP_BYTES})], str(MAX_GROUP_BYTES)),
    ],
)
def test_objects_that_cannot_be_created_together_are_refused(objects: list[Json], message: str) -> None:
    with pytest.raises(TemplateInvalid, match=message):
        group_objects(objects, task_group(), SETTINGS)


def test_a_group_and_its_objects_have_one_limit_and_the_largest_part_is_named() -> None:
    half = MAX_GROUP_BYTES // 2
    wide = task_group(*(Task(name=f"t{number}", labels={"a": "x" * 50}) for number in range(1024)))
    check_size(wide)
    group_objects([config_map(data={"x": "x" * half})], task_group(), SETTINGS)
    with pytest.raises(TooLarge, match=r"spec 8\d{4}, its objects 4\d{5}"):
        group_objects([config_map(data={"x": "x" * (MAX_GROUP_BYTES - 50_000)})], wide, SETTINGS)
    noted = replace(wide, metadata=replace(wide.metadata, annotations={"a.test/b": "x" * MAX_GROUP_BYTES}))
    with pytest.raises(TooLarge, match=rf"metadata 52\d{{4}}, spec .* the limit is {MAX_GROUP_BYTES}: shorten"):
        check_size(noted)


@pytest.mark.parametrize("character", ["<", ">", "&"])
def test_what_the_api_server_writes_in_six_bytes_counts_six(character: str) -> None:
    fits, exceeds = ([config_map(data={"x": character * (MAX_GROUP_BYTES // each)})] for each in (7, 6))
    group_objects(fits, task_group(), SETTINGS)
    with pytest.raises(TooLarge, match="in six bytes each"):
        group_objects(exceeds, task_group(), SETTINGS)
    merged(named(*fits))
    with pytest.raises(TooLarge, match=str(MAX_GROUP_BYTES)):
        merged(named(*exceeds))


@given(st.recursive(st.text() | st.text('<>&\u2028\u2029a"\\'), st.lists, max_leaves=8))
def test_a_size_is_that_of_gos_encoder(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for each in "<>&\u2028\u2029":
        text = text.replace(each, f"\\u{ord(each):04x}")
    assert stored_bytes(value, "it") == len(text.encode())


def test_inputs_do_not_change() -> None:
    rendered = [config_map(metadata={"labels": {"a": "b"}, "namespace": "x"})]
    before = deepcopy(rendered)
    group_objects(rendered, task_group(labels={"c": "d"}), SETTINGS)
    assert rendered == before


def test_the_group_of_no_object_is_empty() -> None:
    assert group_objects([], task_group(), SETTINGS) == []
