"""The lower layers of a volume: the locked store entry and, on top of it, the files rewritten for the mount path."""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate import locks
from gkm.hoststate.layout import Layout
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.link_farm import MountedView
from gkm.mounts.mountinfo import Mark
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_limits import AllInUse, TooMany, Uses
from gkm.mounts.relocation.tree_store import RelocationInProgress, RelocationLayer
from gkm.mounts.relocation.tree_writer import Unrelocatable

from gkm_csi.volumes import publish_errors
from gkm_csi.volumes.mount_interface import MountInterface
from gkm_csi.volumes.records import VolumeRecords

_EMPTY_CONTENT: Final = "empty:0"
"""The content in the mark of an empty volume, in the place of a digest."""


class NotMounted(FileNotFoundError):
    """No mount is at the target of a volume: no pod has seen it, or its unpublish had begun."""

    def __init__(self, target: Path) -> None:
        super().__init__(errno.ENOENT, "the volume is not mounted", str(target))


@dataclass(frozen=True, slots=True)
class VolumeLayers:
    """Opens the layers of volumes on one node."""

    node: str
    layout: Layout
    volume_records: VolumeRecords
    mounter: MountInterface

    @contextmanager
    def locked_entry(self, record: VolumeRecord) -> Iterator[int | None]:
        """Yield a descriptor of a volume's store entry, locked against garbage collection; None for an empty volume.

        Raises:
            StatusError: the entry is being collected, or is missing.
        """
        with ExitStack() as stack:
            if record.digest:
                try:
                    stack.enter_context(locks.shared(self.layout.entry_lock(record.digest)))
                except locks.LockBusy as error:
                    raise publish_errors.entry_locked(record.ref, self.node) from error
            yield self._opened_entry(record, stack)

    def _opened_entry(self, record: VolumeRecord, stack: ExitStack) -> int | None:
        if not record.digest:
            return None
        try:
            return stack.enter_context(self.mounter.open_entry(record.digest))
        except FileNotFoundError as error:
            raise publish_errors.entry_missing(record.ref, self.node) from error

    @contextmanager
    def lower_layers(self, entry: int | None, record: VolumeRecord) -> Iterator[Sequence[int]]:
        """Yield descriptors of a volume's lower layers, the topmost first.

        The record of the volume must be on disk already: it keeps the rewritten files from being removed.

        Raises:
            StatusError: the rewritten files cannot be written; the message says whether a retry can help.
        """
        layer = relocation_layer(record)
        if entry is None or layer is None:
            yield () if entry is None else (entry,)
            return
        with ExitStack() as stack:
            try:
                tree = stack.enter_context(
                    self.mounter.open_relocated(entry, record.digest, layer, lambda: self._used_layer_keys(record))
                )
            except (RelocationInProgress, TooMany, AllInUse, Unrelocatable, OSError) as error:
                raise publish_errors.relocation_error(record.ref, self.node, error) from error
            yield (tree, entry)

    @contextmanager
    def mounted_layers(self, record: VolumeRecord) -> Iterator[tuple[MountedView, Sequence[int]]]:
        """Yield the mounted view of a published volume, and descriptors of the layers below its private layer.

        The entry needs no lock: its record keeps it, and garbage collection locks entries to look for their records.

        Raises:
            StatusError: the entry is missing, or its rewritten files are and cannot be written.
            NotMounted: nothing is mounted at the target.
            OSError: another mount is on top of the volume.
        """
        target = Path(record.target_path)
        mounts = self.mounter.observe(target).mounts
        if not mounts:
            raise NotMounted(target)
        if mounts[-1:] != (mark_for(record),):
            raise OSError(errno.EBUSY, "another mount is on top of the volume", record.target_path)
        with (
            ExitStack() as stack,
            self.lower_layers(self._opened_entry(record, stack), record) as lowers,
            self.mounter.open_mounted(target, user_namespace=record.options.user_namespace) as view,
        ):
            yield view, lowers

    def _used_layer_keys(self, volume: VolumeRecord) -> Uses:
        records = [record for record in self.volume_records.all() if record.digest == volume.digest]
        recorded = {record.volume_id for record in records}
        own = [record for record in records if record.pod_namespace == volume.pod_namespace]
        # A mount without a readable record tells its cache, and not its tree.
        mounted = {mount.mark.owner for mount in self.mounter.own_mounts() if mount.mark.content == volume.digest}
        return Uses(_keys(records), _keys(own), complete=mounted <= recorded)


def _keys(records: Iterable[VolumeRecord]) -> set[str]:
    layers = map(relocation_layer, records)
    return {layer.key for layer in layers if layer is not None}


def relocation_layer(record: VolumeRecord) -> RelocationLayer | None:
    """Return the layer with rewritten files that goes on a volume's entry, None if the volume needs no such files."""
    path = record.options.mount_path
    if not record.digest or not (path or record.is_private):
        return None
    return RelocationLayer(MountPath(path) if path else None, is_writable=record.is_private)


def mark_for(record: VolumeRecord) -> Mark:
    """Return the mark that identifies the mount of a volume as one of GKM's."""
    return Mark(record.volume_id, record.digest or _EMPTY_CONTENT)
