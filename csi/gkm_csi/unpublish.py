"""NodeUnpublishVolume in its steps: unmount until nothing is there, remove the target, then the record.

Always OK for what is not there: kubelet takes any error as a failure and asks for ever.
"""

import logging

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.unmount import StillMounted

from gkm_csi.captures import Captures
from gkm_csi.ledger import Ledger
from gkm_csi.mounting import Mounting
from gkm_csi.refusals import Code, Refusal
from gkm_csi.request import Place
from gkm_csi.underway import Underway

log = logging.getLogger(__name__)


class Unpublisher:
    """Unpublishes volumes on one node."""

    def __init__(self, node: str, *, ledger: Ledger, mounter: Mounting, underway: Underway, captures: Captures) -> None:
        self._node = node
        self._ledger = ledger
        self._mounter = mounter
        self._underway = underway
        self._captures = captures

    def unpublish(self, place: Place) -> None:
        """Take a volume away from its target, leaving nothing; idempotent.

        Raises:
            Refusal: another call for the volume is under way, or it could not be unmounted.
        """
        with self._underway.hold(place):
            try:
                record = self._ledger.load(place.volume_id)
            except UnreadableState:
                log.exception("record unreadable", extra=fields(volume=place.volume_id))
                self._without_record(place)
                self._ledger.remove(place.volume_id)
                return
            if record is None:
                self._without_record(place)
                self._ledger.remove(place.volume_id)  # what was wiped from /run is remembered here
            elif record.target_path != str(place.target):
                log.warning(
                    "unpublish for a target that the volume is not published at",
                    extra=fields(volume=place.volume_id, target=str(place.target), published=record.target_path),
                )
            else:
                self._with_record(place, record)

    def _with_record(self, place: Place, record: VolumeRecord) -> None:
        if record.options.capture and record.is_private and not self._captures.done(record):
            raise Refusal(
                Code.ABORTED,
                f"volume {place.volume_id}: what its pod added is being kept on {self._node}; kubelet retries",
            )
        self._take_away(place)
        self._ledger.remove(place.volume_id)
        try:
            self._ledger.write_usage(record.ref)
        except OSError:
            # Derived, and written anew by the next call for this cache or the next start: no reason to keep a pod.
            log.exception("usage file not written", extra=fields(cache=str(record.ref)))
        log.info("unpublished", extra=fields(volume=place.volume_id, cache=str(record.ref), digest=record.digest))

    def _without_record(self, place: Place) -> None:
        """Take away a mount of this volume that lost its record; whatever else is there belongs to others."""
        try:
            spot = self._mounter.look(place.target)
        except OSError:  # no such parent, or no directory: nothing that we could have made
            return
        if spot.mounts and all(mark is not None and mark.owner == place.volume_id for mark in spot.mounts):
            self._take_away(place)
            log.warning("unpublished without a record", extra=fields(volume=place.volume_id))

    def _take_away(self, place: Place) -> None:
        try:
            self._mounter.unmount(place.target)
            removed = self._mounter.remove(place.target)
        except (OSError, StillMounted) as error:
            log.exception("cannot unmount", extra=fields(volume=place.volume_id, target=str(place.target)))
            raise Refusal(
                Code.INTERNAL, f"volume {place.volume_id} cannot be unmounted on {self._node}; kubelet retries"
            ) from error
        if not removed:
            log.warning("the target directory is not empty and stays", extra=fields(volume=place.volume_id))
