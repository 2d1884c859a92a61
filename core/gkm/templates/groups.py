"""Prepare the objects of a group: variables for expressions, labels, owner, namespace and order of creation. Pure."""

import re
from collections.abc import Sequence

import msgspec

from gkm.api.meta import API_VERSION, ObjectMeta, OwnerReference
from gkm.api.runs import LABEL_VALUE
from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import GROUP_LABEL, GROUP_UID_LABEL, MAX_GROUP_BYTES, Task, TaskGroup, TaskGroupSpec, Workflow
from gkm.hoststate.names import quoted
from gkm.templates.checks import not_allowed
from gkm.templates.claims import compute_domains
from gkm.templates.encoding import stored_bytes
from gkm.templates.merge import merge_patch
from gkm.templates.pools import Identity, identity
from gkm.templates.values import Json, TemplateInvalid, TooLarge

MAX_NAME = 253
"""The length of an object's name (Kubernetes, "Object Names and IDs"); the status of the group names it."""
_MAX_LABEL = 63
_LABEL = re.compile(LABEL_VALUE, re.ASCII)
_CREATED_FIRST = (
    "ServiceAccount Role RoleBinding Secret ConfigMap PersistentVolumeClaim ResourceClaim ResourceClaimTemplate "
    "ComputeDomain PodGroup NetworkPolicy Service"
)
"""Configuration: workloads, and kinds that may make workloads, use it."""
SAMPLE_GROUP = TaskGroup(
    metadata=ObjectMeta(name="sample", namespace="gkm-dry-runs", uid="00000000-0000-4000-8000-000000000000"),
    spec=TaskGroupSpec(
        pool="sample-pool",
        workflow=Workflow(
            id="sample-workflow", uuid="00000000-0000-4000-8000-000000000001", submitted_by="sample-user"
        ),
        group_name="sample-group",
        group_uuid="00000000-0000-4000-8000-000000000002",
        tasks=[
            Task(name=f"task-{number}", uuid=f"00000000-0000-4000-8000-00000000001{number}", gpus=8)
            for number in range(4)
        ],
    ),
)
"""A made-up group with a value for every variable, to render templates before a real group exists."""


def variables(group: TaskGroup) -> Json:
    """Return the variables of a TaskGroup for expressions; a variable without a valid label value is left out."""
    spec, workflow = group.spec, group.spec.workflow
    return {
        **_with_values(
            WF_ID=workflow.id,
            WF_UUID=workflow.uuid,
            WF_GROUP_NAME=spec.group_name or group.metadata.name,
            WF_GROUP_UUID=spec.group_uuid or group.metadata.uid,
            WF_POOL=spec.pool,
            WF_SUBMITTED_BY=_label_value(workflow.submitted_by) or workflow.submitted_by.partition("@")[0],
        ),
        "TASKS": [
            {
                **_with_values(WF_TASK_NAME=task.name, WF_TASK_UUID=task.uuid),
                "USER_GPUS": task.gpus,
                "LABELS": dict(task.labels),
            }
            for task in spec.tasks
        ],
    }


def group_objects(rendered: Sequence[Json], group: TaskGroup, settings: TaskGroups) -> list[Json]:
    """Return the objects of a TaskGroup in the order of creation: configuration first, then the Pool's order.

    Raises:
        TemplateInvalid: a kind is not allowed, an object occurs twice, there are two ComputeDomains, or a limit is
        exceeded (TooLarge: the limit of all bytes).
    """
    owners = owner_references(group)
    from_workflow = {key: _label_value(value) for key, value in group.spec.workflow.labels.items()}
    system = _system_labels(group)
    objects: dict[Identity, Json] = {}
    for each in rendered:
        key = identity(each)
        api_group, kind, name = key
        where = quoted(f"{kind} {name}")
        if error := not_allowed(api_group, kind, settings):
            raise TemplateInvalid(f"{where}: {error}")
        if len(name) > MAX_NAME:
            raise TemplateInvalid(f"{where}: the name has more than {MAX_NAME} characters")
        if key in objects:
            raise TemplateInvalid(f"{where}: two templates of the pool render to this object; their names must differ")
        labels, annotations = (each["metadata"].get(field) for field in ("labels", "annotations"))
        for field, value in (("labels", labels), ("annotations", annotations)):
            if not isinstance(value, dict | None):
                raise TemplateInvalid(f"{where}: metadata.{field} is a {type(value).__name__}, not an object")
        metadata = {
            "name": each["metadata"]["name"],
            "namespace": group.metadata.namespace,
            "labels": merge_patch(from_workflow | (labels or {}), system),
            "ownerReferences": owners,
        }
        objects[key] = {**each, "metadata": metadata | ({"annotations": annotations} if annotations else {})}
    result = sorted(objects.values(), key=lambda each: each["kind"] not in _CREATED_FIRST.split())
    if len(compute_domains(result)) > 1:
        raise TemplateInvalid("the templates of the pool render to two ComputeDomains; a group has at most one")
    check_size(group, result)
    return result


def owner_references(group: TaskGroup) -> list[Json]:
    """Return the ownerReferences for the objects of a TaskGroup.

    Not as a controller, and not blocking: without our finalizer, the garbage collector deletes the objects.
    """
    return [msgspec.to_builtins(OwnerReference(API_VERSION, "TaskGroup", group.metadata.name, group.metadata.uid))]


def check_size(group: TaskGroup, objects: Sequence[Json] = ()) -> None:
    """Raise TooLarge if a TaskGroup and its objects together exceed MAX_GROUP_BYTES: one API object stores them."""
    sizes = {
        "metadata": stored_bytes(group.metadata, "metadata"),
        "spec": stored_bytes(group.spec, "spec"),
        "its objects": stored_bytes(objects, "all objects together"),
    }
    if sum(sizes.values()) > MAX_GROUP_BYTES:
        parts = ", ".join(f"{what} {size}" for what, size in sizes.items())
        raise TooLarge(
            f"the TaskGroup takes {sum(sizes.values())} bytes as the API server stores it ({parts}), which writes '<', "
            f"'>' and '&' in six bytes each; the limit is {MAX_GROUP_BYTES}: shorten the largest part"
        )


def _system_labels(group: TaskGroup) -> dict[str, str | None]:
    """Return all labels that only this module sets; None for one without a value, which an object must not have."""
    values = variables(group)
    return {
        "osmo.workflow_id": values.get("WF_ID"),
        "osmo.workflow_uuid": values.get("WF_UUID"),
        "osmo.group_name": values.get("WF_GROUP_NAME"),
        "osmo.group_uuid": values.get("WF_GROUP_UUID"),
        "osmo.submitted_by": values.get("WF_SUBMITTED_BY"),
        GROUP_LABEL: group.metadata.name,
        GROUP_UID_LABEL: group.metadata.uid,
    }


def _with_values(**texts: str) -> dict[str, str]:
    return {name: value for name, text in texts.items() if (value := _label_value(text))}


def _label_value(text: str) -> str:
    """Return a text as a value of a label, cut to its length; empty if it cannot be one."""
    value = text[:_MAX_LABEL].rstrip("-_.")
    return value if _LABEL.fullmatch(value) else ""
