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
    """An object of GKM in a support bundle; spec and status are no place for secrets: they name Secrets."""

    metadata: BundledMetadata
    spec: Any = None
    status: Any = None


class BundledStatus(Struct, frozen=True, omit_defaults=True):
    """An object in a support bundle, with its status alone."""

    metadata: BundledMetadata
    status: Any = None


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
