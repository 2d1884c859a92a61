"""usage.json: who uses a cache on this node, derived from the records for people and tools.

It is written anew with every volume of its cache, and may name hundreds: so each is encoded once, in a line of its own.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from gkm.hoststate import files
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeRecord


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """One volume as it stands in the file: `line` is JSON with the field names of the GKM design document."""

    volume_id: str
    pod_name: str
    line: str

    @classmethod
    def from_record(cls, record: VolumeRecord) -> Self:
        """Return the use that a record stands for."""
        value = {
            "podName": record.pod_name,
            "podNamespace": record.pod_namespace,
            "volumeId": record.volume_id,
            "volumeSize": record.volume_size,
            "targetPath": record.target_path,
            "startTime": record.start_time,
        }
        return cls(record.volume_id, record.pod_name, json.dumps(value, ensure_ascii=False))


def write(layout: Layout, ref: CacheRef, uses: Iterable[VolumeUse]) -> None:
    """Replace the usage file of one cache by its uses, {pod name: [volume]}; without any the file goes."""
    path = layout.usage_file(ref)
    pods: dict[str, list[str]] = {}
    for use in sorted(uses, key=lambda use: use.volume_id):
        pods.setdefault(use.pod_name, []).append(use.line)
    if pods:
        lines = (f"{json.dumps(pod, ensure_ascii=False)}: [\n{_joined(volumes)}\n]" for pod, volumes in pods.items())
        files.replace(path, f"{{\n{_joined(lines)}\n}}\n".encode(), durable=False)
        return
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent, levels=2)


def _joined(lines: Iterable[str]) -> str:
    return ",\n".join(lines)
