"""What kubelet asks, checked in full and as frozen values: behind this nothing is validated again.

Pure: no syscall, no file. Size limits are those of the CSI specification ("Size Limits").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate import names
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.hoststate.records import VolumeOptions

from gkm_csi import attributes, options
from gkm_csi.attributes import OF_KUBELET
from gkm_csi.proto.csi_pb2 import NodePublishVolumeRequest, VolumeCapability
from gkm_csi.refusals import Refusal, invalid

MAX_ATTRIBUTES: Final = 4096
"""Bytes of all keys and values together."""
MAX_PATH: Final = 4095
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
"""Kubelet asks SINGLE_NODE_WRITER for every inline volume; a volume of one pod is never on many nodes."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod as kubelet states it."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class Place:
    """A volume and where it is, or is to be: all that unpublish is told."""

    volume_id: str
    target: Path


@dataclass(frozen=True, slots=True)
class Publish:
    """A volume to publish."""

    place: Place
    pod: Pod
    ref: CacheRef
    options: VolumeOptions


def publish(message: NodePublishVolumeRequest, kubelet: Path) -> Publish:
    """Return what a NodePublishVolume asks.

    Raises:
        Refusal: the request is one that no state of the node could make right.
    """
    _check_present(message.volume_id, message.target_path)
    _check_capability(message)
    context = dict(message.volume_context)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in context.items())
    if size > MAX_ATTRIBUTES:
        raise invalid(f"volume_context holds {size} bytes; the CSI specification allows {MAX_ATTRIBUTES}")
    pod = _pod(context)
    given = attributes.of_pod(context)
    ref = attributes.cache_of(given, pod.namespace)
    return Publish(
        place(message.volume_id, message.target_path, kubelet), pod, ref, _options(given, readonly=message.readonly)
    )


def _options(given: Mapping[str, str], *, readonly: bool) -> VolumeOptions:
    found = options.options_of(given)
    if readonly and found.private:
        raise invalid(
            f'the volume says readOnly: true, and its attribute {options.READ_ONLY} says "false": take one of them out'
        )
    return found


def place(volume_id: str, target_path: str, kubelet: Path) -> Place:
    """Return a volume and its target, which must lie beneath kubelet's directory.

    Raises:
        Refusal: one of the two is missing or not acceptable.
    """
    _check_present(volume_id, target_path)
    try:
        names.volume_id(volume_id)
    except InvalidName as error:
        raise invalid(f"volume_id: {error}") from error
    return Place(volume_id, _target(target_path, kubelet))


def _check_present(volume_id: str, target_path: str) -> None:
    if not volume_id:
        raise invalid("volume_id is missing")
    if not target_path:
        raise invalid("target_path is missing")


def _target(text: str, kubelet: Path) -> Path:
    if len(text.encode()) > MAX_PATH or any(ord(character) < ord(" ") for character in text):
        raise invalid(f"target_path is longer than {MAX_PATH} bytes or holds control characters")
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or str(path) != text:
        raise invalid("target_path must be absolute, without '.', '..', doubled or trailing slashes")
    # Never kubelet's directory itself or what lies directly in it: that is nobody's volume.
    if kubelet not in path.parent.parents:
        raise invalid(f"target_path is not below {kubelet}, the directory that csi.gkm.io is told kubelet uses")
    return path


def _check_capability(message: NodePublishVolumeRequest) -> None:
    if not message.HasField("volume_capability"):
        raise invalid("volume_capability is missing")
    capability = message.volume_capability
    if capability.WhichOneof("access_type") != "mount":
        raise invalid("a kernel cache is a directory: volume_capability must ask for a mount, not for a block device")
    if capability.mount.mount_flags:
        raise invalid("mount flags cannot be chosen: a cache is always mounted nosuid and nodev")
    if capability.access_mode.mode not in _MODES:
        raise invalid("the access mode of an inline volume must be one of SINGLE_NODE_*")


def _pod(context: Mapping[str, str]) -> Pod:
    ephemeral = context.get(OF_KUBELET + "ephemeral")
    if ephemeral is not None and ephemeral != "true":
        raise invalid("csi.gkm.io serves inline volumes of pods (spec.volumes[].csi), not persistent volumes")
    missing = [
        key for key in ("ephemeral", "pod.name", "pod.namespace", "pod.uid") if not context.get(OF_KUBELET + key)
    ]
    if missing:
        raise _without_pod_info(f"{', '.join(OF_KUBELET + key for key in missing)} missing")
    pod = Pod(context[OF_KUBELET + "pod.name"], context[OF_KUBELET + "pod.namespace"], context[OF_KUBELET + "pod.uid"])
    try:
        names.namespace(pod.namespace)
    except InvalidName as error:
        raise _without_pod_info(str(error)) from error
    if len(pod.name) > _MAX_POD_FIELD or len(pod.uid) > _MAX_POD_FIELD:
        raise _without_pod_info("the name or uid of the pod is too long")
    return pod


def _without_pod_info(what: str) -> Refusal:
    return invalid(
        f"{what}: the CSIDriver csi.gkm.io must have podInfoOnMount: true and volumeLifecycleModes: [Ephemeral]"
    )
