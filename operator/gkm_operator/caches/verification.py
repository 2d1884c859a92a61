"""What is known of the images of caches: looked at when a cache names another one, and again while time can tell."""

import logging
from collections.abc import Callable

from gkm.api.caches import Cache
from gkm.hoststate.logs import fields
from gkm.kube.backoff import Backoff
from gkm.kube.workqueue import Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.caches import status
from gkm_operator.caches.outcome import Outcome, look
from gkm_operator.caches.tally import CacheKey
from gkm_operator.images import Images

_LOG = logging.getLogger(__name__)

BACKOFF = Backoff(2.0, 300.0)
WORKERS = 8
PER_NAMESPACE = 2
"""A silent registry holds a worker for half a minute: one tenant's must not hold them all (decisions/0006)."""


class Verification:
    """The queue that may wait for registries. `found` is told of every cache about whose image something is new.

    Outcomes are kept by uid: an object that was deleted and made again under its old name starts anew.
    """

    def __init__(
        self,
        images: Images,
        get: Callable[[CacheKey], Cache | None],
        found: Callable[[CacheKey], None],
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._images = images
        self._get = get
        self._found = found
        self._outcomes: dict[str, Outcome] = {}
        self.queue = WorkQueue(
            "verify",
            self.verify,
            workers=WORKERS,
            backoff=backoff,
            group=lambda key: key.namespace,
            per_group=PER_NAMESPACE,
            observe=metrics.reconciled("verify"),
        )

    def outcome(self, cache: Cache) -> Outcome | None:
        """Return what came out for a cache, if anything did since this process started."""
        return self._outcomes.get(cache.metadata.uid)

    def changed(self, key: CacheKey, old: Cache | None, new: Cache) -> None:
        """Take in a cache that is new, or was changed."""
        if old is None or _asked(old) != _asked(new):
            self.queue.add(key)

    def gone(self, key: CacheKey, old: Cache) -> None:
        """Forget a cache that was deleted."""
        self._outcomes.pop(old.metadata.uid, None)
        self.queue.forget(key)

    def verify(self, key: CacheKey) -> None:
        """Find out about the image of a cache.

        Raises:
            Retry: the answer may change with time.
        """
        cache = self._get(key)
        if cache is None or cache.metadata.deletion_timestamp:
            return
        known = self.outcome(cache)
        if known is not None and known.image == cache.spec.image and known.settled:
            return
        outcome = look(self._images, cache, status.resolved(cache, known))
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
        uid = cache.metadata.uid
        self._outcomes[uid] = outcome
        present = self._get(key)
        if present is None or present.metadata.uid != uid:
            self._outcomes.pop(uid, None)  # deleted meanwhile, perhaps before the line above
            return
        self._found(key)
        if not outcome.settled:
            raise Retry(f"{outcome.reason}: {outcome.message}")


def _asked(cache: Cache) -> tuple[object, ...]:
    """Return what of a cache the registry is asked about, and as whom."""
    return cache.spec.image, cache.spec.image_pull_secrets
