"""NodePublishVolume in steps: lock the entry, write the record, make the target, mount, write the usage file.

A step that fails undoes the earlier ones in reverse. The order protects the entry: garbage collection takes the entry's
lock exclusively and reads the records under it, so it spares an entry with a shared lock or with a record
(docs/design/node-state.md).
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gkm.hoststate import families, waiting_pods
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeOptions, VolumeRecord
from gkm.mounts.link_farm import Unlinkable

from gkm_csi.status_errors import Code, StatusError, failed_precondition, invalid_argument, is_final
from gkm_csi.volumes import publish_errors
from gkm_csi.volumes.layers import VolumeLayers, mark_for
from gkm_csi.volumes.locks import VolumeLocks
from gkm_csi.volumes.mount_interface import MountInterface, TargetState
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.request import PublishRequest

_LOG = logging.getLogger(__name__)

_UndoSteps = list[Callable[[], object]]
"""The steps that a failed publish must undo: in the order of its steps, and undone in reverse."""


@dataclass(frozen=True, slots=True)
class VolumePublisher:
    """Publishes volumes on one node (NodePublishVolume)."""

    node: str
    layout: Layout
    volume_records: VolumeRecords
    mounter: MountInterface
    layers: VolumeLayers
    volume_locks: VolumeLocks
    driver_version: Callable[[], str | None]

    def publish(self, request: PublishRequest) -> None:
        """Mount the requested volume; succeed at once if it is already mounted.

        Raises:
            StatusError: the volume cannot be published, for a known reason; no record and no mount is left unless the
            volume was published before.
        """
        with self.volume_locks.lock(request.volume):
            record = self._existing_record(request)
            if record is None:
                self._publish_new(request)
            else:
                publish_errors.check_repeat(record, request)
                self._ensure_mounted(record, repeated=True)

    def _existing_record(self, request: PublishRequest) -> VolumeRecord | None:
        try:
            return self.volume_records.load(request.volume.volume_id)
        except UnreadableState as error:
            raise failed_precondition(
                f"the record of volume {request.volume.volume_id} on {self.node} is damaged; delete the pod"
            ) from error

    def _publish_new(self, request: PublishRequest) -> None:
        """Mount the current cache, or an empty volume where the pod accepts that."""
        comes = True  # a cache with damaged state is unknown
        try:
            pointer = self._pointer(request.ref)
            comes = pointer is not None and (pointer.is_on_its_way or pointer.state is CacheState.READY)
            self._ensure_mounted(_record(request, self._usable(pointer, request)), repeated=False)
        except StatusError as refusal:
            # ABORTED ends with the other call: kubelet's next call gets the cache.
            if refusal.code is Code.ABORTED or not _starts_empty(request.options, refusal, comes=comes):
                raise
            self._ensure_mounted(_record(request, None, empty_because=refusal.message), repeated=False)

    def _pointer(self, ref: CacheRef) -> Pointer | None:
        """Return the pointer of the chosen member of a family, or of the cache of this name; None if absent.

        Raises:
            StatusError: it is damaged.
        """
        try:
            return families.chosen(self.layout, ref)
        except UnreadableState as error:
            _LOG.exception(
                "pointer file of a cache or family unreadable, a restart of the agent of this node rewrites it",
                extra=fields(cache=str(ref)),
            )
            raise publish_errors.pointer_unreadable(ref, self.node) from error

    def _usable(self, pointer: Pointer | None, request: PublishRequest) -> Pointer:
        ref = pointer.ref if pointer is not None else request.ref
        try:
            return publish_errors.usable_pointer(pointer, ref, self.node, self.driver_version())
        except StatusError as refusal:
            # Only for a cache that this node knows: a name that a pod invents must not create a file.
            if pointer is not None and _is_awaited(pointer, refusal, request):
                self._record_waiting(pointer.ref)
            raise

    def _record_waiting(self, ref: CacheRef) -> None:
        try:
            waiting_pods.mark_waiting(self.layout, ref)
        except OSError:
            _LOG.exception(
                "record that a pod waits for a cache not written, the agent does not pull it first",
                extra=fields(cache=str(ref)),
            )

    def _ensure_mounted(self, record: VolumeRecord, *, repeated: bool) -> None:
        target = Path(record.target_path)
        mark = mark_for(record)
        undo: _UndoSteps = []
        try:
            state = self._observe(target)
            if repeated and state.mounts == (mark,):
                _LOG.info("volume already published", extra=_log_fields(record))
                return
            # A record stays while a mount of its volume may exist.
            if repeated and mark not in state.mounts:
                undo.append(partial(self._remove_record, record))
            self._clear_target(target, state, record.volume_id)
            with self.layers.locked_entry(record) as entry:
                self._mount(entry, record, undo, repeated=repeated)
        except Exception as error:
            # After a non-final error kubelet repeats the call for a volume that it knows: its digest must not change.
            if not repeated or is_final(error):
                _undo(undo, record)
            raise
        _LOG.info("volume published", extra=_log_fields(record))

    def _mount(self, entry: int | None, record: VolumeRecord, undo: _UndoSteps, *, repeated: bool) -> None:
        target = Path(record.target_path)
        if not repeated:
            undo.append(partial(self._remove_record, record))
            self.volume_records.add(record)
        if self._make_target(target):
            undo.append(partial(self.mounter.remove, target))
        with self.layers.lower_layers(entry, record) as layers:
            # Before the call: a failure after the kernel has mounted must be undone as well.
            undo.append(partial(self.mounter.unmount, target))
            self._mount_layers(layers, record)
        self.volume_records.write_usage(record.ref)

    def _mount_layers(self, layers: Sequence[int], record: VolumeRecord) -> None:
        private_bytes = record.options.size_limit if record.is_private else None
        target, user_namespace = Path(record.target_path), record.options.user_namespace
        try:
            self.mounter.mount(layers, target, mark_for(record), private_bytes, user_namespace=user_namespace)
        except Unlinkable as error:
            raise publish_errors.unlinkable(record.ref, self.node, error) from error

    def _observe(self, target: Path) -> TargetState:
        try:
            return self.mounter.observe(target)
        except OSError as error:
            raise invalid_argument(
                f"target_path on {self.node}: its parent must exist, and no component may be a link or a file "
                f"({error.strerror})"
            ) from error

    def _make_target(self, target: Path) -> bool:
        try:
            return self.mounter.make(target)
        except OSError as error:
            raise failed_precondition(
                f"the target directory cannot be made on {self.node} ({error.strerror}); delete the pod"
            ) from error

    def _clear_target(self, target: Path, state: TargetState, volume_id: str) -> None:
        """Check that the target holds no mount or file of others; unmount a mount of this volume that has no record."""
        if any(mark is None or mark.owner != volume_id for mark in state.mounts):
            raise failed_precondition(
                f"a foreign mount is at the target of volume {volume_id} on {self.node}; delete the pod, and unmount it"
            )
        if state.mounts:
            self.mounter.unmount(target)
        elif state.exists and not state.empty:
            raise failed_precondition(
                f"the target directory of volume {volume_id} on {self.node} is not empty; delete the pod"
            )

    def _remove_record(self, record: VolumeRecord) -> None:
        self.volume_records.remove(record.volume_id)
        self.volume_records.write_usage(record.ref)


def _is_awaited(pointer: Pointer, refusal: StatusError, request: PublishRequest) -> bool:
    """Return whether the agent should know that a pod waits: to fetch the cache first, or to report that none fits."""
    options = request.options
    unfit = pointer.state is CacheState.INCOMPATIBLE and not (options.or_empty or options.or_compile)
    return unfit or refusal.code is Code.UNAVAILABLE


def _starts_empty(options: VolumeOptions, refusal: StatusError, *, comes: bool) -> bool:
    """Return whether a pod that cannot have its cache now starts without it; `comes`: the cache is on its way.

    With `ifUnavailable: compile` it also starts where a cache is Ready and can never be mounted as the volume asks.
    """
    return options.or_empty or (options.or_compile and (is_final(refusal) or not comes))


def _undo(steps: _UndoSteps, record: VolumeRecord) -> None:
    try:
        for step in reversed(steps):
            step()
    except OSError:
        # A record and perhaps a mount are left: the next publish, unpublish or start removes both.
        _LOG.exception(
            "undo of a failed volume publish failed, a later call or start repeats it", extra=_log_fields(record)
        )


def _record(request: PublishRequest, pointer: Pointer | None, *, empty_because: str = "") -> VolumeRecord:
    return VolumeRecord(
        volume_id=request.volume.volume_id,
        target_path=str(request.volume.target),
        pod_name=request.pod.name,
        pod_namespace=request.pod.namespace,
        pod_uid=request.pod.uid,
        ref=pointer.ref if pointer else request.ref,
        digest=pointer.digest if pointer else "",
        volume_size=pointer.size_bytes if pointer else 0,
        start_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        options=request.options,
        empty_because=empty_because,
        family=request.ref.name if pointer and pointer.ref != request.ref else "",
    )


def _log_fields(record: VolumeRecord) -> dict[str, object]:
    return fields(
        volume=record.volume_id,
        cache=str(record.ref),
        digest=record.digest or f"none: {record.empty_because}",
        pod=f"{record.pod_namespace}/{record.pod_name}",
    )
