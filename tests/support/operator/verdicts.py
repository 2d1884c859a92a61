"""A cache and its controller's parts on one thread, over images in memory: each look is written as the leader does."""

from dataclasses import dataclass, field

from gkm.api.caches import CacheSpec, CacheStatus, GKMCache, UpdatePolicy
from gkm.api.meta import Condition, ObjectMeta
from gkm.kube.events import EventBody
from gkm.kube.workqueue import Retry
from gkm_operator.caches.status import desired_status, events_of
from gkm_operator.caches.totals import CacheKey, CacheSummary
from gkm_operator.caches.verification import RecheckSchedule, VerificationQueue
from msgspec import structs
from support.operator.images import DIGEST, GOOD, OTHER, FakeImages

IMAGE = "registry.test/team/cache:1"
KEY = CacheKey("a", "x")
NOW = "2026-01-01T00:00:00Z"
PINNED, TRACKED = UpdatePolicy(), UpdatePolicy("Track", "15m")


@dataclass
class CheckedCache:
    """`look` is one turn of the queue: verify, and write what comes of it. `now` are monotonic seconds."""

    policy: UpdatePolicy = TRACKED
    schedule: RecheckSchedule = field(default_factory=RecheckSchedule)
    images: FakeImages = field(default_factory=lambda: FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD, OTHER: GOOD}))
    summary: CacheSummary = field(default_factory=CacheSummary)
    told: list[EventBody] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        meta = ObjectMeta(name="x", namespace="a", uid="u", generation=1)
        self.cache = GKMCache(meta, CacheSpec(IMAGE, update_policy=self.policy))
        self.restart()

    def restart(self) -> None:
        """Forget everything but the object."""
        self.verification = VerificationQueue(
            self.images, lambda _: self.cache, lambda _: None, schedule=self.schedule, clock=lambda: self.now
        )

    def check(self) -> float | str | None:
        """Return when the queue is to come back, or why it is to try again."""
        try:
            schedule: float | str | None = self.verification.verify(KEY)
        except Retry as retry:
            schedule = str(retry)
        self.write()
        return schedule

    def write(self) -> None:
        """Write the status if it has changed, and record the Events of the change."""
        new = desired_status(self.cache, self.verification.outcome(self.cache), self.summary, NOW)
        if new is not None and new != self.cache.status:
            self.told += events_of(self.cache.status, new)
            self.cache = structs.replace(self.cache, status=new)

    def spec(self, **changes: object) -> None:
        """Change the spec, as a person does."""
        old = self.cache
        meta = structs.replace(old.metadata, generation=old.metadata.generation + 1)
        self.cache = structs.replace(old, metadata=meta, spec=structs.replace(old.spec, **changes))
        self.verification.changed(KEY, old, self.cache)

    @property
    def status(self) -> CacheStatus:
        return self.cache.status

    @property
    def verified(self) -> Condition:
        found = self.cache.status.condition("Verified")
        assert found is not None
        return found

    def reasons(self) -> list[tuple[str, str]]:
        """Return the reasons of the Events, in order."""
        return [(told.kind, told.reason) for told in self.told]
