"""The observed state of one volume of a pod: values that `explanation` read, and `links` decide on. Pure.

Texts come from the cluster: printing code must escape them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from gkm.api.caches import Cache
from gkm.api.meta import ObjectMeta
from gkm.api.nodes import CacheNode, CapturedImage, GKMCacheNode, NodeCacheStatus
from msgspec import Meta, Struct, field

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.inputs.pods import ContainerFacts, PodSpecFacts, RegisteredDrivers, VolumeFacts, VolumeMountFacts

T_co = TypeVar("T_co", covariant=True)

READ_ONLY_ERROR = "Read-only file system"
FULL_ERROR = "No space left on device"
_PATH = re.compile(r"(?:^|[\s'\"`(:=])/[^\s'\":]")


class Terminated(Struct, frozen=True, rename="camel"):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True):
    """The state of a container: it waits, runs, or has ended."""

    waiting: dict[str, str] | None = None
    running: dict[str, str] | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """A container's status, as kubelet reports it."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodConditionFacts(Struct, frozen=True):
    """A condition of a pod, with its message."""

    type: str
    status: str
    message: str = ""


class PodStatusFacts(Struct, frozen=True, rename="camel"):
    """A pod's status, as kubelet and the scheduler report it."""

    phase: str = ""
    conditions: tuple[PodConditionFacts, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class PodFacts(Struct, frozen=True):
    """A pod, reduced to the fields that `gkm why` reads."""

    metadata: ObjectMeta
    spec: PodSpecFacts = PodSpecFacts()
    status: PodStatusFacts = PodStatusFacts()

    @property
    def containers(self) -> tuple[ContainerFacts, ...]:
        """Return all containers of the pod, init containers first."""
        return (self.spec.init_containers or ()) + (self.spec.containers or ())

    @property
    def statuses(self) -> tuple[ContainerStatus, ...]:
        """Return the statuses of all containers of the pod, init containers first."""
        return (self.status.init_container_statuses or ()) + (self.status.container_statuses or ())

    def mounts(self, volume: str) -> Iterator[tuple[ContainerFacts, VolumeMountFacts]]:
        """Yield each container that mounts the volume with this name, with the mount."""
        for container in self.containers:
            for mount in container.volume_mounts or ():
                if mount.name == volume:
                    yield container, mount


class EventFacts(Struct, frozen=True, rename="camel"):
    """An Event (core/v1) about a pod."""

    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class _VolumeUsage(Struct, frozen=True, rename="camel"):
    name: str
    used_bytes: Annotated[int, Meta(ge=0)] | None = None


class _PodUsage(Struct, frozen=True, rename="camel"):
    pod_ref: ObjectMeta
    volume: tuple[_VolumeUsage, ...] | None = None


class KubeletSummary(Struct, frozen=True):
    """The bytes that pods' volumes take on a node (kubelet, /stats/summary)."""

    pods: tuple[_PodUsage, ...] = ()

    def used_bytes(self, pod_uid: str, volume: str) -> int | None:
        """Return the bytes that a volume of a pod takes, None if kubelet has not measured it yet."""
        pods = (pod for pod in self.pods if pod.pod_ref.uid == pod_uid)
        return next((one.used_bytes for pod in pods for one in pod.volume or () if one.name == volume), None)


@dataclass(frozen=True, slots=True)
class CacheName:
    """The cache that a volume names; `namespace` is None for a ClusterGKMCache."""

    namespace: str | None
    name: str

    @property
    def kind(self) -> str:
        """Return the kind of the cache object: GKMCache or ClusterGKMCache."""
        return "GKMCache" if self.namespace is not None else "ClusterGKMCache"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace is not None else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ReadResult(Generic[T_co]):
    """The result of a read: a value, None for an object that does not exist, or why it could not be read."""

    found: T_co | None = None
    unreadable: Unreadable | None = None

    @property
    def value(self) -> T_co | None:
        """Return the value that was read, None for an object that does not exist.

        Raises:
            Unreadable: it could not be read.
        """
        if self.unreadable is not None:
            raise self.unreadable
        return self.found


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container with the volume ended last; `is_previous` if it has been started again, or waits for it."""

    container: str
    exit_code: int
    message: str
    paths: tuple[str, ...]
    """The places of the volume in the container."""
    is_previous: bool

    def is_in_volume(self, error: str) -> bool:
        """Return whether the message names this error and a path in the volume."""
        paths = "|".join(re.escape(path.rstrip("/")) for path in self.paths)
        return error in self.message and re.search(rf"(?<![\w.-])(?:{paths})(?![\w.-])", self.message) is not None

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the message names an error of a file system, and only paths outside of the volume."""
        errors = [error for error in (READ_ONLY_ERROR, FULL_ERROR) if error in self.message]
        return bool(errors) and _PATH.search(self.message) is not None and not self.is_in_volume(errors[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts for `gkm why` about one volume of a pod: every object on the way to its kernels."""

    pod: PodFacts
    volume: VolumeFacts
    has_driver: ReadResult[object] = ReadResult()
    """The CSIDriver object."""
    csi_node: ReadResult[RegisteredDrivers] = ReadResult()
    cache_name: CacheName | None = None
    """The member of the family that the volume names; None if the attributes name no cache, or several."""
    family: str = ""
    """The name in the volume, if it is not the member's name."""
    cache: ReadResult[Cache] = ReadResult()
    node: ReadResult[CacheNode] = ReadResult()
    layer_bytes: ReadResult[int] = ReadResult()
    """Bytes that the program has written into the private layer, as kubelet measured them at most a minute ago."""
    capture_mode: ReadResult[str] = ReadResult()
    """The mode of the CSI driver, if the volume depends on it: `auto`, `request` or `off`."""
    captures: ReadResult[GKMCacheNode] = ReadResult()
    """The report of the node about captures of the pod's namespace, if the volume may be captured."""
    events: ReadResult[tuple[EventFacts, ...]] = ReadResult()
    """FailedMount events of the pod, the latest first."""

    @property
    def attributes(self) -> dict[str, str]:
        """Return the attributes of the CSI volume; {} for another volume."""
        return (self.volume.csi.volume_attributes if self.volume.csi else None) or {}

    @property
    def depends_on_mode(self) -> bool:
        """Return whether the mode of capture decides how the volume is mounted (docs/features/volumes.md)."""
        given = self.attributes
        may_compile = given.get("readOnly", "false") == "false" and given.get("capture", "true") == "true"
        is_stated = "readOnly" in given and "ifUnavailable" in given
        return may_compile and not is_stated and not (self.volume.csi and self.volume.csi.read_only)

    @property
    def is_private(self) -> bool | None:
        """Return whether the volume has a layer that the pod can write; None if the mode of capture is not known."""
        stated = self.attributes.get("readOnly")
        return stated == "false" if stated else self._by_mode

    @property
    def may_start_empty(self) -> bool | None:
        """Return whether the pod may start without the cache; None if the mode of capture is not known."""
        stated = self.attributes.get("ifUnavailable")
        return stated in ("empty", "compile") if stated else self._by_mode

    @property
    def may_be_captured(self) -> bool:
        """Return whether the volume has, or may have, a private layer, and does not decline its capture."""
        return self.is_private is not False and self.attributes.get("capture") != "false"

    @property
    def volume_id(self) -> str:
        """Return the id that kubelet gives the volume (csi_plugin.go, makeVolumeHandle)."""
        return f"csi-{hashlib.sha256(f'{self.pod.metadata.uid}{self.volume.name}'.encode()).hexdigest()}"

    @property
    def newest_capture(self) -> CapturedImage | None:
        """Return the newest capture of the volume, None if the agent reports none.

        Raises:
            Unreadable: the node object could not be read.
        """
        node = self.captures.value
        # gkm-csi adds a time to the id of a volume that it captures while the pod runs.
        found = node.status.captures if node else ()
        return next((each for each in found if each.volume.partition(".")[0] == self.volume_id), None)

    @property
    def _by_mode(self) -> bool | None:
        if not self.depends_on_mode:
            return False
        return None if self.capture_mode.found is None else self.capture_mode.found == "auto"

    @property
    def mode_doubt(self) -> Unreadable:
        """Return why the mode of capture is not known."""
        return self.capture_mode.unreadable or Unreadable("the mode of capture was not read", "")

    @property
    def is_unmappable(self) -> bool:
        """Return whether the pod is in a user namespace, and the volume has the form of other pods."""
        return self.pod.spec.host_users is False and self.attributes.get("userNamespace") != "true"

    @property
    def ends(self) -> tuple[ContainerEnd, ...]:
        """Return the last end of each container with the volume that has failed."""
        places: dict[str, tuple[str, ...]] = {}
        for container, mount in self.pod.mounts(self.volume.name):
            places[container.name] = (*places.get(container.name, ()), mount.mount_path)
        ends = ((each, each.state.terminated or each.last_state.terminated) for each in self.pod.statuses)
        return tuple(
            ContainerEnd(each.name, end.exit_code, end.message, places[each.name], each.state.terminated is None)
            for each, end in ends
            if end and each.name in places and end.exit_code
        )

    @property
    def missed(self) -> tuple[str, ...]:
        """Return the containers that ended because they could not add a kernel to the volume."""
        ends = () if self.is_private else self.ends
        return tuple(end.container for end in ends if end.is_in_volume(READ_ONLY_ERROR))

    @property
    def filled(self) -> tuple[str, ...]:
        """Return the containers that ended because the private layer is full."""
        ends = self.ends if self.is_private is not False else ()
        return tuple(end.container for end in ends if end.is_in_volume(FULL_ERROR))

    @property
    def unexplained(self) -> tuple[ContainerEnd, ...]:
        """Return the ends for which no message of the file system says whether the volume is the cause."""
        known = {*self.missed, *self.filled}
        return tuple(end for end in self.ends if end.container not in known and not end.is_elsewhere)

    @property
    def existing_cache(self) -> Cache:
        """Return the cache, for links behind the link that finds it.

        Raises:
            Unreadable: it could not be read.
        """
        if (cache := self.cache.value) is None:
            raise LookupError(f"there is no {self.named}")
        return cache

    @property
    def named(self) -> str:
        """Return kind and name of the cache that the volume names."""
        return str(self.cache_name)

    @property
    def on_node(self) -> NodeCacheStatus | None:
        """Return the report about the cache on the pod's node, None if the agent does not report it.

        Raises:
            Unreadable: the node object could not be read.
        """
        node = self.node.value
        return node.status.caches.get(self.cache_name.name) if node and self.cache_name else None


def member_of(
    family: str, caches: Iterable[Cache], on_node: Mapping[str, NodeCacheStatus], pod: ObjectMeta
) -> Cache | None:
    """Return the member of a family that the pod has mounted, else its node's choice.

    Without both, the cache of the family's name or the member that is pinned or has the largest generation; None for a
    family without a member.
    """

    def rank(cache: Cache) -> tuple[bool, bool, bool, bool, int]:
        name, spec = cache.metadata.name, cache.spec
        status = on_node.get(name, NodeCacheStatus(state=""))
        mounted = any((use.namespace, use.name) == (pod.namespace, pod.name) for use in status.pods)
        return mounted, status.chosen, name == family, bool(spec.pinned), spec.generation or 0

    return max(
        (cache for cache in caches if family in (cache.metadata.name, cache.spec.family)), key=rank, default=None
    )
