"""What lies below a pod's own layer: the entry under its lock, and on top of it the tree that its volume wants."""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from gkm.hoststate import locks
from gkm.hoststate.layout import Layout
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.marks import Mark
from gkm.mounts.relocation import Layer, UnderWay
from gkm.mounts.relocation_paths import MountPath
from gkm.mounts.relocation_shares import AllInUse, TooMany, Uses
from gkm.mounts.relocation_tree import Unrelocatable

from gkm_csi import answers
from gkm_csi.ledger import Ledger
from gkm_csi.mounting import Mounting

_NOTHING: Final = "empty:0"
"""What the mark of an empty volume says instead of a digest."""


class Layers:
    """The layers of volumes on one node."""

    def __init__(self, node: str, layout: Layout, ledger: Ledger, mounter: Mounting) -> None:
        self._node = node
        self._layout = layout
        self._ledger = ledger
        self._mounter = mounter

    @contextmanager
    def entry(self, record: VolumeRecord) -> Iterator[int | None]:
        """Hold the entry of a volume, locked, so that nobody collects it; None for an empty volume.

        Raises:
            Refusal: it is being collected, or is not there.
        """
        if not record.digest:
            yield None
            return
        with ExitStack() as held:
            try:
                held.enter_context(locks.shared(self._layout.entry_lock(record.digest)))
                entry = held.enter_context(self._mounter.entry(record.digest))
            except locks.Busy as error:
                raise answers.collected(record.ref, self._node) from error
            except FileNotFoundError as error:
                raise answers.without_entry(record.ref, self._node) from error
            yield entry

    @contextmanager
    def over(self, entry: int | None, record: VolumeRecord) -> Iterator[Sequence[int]]:
        """Hold the layers of a volume, the first on top. The record must be on the disk: it keeps its tree from going.

        Raises:
            Refusal: what goes on top of the entry cannot be made, now or ever.
        """
        layer = layer_of(record)
        if entry is None or layer is None:
            yield () if entry is None else (entry,)
            return
        with ExitStack() as held:
            try:
                tree = held.enter_context(
                    self._mounter.prepared(entry, record.digest, layer, lambda: self._in_use(record))
                )
            except (UnderWay, TooMany, AllInUse, Unrelocatable, OSError) as error:
                raise answers.not_prepared(record.ref, self._node, error) from error
            yield (tree, entry)

    @contextmanager
    def of_mounted(self, record: VolumeRecord) -> Iterator[tuple[int, Sequence[int]]]:
        """Hold what a published volume shows, and the layers below its own.

        Raises:
            Refusal: the entry is being collected, or is not there.
            OSError: the volume is not mounted.
        """
        target = Path(record.target_path)
        if self._mounter.look(target).mounts[-1:] != (mark_of(record),):
            raise FileNotFoundError(errno.ENOENT, "it is not mounted", record.target_path)
        with (
            self.entry(record) as entry,
            self.over(entry, record) as lowers,
            self._mounter.mounted(target) as mount,
        ):
            yield mount, lowers

    def _in_use(self, volume: VolumeRecord) -> Uses:
        records = [record for record in self._ledger.all() if record.digest == volume.digest]
        return Uses(_keys(records), _keys([one for one in records if one.pod_namespace == volume.pod_namespace]))


def _keys(records: Iterable[VolumeRecord]) -> set[str]:
    layers = map(layer_of, records)
    return {layer.key for layer in layers if layer is not None}


def layer_of(record: VolumeRecord) -> Layer | None:
    """Return the tree that goes on top of a volume's entry, None where none does."""
    path = record.options.mount_path
    if not record.digest or not (path or record.is_private):
        return None
    return Layer(MountPath(path) if path else None, is_open=record.is_private)


def mark_of(record: VolumeRecord) -> Mark:
    """Return how the mount of a volume is marked."""
    return Mark(record.volume_id, record.digest or _NOTHING)
