"""Reviews of TaskGroups: pool, rules, rendering, names; and what happens when they cannot be checked."""

import pytest
from gkm.api.task_group_settings import TaskGroups
from gkm.kube.errors import ApiError
from gkm.templates.rendering.process import RenderingProcess
from support.grove.tables import table
from support.operator.group_templates import (
    DOMAIN,
    POOL_OBJECTS,
    TEMPLATES,
    GroupTemplates,
    Json,
    config_map,
    group,
    held,
    pool,
    template,
)

RULE = {"expression": "TASKS | length >= 4", "message": "NVLink needs four tasks"}


def pooled(site: GroupTemplates, *templates: Json) -> GroupTemplates:
    site.put(*templates, pool("pool", *(one["metadata"]["name"] for one in templates)))
    return site


def test_a_group_of_a_pool_with_templates_is_admitted(site: GroupTemplates) -> None:
    pooled(site, template("domain", DOMAIN), template("map", validation=[RULE]))
    found = site.write(group(workflow={"id": "my-workflow"}))
    assert (found.allowed, found.warnings, found.message) == (True, "", "")
    assert site.checks.dry_runs == []


def test_a_group_of_a_pool_without_templates_is_admitted(site: GroupTemplates) -> None:
    pooled(site)
    assert site.write(group(tasks=0)).allowed


def test_a_pool_that_does_not_exist_is_named(site: GroupTemplates) -> None:
    assert "Pool 'elsewhere' does not exist, or is being deleted" in site.write(group(of="elsewhere")).message


def test_a_template_that_does_not_exist_is_named(site: GroupTemplates) -> None:
    site.put(pool("pool", "gone"))
    missing = "'pool' names GroupTemplates that do not exist, or are being deleted: 'gone'"
    assert missing in site.write(group()).message


def test_a_group_is_not_planned_from_what_is_being_deleted(site: GroupTemplates) -> None:
    site.put(held(template("one")), held(pool("pool", "one")), pool("other", "one"))
    assert site.write(group()).allowed
    site.api.delete(TEMPLATES, "one")
    assert "or are being deleted: 'one'" in site.write(group(of="other")).message
    site.api.delete(POOL_OBJECTS, "pool")
    assert "Pool 'pool' does not exist, or is being deleted" in site.write(group()).message


@table(
    "tasks, allowed",
    [("fewer", 3, False), ("as many", 4, True), ("none", 0, False)],
)
def test_a_rule_that_is_not_met_refuses_the_group_with_its_message(
    site: GroupTemplates,
    tasks: int,
    allowed: bool,  # noqa: FBT001 -- a row
) -> None:
    pooled(site, template(validation=[{"expression": "true"}, RULE]))
    found = site.write(group(tasks=tasks))
    assert found.allowed is allowed
    assert found.message == ("" if allowed else "NVLink needs four tasks")


def test_a_rule_without_a_message_is_shown(site: GroupTemplates) -> None:
    pooled(site, template("strict", validation=[{"expression": "TASKS | length > 9"}]))
    assert "the rule 'TASKS | length > 9' of GroupTemplate 'strict' is not met" in site.write(group()).message


def test_a_variable_without_a_value_refuses_the_group(site: GroupTemplates) -> None:
    pooled(site, template(value=config_map("a-{{ WF_ID }}")))
    found = site.write(group())
    assert not found.allowed
    assert "WF_ID" in found.message


@pytest.mark.parametrize("name", ["My_Workflow", "a_b", "x.-y"])
def test_a_name_that_no_object_can_have_refuses_the_group(site: GroupTemplates, name: str) -> None:
    pooled(site, template(value=config_map("{{ WF_ID }}")))
    found = site.write(group(workflow={"id": name}))
    assert not found.allowed
    assert f"'ConfigMap' '{name}': no object can have this name" in found.message


def test_a_kind_that_is_not_allowed_any_more_refuses_the_group(renderer: RenderingProcess) -> None:
    site = pooled(GroupTemplates(renderer, TaskGroups(enabled=True, allowed_kinds=[])), template())
    assert "'ConfigMap' is not allowed" in site.write(group()).message


@pytest.mark.parametrize("templates", [[], [template()]])
def test_a_group_that_could_not_be_stored_with_its_objects_is_refused(
    site: GroupTemplates, templates: list[Json]
) -> None:
    pooled(site, *templates)
    tasks = [{"name": f"task-{number}", "labels": {"a": "x" * 60, "b": "x" * 60}} for number in range(1024)]
    assert site.write(group() | {"spec": {"pool": "pool", "tasks": tasks}}).allowed
    for each in tasks:
        each["labels"] = {f"key-{number}": "<" * 60 for number in range(2)}
    found = site.write(group() | {"spec": {"pool": "pool", "tasks": tasks}})
    assert not found.allowed
    assert "(metadata 60, spec 79" in found.message
    assert "the limit is 524288: shorten the largest part" in found.message


def test_the_default_variables_are_those_of_the_object(site: GroupTemplates) -> None:
    pooled(site, template(value=config_map("x", data={"a": "{{WF_GROUP_NAME}} {{WF_GROUP_UUID}} {{WF_POOL}}"})))
    assert site.write(group()).allowed


def test_no_update_is_refused(site: GroupTemplates) -> None:
    changed = group(of="elsewhere", phase="Canceled")
    assert site.review("/taskgroups", changed, group(of="elsewhere")).allowed


def test_a_pool_is_read_that_the_watch_has_not_shown(site: GroupTemplates) -> None:
    site.observe()
    pooled(site, template(validation=[RULE]))
    assert not site.write(group(tasks=1)).allowed
    site.observe()
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    assert not site.write(group(tasks=1)).allowed
    assert site.write(group()).allowed


def test_a_group_is_admitted_with_a_warning_when_its_pool_cannot_be_read(site: GroupTemplates) -> None:
    site.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    found = site.write(group())
    assert found.allowed
    assert "GKM cannot decide about this TaskGroup now: Pool pool cannot be read" in found.warnings


def test_a_group_that_cannot_be_decoded_is_admitted_with_a_warning(site: GroupTemplates) -> None:
    found = site.write(group() | {"spec": {"pool": 7}})
    assert found.allowed
    assert "this TaskGroup cannot be read" in found.warnings
