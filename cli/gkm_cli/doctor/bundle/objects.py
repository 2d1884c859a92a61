"""The fields of objects that a bundle has: no annotation, no variable, no command line, and no label of users."""

from typing import Any

from msgspec import Struct, field


class BundledMetadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The metadata of an object in a support bundle."""

    name: str = ""
    namespace: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class BundledObject(Struct, frozen=True):
    """An object in a support bundle, for kinds whose spec and status hold no object of a user: they name Secrets."""

    metadata: BundledMetadata
    spec: Any = None
    status: Any = None


class BundledStatus(Struct, frozen=True, omit_defaults=True):
    """An object in a support bundle, with its status alone, for kinds whose status holds no object of a user."""

    metadata: BundledMetadata
    status: Any = None


class _TreeSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The spec without its tree: `redaction` cannot read a compressed text, and it has 1.3 MB."""

    state: str = ""
    reason: str = ""
    revision: int = 0
    hypernodes: int = 0
    nodes: int = 0
    faults: Any = None
    refused: int = 0
    refusal: str = ""
    observed_time: str | None = None
    heartbeat_time: str | None = None
    stale_seconds: int = 0


class BundledTree(Struct, frozen=True, omit_defaults=True):
    """A ProviderTree in a support bundle."""

    metadata: BundledMetadata
    spec: _TreeSpec = _TreeSpec()
    status: Any = None


class _PoolSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    common_group_templates: tuple[str, ...] | None = None


class _PoolStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The status without the merged templates, which are objects of users."""

    observed_generation: int = 0
    conditions: Any = None


class BundledPool(Struct, frozen=True, omit_defaults=True):
    """A Pool in a support bundle."""

    metadata: BundledMetadata
    spec: _PoolSpec = _PoolSpec()
    status: _PoolStatus = _PoolStatus()


class _GroupObject(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object of a TaskGroup, without its manifest."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    state: str = ""
    uid: str = ""


class _GroupStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    observed_generation: int = 0
    phase: str = ""
    outcome: str | None = None
    pods_seen: bool = False
    succeeded_pods: tuple[str, ...] | None = None
    objects: tuple[_GroupObject, ...] | None = None
    conditions: Any = None


class BundledGroup(Struct, frozen=True, omit_defaults=True):
    """A TaskGroup in a support bundle."""

    metadata: BundledMetadata
    status: _GroupStatus = _GroupStatus()


class _PodCondition(Struct, frozen=True, rename="camel", omit_defaults=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _ContainerStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    image: str = ""
    image_id: str = field(default="", name="imageID")
    ready: bool = False
    restart_count: int = 0
    state: Any = None
    last_state: Any = None


class _PodStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[_PodCondition, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class _PodSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    node_name: str = ""


class BundledPod(Struct, frozen=True, omit_defaults=True):
    """A pod of GKM in a support bundle."""

    metadata: BundledMetadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def ready(self) -> bool:
        """Return whether the pod is Ready."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())


class _NodeSpec(Struct, frozen=True, omit_defaults=True):
    unschedulable: bool = False
    taints: Any = None


class _NodeStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: tuple[_PodCondition, ...] | None = None
    node_info: Any = None


class _LabeledMetadata(BundledMetadata, frozen=True, omit_defaults=True):
    labels: dict[str, str] | None = None


class BundledNode(Struct, frozen=True, omit_defaults=True):
    """A node in a support bundle. Its labels name GPUs and places."""

    metadata: _LabeledMetadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Regarding(Struct, frozen=True, omit_defaults=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class BundledEvent(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An Event in a support bundle."""

    metadata: BundledMetadata
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: _Regarding = _Regarding()
    reporting_controller: str = ""
    event_time: str | None = None
    series: Any = None
    deprecated_count: int = 0
    deprecated_last_timestamp: str | None = None
