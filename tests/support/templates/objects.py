"""Templates, groups and settings for tests, and the way from templates to the objects of a group."""

from collections.abc import Sequence
from typing import Any

from gkm.api.meta import ObjectMeta
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.api.task_groups import Task, TaskGroup, TaskGroupSpec, Workflow
from gkm.templates.groups import group_objects, variables
from gkm.templates.pools import PoolTemplate, merged
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json

UID = "11111111-2222-4333-8444-555555555555"
SETTINGS = TaskGroups(enabled=True)
WITH_SECRETS = TaskGroups(enabled=True, allowed_kinds=[*SETTINGS.allowed_kinds, AllowedKind("Secret")])


def config_map(name: str = "my-cm", /, metadata: Json | None = None, **fields: object) -> Json:
    """Return a ConfigMap with more metadata and fields."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **(metadata or {})}, **fields}


def compute_domain(name: str = "compute-domain-{{WF_GROUP_UUID}}", **spec: object) -> Json:
    """Return a ComputeDomain whose ResourceClaimTemplate has its name."""
    channel = {"channel": {"resourceClaimTemplate": {"name": name}}}
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name},
        "spec": spec or channel,
    }


def task_group(*tasks: Task, labels: dict[str, str] | None = None, name: str = "training", **spec: Any) -> TaskGroup:  # noqa: ANN401 -- any field
    """Return a group with all its variables."""
    workflow = Workflow(id="wf", uuid="wf-uuid", submitted_by="alice", labels=labels or {})
    return TaskGroup(
        metadata=ObjectMeta(name=name, namespace="team-a", uid=UID),
        spec=TaskGroupSpec(
            **{"pool": "pool-a", "workflow": workflow, "group_uuid": "grp-1", "tasks": list(tasks), **spec}
        ),
    )


def named(*templates: Json) -> list[PoolTemplate]:
    """Return templates with names of their own, in this order."""
    return [PoolTemplate(f"template-{number}", template) for number, template in enumerate(templates)]


def objects_of(
    renderer: Renderer, templates: Sequence[Json], group: TaskGroup, settings: TaskGroups = SETTINGS
) -> list[Json]:
    """Return the objects of a group whose pool has these templates."""
    rendered = renderer.render(merged(named(*templates)), variables(group))
    return group_objects(rendered.objects, group, settings)
