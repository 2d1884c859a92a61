"""While taskGroups.enabled is off, whoever writes a template, a pool or a group learns that GKM makes nothing of it."""

import pytest
from gkm.api.task_group_settings import TaskGroups
from gkm.templates.rendering.process import RenderingProcess
from support.operator.group_templates import GroupTemplates, Json, group, pool, template

OFF = "taskGroups.enabled is off in the configuration of GKM"


@pytest.fixture
def off(renderer: RenderingProcess) -> GroupTemplates:
    made = GroupTemplates(renderer, TaskGroups(enabled=False))
    made.put(template("one"), pool("pool", "one"))
    return made


@pytest.mark.parametrize("made", [template("two"), pool("other", "one"), group()], ids=lambda made: str(made["kind"]))
def test_what_is_written_is_admitted_with_a_warning(off: GroupTemplates, made: Json) -> None:
    found = off.write(made)
    assert (found.allowed, OFF in found.warnings) == (True, True)


@pytest.mark.parametrize("made", [template("two"), pool("other", "one"), group()], ids=lambda made: str(made["kind"]))
def test_with_the_switch_there_is_no_warning(renderer: RenderingProcess, made: Json) -> None:
    on = GroupTemplates(renderer, TaskGroups(enabled=True))
    on.put(template("one"), pool("pool", "one"))
    assert (on.write(made).allowed, on.write(made).warnings) == (True, "")


def test_a_refusal_says_only_why(off: GroupTemplates) -> None:
    found = off.write(group(of="elsewhere"))
    assert "Pool 'elsewhere' does not exist" in found.message
    assert (found.allowed, found.warnings) == (False, "")


def test_a_deletion_is_admitted_without_a_warning(off: GroupTemplates) -> None:
    found = off.delete("free")
    assert (found.allowed, found.warnings) == (True, "")
