"""Grove's kinds, pods and Services as the built-in controllers read them; pod specifications are passed on unread."""

from sys import intern
from typing import Annotated, Any, Self

from gkm.api.mnnvl_metadata import REPLICA_INDEX, SCALING_GROUP_INDEX, Owner
from gkm.kube.resources import Resource
from msgspec import Meta, Struct, field, structs

VERSION = "grove.io/v1alpha1"
TEMPLATE_HASH = "grove.io/pod-template-hash"

_ORDERING = (REPLICA_INDEX, SCALING_GROUP_INDEX, TEMPLATE_HASH)

Json = dict[str, Any]
Words = dict[str, str]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Metadata(Struct, frozen=True, rename="camel"):
    """Metadata with all labels and annotations, because children have those of their templates."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: Words = field(default_factory=dict)
    annotations: Words = field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()
    oversized: str = ""
    """For an outline: which field is too large to be held."""

    def outline(self, why: str) -> Self:
        """Return it with the owner that controls, and the labels that order children."""
        owner = self.controller
        return structs.replace(
            self,
            labels={key: self.labels[key] for key in _ORDERING if key in self.labels},
            annotations={},
            owner_references=(owner,) if owner is not None and owner.possible else (),
            oversized=why,
        )

    @property
    def terminating(self) -> bool:
        """Return whether the object is being deleted."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> Owner | None:
        """Return the owner that controls the object."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class CliqueSpec(Struct, frozen=True, rename="camel"):
    """Pods of one kind."""

    role_name: str = ""
    replicas: Count | None = None
    min_available: Count | None = None
    pod_spec: Json = field(default_factory=dict)


class GroupSpec(Struct, frozen=True, rename="camel"):
    """PodCliques that scale together."""

    clique_names: list[str] = field(default_factory=list)
    replicas: Count = 1
    min_available: Count = 1


class CliqueTemplate(Struct, frozen=True):
    """The template of a PodClique."""

    name: str
    spec: CliqueSpec = CliqueSpec()
    labels: Words = field(default_factory=dict)
    annotations: Words = field(default_factory=dict)


class ScalingGroupTemplate(GroupSpec, frozen=True, kw_only=True):
    """The template of a scaling group."""

    name: str
    annotations: Words = field(default_factory=dict)


class SetTemplate(Struct, frozen=True, rename="camel"):
    """The template of one replica of a set."""

    cliques: tuple[CliqueTemplate, ...] = ()
    pod_clique_scaling_groups: tuple[ScalingGroupTemplate, ...] = ()
    priority_class_name: str = ""


class SetSpec(Struct, frozen=True):
    """The spec of a set."""

    replicas: Count = 0
    template: SetTemplate = SetTemplate()


class Status(Struct, frozen=True, rename="camel", gc=False):
    """The numbers that the built-in controllers write; only a PodClique has ready replicas."""

    replicas: Count = 0
    ready_replicas: Count = 0


class PodCliqueSet(Struct, frozen=True):
    """A PodCliqueSet."""

    metadata: Metadata
    spec: SetSpec = SetSpec()
    status: Status = Status()

    def outline(self, why: str) -> Self:
        """Return it without its template."""
        return structs.replace(self, metadata=self.metadata.outline(why), spec=SetSpec(self.spec.replicas))


class PodCliqueScalingGroup(Struct, frozen=True):
    """A PodCliqueScalingGroup."""

    metadata: Metadata
    spec: GroupSpec = GroupSpec()
    status: Status = Status()

    def outline(self, why: str) -> Self:
        """Return it without its cliques."""
        return structs.replace(self, metadata=self.metadata.outline(why), spec=GroupSpec(replicas=self.spec.replicas))


class PodClique(Struct, frozen=True):
    """A PodClique."""

    metadata: Metadata
    spec: CliqueSpec = CliqueSpec()
    status: Status = Status()

    def outline(self, why: str) -> Self:
        """Return it without the specification of its pods."""
        spec = CliqueSpec(replicas=self.spec.replicas)
        return structs.replace(self, metadata=self.metadata.outline(why), spec=spec)


class Service(Struct, frozen=True):
    """A headless Service."""

    metadata: Metadata
    spec: Json = field(default_factory=dict)

    def outline(self, why: str) -> Self:
        """Return it without its spec."""
        return structs.replace(self, metadata=self.metadata.outline(why), spec={})


class ChildPodMetadata(Metadata, frozen=True):
    """The metadata of a pod with only the label that is compared: a cluster has thousands of pods."""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "labels", {TEMPLATE_HASH: intern(self.labels.get(TEMPLATE_HASH, ""))})
        structs.force_setattr(self, "annotations", {})
        owner = self.controller
        structs.force_setattr(self, "owner_references", (owner,) if owner is not None and owner.possible else ())


class PodCondition(Struct, frozen=True, gc=False):
    """A condition of a pod."""

    type: str
    status: str = ""


class PodStatus(Struct, frozen=True):
    """The status of a pod."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()


class ChildPod(Struct, frozen=True):
    """A pod. Its specification is not read: a label has the hash of its template."""

    metadata: ChildPodMetadata
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        """Return whether its containers have ended for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def ready(self) -> bool:
        """Return whether it is ready."""
        return any((one.type, one.status) == ("Ready", "True") for one in self.status.conditions)


Parent = PodCliqueSet | PodCliqueScalingGroup | PodClique
"""An object that owns others."""
Child = PodCliqueScalingGroup | PodClique | ChildPod | Service
"""An object that another object owns."""

SETS = Resource(VERSION, "PodCliqueSet", "podcliquesets", namespaced=True, type=PodCliqueSet)
GROUPS = Resource(
    VERSION, "PodCliqueScalingGroup", "podcliquescalinggroups", namespaced=True, type=PodCliqueScalingGroup
)
CLIQUES = Resource(VERSION, "PodClique", "podcliques", namespaced=True, type=PodClique)
PODS = Resource("v1", "Pod", "pods", namespaced=True, type=ChildPod)
SERVICES = Resource("v1", "Service", "services", namespaced=True, type=Service)

RESOURCES: dict[type, Resource[Any]] = {one.type: one for one in (SETS, GROUPS, CLIQUES, PODS, SERVICES)}
