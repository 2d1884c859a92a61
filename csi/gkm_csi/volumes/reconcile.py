"""At start: compare records with mounts, and repair both.

A process killed between record and mount, or between unmount and removing the record, leaves a record without a mount;
a lost /run leaves mounts without records (docs/design/node-state.md). A volume that cannot be repaired is logged and
must not stop the node from serving the others.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.mountinfo import MarkedMount
from gkm.mounts.relocation import tree_store

from gkm_csi.volumes.mounter import Mounter
from gkm_csi.volumes.records import VolumeRecords

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The things to remove at start: records without a mounted volume, and mounts without a record."""

    records: tuple[VolumeRecord, ...]
    mounts: tuple[MarkedMount, ...]


def decide(
    loaded: Sequence[VolumeRecord],
    mounts: Sequence[MarkedMount],
    unreadable: Collection[str],
    existing: Collection[str],
) -> RepairPlan:
    """Return which records and mounts must be removed; pure.

    `existing` holds the target paths that exist. A record without a mount stays while its target exists, because
    kubelet repeats its call for that volume. `unreadable` are volumes with an unreadable record: their mounts stay.
    """
    mounted = {mount.mark.owner for mount in mounts}
    known = {*unreadable, *(record.volume_id for record in loaded)}
    return RepairPlan(
        records=tuple(
            record for record in loaded if record.volume_id not in mounted and record.target_path not in existing
        ),
        mounts=tuple(mount for mount in mounts if mount.mark.owner not in known),
    )


def reconcile(layout: Layout, volume_records: VolumeRecords, mounter: Mounter) -> None:
    """Remove records without mounts and mounts without records, and load the other records into `volume_records`.

    Raises:
        OSError: the state cannot be read at all.
    """
    # Files of killed writers: at start no other writer exists.
    for leftover in (*layout.usage.glob("*/*/.*.tmp"), *layout.volumes.glob("*/.*.tmp")):
        leftover.unlink(missing_ok=True)
    for directory in list(layout.layers.iterdir()):
        with _logged_failure("leftover of a private layer not removed", path=str(directory)):
            mounter.remove_scratch(directory)
    with _logged_failure("leftover of a rewritten cache not removed"):
        tree_store.remove_unfinished(layout.relocations_in_memory)
    loaded, unreadable = _read(layout)
    existing = {record.target_path for record in loaded if _exists(Path(record.target_path))}
    repairs = decide(loaded, mounter.own_mounts(), unreadable, existing)
    for record in loaded:
        volume_records.track(record)
    for record in repairs.records:
        values = {"volume": record.volume_id, "cache": str(record.ref), "target": record.target_path}
        with _logged_failure("volume record without a mount not removed", **values):
            volume_records.remove(record.volume_id)
            _LOG.warning("volume record without a mount removed", extra=fields(**values))
    for mount in repairs.mounts:
        values = {"volume": mount.mark.owner, "digest": mount.mark.content, "target": mount.point}
        with _logged_failure("mount without a volume record not removed", **values):
            mounter.unmount(Path(mount.point))
            mounter.remove(Path(mount.point))
            _LOG.warning("mount without a volume record removed", extra=fields(**values))
    for ref in {record.ref for record in loaded} | _refs_with_usage(layout):
        with _logged_failure(
            "usage file of a cache not written, its list of pods is outdated until the next volume", cache=str(ref)
        ):
            volume_records.write_usage(ref)


@contextmanager
def _logged_failure(event: str, **values: str) -> Iterator[None]:
    """Log a failed repair as `event` and continue."""
    try:
        yield
    except (OSError, ValueError):
        _LOG.exception(event, extra=fields(**values))


def _read(layout: Layout) -> tuple[list[VolumeRecord], list[str]]:
    """Return the records, and the volumes with an unreadable record; remove directories without a record."""
    loaded: list[VolumeRecord] = []
    unreadable: list[str] = []
    for volume_id in records.volume_ids(layout):
        try:
            record = records.load(layout, volume_id)
        except (OSError, UnreadableState):
            _LOG.exception("volume record unreadable; delete the pod", extra=fields(volume=volume_id))
            unreadable.append(volume_id)
            continue
        if record is not None:
            loaded.append(record)
            continue
        with _logged_failure("volume directory without a record not removed", volume=volume_id):
            records.remove(layout, volume_id)
    return loaded, unreadable


def _exists(path: Path) -> bool:
    """Return whether a target exists; True also for one that cannot be looked at."""
    try:
        path.lstat()
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def _refs_with_usage(layout: Layout) -> set[CacheRef]:
    refs = set()
    for path in layout.usage.glob("*/*"):
        try:
            refs.add(ref_of_scope(path.parent.name, path.name))
        except InvalidName:
            continue
    return refs
