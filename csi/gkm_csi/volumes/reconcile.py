"""At start: compare records with mounts, and repair both.

A process killed between record and mount, or between unmount and removing the record, leaves a record without a mount;
a lost /run leaves mounts without records (docs/design/node-state.md). A volume that cannot be repaired is logged and
must not stop the node from serving the others.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.marks import MarkedMount
from gkm.mounts.unmount import StillMounted

from gkm_csi.volumes.mounter import Mounter
from gkm_csi.volumes.records import VolumeRecords

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Records and mounts to remove: records without a volume, and mounts without a record."""

    records: tuple[VolumeRecord, ...]
    mounts: tuple[MarkedMount, ...]


def decide(
    found: Iterable[VolumeRecord], mounts: Iterable[MarkedMount], unreadable: frozenset[str], existing: frozenset[str]
) -> RepairPlan:
    """Return the repairs; pure.

    `existing` holds the target paths that exist. A record without a mount stays while its target exists, because
    kubelet repeats its call for that volume. `unreadable` are volumes with an unreadable record: their mounts stay.
    """
    found, mounts = tuple(found), tuple(mounts)
    mounted = {mount.mark.owner for mount in mounts}
    known = {record.volume_id for record in found} | unreadable
    return RepairPlan(
        records=tuple(
            record for record in found if record.volume_id not in mounted and record.target_path not in existing
        ),
        mounts=tuple(mount for mount in mounts if mount.mark.owner not in known),
    )


def reconcile(layout: Layout, volume_records: VolumeRecords, mounter: Mounter) -> None:
    """Make records and mounts agree, and load the records into `volume_records`.

    Raises:
        OSError: the state cannot be read at all.
    """
    # Files of killed writers: at start no other writer exists.
    for leftover in (*layout.usage.glob("*/*/.*.tmp"), *layout.volumes.glob("*/.*.tmp")):
        leftover.unlink(missing_ok=True)
    for directory in mounter.leftover_scratch_directories():
        _remove_scratch(mounter, directory)
    found, unreadable = _read(layout)
    existing = frozenset(record.target_path for record in found if _exists(Path(record.target_path)))
    repairs = decide(found, mounter.own_mounts(), frozenset(unreadable), existing)
    for record in found:
        volume_records.track(record)
    for record in repairs.records:
        _remove(volume_records, record)
    for mount in repairs.mounts:
        _unmount(mounter, mount)
    for ref in {record.ref for record in found} | _refs_with_usage(layout):
        _write_usage(volume_records, ref)


def _read(layout: Layout) -> tuple[list[VolumeRecord], list[str]]:
    """Return the records, and the volumes with an unreadable record; remove directories without a record."""
    found: list[VolumeRecord] = []
    unreadable: list[str] = []
    for volume_id in records.volume_ids(layout):
        try:
            record = records.load(layout, volume_id)
            if record is None:
                records.remove(layout, volume_id)
            else:
                found.append(record)
        except UnreadableState:
            _LOG.exception("record unreadable; delete the pod", extra=fields(volume=volume_id))
            unreadable.append(volume_id)
        except OSError:
            _LOG.exception("directory without a record not removed", extra=fields(volume=volume_id))
    return found, unreadable


def _remove_scratch(mounter: Mounter, directory: Path) -> None:
    try:
        mounter.remove_scratch(directory)
    except (OSError, StillMounted):
        _LOG.exception("leftover of a private layer not removed", extra=fields(path=str(directory)))


def _remove(volume_records: VolumeRecords, record: VolumeRecord) -> None:
    log_fields = fields(volume=record.volume_id, cache=str(record.ref), target=record.target_path)
    try:
        volume_records.remove(record.volume_id)
    except OSError:
        _LOG.exception("record without a mount not removed", extra=log_fields)
    else:
        _LOG.warning("record without a mount removed", extra=log_fields)


def _write_usage(volume_records: VolumeRecords, ref: CacheRef) -> None:
    try:
        volume_records.write_usage(ref)
    except OSError:
        _LOG.exception("usage file not written", extra=fields(cache=str(ref)))


def _unmount(mounter: Mounter, mount: MarkedMount) -> None:
    path = Path(mount.point)
    log_fields = fields(volume=mount.mark.owner, digest=mount.mark.content, target=mount.point)
    try:
        mounter.unmount(path)
        mounter.remove(path)
    except (OSError, StillMounted, ValueError):
        _LOG.exception("mount without a record not removed", extra=log_fields)
    else:
        _LOG.warning("mount without a record removed", extra=log_fields)


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _refs_with_usage(layout: Layout) -> set[CacheRef]:
    refs = set()
    for path in layout.usage.glob("*/*"):
        try:
            refs.add(ref_of_scope(path.parent.name, path.name))
        except InvalidName:
            continue
    return refs
