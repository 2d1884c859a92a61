"""The pull of one cache, in one thread: verify, describe, check the GPUs, fetch.

The job verifies the image itself: it does not rely on the controller's verdict or on an earlier run. An earlier run
spares the registry only while the disk has no space for the image. The job stores each state on disk before the next
one starts, so the process may be killed at any point.
"""

import logging
from dataclasses import dataclass, replace

from gkm.api.errors import GKMError, Reason
from gkm.api.signers import Signer
from gkm.gpus import preflight
from gkm.gpus.values import Inventory
from gkm.hoststate import disk_space
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.cache import CacheImage
from gkm.images.pulling.pull import Progress, PullStage
from gkm.images.signatures.verify import Verdict

from gkm_agent.caches.approvals import Approval
from gkm_agent.caches.decisions import is_unchanged, make_pointer, serve_revoked_message, verdict_pointer
from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.images import CacheImages
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.pointers import PointerStore, PullToken, Superseded

_LOG = logging.getLogger(__name__)

_STEP = 10
"""Percentage points between two progress writes of one stage: each write costs two fsyncs."""
_STATES = {PullStage.DOWNLOADING: CacheState.DOWNLOADING, PullStage.EXTRACTING: CacheState.EXTRACTING}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pull failed; a `transient` failure may disappear without a change by a user."""

    reason: str
    message: str
    transient: bool
    persisted: bool = True
    """Whether the pointer file has this failure; it does not if the disk is full."""
    still_served: bool = False
    """Whether the cache stays Ready despite the failure."""
    retry_after: float = 0.0
    """The pause in seconds that the registry requested."""


@dataclass(slots=True)
class PullJob:
    """The pull of one cache. `digest` is "" if the job must resolve the reference first."""

    wanted: WantedCache
    digest: str
    store: PointerStore
    images: CacheImages
    inventory: Inventory
    policy: str
    token: PullToken
    budget: DiskBudget
    failure_reported: bool = False
    """The pointer already says Failed with a reason: a retry does not replace it by Pending."""
    extracting: bool = False
    """All blobs are downloaded: ending the pull now would discard more work than it saves."""
    signers: tuple[Signer, ...] = ()
    """The signers of the earlier approval. If the policies no longer accept them, no registry is needed to refuse the
    image."""
    is_approved: bool = False
    """The check of an earlier run approves this digest now: a disk that is still full refuses it without a registry."""
    served_pointer: Pointer | None = None
    """The Ready pointer that stays during verification, and also after a refusal (whenRevoked: keep)."""

    def run(self) -> Failure | None:
        """Pull the cache and write its state to the pointer; return the failure, None on success.

        Raises:
            Superseded: the cache was deleted or changed during the pull.
        """
        try:
            self._run()
        except Superseded:
            raise
        except Exception as error:  # noqa: BLE001 -- a hostile image must fail this cache only, not the agent
            failure = failure_of(error)
            try:
                self._report_failure(failure)
            except Superseded:
                raise
            except Exception as refusal:  # noqa: BLE001 -- an uncounted failure would be retried without a pause
                message = _text(f"{failure.message}; and the pointer was not written: {refusal}")
                failure = Failure(failure_of(refusal).reason, message, transient=True, persisted=False)
            return replace(failure, still_served=self._serves_revoked)
        return None

    @property
    def _serves_revoked(self) -> bool:
        return self.served_pointer is not None

    def _report_failure(self, failure: Failure) -> None:
        if self.served_pointer is None:
            self._report(CacheState.FAILED, failure.reason, failure.message)
            return
        pointer = replace(self.served_pointer, message=serve_revoked_message(failure.reason, failure.message))
        if not is_unchanged(self.served_pointer, pointer):
            self.store.save(pointer, self.token)

    def _run(self) -> None:
        if self.is_approved:
            self.budget.check_refused(self.wanted.ref, self.digest)
        if not (self.failure_reported or self._serves_revoked):
            self._report(CacheState.PENDING, message="reading the image from its registry")
        verdict = self._verify()
        # The image is approved, so an invalid description fails the cache, whether it was served before or not.
        serving, self.served_pointer = self.served_pointer, None
        try:
            image = self.images.describe(self.wanted.image, self.digest)
        except GKMError as error:
            if error.transient:
                self.served_pointer = serving
            raise
        check = self._save_check(image, verdict)
        fit = preflight.check(image.targets, self.inventory.gpus)
        size = self._fetch(image) if fit.fits else None
        self.store.save(verdict_pointer(self.wanted, check, fit, self.inventory, size), self.token)

    def _verify(self) -> Verdict:
        """Return the verdict that approves the image; resolve it, with the credentials of its cache.

        Raises:
            GKMError: verification refuses the image, or the registry does not answer.
        """
        try:
            self.images.check_allowed(self.wanted.image, self.wanted.ref.namespace)
            self.images = self.images.opened_for(self.wanted)
            self.digest = self.digest or self.images.resolve(self.wanted.image)
            verdict = self.images.verify(self.wanted.image, self.digest, self.wanted.ref.namespace)
        except GKMError as error:
            verdict = self._unless_revoked(error)
        if verdict.verified is None and not verdict.allowed:
            undecided = GKMError(verdict.reason, verdict.message, retry_after=verdict.retry_after)
            verdict = self._unless_revoked(undecided)
        if not verdict.allowed:
            raise GKMError(verdict.reason, verdict.message)
        return verdict

    def _unless_revoked(self, error: GKMError) -> Verdict:
        """Return the refusal that needs no registry; without one, raise the error of the registry."""
        undecided = self.digest and error.inconclusive
        image, namespace = self.wanted.image, self.wanted.ref.namespace
        refusal = self.images.revoked(image, self.digest, namespace, self.signers) if undecided else None
        if refusal is None or refusal.allowed:
            raise error
        return refusal

    def _save_check(self, image: CacheImage, verdict: Verdict) -> Approval:
        notice = "" if verdict.verified else verdict.message
        check = Approval(
            self.wanted.image, self.digest, self.policy, image.targets, notice, verdict.signers, self.wanted.uid
        )
        self.store.save_check(check, self.token)
        return check

    def _fetch(self, image: CacheImage) -> int:
        # The pointer names the digest before the job reads the store: from here on the collector leaves the entry.
        self._report(CacheState.DOWNLOADING)
        written = (PullStage.DOWNLOADING, 0)

        def progress(stage: PullStage, percent: int) -> None:
            nonlocal written
            self.token.check()
            self.extracting = stage is PullStage.EXTRACTING
            if stage is not written[0] or percent >= written[1] + _STEP:
                written = (stage, percent)
                self.store.save(replace(self._pointer(_STATES[stage]), progress=percent), self.token)

        with self.store.exclusive_pull(image.ref.name, self.digest, self.token):
            if self.store.catalog.damage_of(self.digest):
                self.store.discard(self.digest, self.wanted.ref.namespace)
            try:
                return self._fetch_entry(image, progress)
            except UnreadableState as damage:
                _LOG.error(
                    "damaged store entry found by a pull, downloaded again",
                    extra=fields(digest=self.digest, why=str(damage)),
                )
            self.store.discard(self.digest, self.wanted.ref.namespace)
            return self._fetch_entry(image, progress)

    def _fetch_entry(self, image: CacheImage, progress: Progress) -> int:
        with self.budget.reserve(self.wanted.ref, image) as reservation:
            return self.images.fetch(image, progress, reservation).size_bytes

    def _report(self, state: CacheState, reason: str = "", message: str = "") -> None:
        self.store.save(self._pointer(state, reason, message), self.token)

    def _pointer(self, state: CacheState, reason: str = "", message: str = "") -> Pointer:
        pointer = make_pointer(self.wanted, self.digest, state, reason, message)
        return replace(pointer, driver_version=self.inventory.driver_version)


def failure_of(error: Exception) -> Failure:
    """Return the Failure for an exception."""
    if isinstance(error, GKMError):
        return Failure(error.reason, _text(str(error)), error.transient, retry_after=error.retry_after)
    if isinstance(error, OSError):
        reason = Reason.DISK_FULL if error.errno in disk_space.FULL else Reason.NODE_ERROR
        return Failure(reason, _text(f"the disk of this node failed: {error}"), transient=True)
    if isinstance(error, UnreadableState):
        return Failure(Reason.NODE_ERROR, _text(f"the state of this node is damaged: {error}"), transient=True)
    return Failure(Reason.NODE_ERROR, _text(f"the agent failed: {type(error).__name__}: {error}"), transient=True)


def _text(message: str) -> str:
    """Return a message that UTF-8 can encode, as a pointer requires; a file name in it may have any bytes."""
    return message.encode("utf-8", "backslashreplace").decode()
