"""The records of mounted volumes: written by the CSI process before each mount, read by the agent.

A record states that a volume uses a store entry. It exists from before the mount until after the unmount, so an entry
without a record is mounted nowhere. The agent reads records instead of mountinfo: its mount namespace does not contain
the mounts of pods.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gkm.hoststate import files, names
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef, InvalidName


@dataclass(frozen=True, slots=True)
class VolumeOptions:
    """The options of a volume besides its cache (docs/features/volumes.md, "Attributes").

    `private` requests a writable layer of `size_limit` bytes at most; `mount_path` is the path of the volume in the
    container, "" if not given; `or_empty` requests an empty private volume instead of waiting, `or_compile` only where
    no cache is for this node or on its way; `capture` requests a copy of the files that the pod adds; `user_namespace`
    requests the form whose ids a container runtime can map.
    """

    private: bool = False
    mount_path: str = ""
    size_limit: int = 0
    or_empty: bool = False
    or_compile: bool = False
    capture: bool = False
    user_namespace: bool = False


READ_ONLY = VolumeOptions()


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """The record of a published volume. `start_time` is RFC 3339 in UTC, `volume_size` the bytes of its files.

    An empty volume has the `digest` "", and in `empty_because` the reason why it has no cache. `ref` is the mounted
    cache, `family` the name in the pod where that is another one: of a family, the pod gets a member.
    """

    volume_id: str
    target_path: str
    pod_name: str
    pod_namespace: str
    pod_uid: str
    ref: CacheRef
    digest: str
    volume_size: int
    start_time: str
    options: VolumeOptions = READ_ONLY
    empty_because: str = ""
    family: str = ""

    @property
    def requested(self) -> CacheRef:
        """Return the cache or family that the pod's volume names."""
        return CacheRef(self.ref.namespace, self.family) if self.family else self.ref

    @property
    def is_private(self) -> bool:
        """Return whether the pod can write to the volume; an empty volume is always writable."""
        return self.options.private or not self.digest


def save(layout: Layout, record: VolumeRecord) -> None:
    """Write the record of a volume, below /run: a reboot removes it together with the mount."""
    files.replace(layout.volume_record(record.volume_id), files.encode(_to_json(record)), durable=False)


def load(layout: Layout, volume_id: str) -> VolumeRecord | None:
    """Return the record of a volume, None if absent.

    Raises:
        UnreadableState: the file exists and cannot be used.
    """
    return files.load(layout.volume_record(volume_id), lambda value: _from_json(volume_id, value))


def remove(layout: Layout, volume_id: str) -> None:
    """Remove the record of a volume; idempotent."""
    path = layout.volume_record(volume_id)
    path.unlink(missing_ok=True)
    for leftover in files.temporaries(path):
        leftover.unlink(missing_ok=True)
    files.remove_empty(path.parent)


def volume_ids(layout: Layout) -> Iterator[str]:
    """Yield every volume that has a directory, with or without a record in it; other files are skipped.

    Raises:
        OSError: the directory of the records cannot be read.
    """
    for name in files.names_in(layout.volumes):
        try:
            yield names.volume_id(name)
        except InvalidName:
            continue


def load_all(layout: Layout) -> Iterator[VolumeRecord]:
    """Yield the records of all volumes.

    Raises:
        UnreadableState: a record exists and cannot be used. A caller that deletes unused entries must stop then.
        OSError: the directory of the records cannot be read; the same holds.
    """
    for volume_id in volume_ids(layout):
        record = load(layout, volume_id)
        if record is not None:
            yield record


def _to_json(record: VolumeRecord) -> dict[str, Any]:
    return {
        "volumeId": record.volume_id,
        "targetPath": record.target_path,
        "podName": record.pod_name,
        "podNamespace": record.pod_namespace,
        "podUID": record.pod_uid,
        "cacheNamespace": record.ref.namespace,
        "cacheName": record.ref.name,
        "digest": record.digest,
        "volumeSize": record.volume_size,
        "startTime": record.start_time,
        "options": {
            "private": record.options.private,
            "mountPath": record.options.mount_path,
            "sizeLimit": record.options.size_limit,
            "orEmpty": record.options.or_empty,
            "orCompile": record.options.or_compile,
            "capture": record.options.capture,
            "userNamespace": record.options.user_namespace,
        },
        "emptyBecause": record.empty_because,
        "family": record.family,
    }


def _from_json(volume_id: str, value: Mapping[str, Any]) -> VolumeRecord:
    if value["volumeId"] != volume_id:
        raise ValueError(f"the record names another volume: {value['volumeId']!r}")
    namespace = value["cacheNamespace"]
    return VolumeRecord(
        volume_id=volume_id,
        target_path=str(value["targetPath"]),
        pod_name=str(value["podName"]),
        pod_namespace=str(value["podNamespace"]),
        pod_uid=str(value["podUID"]),
        ref=CacheRef(None if namespace is None else str(namespace), str(value["cacheName"])),
        digest=names.digest(str(value["digest"])) if value["digest"] else "",
        volume_size=int(value["volumeSize"]),
        start_time=str(value["startTime"]),
        # A version without private volumes wrote no options.
        options=_options(value.get("options", {})),
        empty_because=str(value.get("emptyBecause", "")),
        family=names.cache_name(str(value["family"])) if value.get("family") else "",
    )


def _options(value: Mapping[str, Any]) -> VolumeOptions:
    return VolumeOptions(
        private=bool(value.get("private", False)),
        mount_path=str(value.get("mountPath", "")),
        size_limit=int(value.get("sizeLimit", 0)),
        or_empty=bool(value.get("orEmpty", False)),
        or_compile=bool(value.get("orCompile", False)),
        capture=bool(value.get("capture", False)),
        user_namespace=bool(value.get("userNamespace", False)),
    )
