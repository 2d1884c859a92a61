"""usage.json: who uses a cache on this node, derived from the records for people and tools."""

from collections.abc import Iterable
from typing import Any

from gkm.hoststate import files
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeRecord


def usage_of(records: Iterable[VolumeRecord]) -> dict[str, Any]:
    """Return {pod name: [volume]} with the field names of the GKM design document."""
    usage: dict[str, list[dict[str, Any]]] = {}
    for record in sorted(records, key=lambda record: record.volume_id):
        usage.setdefault(record.pod_name, []).append(
            {
                "podName": record.pod_name,
                "podNamespace": record.pod_namespace,
                "volumeId": record.volume_id,
                "volumeSize": record.volume_size,
                "targetPath": record.target_path,
                "startTime": record.start_time,
            }
        )
    return usage


def write(layout: Layout, ref: CacheRef, records: Iterable[VolumeRecord]) -> None:
    """Replace the usage file of one cache by what its records say; without records the file goes."""
    path = layout.usage_file(ref)
    usage = usage_of(record for record in records if record.ref == ref)
    if usage:
        files.replace(path, files.encode(usage), durable=False)
        return
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent, levels=2)
