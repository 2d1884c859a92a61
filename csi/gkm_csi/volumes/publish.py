"""NodePublishVolume in steps: lock the entry, write the record, make the target, mount, write the usage file.

A step that fails undoes the earlier ones in reverse. The order protects the entry: garbage collection takes the entry's
lock exclusively and reads the records under it, so it spares an entry with a shared lock or with a record
(docs/design/node-state.md).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import pointers, waiting_pods
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.pointers import Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.targets import StillMounted

from gkm_csi.status_errors import Code, StatusError, invalid_argument, is_final
from gkm_csi.volumes import publish_errors
from gkm_csi.volumes.layers import VolumeLayers, mark_for
from gkm_csi.volumes.locks import VolumeLocks
from gkm_csi.volumes.mount_interface import MountInterface, TargetState
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.request import PublishRequest

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _CompletedSteps:
    """The steps to undo when a publish fails."""

    recorded: bool = False
    created: bool = False
    mounted: bool = False


class VolumePublisher:
    """Publish volumes on one node."""

    def __init__(
        self,
        node: str,
        layout: Layout,
        *,
        volume_records: VolumeRecords,
        mounter: MountInterface,
        layers: VolumeLayers,
        volume_locks: VolumeLocks,
        driver_version: Callable[[], str | None],
    ) -> None:
        self._node = node
        self._layout = layout
        self._volume_records = volume_records
        self._mounter = mounter
        self._layers = layers
        self._volume_locks = volume_locks
        self._driver_version = driver_version

    def publish(self, request: PublishRequest) -> None:
        """Mount the requested volume, or find it mounted.

        Raises:
            StatusError: the volume cannot be published, for a known reason; neither record nor mount is left unless the
                volume was published before.
        """
        with self._volume_locks.lock(request.volume):
            record = self._existing_record(request)
            if record is None:
                self._publish_new(request)
                return
            conflict = publish_errors.repeat_error(record, request)
            if conflict:
                raise conflict
            self._ensure_mounted(record, repeated=True)

    def _existing_record(self, request: PublishRequest) -> VolumeRecord | None:
        try:
            return self._volume_records.load(request.volume.volume_id)
        except UnreadableState as error:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"the record of volume {request.volume.volume_id} on {self._node} is damaged; delete the pod",
            ) from error

    def _record(self, request: PublishRequest) -> VolumeRecord:
        """Return the record of a new volume: with the current cache, or empty where the pod accepts that."""
        try:
            return _record(request, self._pointer(request))
        except StatusError as refusal:
            if not request.options.or_empty:
                raise
            return _record(request, None, empty_because=refusal.message)

    def _publish_new(self, request: PublishRequest) -> None:
        record = self._record(request)
        try:
            self._ensure_mounted(record, repeated=False)
        except StatusError as refusal:
            # ABORTED ends with the other call: kubelet's next call gets the cache.
            if not (record.digest and request.options.or_empty) or refusal.code is Code.ABORTED:
                raise
            self._ensure_mounted(_record(request, None, empty_because=refusal.message), repeated=False)

    def _pointer(self, request: PublishRequest) -> Pointer:
        try:
            pointer = pointers.load(self._layout, request.ref)
        except UnreadableState as error:
            _LOG.exception("pointer unreadable", extra=fields(cache=str(request.ref)))
            raise publish_errors.pointer_unreadable(request.ref, self._node) from error
        status_error = publish_errors.pointer_error(pointer, request.ref, self._node, self._driver_version())
        if status_error or pointer is None:
            self._record_waiting(pointer, status_error)
            raise status_error or publish_errors.pointer_unreadable(request.ref, self._node)
        return pointer

    def _record_waiting(self, pointer: Pointer | None, status_error: StatusError | None) -> None:
        # Only for a cache that this node knows: a name that a pod invents must not create a file.
        if pointer is not None and status_error is not None and status_error.code is Code.UNAVAILABLE:
            try:
                waiting_pods.mark_waiting(self._layout, pointer.ref)
            except OSError:
                _LOG.exception("waiting pod not recorded", extra=fields(cache=str(pointer.ref)))

    def _ensure_mounted(self, record: VolumeRecord, *, repeated: bool) -> None:
        target = Path(record.target_path)
        mark = mark_for(record)
        steps = _CompletedSteps()
        try:
            state = self._observe(target)
            if repeated and state.mounts == (mark,):
                _LOG.info("already published", extra=fields(**_log_fields(record)))
                return
            # A record stays while a mount of its volume may exist.
            steps.recorded = repeated and mark not in state.mounts
            self._clear_target(target, state, record.volume_id)
            with self._layers.locked_entry(record) as entry:
                self._mount(entry, record, steps, repeated=repeated)
        except Exception as error:
            # After a non-final error kubelet repeats the call for a volume that it knows: its digest must not change.
            if not repeated or is_final(error):
                self._undo(record, steps)
            raise
        _LOG.info("published", extra=fields(**_log_fields(record)))

    def _mount(self, entry: int | None, record: VolumeRecord, steps: _CompletedSteps, *, repeated: bool) -> None:
        target = Path(record.target_path)
        if not repeated:
            steps.recorded = True
            self._volume_records.add(record)
        steps.created = self._make_target(target)
        private_bytes = record.options.size_limit if record.is_private else None
        with self._layers.lower_layers(entry, record) as layers:
            steps.mounted = True  # before the call: a failure after the kernel has mounted must be undone as well
            self._mounter.mount(layers, target, mark_for(record), private_bytes)
        self._volume_records.write_usage(record.ref)

    def _observe(self, target: Path) -> TargetState:
        try:
            return self._mounter.observe(target)
        except OSError as error:
            raise invalid_argument(
                f"target_path on {self._node}: its parent must exist, and no component may be a link or a file "
                f"({error.strerror})"
            ) from error

    def _make_target(self, target: Path) -> bool:
        try:
            return self._mounter.make(target)
        except OSError as error:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"the target directory cannot be made on {self._node} ({error.strerror}); delete the pod",
            ) from error

    def _clear_target(self, target: Path, state: TargetState, volume_id: str) -> None:
        """Check that the target holds no mount or file of others; unmount a mount of this volume that has no record."""
        if any(mark is None or mark.owner != volume_id for mark in state.mounts):
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"a foreign mount is at the target of volume {volume_id} on {self._node}; delete the pod, "
                f"and unmount it",
            )
        if state.mounts:
            self._mounter.unmount(target)
        elif state.exists and not state.empty:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"the target directory of volume {volume_id} on {self._node} is not empty; delete the pod",
            )

    def _undo(self, record: VolumeRecord, steps: _CompletedSteps) -> None:
        target = Path(record.target_path)
        try:
            if steps.mounted:
                self._mounter.unmount(target)
            if steps.created:
                self._mounter.remove(target)
            if steps.recorded:
                self._volume_records.remove(record.volume_id)
                self._volume_records.write_usage(record.ref)
        except (OSError, StillMounted):
            # A record and perhaps a mount are left: the next publish, unpublish or start removes both.
            _LOG.exception("undo of a failed publish failed", extra=fields(**_log_fields(record)))


def _record(request: PublishRequest, pointer: Pointer | None, *, empty_because: str = "") -> VolumeRecord:
    return VolumeRecord(
        volume_id=request.volume.volume_id,
        target_path=str(request.volume.target),
        pod_name=request.pod.name,
        pod_namespace=request.pod.namespace,
        pod_uid=request.pod.uid,
        ref=request.ref,
        digest=pointer.digest if pointer else "",
        volume_size=pointer.size_bytes if pointer else 0,
        start_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        options=request.options,
        empty_because=empty_because,
    )


def _log_fields(record: VolumeRecord) -> dict[str, str]:
    return {
        "volume": record.volume_id,
        "cache": str(record.ref),
        "digest": record.digest or f"none: {record.empty_because}",
        "pod": f"{record.pod_namespace}/{record.pod_name}",
    }
