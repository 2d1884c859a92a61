"""What is known of the images of caches: looked at when a cache names another one, and again while time can tell."""

import logging
import time
from collections.abc import Callable

from gkm.api.caches import Cache
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff, TokenBucket
from gkm.kube.workqueue import IMMEDIATELY, Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.caches import status
from gkm_operator.caches.nodes.totals import CacheKey
from gkm_operator.caches.outcome import Outcome, check_image
from gkm_operator.caches.verification import recheck as schedule
from gkm_operator.caches.verification.policy_files import PolicyFileWatcher
from gkm_operator.caches.verification.recheck import NEVER, PER_SECOND, CheckResult, RecheckSchedule
from gkm_operator.images import Images

_LOG = logging.getLogger(__name__)

BACKOFF = Backoff(2.0, 300.0)
WORKERS = 8
PER_NAMESPACE = 2
"""A silent registry holds a worker for half a minute: one tenant's must not hold them all (decisions/0006)."""


class VerificationQueue:
    """The queue that may wait for registries. `found` is told of every cache about whose image something is new.

    Looks are kept by uid: an object that was deleted and made again under its old name starts anew. When one is due
    again, and what must not be overwritten, is in docs/design/verdicts.md.
    """

    def __init__(
        self,
        images: Images,
        get: Callable[[CacheKey], Cache | None],
        found: Callable[[CacheKey], None],
        backoff: Backoff = BACKOFF,
        *,
        again: RecheckSchedule = RecheckSchedule(),  # noqa: B008 -- a frozen value
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._images = images
        self._get = get
        self._found = found
        self._again = again
        self._clock = clock
        self._pace = TokenBucket(1, 1 / PER_SECOND, clock)
        self._round = 0
        self._outcomes: dict[str, CheckResult] = {}
        self.files = PolicyFileWatcher(again.files, self.recheck_all)
        self.queue = WorkQueue(
            "verify",
            self.verify,
            workers=WORKERS,
            backoff=backoff,
            group=lambda key: key.namespace,
            per_group=PER_NAMESPACE,
            observe=metrics.reconcile_recorder("verify"),
        )

    def start(self) -> None:
        """Begin to look at images, and at the files that policies name."""
        self.files.start()
        self.queue.start()

    def close(self, seconds: float) -> None:
        """End within a few seconds."""
        self.files.close()
        self.queue.close(seconds)

    def outcome(self, cache: Cache) -> Outcome | None:
        """Return what came out for a cache, if anything did since this process started that counts for it as it is."""
        known = self._outcomes.get(cache.metadata.uid)
        return known.outcome if known is not None and known.is_current(cache) else None

    def changed(self, key: CacheKey, old: Cache | None, new: Cache) -> None:
        """Take in a cache that is new, or was changed."""
        known = self._outcomes.get(new.metadata.uid)
        if old is None and known is None and status.has_verdict(new):
            # A start: what stands, stands until its turn has come, and what has no answer goes before it.
            self.queue.add(key, self._pace.reserve())
            return
        if old is not None and schedule.check_key(old) != schedule.check_key(new):
            # What failed was another question: its pauses have grown, and this one has not been asked.
            self.queue.forget(key)
            old = None
        if old is None or (known is not None and not known.is_current(new)):
            self.queue.add(key)

    def remove(self, key: CacheKey, old: Cache) -> None:
        """Forget a cache that was deleted."""
        self._outcomes.pop(old.metadata.uid, None)
        self.queue.forget(key)

    def recheck_all(self) -> None:
        """Look at every image anew, one after the other: what their answers depend on has changed."""
        self._round += 1
        for known in list(self._outcomes.values()):
            self.queue.add(known.key, self._pace.reserve())

    def verify(self, key: CacheKey) -> float | None:
        """Find out about the image of a cache; return after how many seconds to look again, None for never.

        Raises:
            Retry: the answer may change with time.
        """
        cache = self._get(key)
        if cache is None or cache.metadata.deletion_timestamp:
            return None
        known = self._outcomes.get(cache.metadata.uid)
        if known is not None and (left := known.seconds_left(cache, self._round, self._clock())):
            return left if left < NEVER else None
        began = self._round
        last = self.outcome(cache)
        outcome = check_image(self._images, cache, status.standing(cache, last))
        pause = self._again.pause(cache) if outcome.settled else 0.0
        due = self._clock() + pause
        self._store(
            key, cache, CheckResult(key, outcome, schedule.check_key(cache), began, status.pinned_digest(cache), due)
        )
        if not outcome.settled:
            raise Retry(outcome.waits or f"{outcome.reason}: {outcome.message}")
        if began != self._round:
            # `all_again` came during the first look at this cache, which it could not know of.
            return IMMEDIATELY
        return pause if pause < NEVER else None

    def _store(self, key: CacheKey, cache: Cache, found: CheckResult) -> None:
        outcome, uid = found.outcome, cache.metadata.uid
        _LOG.info(
            "looked at image",
            extra=fields(
                cache=str(key),
                image=outcome.image,
                digest=outcome.digest,
                verified=outcome.status,
                reason=outcome.reason,
            ),
        )
        self._outcomes[uid] = found
        present = self._get(key)
        if present is None or present.metadata.uid != uid:
            self._outcomes.pop(uid, None)  # deleted meanwhile, perhaps before the line above
            return
        if not found.is_current(present):
            raise Retry("the cache has changed while its image was looked at")
        self._found(key)
