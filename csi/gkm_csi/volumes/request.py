"""Check kubelet's requests in full and return them as frozen values; no other module validates them again.

Pure: no syscall, no file. The size limits come from the CSI specification ("Size Limits").

A request has the volume attributes of a pod's csi volume (docs/features/volumes.md, "Attributes"): which cache, and how
to mount it. Any author of a pod writes attributes, so no value is trusted. Kubelet writes the keys that begin with
csi.storage.k8s.io/ and merges them last, so a pod cannot forge them (kubelet csi_mounter.go, mergeMap).
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gkm.hoststate import names
from gkm.hoststate.names import CacheRef, InvalidName, quoted
from gkm.hoststate.records import VolumeOptions
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath

from gkm_csi.proto.csi_pb2 import NodePublishVolumeRequest, VolumeCapability
from gkm_csi.status_errors import Code, StatusError, failed_precondition, invalid_argument

MAX_ATTRIBUTES_BYTES: Final = 4096
"""Limit of all keys and values of volume_context together, in bytes."""
MAX_PATH_BYTES: Final = 4095
_MAX_POD_FIELD: Final = 253
_Mode = VolumeCapability.AccessMode
_MODES = frozenset(
    {
        _Mode.SINGLE_NODE_WRITER,
        _Mode.SINGLE_NODE_READER_ONLY,
        _Mode.SINGLE_NODE_SINGLE_WRITER,
        _Mode.SINGLE_NODE_MULTI_WRITER,
    }
)
"""Kubelet sends SINGLE_NODE_WRITER for every inline volume; the volume of a pod is on one node only."""
KUBELET_PREFIX: Final = "csi.storage.k8s.io/"
CACHE: Final = "cacheName"
NAMESPACE: Final = "cacheNamespace"
CLUSTER_CACHE: Final = "clusterCacheName"
UPSTREAM_CACHE: Final = "csi.gkm.io/GKMCache"
UPSTREAM_NAMESPACE: Final = "csi.gkm.io/namespace"
READ_ONLY: Final = "readOnly"
MOUNT_PATH: Final = "mountPath"
SIZE_LIMIT: Final = "sizeLimit"
IF_UNAVAILABLE: Final = "ifUnavailable"
CAPTURE: Final = "capture"
USER_NAMESPACE: Final = "userNamespace"
WAIT, EMPTY, COMPILE = "wait", "empty", "compile"
AUTO, REQUEST, OFF = "auto", "request", "off"
CAPTURE_MODES: Final = (AUTO, REQUEST, OFF)
"""When private volumes are captured: always unless a volume declines (auto), only on request, or never (off)."""
_MAX_REPORTED = 3
DEFAULT_SIZE: Final = 1 << 30
MIN_SIZE: Final = 1 << 20
MAX_SIZE: Final = 1 << 40
"""Upper bound of `sizeLimit` in bytes; the memory limit of a pod is far smaller."""
_QUANTITY: Final = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>Ki|Mi|Gi|Ti|k|M|G|T)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PodInfo:
    """The pod that a volume is for, from the keys that kubelet adds to volume_context."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class VolumeTarget:
    """A volume and its target path, as NodeUnpublishVolume names them."""

    volume_id: str
    target: Path


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A checked request to publish a volume."""

    volume: VolumeTarget
    pod: PodInfo
    ref: CacheRef
    options: VolumeOptions
    in_any_mode: frozenset[VolumeOptions] = field(default=frozenset(), compare=False)
    """The options of the volume in each mode of capture, without the capture: the mode may change while it is
    mounted."""


def parse_publish(message: NodePublishVolumeRequest, kubelet: Path, capture_mode: str = REQUEST) -> PublishRequest:
    """Return the checked content of a NodePublishVolume request; `capture_mode` as in volume_options.

    Raises:
        StatusError: the request is invalid in any state of the node.
    """
    volume = parse_volume_target(message.volume_id, message.target_path, kubelet)
    _check_capability(message)
    context = dict(message.volume_context)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in context.items())
    if size > MAX_ATTRIBUTES_BYTES:
        raise invalid_argument(
            f"volume_context holds {size} bytes; the CSI specification allows {MAX_ATTRIBUTES_BYTES}"
        )
    pod = _pod_info(context)
    attributes = pod_attributes(context)
    ref = cache_ref(attributes, pod.namespace)
    options = volume_options(attributes, capture_mode, read_only=message.readonly)
    if message.readonly and options.private:
        raise invalid_argument(
            f'readOnly: true contradicts the volume attribute {READ_ONLY}: "false"; remove one of them'
        )
    return PublishRequest(volume, pod, ref, options, _in_any_mode(attributes, read_only=message.readonly))


def parse_volume_target(volume_id: str, target_path: str, kubelet: Path) -> VolumeTarget:
    """Return a volume and its target, which must lie beneath kubelet's directory.

    Raises:
        StatusError: one of the two is missing or invalid.
    """
    if not volume_id:
        raise invalid_argument("volume_id is missing")
    if not target_path:
        raise invalid_argument("target_path is missing")
    try:
        names.volume_id(volume_id)
    except InvalidName as error:
        raise invalid_argument(f"volume_id: {error}") from error
    return VolumeTarget(volume_id, _target(target_path, kubelet))


def _target(text: str, kubelet: Path) -> Path:
    if len(text.encode()) > MAX_PATH_BYTES or any(ord(character) < ord(" ") for character in text):
        raise invalid_argument(f"target_path is longer than {MAX_PATH_BYTES} bytes or holds control characters")
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or str(path) != text:
        raise invalid_argument("target_path must be absolute, without '.', '..', doubled or trailing slashes")
    # Never kubelet's directory itself or an entry directly in it: no volume has such a path.
    if kubelet not in path.parent.parents:
        raise failed_precondition(
            f"target_path is not below {kubelet}, kubelet's root directory in the options of csi.gkm.io"
        )
    return path


def _check_capability(message: NodePublishVolumeRequest) -> None:
    if not message.HasField("volume_capability"):
        raise invalid_argument("volume_capability is missing")
    capability = message.volume_capability
    if capability.WhichOneof("access_type") != "mount":
        raise invalid_argument(
            "a kernel cache is a directory: volume_capability must ask for a mount, not for a block device"
        )
    if capability.mount.mount_flags:
        raise invalid_argument("mount flags cannot be chosen: a cache is always mounted nosuid and nodev")
    if capability.access_mode.mode not in _MODES:
        raise invalid_argument("the access mode of an inline volume must be one of SINGLE_NODE_*")


def _pod_info(context: Mapping[str, str]) -> PodInfo:
    ephemeral = context.get(KUBELET_PREFIX + "ephemeral")
    if ephemeral is not None and ephemeral != "true":
        raise invalid_argument("csi.gkm.io serves inline volumes of pods (spec.volumes[].csi), not persistent volumes")
    missing = [
        key for key in ("ephemeral", "pod.name", "pod.namespace", "pod.uid") if not context.get(KUBELET_PREFIX + key)
    ]
    if missing:
        raise _invalid_pod_info(f"{', '.join(KUBELET_PREFIX + key for key in missing)} missing")
    pod = PodInfo(
        context[KUBELET_PREFIX + "pod.name"],
        context[KUBELET_PREFIX + "pod.namespace"],
        context[KUBELET_PREFIX + "pod.uid"],
    )
    try:
        names.namespace(pod.namespace)
    except InvalidName as error:
        raise _invalid_pod_info(str(error)) from error
    if len(pod.name) > _MAX_POD_FIELD or len(pod.uid) > _MAX_POD_FIELD:
        raise _invalid_pod_info("the name or uid of the pod is too long")
    return pod


def _invalid_pod_info(problem: str) -> StatusError:
    # No fault of a pod, as INVALID_ARGUMENT would say: the alert about mounts leaves that code out.
    return failed_precondition(
        f"{problem}: the CSIDriver csi.gkm.io must have podInfoOnMount: true and volumeLifecycleModes: [Ephemeral]"
    )


_KNOWN_ATTRIBUTES = frozenset(
    {
        *(CACHE, NAMESPACE, CLUSTER_CACHE, UPSTREAM_CACHE, UPSTREAM_NAMESPACE),
        *(READ_ONLY, MOUNT_PATH, SIZE_LIMIT, IF_UNAVAILABLE, CAPTURE, USER_NAMESPACE),
    }
)
_UNITS: Final = {
    None: 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}


def pod_attributes(context: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes in a volume_context that the author of the pod wrote.

    Raises:
        StatusError: an attribute is unknown.
    """
    attributes = {key: value for key, value in context.items() if not key.startswith(KUBELET_PREFIX)}
    unknown = sorted(attributes.keys() - _KNOWN_ATTRIBUTES)
    if unknown:
        shown = ", ".join(quoted(key) for key in unknown[:_MAX_REPORTED])
        raise invalid_argument(
            f"unknown volume attribute {shown}; csi.gkm.io knows {', '.join(sorted(_KNOWN_ATTRIBUTES))}"
        )
    return attributes


def cache_ref(attributes: Mapping[str, str], pod_namespace: str) -> CacheRef:
    """Return the cache that the attributes name, for a pod in `pod_namespace`.

    Raises:
        StatusError: they name no cache, several caches, or a cache of another namespace.
    """
    named = [key for key in (CACHE, CLUSTER_CACHE, UPSTREAM_CACHE) if key in attributes]
    if len(named) != 1:
        found = ", ".join(named) if named else "none of them"
        raise invalid_argument(
            f"the volume attributes must name one cache, by {CACHE} or by {CLUSTER_CACHE} "
            f"(or {UPSTREAM_CACHE}); found {found}"
        )
    key = named[0]
    namespace = _namespace(attributes, key, pod_namespace)
    try:
        ref = CacheRef(namespace, attributes[key])
    except InvalidName as error:
        raise invalid_argument(f"volume attribute {key} or its namespace: {error}") from error
    if namespace is not None and namespace != pod_namespace:
        raise StatusError(
            Code.PERMISSION_DENIED,
            f"{ref} belongs to another namespace than the pod, which runs in {pod_namespace}: a pod mounts caches of "
            "the same namespace; create the cache there, or share it as a ClusterGKMCache and name it by "
            f"{CLUSTER_CACHE}",
        )
    return ref


def _namespace(attributes: Mapping[str, str], key: str, pod_namespace: str) -> str | None:
    """Return the namespace of the cache, None for a cluster cache."""
    companion = {CACHE: NAMESPACE, UPSTREAM_CACHE: UPSTREAM_NAMESPACE}.get(key)
    for other in (NAMESPACE, UPSTREAM_NAMESPACE):
        if other in attributes and other != companion:
            raise invalid_argument(f"volume attribute {other} does not go with {key}; remove one of them")
    if key == CACHE:
        return attributes.get(NAMESPACE, pod_namespace)
    # As in the upstream driver, a name without a namespace belongs to a ClusterGKMCache.
    return attributes.get(UPSTREAM_NAMESPACE) if key == UPSTREAM_CACHE else None


def volume_options(
    attributes: Mapping[str, str], capture_mode: str = REQUEST, *, read_only: bool = False
) -> VolumeOptions:
    """Return the options of the volume besides the cache; `capture_mode` is one of CAPTURE_MODES.

    `read_only`: the pod's volume says `readOnly: true` beside its attributes. In the mode `auto` a volume that does not
    say so and does not decline the capture compiles just in time: it has a private layer, and starts without a cache
    where no cache is for the node (docs/features/volumes.md, "Just in time").

    Raises:
        StatusError: a value is invalid, or two attributes contradict each other.
    """
    just_in_time = capture_mode == AUTO and not read_only and _just_in_time(attributes)
    private = _choice(attributes, READ_ONLY, ("true", "false"), "false" if just_in_time else "true") == "false"
    unavailable = _choice(attributes, IF_UNAVAILABLE, (WAIT, EMPTY, COMPILE), COMPILE if just_in_time else WAIT)
    requested = _choice(attributes, CAPTURE, ("false", "true"), "false") == "true"
    writable = private or unavailable != WAIT
    for name, given in ((SIZE_LIMIT, SIZE_LIMIT in attributes), (CAPTURE, requested)):
        if given and not writable:
            raise invalid_argument(
                f'volume attribute {name} needs a writable volume: set {READ_ONLY}: "false", or remove {name}'
            )
    return VolumeOptions(
        private=private,
        mount_path=_mount_path(attributes),
        size_limit=_size_limit(attributes) if writable else 0,
        or_empty=unavailable == EMPTY,
        or_compile=unavailable == COMPILE,
        capture=capture_mode != OFF
        and (requested or (capture_mode == AUTO and writable and CAPTURE not in attributes)),
        user_namespace=_choice(attributes, USER_NAMESPACE, ("false", "true"), "false") == "true",
    )


def _in_any_mode(attributes: Mapping[str, str], *, read_only: bool) -> frozenset[VolumeOptions]:
    found = set()
    for mode in CAPTURE_MODES:
        with suppress(StatusError):  # a `sizeLimit` alone is valid in the mode `auto` only
            found.add(replace(volume_options(attributes, mode, read_only=read_only), capture=False))
    return frozenset(found)


def _just_in_time(attributes: Mapping[str, str]) -> bool:
    """Return whether no attribute asks for a volume without compilation."""
    return attributes.get(READ_ONLY, "false") == "false" and attributes.get(CAPTURE, "true") == "true"


def _choice(attributes: Mapping[str, str], name: str, values: Sequence[str], default: str) -> str:
    """Return the value of an attribute, which is one of `values`."""
    value = attributes.get(name, default)
    if value not in values:
        *others, last = (f'"{each}"' for each in values)
        raise invalid_argument(f"volume attribute {name} must be {', '.join(others)} or {last}, not {quoted(value)}")
    return value


def _mount_path(attributes: Mapping[str, str]) -> str:
    if MOUNT_PATH not in attributes:
        return ""
    try:
        return MountPath(attributes[MOUNT_PATH]).text
    except InvalidMountPath as error:
        raise invalid_argument(f"volume attribute {error}") from error


def _size_limit(attributes: Mapping[str, str]) -> int:
    text = attributes.get(SIZE_LIMIT, str(DEFAULT_SIZE))
    size = parse_bytes(text)
    if size is None or not MIN_SIZE <= size <= MAX_SIZE:
        raise invalid_argument(
            f'volume attribute {SIZE_LIMIT} must be a size like "512Mi", 1Mi to 1Ti, not {quoted(text)}'
        )
    return size


def parse_bytes(text: str) -> int | None:
    """Return the bytes of a Kubernetes quantity, None without an integer and a known unit.

    Source: apimachinery pkg/api/resource, "Quantity"; fractions and exponents are not needed for a size.
    """
    match = _QUANTITY.fullmatch(text)
    return int(match["number"]) * _UNITS[match["unit"]] if match else None
