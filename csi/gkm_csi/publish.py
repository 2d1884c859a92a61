"""NodePublishVolume in its steps: entry locked, record, target, mount, usage; undone in reverse when one fails.

The order is the protection: garbage collection reads records under the exclusive lock of the entry, so an entry whose
shared lock or whose record somebody holds stays (docs/design/node-state.md).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import pointers, waiting
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.pointers import Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.unmount import StillMounted

from gkm_csi import answers
from gkm_csi.layers import Layers, mark_of
from gkm_csi.ledger import Ledger
from gkm_csi.mounting import Mounting, Spot
from gkm_csi.refusals import Code, Refusal, invalid, is_final
from gkm_csi.request import Publish
from gkm_csi.underway import Underway

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Done:
    """What must be undone when a publish fails."""

    recorded: bool = False
    made: bool = False
    mounted: bool = False


class Publisher:
    """Publishes volumes on one node."""

    def __init__(
        self,
        node: str,
        layout: Layout,
        *,
        ledger: Ledger,
        mounter: Mounting,
        layers: Layers,
        underway: Underway,
        driver_version: Callable[[], str | None],
    ) -> None:
        self._node = node
        self._layout = layout
        self._ledger = ledger
        self._mounter = mounter
        self._layers = layers
        self._underway = underway
        self._driver_version = driver_version

    def publish(self, asked: Publish) -> None:
        """Mount what is asked, or find it mounted.

        Raises:
            Refusal: it cannot be, for a reason that is known; neither record nor mount is left unless the volume was
                published before.
        """
        with self._underway.hold(asked.place):
            known = self._known(asked)
            if known is None:
                self._begin(asked)
                return
            different = answers.of_repeat(known, asked)
            if different:
                raise different
            self._settle(known, repeated=True)

    def _known(self, asked: Publish) -> VolumeRecord | None:
        try:
            return self._ledger.load(asked.place.volume_id)
        except UnreadableState as error:
            raise Refusal(
                Code.FAILED_PRECONDITION,
                f"the record of volume {asked.place.volume_id} on {self._node} is damaged; delete the pod",
            ) from error

    def _record(self, asked: Publish) -> VolumeRecord:
        """Return the record of a new volume: of the cache as it is now, or of none where the pod starts without."""
        try:
            return _record(asked, self._pointer(asked))
        except Refusal as refusal:
            if not asked.options.or_empty:
                raise
            return _record(asked, None, empty_because=refusal.message)

    def _begin(self, asked: Publish) -> None:
        record = self._record(asked)
        try:
            self._settle(record, repeated=False)
        except Refusal as refusal:
            # ABORTED ends with the other call: who asks again in a second gets the cache.
            if not (record.digest and asked.options.or_empty) or refusal.code is Code.ABORTED:
                raise
            self._settle(_record(asked, None, empty_because=refusal.message), repeated=False)

    def _pointer(self, asked: Publish) -> Pointer:
        try:
            pointer = pointers.load(self._layout, asked.ref)
        except UnreadableState as error:
            log.exception("pointer unreadable", extra=fields(cache=str(asked.ref)))
            raise answers.unreadable(asked.ref, self._node) from error
        refusal = answers.of_pointer(pointer, asked.ref, self._node, self._driver_version())
        if refusal or pointer is None:
            self._note_waiting(pointer, refusal)
            raise refusal or answers.unreadable(asked.ref, self._node)
        return pointer

    def _note_waiting(self, pointer: Pointer | None, refusal: Refusal | None) -> None:
        # Only of caches that are known here: names that pods make up leave no files.
        if pointer is not None and refusal is not None and refusal.code is Code.UNAVAILABLE:
            try:
                waiting.note(self._layout, pointer.ref)
            except OSError:
                log.exception("it cannot be noted that a pod waits", extra=fields(cache=str(pointer.ref)))

    def _settle(self, record: VolumeRecord, *, repeated: bool) -> None:
        target = Path(record.target_path)
        mark = mark_of(record)
        done = _Done()
        try:
            spot = self._look(target)
            if repeated and spot.mounts == (mark,):
                log.info("published already", extra=fields(**_told(record)))
                return
            # A record is never undone while a mount of its volume may be there.
            done.recorded = repeated and mark not in spot.mounts
            self._clear(target, spot, record.volume_id)
            with self._layers.entry(record) as entry:
                self._mount(entry, record, done, repeated=repeated)
        except Exception as error:
            # After an uncertain answer kubelet comes back for a volume that it knows of: its digest must stay.
            if not repeated or is_final(error):
                self._undo(record, done)
            raise
        log.info("published", extra=fields(**_told(record)))

    def _mount(self, entry: int | None, record: VolumeRecord, done: _Done, *, repeated: bool) -> None:
        target = Path(record.target_path)
        if not repeated:
            done.recorded = True
            self._ledger.add(record)
        done.made = self._make(target)
        private_bytes = record.options.size_limit if record.is_private else None
        with self._layers.over(entry, record) as layers:
            done.mounted = True  # before: what fails after the kernel has mounted must be undone as well
            self._mounter.mount(layers, target, mark_of(record), private_bytes)
        self._ledger.write_usage(record.ref)

    def _look(self, target: Path) -> Spot:
        try:
            return self._mounter.look(target)
        except OSError as error:
            raise invalid(
                f"target_path on {self._node}: its parent must exist and nothing on the way may be a link or a file "
                f"({error.strerror})"
            ) from error

    def _make(self, target: Path) -> bool:
        try:
            return self._mounter.make(target)
        except OSError as error:
            raise Refusal(
                Code.FAILED_PRECONDITION,
                f"the target directory cannot be made on {self._node} ({error.strerror}); delete the pod",
            ) from error

    def _clear(self, target: Path, spot: Spot, volume_id: str) -> None:
        """Make sure that nothing of others is at the target; a mount of this volume that lost its record goes."""
        if any(mark is None or mark.owner != volume_id for mark in spot.mounts):
            raise Refusal(
                Code.FAILED_PRECONDITION,
                f"something else is mounted at the target of volume {volume_id} on {self._node}; delete the pod, and "
                f"unmount what is left there",
            )
        if spot.mounts:
            self._mounter.unmount(target)
        elif spot.exists and not spot.empty:
            raise Refusal(
                Code.FAILED_PRECONDITION,
                f"the target directory of volume {volume_id} on {self._node} is not empty; delete the pod",
            )

    def _undo(self, record: VolumeRecord, done: _Done) -> None:
        target = Path(record.target_path)
        try:
            if done.mounted:
                self._mounter.unmount(target)
            if done.made:
                self._mounter.remove(target)
            if done.recorded:
                self._ledger.remove(record.volume_id)
                self._ledger.write_usage(record.ref)
        except (OSError, StillMounted):
            # What is left is a record, and a mount at most: the next publish, unpublish or start deals with both.
            log.exception("a failed publish could not be undone", extra=fields(**_told(record)))


def _record(asked: Publish, pointer: Pointer | None, *, empty_because: str = "") -> VolumeRecord:
    return VolumeRecord(
        volume_id=asked.place.volume_id,
        target_path=str(asked.place.target),
        pod_name=asked.pod.name,
        pod_namespace=asked.pod.namespace,
        pod_uid=asked.pod.uid,
        ref=asked.ref,
        digest=pointer.digest if pointer else "",
        volume_size=pointer.size_bytes if pointer else 0,
        start_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        options=asked.options,
        empty_because=empty_because,
    )


def _told(record: VolumeRecord) -> dict[str, str]:
    return {
        "volume": record.volume_id,
        "cache": str(record.ref),
        "digest": record.digest or f"none: {record.empty_because}",
        "pod": f"{record.pod_namespace}/{record.pod_name}",
    }
