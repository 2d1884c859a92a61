"""Making one cache real: verified, described, judged, fetched. The work of one thread.

It trusts nobody: not the controller's verdict, not what an earlier run found. Every state it passes is on disk before
the next begins, so that it may be killed anywhere.
"""

import errno
import logging
from dataclasses import asdict, dataclass, replace

from gkm.api.errors import GKMError, Reason
from gkm.api.signers import Signer
from gkm.gpus import preflight
from gkm.gpus.values import Inventory
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.cache import CacheImage
from gkm.images.pulling.pull import PullStage
from gkm.images.signatures.verify import Verdict

from gkm_agent.caches.approvals import Check, CheckedTarget
from gkm_agent.caches.decisions import is_unchanged, make_pointer, serve_revoked_message, verdict_pointer
from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.images import CacheImages, Progress
from gkm_agent.store import removal as withdrawal
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.pointers import PointerStore, PullToken, Superseded

_LOG = logging.getLogger(__name__)

_STEP = 10
"""Percentage points between two pointers of one stage: each costs two fsyncs."""
_STATES = {PullStage.DOWNLOADING: CacheState.DOWNLOADING, PullStage.EXTRACTING: CacheState.EXTRACTING}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cache is not there; `transient`: time may mend it."""

    reason: str
    message: str
    transient: bool
    persisted: bool = True
    """Whether the pointer says so; a full disk cannot take it."""
    still_served: bool = False
    """The cache is served on all the same."""


@dataclass(slots=True)
class PullJob:
    """One cache on its way. `digest` is "" where the reference must be resolved first."""

    wanted: WantedCache
    digest: str
    store: PointerStore
    images: CacheImages
    inventory: Inventory
    policy: str
    token: PullToken
    budget: DiskBudget
    failure_reported: bool = False
    """A pointer with a reason stands already: a further try does not hide it behind a Pending of seconds."""
    extracting: bool = False
    """All blobs are here: to end the pull now would throw away more than is left to do."""
    signers: tuple[Signer, ...] = ()
    """By whom this image was let through before: policies that name them no more refuse it, whatever the registry."""
    served_pointer: Pointer | None = None
    """What is Ready and stays so until it is let through anew, and also if it is refused (whenRevoked: keep)."""

    def run(self) -> Failure | None:
        """Bring the cache as far as it goes and write that down; return what went wrong.

        Raises:
            Superseded: nobody wants the result any more.
        """
        try:
            self._run()
        except Superseded:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever an image does to us costs this cache, not the agent
            failure = failure_of(error)
            try:
                self._report_failure(failure)
            except Superseded:
                raise
            except Exception as refused:  # noqa: BLE001 -- a try that nobody counts as one is made again at once
                message = _text(f"{failure.message}; nor can that be noted: {refused}")
                return Failure(
                    failure_of(refused).reason,
                    message,
                    transient=True,
                    persisted=False,
                    still_served=self._serves_revoked,
                )
            return replace(failure, still_served=self._serves_revoked)
        return None

    @property
    def _serves_revoked(self) -> bool:
        return self.served_pointer is not None

    def _report_failure(self, failure: Failure) -> None:
        if self.served_pointer is None:
            self._report(CacheState.FAILED, failure.reason, failure.message)
            return
        said = replace(self.served_pointer, message=serve_revoked_message(failure.reason, failure.message))
        if not is_unchanged(self.served_pointer, said):
            self.store.save(said, self.token)

    def _run(self) -> None:
        if not (self.failure_reported or self._serves_revoked):
            self._report(CacheState.PENDING, message="looking at the image in its registry")
        verdict = self._let_through()
        # From here on it is as with any image that is let through, also where what it says of itself is no good.
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

    def _let_through(self) -> Verdict:
        """Return the verdict that lets the image through, and open it.

        Raises:
            GKMError: it is refused, or the registry does not say.
        """
        try:
            self.images.check_allowed(self.wanted.image, self.wanted.ref.namespace)
            self.images = self.images.opened_for(self.wanted)
            self.digest = self.digest or self.images.resolve(self.wanted.image)
            verdict = self.images.verify(self.wanted.image, self.digest, self.wanted.ref.namespace)
        except GKMError as error:
            verdict = self._unless_revoked(error)
        if verdict.verified is None and not verdict.allowed:
            verdict = self._unless_revoked(GKMError(verdict.reason, verdict.message))
        if not verdict.allowed:
            raise GKMError(verdict.reason, verdict.message)
        return verdict

    def _unless_revoked(self, error: GKMError) -> Verdict:
        """Return the refusal that needs no registry, or raise why the registry did not say."""
        passes = self.digest and (error.transient or error.reason is Reason.UNAUTHORIZED)
        wanted = self.wanted
        refused = self.images.revoked(wanted.image, self.digest, wanted.ref.namespace, self.signers) if passes else None
        if refused is None or refused.allowed:
            raise error
        return refused

    def _save_check(self, image: CacheImage, verdict: Verdict) -> Check:
        targets = tuple(CheckedTarget(**asdict(target)) for target in image.targets)
        notice = "" if verdict.verified else verdict.message
        check = Check(self.wanted.image, self.digest, self.policy, targets, notice, verdict.signers, self.wanted.uid)
        self.store.save_check(check, self.token)
        return check

    def _fetch(self, image: CacheImage) -> int:
        # The pointer names the digest before the store is looked at: from here on nobody collects the entry.
        self._report(CacheState.DOWNLOADING)
        told = (PullStage.DOWNLOADING, 0)

        def progress(stage: PullStage, percent: int) -> None:
            nonlocal told
            if self.token.cancelled:
                raise Superseded(str(self.wanted.ref))
            self.extracting = stage is PullStage.EXTRACTING
            if stage is not told[0] or percent >= told[1] + _STEP:
                told = (stage, percent)
                self.store.save(replace(self._pointer(_STATES[stage]), progress=percent), self.token)

        with self.store.exclusive_pull(image.ref.name, self.digest, self.token):
            if self.store.catalog.damage_of(self.digest):
                withdrawal.discard(self.store, self.digest, self.wanted.ref.namespace)
            try:
                return self._fetch_entry(image, progress)
            except UnreadableState as damage:
                _LOG.error("a store entry is damaged", extra=fields(digest=self.digest, why=str(damage)))
            withdrawal.discard(self.store, self.digest, self.wanted.ref.namespace)
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
    """Return what an exception means for a cache."""
    if isinstance(error, GKMError):
        return Failure(error.reason, _text(str(error)), error.transient)
    if isinstance(error, OSError):
        reason = Reason.DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else Reason.NODE_ERROR
        return Failure(reason, _text(f"the disk of this node refuses: {error}"), transient=True)
    if isinstance(error, UnreadableState):
        return Failure(Reason.NODE_ERROR, _text(f"the state of this node is damaged: {error}"), transient=True)
    return Failure(Reason.NODE_ERROR, _text(f"the agent failed: {type(error).__name__}: {error}"), transient=True)


def _text(message: str) -> str:
    """Return a message as it can be written: a file name in it may be anything, and a pointer is UTF-8."""
    return message.encode("utf-8", "backslashreplace").decode()
