"""Objects of group templates that no controller reads: `gkm doctor` names them while the feature is off."""

import pytest
import yaml
from gkm_cli.doctor.installation import kinds
from gkm_cli.doctor.installation.objects import GroupObject
from msgspec import convert
from support.cli.observations import Json, observed


def config_map(config: Json) -> Json:
    return {"data": {"config.yaml": yaml.safe_dump(config)}}


def made(kind: str, name: str, namespace: str = "") -> tuple[str, GroupObject]:
    return kind, convert({"metadata": {"name": name, "namespace": namespace}}, GroupObject)


TEMPLATE, POOL, GROUP = made("GroupTemplate", "map"), made("Pool", "gb200"), made("TaskGroup", "train", "team")
OFF, ON = config_map({}), config_map({"taskGroups": {"enabled": True}})


@pytest.mark.parametrize(
    ("objects", "findings"),
    [
        ((), []),
        ((POOL, TEMPLATE), [("warning", "GroupTemplate map"), ("warning", "Pool gb200")]),
        ((POOL, GROUP), [("warning", "Pool gb200"), ("problem", "TaskGroup team/train")]),
    ],
)
def test_a_group_is_a_problem_and_a_pool_or_template_without_one_a_warning(
    objects: tuple[tuple[str, GroupObject], ...], findings: list[tuple[str, str]]
) -> None:
    found = list(kinds.inactive(observed(config_map=OFF, group_objects=objects)))
    assert [(one.severity.value, one.object) for one in found] == findings
    assert all("taskGroups.enabled is off" in one.why for one in found)
    assert all("features.taskGroups=true" in one.hint for one in found)


def test_one_finding_counts_all_objects_of_a_kind() -> None:
    groups = [made("TaskGroup", f"g{number}", "team") for number in range(9)]
    (found,) = kinds.inactive(observed(config_map=OFF, group_objects=groups))
    assert found.detail.startswith("GKM ignores 9 TaskGroups: team/g0, team/g1")


def test_deleted_groups_wait_for_the_rights_and_not_for_the_switch() -> None:
    metadata = {"name": "old", "namespace": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    deleted = "TaskGroup", convert({"metadata": metadata}, GroupObject)
    held, idle = kinds.inactive(observed(config_map=OFF, group_objects=(GROUP, deleted)))
    assert (held.severity.value, held.object, idle.object) == ("problem", "TaskGroup team/old", "TaskGroup team/train")
    assert held.detail == "1 TaskGroup cannot be deleted yet: team/old"
    assert held.hint.startswith("set features.taskGroups=true")
    assert "taskGroups.enabled to true" not in held.hint


@pytest.mark.parametrize("config", [ON, config_map({"unknown": 1}), None])
def test_with_the_switch_and_without_a_readable_configuration_there_is_no_finding(config: Json | None) -> None:
    assert list(kinds.inactive(observed(config_map=config, group_objects=(POOL, GROUP)))) == []
