"""One pass over the captures of a namespace: make caches, report, delete caches. One thread at a time per namespace.

A proof may take two minutes, and an owner of a node's token can announce many captures without proof. So the nodes take
turns, and a node whose captures failed often waits, with all that it announces and in all namespaces.

Before a cache ends, the decision is compared with it anew, and a failure delays no other cache.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from gkm.api.config import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Backoff, Clock, TokenBucket
from gkm.images.captured import statement
from gkm.images.captured.statement import CaptureClaim
from gkm.images.reference import Reference
from gkm.images.signatures.verify import VERIFY_SECONDS
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry

from gkm_operator.caches.totals import CacheKey
from gkm_operator.captures.objects import Announcement, CapturedCache, merged_announcements
from gkm_operator.captures.observed import ObservedCaptures
from gkm_operator.captures.retention import Retention, RetentionPlan, RetentionVerdict, next_generation
from gkm_operator.captures.trials import Trials
from gkm_operator.captures.writer import CaptureWriter
from gkm_operator.images import CheckedImages

_LOG = logging.getLogger(__name__)


Prove = Callable[..., datetime]
"""Called as `prove(announced, now, cluster=…)`; checks that the signatures of an image prove what a node announces.

It returns the time of the capture as signers state it: the announced one is not proven. It ends in bounded time.

Raises:
    GKMError: the signatures do not prove it; or, if transient, the registry does not answer.
"""


def prove(images: CheckedImages, announced: Announcement, now: datetime, *, cluster: bool) -> datetime:
    """Check the signatures and the statement of a captured image with the configured registry and policies (Prove)."""
    ref, scope = Reference.parse(announced.image), None if cluster else announced.namespace
    images = images.with_pull_secrets(announced.image, scope, ())
    verdict = images.verify(announced.image, ref.target, scope)
    if verdict.verified is not True:
        # Also where the mode of verification allows the image: what a node claims needs a proof.
        reason = Reason.SIGNATURE_MISSING if verdict.reason is Reason.NOT_REQUIRED else verdict.reason
        raise GKMError(reason, verdict.message)
    images.claims(announced.image, ref.target)
    content, family = announced.content_digest, announced.family
    wanted = CaptureClaim(announced.namespace, announced.hardware.key, content, family, announced.base)
    registry, trusts = images.registry.within(VERIFY_SECONDS), images.verifier.trusts(ref, scope)
    return statement.check(registry, ref, trusts, wanted, now)


FAILURES_AT_ONCE: Final = 16
FAILURE_SECONDS: Final = 600.0
"""How many proofs of a node may fail at once, and the seconds after which one more may fail."""
STABLE_SECONDS: Final = 3600.0
"""If a capture's cache disappears sooner than this after its registration, it is registered less often."""
_NODES: Final = 16_384
_NEVER: Final = float("-inf")


ENDS_PER_PASS: Final = 8
"""Limit of caches that one pass deletes."""
_NEXT_PASS_SECONDS: Final = 1.0

PER_PASS: Final = 8
"""Limit of images that one pass proves; the namespaces take turns."""
PASS_SECONDS: Final = 600.0
SOON_SECONDS: Final = 1.0
BACKOFF: Final = Backoff(30.0, 3600.0)
"""Pauses in seconds between two attempts to register one capture."""
REGISTER_SECONDS: Final = 60.0
"""Seconds after which a pass begins no further proof."""


class AttemptKey(NamedTuple):
    """The key of attempts to register a capture: its name and claim, or a node's name for its faulty announcements."""

    name: str
    claim: object = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last attempt of several; `reason` is its failure's reason, "" after a success."""

    count: int
    time: float
    next_try: float
    reason: str


class _Node:
    def __init__(self, clock: Clock) -> None:
        self.last_attempt = _NEVER
        self.next_try = _NEVER
        # The last failure of a burst takes a token that is to come.
        self.failures = TokenBucket(FAILURES_AT_ONCE - 1, FAILURE_SECONDS, clock)


class Attempts:
    """Remembers attempts to register the captures that nodes announce now, by namespace."""

    def __init__(self, clock: Clock, backoff: Backoff) -> None:
        self._clock = clock
        self._backoff = backoff
        self._attempts: dict[str, dict[AttemptKey, _Attempt]] = {}
        self._nodes: LRUCache[str, _Node] = LRUCache(_NODES)

    def retain_only(self, namespace: str, keys: Collection[AttemptKey]) -> None:
        """Forget the attempts of a namespace whose keys are not in `keys`."""
        known = self._attempts.pop(namespace, {})
        if found := {key: known[key] for key in known.keys() & set(keys)}:
            self._attempts[namespace] = found

    def due(self, announced: Iterable[Announcement]) -> list[tuple[str, Announcement]]:
        """Return the captures whose registration may be tried now, each with the node that is charged for a failure.

        The first of each node come before the second ones, and the node that waits longest comes first. For one node,
        captures that were never tried come first, the newest at first, then the longest waiting.
        """
        found: dict[str, list[Announcement]] = {}
        for each in sorted(announced, key=lambda each: (self._last(each), -each.time.timestamp(), each.name)):
            if self.wait(each) <= 0:
                nodes = [node for node in each.nodes if not self.is_paused(node)]
                found.setdefault(min(nodes, key=self._waits), []).append(each)
        ranked = [(rank, node, each) for node, listed in found.items() for rank, each in enumerate(listed)]
        ranked.sort(key=lambda each: (each[0], self._waits(each[1])))
        return [(node, each) for _, node, each in ranked]

    def is_paused(self, node: str) -> bool:
        """Return whether a node must wait because too many proofs of its captures have failed recently."""
        return self._node(node).next_try > self._clock()

    def next_try(self, namespace: str, key: AttemptKey) -> float:
        """Return the monotonic time in seconds of the next try for a capture; minus infinity before the first try."""
        known = self._attempts.get(namespace, {}).get(key)
        return _NEVER if known is None else known.next_try

    def wait(self, announced: Announcement) -> float:
        """Return the seconds until the registration of a capture may be tried; 0 or less means now."""
        nodes = min((self._node(node).next_try for node in announced.nodes), default=_NEVER)
        return max(nodes, self.next_try(announced.namespace, key_of(announced))) - self._clock()

    def begin(self, node: str) -> None:
        """Record that an attempt begins whose failure is charged to a node."""
        self._node(node).last_attempt = self._clock()

    def succeeded(self, namespace: str, key: AttemptKey) -> None:
        """Record that a capture was registered; if its object is deleted repeatedly, the next pauses grow."""
        before, now = self._attempts.get(namespace, {}).get(key), self._clock()
        repeated = before is not None and not before.reason and now - before.next_try <= STABLE_SECONDS
        self._record(namespace, key, before.count + 1 if before is not None and repeated else 1, "")

    def failed(self, namespace: str, key: AttemptKey, error: GKMError) -> bool:
        """Record that a registration failed; return whether the reason differs from the last one."""
        before = self._attempts.get(namespace, {}).get(key)
        reason = error.reason.value
        self._record(namespace, key, before.count + 1 if before is not None and before.reason else 1, reason)
        return before is None or before.reason != reason

    def charge(self, node: str) -> None:
        """Record that the proof of a node's capture failed; after too many, all captures of the node wait."""
        known = self._node(node)
        known.next_try = self._clock() + known.failures.reserve()

    def _record(self, namespace: str, key: AttemptKey, count: int, reason: str) -> None:
        now = self._clock()
        made = _Attempt(count, now, now + self._backoff.pause(count), reason)
        self._attempts.setdefault(namespace, {})[key] = made

    def _last(self, announced: Announcement) -> float:
        known = self._attempts.get(announced.namespace, {}).get(key_of(announced))
        return _NEVER if known is None else known.time

    def _waits(self, node: str) -> tuple[float, str]:
        return self._node(node).last_attempt, node

    def _node(self, name: str) -> _Node:
        return self._nodes.get_or_create(name, lambda: _Node(self._clock))


def key_of(announced: Announcement) -> AttemptKey:
    """Return the key for attempts to register a capture; it does not depend on the node or the time."""
    return AttemptKey(announced.name, announced.claim)


@dataclass(frozen=True, slots=True)
class _EndAttempt:
    count: int
    next_try: float


class CaptureEnder:
    """Deletes the cache objects of captures past retention. One thread at a time."""

    def __init__(self, observed: ObservedCaptures, writer: CaptureWriter, *, clock: Clock, backoff: Backoff) -> None:
        self._observed = observed
        self._writer = writer
        self._clock = clock
        self._backoff = backoff
        self._attempts: dict[str, dict[str, _EndAttempt]] = {}
        """By namespace and uid, of the caches that are to end now."""

    def end(self, namespace: str, ended: Sequence[RetentionVerdict]) -> tuple[str, float]:
        """Delete caches of a namespace; return which one changed since the decision, and the seconds until the next.

        The latter is in seconds. Without an attempt they are "" and infinite. Caches that were tried before come last.
        Each attempt begins a pause, also a successful one: an object with finalizers stays.
        """
        uids = {verdict.cache.uid for verdict in ended}
        attempts = {uid: each for uid, each in self._attempts.pop(namespace, {}).items() if uid in uids}
        if uids:
            self._attempts[namespace] = attempts
        now = self._clock()
        next_try = {uid: each.next_try for uid, each in attempts.items()}
        due = [verdict for verdict in ended if next_try.get(verdict.cache.uid, now) <= now]
        due.sort(key=lambda verdict: next_try.get(verdict.cache.uid, float("-inf")))
        unchanged = [verdict for verdict in due if self._observed.is_unchanged(verdict.cache)]
        changed = [verdict for verdict in due if verdict not in unchanged]
        for verdict in unchanged[:ENDS_PER_PASS]:
            self._end(verdict)
            uid = verdict.cache.uid
            count = attempts[uid].count + 1 if uid in attempts else 1
            attempts[uid] = _EndAttempt(count, self._clock() + self._backoff.pause(count))
        pauses = [each.next_try - self._clock() for each in attempts.values()]
        if len(unchanged) > ENDS_PER_PASS:
            pauses.append(0.0)
        why = f"{changed[0].cache.key} has changed since" if changed else ""
        return why, max(_NEXT_PASS_SECONDS, min(pauses, default=float("inf")))

    def _end(self, verdict: RetentionVerdict) -> None:
        logged = fields(cache=str(verdict.cache.key), reason=verdict.reason.value)
        try:
            self._writer.end(verdict)
        except ApiError as error:
            _LOG.warning("captured cache not deleted, tried again", extra=logged | fields(why=str(error)))
            return
        _LOG.info("captured cache deleted", extra=logged)


class CapturesReconciler:
    """Makes and deletes the caches of a namespace's captures; `publish` gets the verdicts on them."""

    def __init__(
        self,
        observed: ObservedCaptures,
        prove: Prove,
        writer: CaptureWriter,
        registry: str,
        settings: CapturedCaches,
        *,
        publish: Callable[[str, RetentionPlan], None],
        trials: Trials,
        now: Callable[[], datetime],
        clock: Clock = time.monotonic,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._observed = observed
        self._prove = prove
        self._writer = writer
        self._trials = trials
        self._registry = registry
        self._settings = settings
        self._publish = publish
        self._now = now
        self._clock = clock
        self._retention = Retention(settings, observed.named_by_user_cache, self._extends_member)
        self._ender = CaptureEnder(observed, writer, clock=clock, backoff=backoff)
        self._attempts = Attempts(clock, backoff)

    def reconcile(self, namespace: str) -> float | None:
        """Do the due work for a namespace's captures; return the seconds until the next pass, None if no pass is due.

        Raises:
            Retry, ApiError: a write has to be repeated.
        """
        now, cluster = self._now(), self._settings.are_for_cluster(namespace)
        announced, faults = merged_announcements(namespace, self._observed.announced(namespace), self._registry, now)
        self._attempts.retain_only(namespace, [*map(key_of, announced), *(AttemptKey(fault.node) for fault in faults)])
        for fault in faults:
            if self._attempts.next_try(namespace, AttemptKey(fault.node)) <= self._clock():
                error = GKMError(fault.reason, fault.message)
                self._refuse(namespace, AttemptKey(fault.node), fault.node, "an announcement", error)
        registered = self._observed.registered(namespace)
        plan = self._retention.plan(announced, registered, now, cluster=cluster)
        self._publish(namespace, plan)
        offered = [each for each in registered if bool(each.key.namespace) is not cluster]
        next_check = self._trials.check(namespace, offered, now, cluster=cluster)
        for verdict in (*plan.retained, *plan.ended):
            self._writer.emit_registered(verdict.cache, now)
        # Before the proofs, which take minutes: the decision is of now.
        changed, next_end = self._ender.end(namespace, plan.ended)
        due = self._attempts.due(plan.register)
        done = self._register(due[:PER_PASS], cluster=cluster)
        if changed:
            raise Retry(changed)
        if len(due) > done:
            return SOON_SECONDS
        return min(next_end, next_check, self._pause(plan, now)) if announced or registered else None

    def _register(self, due: Sequence[tuple[str, Announcement]], *, cluster: bool) -> int:
        """Register announced captures, each on account of a node; return how many of them were tried in the time.

        A later one of the same name, or of the same family and hardware, waits for the next pass.
        """
        done: set[object] = set()
        end = self._clock() + REGISTER_SECONDS
        for number, (node, announced) in enumerate(due):
            if self._clock() >= end:
                return number
            slot = announced.group if announced.family else announced.name
            if slot in done or self._attempts.is_paused(node):
                continue
            namespace, key = announced.namespace, key_of(announced)
            self._attempts.begin(node)
            try:
                self._check_name(announced, cluster=cluster)
                if announced.family and not self._fits(
                    announced, self._registered(announced, cluster=cluster), cluster=cluster
                ):
                    # No refusal: it was a generation, or waits for its node to pack it again on top of one.
                    self._attempts.failed(namespace, key, GKMError(Reason.NOT_REQUIRED, "it is no next generation"))
                    continue
                self._register_proven(self._proven(node, announced, cluster=cluster), cluster=cluster)
            except GKMError as error:
                self._refuse(namespace, key, node, announced.name, error)
                continue
            done.add(slot)
            self._attempts.succeeded(namespace, key)
            _LOG.info("capture registered as a cache", extra=fields(namespace=namespace, cache=announced.name))
        return len(due)

    def _proven(self, node: str, announced: Announcement, *, cluster: bool) -> Announcement:
        """Return an announced capture as its signatures prove it: with the signed time, which decides from now on."""
        try:
            return replace(announced, time=self._prove(announced, self._now(), cluster=cluster))
        except GKMError:
            # Only this: a user of the namespace, who has no part in what the node announces, can cause the others.
            self._attempts.charge(node)
            raise

    def _register_proven(self, proven: Announcement, *, cluster: bool) -> None:
        """Make the cache of a proven capture, if it would stay. Its generation is after those that the server has."""
        registered = self._registered(proven, cluster=cluster)
        if not self._fits(proven, registered, cluster=cluster):
            message = (
                f"it is from {timestamp(proven.time)}, as its signers state: too old, or newer captures have caches"
            )
            raise GKMError(Reason.NOT_REQUIRED, message)
        others = self._observed.numbers_of_users(self._family(proven)) if proven.family else []
        generation = next_generation(proven, registered, others) if proven.family else None
        self._writer.register(proven, generation, cluster=cluster)

    def _registered(self, announced: Announcement, *, cluster: bool) -> Sequence[CapturedCache]:
        if announced.family:
            return self._writer.registered(announced.namespace, cluster=cluster)
        return self._observed.registered(announced.namespace)

    def _fits(self, announced: Announcement, registered: Sequence[CapturedCache], *, cluster: bool) -> bool:
        return bool(self._retention.plan([announced], registered, self._now(), cluster=cluster).register)

    def _extends_member(self, announced: Announcement) -> bool:
        return bool(announced.base) and self._observed.has_member(self._family(announced), announced.base)

    def _family(self, announced: Announcement) -> CacheKey:
        is_shared = self._settings.are_for_cluster(announced.namespace)
        return CacheKey("" if is_shared else announced.namespace, announced.family)

    def _check_name(self, announced: Announcement, *, cluster: bool) -> None:
        """Refuse a name that an object has: a registered capture is not among those to register."""
        if self._observed.get(CacheKey("" if cluster else announced.namespace, announced.name)) is not None:
            raise GKMError(Reason.NOT_ALLOWED, "a cache of this name exists, which a user created")

    def _refuse(self, namespace: str, key: AttemptKey, node: str, name: str, error: GKMError) -> None:
        is_new = self._attempts.failed(namespace, key, error)
        _LOG.warning(
            "capture not registered as a cache",
            extra=fields(namespace=namespace, node=node, capture=name, reason=error.reason.value, why=str(error)),
        )
        if is_new:
            self._writer.refused(self._observed.report_of(namespace, node), name, error)

    def _pause(self, plan: RetentionPlan, now: datetime) -> float:
        """Return the seconds until something can change without a change of an object."""
        waits = [PASS_SECONDS]
        for each in plan.register:
            wait = self._attempts.wait(each)
            if wait > 0:
                waits.append(wait)
        if plan.next_change is not None:
            waits.append((plan.next_change - now).total_seconds())
        return max(SOON_SECONDS, min(waits))
