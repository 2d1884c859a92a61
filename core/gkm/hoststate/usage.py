"""usage.json: the pods that use a cache on this node, derived from the records for people and tools.

The file is rewritten for every volume of its cache and may list hundreds, so each volume is encoded once, as one line.
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
    """One volume in the usage file of a cache; `line` is its JSON with the field names of GKM's design document."""

    volume_id: str
    pod_name: str
    line: str

    @classmethod
    def from_record(cls, record: VolumeRecord) -> Self:
        """Return the entry of the usage file for a volume record."""
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
    """Replace the usage file of a cache (volumes by pod name); remove it when no pod uses the cache."""
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
