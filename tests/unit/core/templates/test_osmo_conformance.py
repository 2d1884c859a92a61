"""The conformance table of OSMO's group templates (NVIDIA/OSMO, main 1da31e19e), row by row.

A test whose name ends in `_on_purpose` states where GKM differs from OSMO, and why. Rows about pools that name missing
templates (12), deletion of used templates (14), refreshed pools (15) and recorded kinds (17) are about the API, so the
tests of the controllers and of admission have them.
"""

from copy import deepcopy

import pytest
from gkm.api.task_group_settings import TaskGroups
from gkm.templates.checks import check
from gkm.templates.merge import merge_patch
from gkm.templates.pools import merged
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import Json, RenderingFailed, TemplateInvalid
from support.templates.objects import (
    SETTINGS,
    UID,
    WITH_SECRETS,
    compute_domain,
    config_map,
    named,
    objects_of,
    task_group,
)


def rendered(renderer: RenderingProcess, value: object, **variables: object) -> object:
    """Return a value of a template, rendered with any variables."""
    return renderer.render([config_map(value=value)], variables).objects[0]["value"]


def test_row_1_a_variable_is_substituted_everywhere(renderer: RenderingProcess) -> None:
    (domain,) = objects_of(renderer, [compute_domain()], task_group(group_uuid="abc-123"))
    assert domain["metadata"]["name"] == "compute-domain-abc-123"
    assert domain["spec"] == {"channel": {"resourceClaimTemplate": {"name": "compute-domain-abc-123"}}}


def test_row_2_the_namespace_is_replaced_by_that_of_the_group_on_purpose(renderer: RenderingProcess) -> None:
    # OSMO removes it, and its backend adds its own: a TaskGroup has a namespace, so it is set here.
    (configured,) = objects_of(renderer, [config_map(metadata={"namespace": "user-namespace"})], task_group())
    assert configured["metadata"]["namespace"] == "team-a"


def test_row_3_system_labels_are_added(renderer: RenderingProcess) -> None:
    (configured,) = objects_of(renderer, [config_map()], task_group())
    labels = configured["metadata"]["labels"]
    assert (labels["osmo.group_uuid"], labels["osmo.workflow_uuid"]) == ("grp-1", "wf-uuid")


def test_row_4_labels_of_the_template_stay(renderer: RenderingProcess) -> None:
    template = config_map(metadata={"labels": {"custom-key": "custom-value"}})
    (configured,) = objects_of(renderer, [template], task_group())
    labels = configured["metadata"]["labels"]
    assert (labels["custom-key"], labels["osmo.group_uuid"]) == ("custom-value", "grp-1")


def test_row_5_workflow_labels_yield_to_the_template_and_both_to_the_system(renderer: RenderingProcess) -> None:
    template = config_map(metadata={"labels": {"precedence": "template-value", "osmo.group_uuid": "template-value"}})
    workflow = {"project": "project-a", "precedence": "workflow-value", "osmo.group_uuid": "workflow-value"}
    (configured,) = objects_of(renderer, [template], task_group(labels=workflow))
    labels = configured["metadata"]["labels"]
    assert (labels["project"], labels["precedence"]) == ("project-a", "template-value")
    assert labels["osmo.group_uuid"] == "grp-1"


def test_row_6_an_object_without_metadata_is_refused_on_purpose() -> None:
    # OSMO adds labels to it and fails at the API server: an object without a name cannot be created or deleted.
    with pytest.raises(TemplateInvalid, match="apiVersion"):
        merged(named({"spec": {"replicas": "1"}}))
    assert "metadata.name is missing" in check({"apiVersion": "v1", "kind": "ConfigMap"}, SETTINGS).errors[0]


def test_row_7_templates_do_not_change(renderer: RenderingProcess) -> None:
    templates = [compute_domain(), config_map(metadata={"namespace": "x", "labels": {"a": "{{ WF_ID }}"}})]
    before = deepcopy(templates)
    objects_of(renderer, templates, task_group(labels={"b": "c"}))
    assert templates == before


def test_row_8_no_template_makes_no_object(renderer: RenderingProcess) -> None:
    assert objects_of(renderer, [], task_group()) == []


def test_row_9_objects_stay_in_order(renderer: RenderingProcess) -> None:
    secret = {**config_map("secret-{{WF_GROUP_UUID}}"), "kind": "Secret"}
    objects = objects_of(renderer, [compute_domain(), secret], task_group(group_uuid="grp-42"), WITH_SECRETS)
    assert [each["metadata"]["name"] for each in objects] == ["compute-domain-grp-42", "secret-grp-42"]


def test_row_10_a_patch_is_merged_into_its_base() -> None:
    base, patch = compute_domain("x", channel={"mode": "single"}), compute_domain("x", extra="value")
    assert merged(named(base, patch)) == [compute_domain("x", channel={"mode": "single"}, extra="value")]


def test_row_11_a_later_template_wins() -> None:
    def pod_group(**spec: object) -> Json:
        version = "scheduling.volcano.sh/v1beta1"
        return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "default"}, "spec": spec}

    (only,) = merged(named(pod_group(minMember=1), pod_group(minMember=4, queue="high")))
    assert only["spec"] == {"minMember": 4, "queue": "high"}


@pytest.mark.parametrize("field", ["apiVersion", "kind", "metadata.name"])
def test_row_13_missing_fields_are_refused_by_name(field: str) -> None:
    template = config_map()
    del (template["metadata"] if field == "metadata.name" else template)[field.rpartition(".")[2]]
    assert check(template, SETTINGS).errors == (f"{field} is missing, or is no text",)


def test_row_13_a_namespace_is_a_warning_by_default_on_purpose() -> None:
    # The seed asks to ignore it; OSMO's code refuses it, as `namespaces: enforce` does here.
    template = config_map(metadata={"namespace": "x"})
    assert "namespace" in check(template, SETTINGS).warnings[0]
    assert "namespace" in check(template, TaskGroups(namespaces="enforce")).errors[0]


def test_row_16_a_workflow_label_cannot_replace_a_system_label(renderer: RenderingProcess) -> None:
    labels = {"osmo.group_uuid": "user-value", "project": "project-a"}
    (configured,) = objects_of(renderer, [config_map()], task_group(labels=labels, group_uuid=""))
    assert configured["metadata"]["labels"]["project"] == "project-a"
    assert configured["metadata"]["labels"]["osmo.group_uuid"] == UID


def test_rows_18_and_19_text_never_becomes_a_list_by_its_form_on_purpose(renderer: RenderingProcess) -> None:
    # OSMO makes a list of `ARRAY:[a,b,c]`, whoever wrote that text. Here only the template decides, with | json.
    assert rendered(renderer, "{{ items }}", items="ARRAY:[a,b,c]") == "ARRAY:[a,b,c]"
    assert rendered(renderer, ["ARRAY:[a,b,c]"]) == ["ARRAY:[a,b,c]"]
    assert rendered(renderer, "{{ items | json }}", items=["a", "b", "c"]) == ["a", "b", "c"]
    assert rendered(renderer, ["{{ items | json }}"], items='["a","b","c"]') == [["a", "b", "c"]]


def test_row_20_values_that_are_no_text_stay(renderer: RenderingProcess) -> None:
    assert rendered(renderer, {"enabled": True}) == {"enabled": True}


def test_values_in_lists_that_are_no_text_stay_on_purpose(renderer: RenderingProcess) -> None:
    # OSMO renders every item of a list, and fails for those that are no text.
    items = [1, 1.5, True, None, ["{{ a }}", 2], {"x": "{{ a }}"}]
    assert rendered(renderer, items, a="b") == [1, 1.5, True, None, ["b", 2], {"x": "b"}]


def test_row_21_an_expression_without_an_end_is_refused_when_it_is_written_on_purpose(
    renderer: RenderingProcess,
) -> None:
    # OSMO finds it when the workflow runs.
    (problem,) = renderer.compile({"name": "{{ unclosed"})
    assert problem.startswith("name: ")
    with pytest.raises(RenderingFailed, match="value: "):
        rendered(renderer, "{{ unclosed")


def test_row_22_texts_in_lists_are_rendered(renderer: RenderingProcess) -> None:
    template = {"args": ["--name={{ name }}", "--ver={{ ver }}"]}
    assert rendered(renderer, template, name="pod-1", ver="2") == {"args": ["--name=pod-1", "--ver=2"]}


def test_row_23_objects_in_lists_are_rendered(renderer: RenderingProcess) -> None:
    template = {"env": [{"name": "X", "value": "{{ val }}"}]}
    assert rendered(renderer, template, val="hello") == {"env": [{"name": "X", "value": "hello"}]}


@pytest.mark.parametrize("later", [{"name": "a", "value": 2}, {"name": "b", "value": 2}, {"value": 2}])
def test_row_24_lists_are_replaced_on_purpose(later: Json) -> None:
    # OSMO merges lists by the items' names. The seed asks for JSON merge patch: RFC 7386 replaces a list.
    assert merge_patch([{"name": "a", "value": 1}], [later]) == [later]


def test_row_25_a_list_replaces_a_scalar() -> None:
    assert merge_patch({"a": "scalar"}, {"a": [1, 2]}) == {"a": [1, 2]}


def test_names_that_render_to_one_name_are_one_object_on_purpose(renderer: RenderingProcess) -> None:
    # OSMO compares unrendered names, creates the object twice and skips the second one.
    templates = [config_map("cm-{{WF_ID}}", data={"a": "1"}), config_map("cm-{{ WF_ID }}", data={"b": "2"})]
    (only,) = objects_of(renderer, templates, task_group())
    assert only["data"] == {"a": "1", "b": "2"}
    with pytest.raises(TemplateInvalid, match="names must differ"):
        objects_of(renderer, [config_map("cm-{{ WF_ID }}"), config_map("cm-wf")], task_group())


def test_a_trailing_newline_stays_on_purpose(renderer: RenderingProcess) -> None:
    # Jinja's default, and so OSMO, drops one: a script or a certificate would differ from what was written.
    assert rendered(renderer, "{{ a }}\n", a="b") == "b\n"
