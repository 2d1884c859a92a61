import pytest
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.api.task_groups import NVLINK_TEST_ANNOTATION, NVLinkTest, Task, TemplateValidation
from gkm.templates.planning import RuleNotMet, findings, planned_objects, sample_object
from gkm.templates.pools import PoolTemplate
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json, RenderingFailed, TemplateInvalid
from support.templates.objects import SETTINGS, config_map, task_group


def template(value: Json, *rules: str, message: str = "", nvlink: int = 0) -> PoolTemplate:
    validation = [TemplateValidation(rule, message) for rule in rules]
    return PoolTemplate("t", value, validation, NVLinkTest(nvlink) if nvlink else None)


def test_all_that_is_wrong_with_a_template_is_found_at_once(renderer: Renderer) -> None:
    value = config_map("x", data={"a": "{{ NO }}"}, kind="Secret")
    found = findings(template(value, "1 +", nvlink=100), SETTINGS, renderer)
    assert [error.partition(":")[0] for error in found.errors][2:] == ["data.a", "validation[0].expression"]
    assert "kind 'Secret' is not allowed" in found.errors[0]
    assert "spec.nvlinkTest needs a template of kind Job" in found.errors[1]


def test_a_good_template_has_no_finding(renderer: Renderer) -> None:
    found = findings(template(config_map("x-{{ WF_ID }}"), "TASKS | length > 1"), SETTINGS, renderer)
    assert (found.errors, found.warnings) == ((), ())


def test_the_sample_is_rendered_where_a_rule_is_false(renderer: Renderer) -> None:
    sample = sample_object(template(config_map("{{ WF_ID }}"), "TASKS | length > 1000"), SETTINGS, renderer)
    assert sample["metadata"]["name"] == "sample-workflow"


def test_a_rule_that_cannot_be_evaluated_for_the_sample_is_found(renderer: Renderer) -> None:
    with pytest.raises(RenderingFailed, match="rule"):
        sample_object(template(config_map(), "TASKS[0].WF_NAME == 'x'"), SETTINGS, renderer)


def test_the_sample_of_a_template_that_deletes_fields_is_without_them(renderer: Renderer) -> None:
    sample = sample_object(template(config_map("x", data={"a": None, "b": "1"})), SETTINGS, renderer)
    assert sample["data"] == {"b": "1"}


def test_the_templates_of_a_pool_become_the_objects_of_a_group(renderer: Renderer) -> None:
    first = template(config_map("{{ WF_ID }}", data={"a": "1"}), "TASKS | length == 1")
    objects = planned_objects(task_group(Task("a")), [first, template(config_map("{{WF_ID}}"))], SETTINGS, renderer)
    assert [(each["metadata"]["name"], each["data"]) for each in objects] == [("wf", {"a": "1"})]


def test_every_rule_that_is_not_met_is_named(renderer: Renderer) -> None:
    first = template(config_map("a"), "TASKS | length > 9", message="use ten tasks")
    templates = [first, template(config_map("b"), "false", "true", "1 > 2")]
    with pytest.raises(RuleNotMet) as refused:
        planned_objects(task_group(), templates, SETTINGS, renderer)
    assert str(refused.value) == (
        "use ten tasks; the rule 'false' of GroupTemplate 't' is not met; "
        "the rule '1 > 2' of GroupTemplate 't' is not met"
    )


@pytest.mark.parametrize("name", ["A", "a_b", "a..b", "-a", "a/b", "a\nb", "é"])
def test_a_name_that_no_object_can_have_is_refused(renderer: Renderer, name: str) -> None:
    with pytest.raises(TemplateInvalid, match="no object can have this name"):
        planned_objects(task_group(), [template(config_map(name))], SETTINGS, renderer)


def test_the_job_of_a_test_of_nvlink_has_its_threshold_whatever_else_merges_into_it(renderer: Renderer) -> None:
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nccl", "annotations": {"a": "b"}},
        "spec": 1,
    }
    settings = TaskGroups(allowed_kinds=[AllowedKind("Job", "batch")])
    other = template({**job, "metadata": {"name": "nccl", "annotations": {NVLINK_TEST_ANNOTATION: "1"}}, "spec": 2})
    (made,) = planned_objects(task_group(), [template(job, nvlink=400), other], settings, renderer)
    assert made["metadata"]["annotations"] == {"a": "b", NVLINK_TEST_ANNOTATION: "400"}
    assert made["spec"] == 2
