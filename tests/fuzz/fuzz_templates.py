"""Group templates: what admins write into the API, from merge to the objects of a group."""

import json
from copy import deepcopy

from gkm.api.task_group_settings import TaskGroups
from gkm.templates.checks import check
from gkm.templates.groups import SAMPLE_GROUP, group_objects, variables
from gkm.templates.pools import PoolTemplate, identity, merged
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import RenderingUnavailable, TemplateInvalid

_RENDERER = RenderingProcess()
_SETTINGS = TaskGroups(enabled=True)
_VARIABLES = variables(SAMPLE_GROUP)


def pool(data: bytes) -> None:
    """Templates are refused in a line; or they merge to what merges to itself, and render to objects of the group."""
    try:
        templates = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(templates, list) or not all(isinstance(each, dict) for each in templates):
        return
    before = deepcopy(templates)
    try:
        _pool([PoolTemplate(str(number), each) for number, each in enumerate(templates)])
    except TemplateInvalid as error:
        assert str(error).isprintable()
        assert len(str(error)) < 1500
    except RenderingUnavailable:
        return
    assert templates == before


def _pool(templates: list[PoolTemplate]) -> None:
    objects = merged(templates)
    assert merged([PoolTemplate("again", each) for each in objects]) == objects
    for each in objects:
        findings = check(each, _SETTINGS)
        assert all(line.isprintable() and len(line) < 1500 for line in (*findings.errors, *findings.warnings))
        assert all(problem.isprintable() for problem in _RENDERER.compile(each))
    created = group_objects(_RENDERER.render(objects, _VARIABLES).objects, SAMPLE_GROUP, _SETTINGS)
    assert len({identity(each) for each in created}) == len(created) == len(objects)
    assert {each["metadata"]["namespace"] for each in created} <= {SAMPLE_GROUP.metadata.namespace}
