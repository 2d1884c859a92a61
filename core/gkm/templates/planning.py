"""Plan the objects of a group: merge, render and check the templates of its pool. Pure except for the renderer.

Admission, the controllers and the command line plan with this module, so that they decide the same.
"""

import re
from collections.abc import Sequence

from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import NVLINK_TEST_ANNOTATION, NVLinkTest, TaskGroup
from gkm.hoststate.names import quoted
from gkm.templates.checks import TemplateFindings, check
from gkm.templates.groups import SAMPLE_GROUP, check_size, group_objects, variables
from gkm.templates.merge import merge_patch
from gkm.templates.pools import PoolTemplate, merged
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json, TemplateInvalid

_NVLINK_KIND = "Job"
# RFC 1123 as Kubernetes applies it to the names of objects, a DNS subdomain.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)


class RuleNotMet(TemplateInvalid):
    """A validation rule of a GroupTemplate is not true for a TaskGroup, so the group is refused."""


def findings(template: PoolTemplate, settings: TaskGroups, renderer: Renderer) -> TemplateFindings:
    """Check a GroupTemplate before any TaskGroup uses it; return the findings.

    Raises:
        RenderingFailed: rendering exceeds a limit.
        RenderingUnavailable: rendering is not possible now; the template is not the cause.
    """
    found = check(template.object, settings)
    errors = list(found.errors)
    if template.nvlink_test is not None and template.object.get("kind") != _NVLINK_KIND:
        errors.append(f"spec.nvlinkTest needs a template of kind {_NVLINK_KIND}, which runs the test")
    errors += renderer.compile(template.object, template.rules)
    return TemplateFindings(tuple(errors), found.warnings)


def sample_object(template: PoolTemplate, settings: TaskGroups, renderer: Renderer) -> Json:
    """Return a GroupTemplate rendered for the sample group, for which its rules may be false.

    Null values are left out: they delete fields of the templates before this one.

    Raises:
        TemplateInvalid, RenderingFailed: it cannot be rendered, or the object is not allowed in any group.
        RenderingUnavailable: rendering is not possible now; the template is not the cause.
    """
    if template.rules:
        renderer.render((), variables(SAMPLE_GROUP), template.rules)  # alone: a false rule prevents the rendering
    (sample,) = sample_objects([merge_patch({}, template.object)], settings, renderer)
    return sample


def sample_objects(objects: Sequence[Json], settings: TaskGroups, renderer: Renderer) -> list[Json]:
    """Return merged templates rendered for the sample group; raises as `sample_object` does."""
    rendered = renderer.render(objects, variables(SAMPLE_GROUP))
    return group_objects(rendered.objects, SAMPLE_GROUP, settings)


def merged_objects(templates: Sequence[PoolTemplate]) -> list[Json]:
    """Return the merged templates of a Pool, not rendered; the Job of an NVLink test gets its threshold as annotation.

    Raises:
        TemplateInvalid: as `merged`.
    """
    thresholds = [_threshold(each, each.nvlink_test) for each in templates if each.nvlink_test is not None]
    return merged([*templates, *thresholds])


def planned_objects(
    group: TaskGroup, templates: Sequence[PoolTemplate], settings: TaskGroups, renderer: Renderer
) -> list[Json]:
    """Return the objects of a TaskGroup in the order of creation; empty for a group without templates.

    Raises:
        RuleNotMet: a rule is false.
        TooLarge: the API server would not store the group, or not with its objects.
        TemplateInvalid: the templates do not merge, or render to objects that the group must not have.
        RenderingFailed: an expression fails or exceeds a limit.
        RenderingUnavailable: rendering is not possible now; the templates are not the cause.
    """
    check_size(group)  # what may not be stored is not rendered
    if not templates:
        return []
    rules = [(template.name, rule) for template in templates for rule in template.validation]
    expressions = [rule.expression for _, rule in rules]
    rendered = renderer.render(merged_objects(templates), variables(group), expressions)
    if broken := [
        rule.message or f"the rule {quoted(rule.expression)} of GroupTemplate {quoted(name)} is not met"
        for (name, rule), met in zip(rules, rendered.verdicts, strict=True)
        if not met
    ]:
        raise RuleNotMet("; ".join(broken))
    objects = group_objects(rendered.objects, group, settings)
    for kind, name in ((each["kind"], each["metadata"]["name"]) for each in objects):
        if not _NAME.fullmatch(name):
            message = "no object can have this name; use lower case, digits, '-' and '.'"
            raise TemplateInvalid(f"{quoted(kind)} {quoted(name)}: {message}")
    return objects


def _threshold(template: PoolTemplate, test: NVLinkTest) -> PoolTemplate:
    """Return the threshold of a test as one more template of its Job: later changes of the template do not count."""
    metadata = template.object.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    head = {key: template.object[key] for key in ("apiVersion", "kind") if key in template.object}
    annotations = {NVLINK_TEST_ANNOTATION: str(test.min_bandwidth_gbps)}
    return PoolTemplate(template.name, head | {"metadata": {"name": name, "annotations": annotations}})
