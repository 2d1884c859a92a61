"""The queue of images to verify: after a change of a cache, and again if the result can change with time.

The files that policies name are checked on an interval, so that a removed key takes effect at once.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gkm.api.caches import Cache
from gkm.api.policies import Verification
from gkm.api.watched_caches import oversized
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff, TokenBucket
from gkm.images.signatures.trust_material import fingerprint
from gkm.kube.workqueue import IMMEDIATELY, Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.caches import status
from gkm_operator.caches.outcome import Outcome, check_image
from gkm_operator.caches.totals import CacheKey
from gkm_operator.images import Images

_LOG = logging.getLogger(__name__)


NEVER = float("inf")
PER_SECOND = 50.0
"""Caches per second that are scheduled when all are verified again: 20,000 take 7 minutes."""
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class RecheckSchedule:
    """When images are verified again: the configured interval in seconds (0: never), and the files of policies."""

    seconds: float = 0.0
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, verification: Verification) -> "RecheckSchedule":
        """Return the configured schedule of rechecks; in the mode `off` there are no rechecks."""
        if verification.mode == "off":
            return cls()
        return cls(verification.recheck_interval, tuple(sorted(set(verification.files()))))

    def pause(self, cache: Cache) -> float:
        """Return the seconds until a cache's image is verified again, with jitter; NEVER (infinite) without a recheck.

        With the update policy Track, the interval of the cache applies if it is shorter.
        """
        policy = cache.spec.update_policy
        wanted = min(self.seconds or NEVER, policy.seconds if policy.tracks else NEVER)
        return wanted * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 -- spreads load only


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of a check of a cache's image, and the state of the cache that it was made from.

    `checked` are the fields of the cache that the check used, `generation` counts events that outdate every result,
    `pinned` is the digest in the status when the check began, `due` is the time of the recheck (monotonic seconds).
    """

    key: CacheKey
    outcome: Outcome
    checked: tuple[object, ...]
    generation: int
    pinned: str | None
    due: float

    def is_current(self, cache: Cache) -> bool:
        """Return whether the outcome is still about the cache's present state.

        It is not if the cache names another image, or if its status has a digest that is not the check's first or last
        digest: then another process, the next leader, has written a newer result.
        """
        return self.outcome.image == cache.spec.image and status.pinned_digest(cache) in (
            self.pinned,
            self.outcome.digest,
        )

    def remaining_seconds(self, cache: Cache, generation: int, now: float) -> float:
        """Return the seconds until the next check; 0 if it is due now."""
        if not self.is_current(cache) or (self.checked, self.generation) != (check_key(cache), generation):
            return 0.0
        return max(0.0, self.due - now)


def check_key(cache: Cache) -> tuple[object, ...]:
    """Return a value that changes when the image of a cache must be checked again."""
    return cache.spec.image, cache.spec.image_pull_secrets, cache.spec.update_policy, bool(oversized(cache))


BACKOFF = Backoff(2.0, 300.0)
WORKERS = 8
PER_NAMESPACE = 2
"""Workers that one namespace may use: a silent registry blocks a worker for half a minute (docs/decisions/0006)."""
FILES_SECONDS = 10.0
"""Seconds between two checks whether policy files changed."""
_ALL_FILES = "all"


class VerificationQueue:
    """Verifies images in worker threads, which may wait for registries; `on_result` gets each cache with a new result.

    Results are stored by uid: an object that was deleted and created again under its old name starts anew.
    docs/reference/verdicts.md states when a recheck is due, and which results must not be overwritten.
    """

    def __init__(
        self,
        images: Images,
        get: Callable[[CacheKey], Cache | None],
        on_result: Callable[[CacheKey], None],
        backoff: Backoff = BACKOFF,
        *,
        schedule: RecheckSchedule = RecheckSchedule(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._images = images
        self._get = get
        self._on_result = on_result
        self._schedule = schedule
        self._clock = clock
        self._rate_limiter = TokenBucket(1, 1 / PER_SECOND, clock)
        self._generation = 0
        self._outcomes: dict[str, CheckResult] = {}
        self._checked_files = fingerprint(schedule.files)
        self._files_queue = WorkQueue("policy-files", self.check_files, workers=1)
        self.queue = WorkQueue(
            "verify",
            self.verify,
            workers=WORKERS,
            backoff=backoff,
            group=lambda key: key.namespace,
            per_group=PER_NAMESPACE,
            observe=metrics.reconcile_recorder("verify"),
        )

    @property
    def queues(self) -> list[WorkQueue[Any]]:
        """Return the work queues: one of caches, and one of policy files if policies name files."""
        return [self.queue, *([self._files_queue] if self._schedule.files else [])]

    def begin(self) -> None:
        """Schedule the first check of the policy files, if policies name any. Call it before the queues start."""
        self._files_queue.add(_ALL_FILES)

    def outcome(self, cache: Cache) -> Outcome | None:
        """Return the outcome of this process's last check, if it is about the present state of the cache; else None."""
        last_result = self._outcomes.get(cache.metadata.uid)
        return last_result.outcome if last_result is not None and last_result.is_current(cache) else None

    def changed(self, key: CacheKey, old: Cache | None, new: Cache) -> None:
        """Schedule the verification of a new or changed cache if its image must be checked."""
        last_result = self._outcomes.get(new.metadata.uid)
        if old is None and last_result is None and status.has_verdict(new):
            # At a start the verdict in the status remains until its recheck; caches without a verdict go first.
            self.queue.add(key, self._rate_limiter.reserve())
            return
        if old is not None and check_key(old) != check_key(new):
            # The earlier failures and their growing pauses belong to another image.
            self.queue.forget(key)
            old = None
        if old is None or (last_result is not None and not last_result.is_current(new)):
            self.queue.add(key)

    def remove(self, key: CacheKey, old: Cache) -> None:
        """Drop the outcome of a deleted cache and its retries."""
        self._outcomes.pop(old.metadata.uid, None)
        self.queue.forget(key)

    def check_files(self, _: str = _ALL_FILES) -> float:
        """Verify every image again if a policy file has changed.

        Return the seconds until the next check of the files.
        """
        files = fingerprint(self._schedule.files)
        if files != self._checked_files:
            self._checked_files = files
            names = list(self._schedule.files)
            _LOG.info("policy files changed; every image is verified again", extra=fields(files=names))
            self.recheck_all()
        return FILES_SECONDS

    def recheck_all(self) -> None:
        """Schedule every image for verification, spread over time, because policy files have changed."""
        self._generation += 1
        for last_result in list(self._outcomes.values()):
            self.queue.add(last_result.key, self._rate_limiter.reserve())

    def verify(self, key: CacheKey) -> float | None:
        """Verify the image of a cache; return the seconds until the next check, None without a next check.

        Raises:
            Retry: the result may change with time; not before the pause that the registry requested, because the
                queues of all caches would go on to burden an overloaded one.
        """
        cache = self._get(key)
        if cache is None or cache.metadata.deletion_timestamp:
            return None
        last_result = self._outcomes.get(cache.metadata.uid)
        if last_result is not None and (
            remaining := last_result.remaining_seconds(cache, self._generation, self._clock())
        ):
            return remaining if remaining < NEVER else None
        generation = self._generation
        last = self.outcome(cache)
        outcome = check_image(self._images, cache, status.current_image(cache, last))
        pause = self._schedule.pause(cache) if outcome.settled else 0.0
        due = self._clock() + pause
        self._store(cache, CheckResult(key, outcome, check_key(cache), generation, status.pinned_digest(cache), due))
        if not outcome.settled:
            raise Retry(outcome.waiting_for or f"{outcome.reason}: {outcome.message}", outcome.retry_after)
        if generation != self._generation:
            # `recheck_all` came during the first check of this cache, which was not in its list yet.
            return IMMEDIATELY
        return pause if pause < NEVER else None

    def _store(self, cache: Cache, result: CheckResult) -> None:
        key, outcome, uid = result.key, result.outcome, cache.metadata.uid
        _LOG.info(
            "signatures of a cache image checked",
            extra=fields(
                cache=str(key),
                image=outcome.image,
                digest=outcome.digest,
                verified=outcome.status,
                reason=outcome.reason,
            ),
        )
        self._outcomes[uid] = result
        present = self._get(key)
        if present is None or present.metadata.uid != uid:
            self._outcomes.pop(uid, None)  # the cache was deleted meanwhile
            return
        if not result.is_current(present):
            raise Retry("the cache changed during the check of its image")
        self._on_result(key)
