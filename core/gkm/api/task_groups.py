"""GroupTemplate, Pool and TaskGroup: Kubernetes objects that live exactly as long as a group of tasks.

A GroupTemplate holds one object with Jinja2 expressions, a Pool names templates in order, and a TaskGroup of that pool
gets the merged and rendered objects in its own namespace (docs/design/task-groups.md).
"""

from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, field

from gkm.api.meta import API_VERSION, GROUP, Conditions, Count, HasConditions, ObjectMeta, ObservedGeneration
from gkm.api.runs import Labels

FINALIZER = f"{GROUP}/task-group"
GROUP_LABEL = f"{GROUP}/task-group"
"""Label of task pods and of all objects of a group: the name of their TaskGroup, in the same namespace."""
GROUP_UID_LABEL = f"{GROUP}/task-group-uid"
"""Label of all objects of a group: the uid of their TaskGroup."""
NVLINK_TEST_ANNOTATION = f"{GROUP}/nvlink-min-bandwidth-gbps"
"""Annotation of the Job of a template with `nvlinkTest`: its threshold, so that later changes of the template do not
count."""
USER_CONTAINER_LABEL = f"{GROUP}/user-container"
"""Label of a task pod: the only container that gets the claim of the group's ComputeDomain."""

MAX_TEMPLATES = 64
"""Templates of a pool, and objects of a group."""
MAX_TASKS = 1_024
MAX_TEMPLATE_BYTES = 128 << 10
MAX_GROUP_BYTES = 512 << 10
"""Metadata, spec and rendered objects of one group, as the API server stores them: a third of etcd's limit of 1.5 MB,
because managed fields repeat the names of labels."""

Object = Annotated[dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]
ObjectName = Annotated[str, Meta(min_length=1, max_length=253, pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
GroupName = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Text = Annotated[str, Meta(max_length=253)]
_Label = Annotated[str, Meta(max_length=63)]
_UID = Annotated[str, Meta(max_length=128)]
Phase = Literal["Running", "Succeeded", "Failed", "Canceled"]
Outcome = Literal["Succeeded", "Failed", "Canceled"]
ENDED = frozenset(get_args(Outcome))


class TemplateValidation(Struct, frozen=True):
    """A rule that every group of the pool must meet."""

    expression: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Jinja2 expression over the variables of a group; the group is refused unless it is true."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """Reason of the refusal, as a sentence for people."""


class NVLinkTest(Struct, frozen=True, rename="camel"):
    """Evidence that NVLink works: the bandwidth that the Job of this template reports."""

    min_bandwidth_gbps: Annotated[int, Meta(ge=1, le=1_000_000)] = field(name="minBandwidthGBps")
    """Least average bus bandwidth, in GB/s, of a verified domain."""


class GroupTemplateSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The desired state of a GroupTemplate."""

    template: Object
    """A namespaced Kubernetes object of an allowed kind, with Jinja2 expressions in its values."""
    validation: Annotated[list[TemplateValidation], Meta(max_length=16)] = field(default_factory=list)
    """Rules that every group of a pool with this template must meet."""
    nvlink_test: NVLinkTest | None = field(default=None, name="nvlinkTest")
    """For a template of kind Job that runs nccl-tests: the result becomes the condition NVLinkVerified."""


class GroupTemplateStatus(HasConditions, Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of a GroupTemplate."""

    observed_generation: ObservedGeneration = 0
    pools: Count = 0
    """Number of pools that name the template."""
    conditions: Conditions = field(default_factory=list)
    """None so far: the pools of the template have the condition Parsed."""


class GroupTemplate(Struct, frozen=True, rename="camel", tag_field="kind", tag="GroupTemplate"):
    """An object that the groups of some pools get."""

    metadata: ObjectMeta
    spec: GroupTemplateSpec
    status: GroupTemplateStatus = field(default_factory=GroupTemplateStatus)
    api_version: str = API_VERSION


class PoolSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The desired state of a Pool."""

    description: Annotated[str, Meta(max_length=1024)] = ""
    """Purpose of the pool, for people."""
    common_group_templates: Annotated[list[ObjectName], Meta(max_length=MAX_TEMPLATES)] = field(default_factory=list)
    """GroupTemplates of every group, in the order of their merge."""


class PoolStatus(HasConditions, Struct, frozen=True, rename="camel", omit_defaults=True):
    """Observed state of a pool; only the controller writes it."""

    observed_generation: ObservedGeneration = 0
    parsed_group_templates: Annotated[list[Object], Meta(max_length=MAX_TEMPLATES)] = field(default_factory=list)
    """The merged templates, not rendered."""
    conditions: Conditions = field(default_factory=list)
    """Parsed: all templates exist and merge."""


class Pool(Struct, frozen=True, rename="camel", tag_field="kind", tag="Pool"):
    """A set of groups that get the same objects."""

    metadata: ObjectMeta
    spec: PoolSpec
    status: PoolStatus = field(default_factory=PoolStatus)
    api_version: str = API_VERSION


class Workflow(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The workflow that a TaskGroup belongs to."""

    id: Text = ""
    """Name of the workflow: the variable WF_ID."""
    uuid: Text = ""
    """UUID of the workflow: the variable WF_UUID."""
    submitted_by: Text = ""
    """Submitter: the variable WF_SUBMITTED_BY."""
    labels: Labels = field(default_factory=dict)
    """Labels of the workflow; every object of the group gets them."""


class Task(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task of the group: an entry of the variable TASKS."""

    name: GroupName
    """Name of the task, unique in the group: WF_TASK_NAME."""
    uuid: Text = ""
    """UUID of the task: WF_TASK_UUID."""
    gpus: Annotated[int, Meta(ge=0, le=1_024, extra_json_schema={"format": "int32"})] = 0
    """GPUs of the task: USER_GPUS."""
    labels: Annotated[dict[str, _Label], Meta(max_length=32)] = field(default_factory=dict)
    """Labels of the task, for expressions only: LABELS."""


class TaskGroupSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Desired state of a group; everything but the phase is immutable."""

    pool: ObjectName
    """Pool whose templates the group gets."""
    workflow: Workflow = field(default_factory=Workflow)
    group_name: Text = ""
    """Name of the group in its workflow: WF_GROUP_NAME; default: metadata.name."""
    group_uuid: Annotated[str, Meta(max_length=63)] = field(default="", name="groupUUID")
    """UUID of the group: WF_GROUP_UUID; default: metadata.uid."""
    tasks: Annotated[
        list[Task],
        Meta(
            max_length=MAX_TASKS,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = field(default_factory=list)
    """Tasks of the group, one pod each; without any, a group that ends with its pods waits ten minutes for another."""
    phase: Phase | None = None
    """Set by the workflow engine. Without it, the group ends when all pods with its label have ended."""


class GroupObject(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object of the group, as it was rendered."""

    api_version: Text
    """apiVersion of the object."""
    kind: Text
    """kind of the object."""
    name: Text
    """Name of the object, in the namespace of the group."""
    state: Literal["Planned", "Created", "Deleted"] = "Planned"
    """Planned before the request that creates it, Deleted once it is gone."""
    uid: _UID = ""
    """uid of the object, once it is created."""
    manifest: Object | None = None
    """The rendered object; absent for a Secret, and once the group ends."""


class TaskGroupStatus(HasConditions, Struct, frozen=True, rename="camel", omit_defaults=True):
    """Observed state of a group; only the controller writes it."""

    observed_generation: ObservedGeneration = 0
    phase: Literal["Pending", "Running", "Ending", "Succeeded", "Failed", "Canceled"] = "Pending"
    """Pending until all objects are created; Ending until all are gone."""
    outcome: Outcome | None = None
    """The phase that follows Ending."""
    pods_seen: bool = False
    """Whether a pod with the group's label was seen: only then can the group end with its pods."""
    succeeded_pods: Annotated[list[_UID], Meta(max_length=MAX_TASKS)] = field(default_factory=list)
    """uids of pods that succeeded, until the group ends: they are included even after their removal."""
    objects: Annotated[list[GroupObject], Meta(max_length=MAX_TEMPLATES)] = field(default_factory=list)
    """The objects of the group in the order of their creation."""
    conditions: Conditions = field(default_factory=list)
    """ObjectsCreated, ObjectsDeleted, MNNVLReady, NVLinkVerified."""


class TaskGroup(Struct, frozen=True, rename="camel", tag_field="kind", tag="TaskGroup"):
    """A group of tasks, one pod each, with the objects that the GroupTemplates of its Pool render to."""

    metadata: ObjectMeta
    spec: TaskGroupSpec
    status: TaskGroupStatus = field(default_factory=TaskGroupStatus)
    api_version: str = API_VERSION


_IMMUTABLE = ("pool", "workflow", "groupName", "groupUUID", "tasks")
_ENDED = list(get_args(Outcome))
TASK_GROUP_RULES = (
    {"rule": "size(self.metadata.name) <= 63", "message": "the name is longer than 63 characters"},
    *(
        {
            "rule": f"has(self.spec.{name}) == has(oldSelf.spec.{name}) && "
            f"(!has(self.spec.{name}) || self.spec.{name} == oldSelf.spec.{name})",
            "message": f"spec.{name} cannot change; create another TaskGroup",
        }
        for name in _IMMUTABLE
    ),
    {
        "rule": f"!has(oldSelf.spec.phase) || !(oldSelf.spec.phase in {_ENDED}) || "
        "(has(self.spec.phase) && self.spec.phase == oldSelf.spec.phase)",
        "message": "an ended TaskGroup stays ended; create another one",
    },
)
