"""Check kubelet's requests in full and return them as frozen values; no other module validates them again.

Pure: no syscall, no file. The size limits are those of the CSI specification ("Size Limits").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate import names
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.hoststate.records import VolumeOptions

from gkm_csi.proto.csi_pb2 import NodePublishVolumeRequest, VolumeCapability
from gkm_csi.status_errors import StatusError, invalid_argument
from gkm_csi.volumes import attributes
from gkm_csi.volumes.attributes import KUBELET_PREFIX

MAX_ATTRIBUTES_BYTES: Final = 4096
"""Bytes of all keys and values together."""
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


@dataclass(frozen=True, slots=True)
class PodInfo:
    """The pod, from the keys that kubelet adds to volume_context."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class VolumeTarget:
    """A volume and its target path: everything that unpublish receives."""

    volume_id: str
    target: Path


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A volume to publish."""

    volume: VolumeTarget
    pod: PodInfo
    ref: CacheRef
    options: VolumeOptions


def parse_publish(
    message: NodePublishVolumeRequest, kubelet: Path, capture_mode: str = attributes.REQUEST
) -> PublishRequest:
    """Return the checked content of a NodePublishVolume request; `capture_mode` as in attributes.volume_options.

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
    pod_attributes = attributes.pod_attributes(context)
    ref = attributes.cache_ref(pod_attributes, pod.namespace)
    options = attributes.volume_options(pod_attributes, capture_mode)
    if message.readonly and options.private:
        raise invalid_argument(
            f'readOnly: true contradicts the volume attribute {attributes.READ_ONLY}: "false"; remove one of them'
        )
    return PublishRequest(volume, pod, ref, options)


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
        raise invalid_argument(
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
    return invalid_argument(
        f"{problem}: the CSIDriver csi.gkm.io must have podInfoOnMount: true and volumeLifecycleModes: [Ephemeral]"
    )
