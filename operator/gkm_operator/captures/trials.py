"""Holds back a generation that makes pods fail more often than the one before it. It never writes.

A generation is on trial from the first pass in which three pods use it, for half an hour. Meanwhile the pods of its
namespace are listed once a minute. They are not watched: no selector of the API finds pods that use a cache, so that a
watch would deliver every pod of the cluster forever. Node objects say which generation a pod mounts; they are read for
the nodes of failing pods only.

Only pods of the namespace that compiled the kernels are included: pods of another namespace could take a cluster-wide
generation from all users.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from gkm.api.caches import HELD_BACK
from gkm.api.meta import FALSE, TRUE, utc_time
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, Resource
from msgspec import Struct, field

from gkm_operator.caches.status import ConditionValue
from gkm_operator.caches.totals import CacheKey
from gkm_operator.captures.objects import CapturedCache
from gkm_operator.pods import LISTED_PODS, ListedPod, Terminated

_LOG = logging.getLogger(__name__)
FAILURE_SECONDS: Final = 600.0
"""Seconds after which a container has used its kernels, so that a later failure has another cause."""
LEAST_PODS: Final = 3
CHECK_SECONDS: Final = 60.0
TRIAL_SECONDS: Final = 1800.0
NEW_SECONDS: Final = 86_400.0
"""Limit of age in seconds of a generation on trial: a restarted process does not judge old ones again."""
UNKNOWN_SHARE: Final = 0.5
"""The share of failed pods to report for a generation that an earlier process held back."""
MAX_NODES: Final = 64
"""Limit of node objects that one check reads."""
_TRIALS: Final = 16_384


class HeldBackReason(StrEnum):
    """Reasons of the condition HeldBack of a generation (docs/reference/reasons.md)."""

    PODS_FAILED = "PodsFailed"
    NOT_WORSE = "NotWorse"
    PINNED = "Pinned"


def has_failed(pod: ListedPod) -> bool:
    """Return whether a container of a pod failed soon after its start, and not because the pod was deleted."""
    states = (each for found in pod.containers for each in (found.state, found.last_state))
    ended = any(each.terminated is not None and _failed_early(each.terminated) for each in states)
    return ended and not pod.metadata.terminating


def _failed_early(ended: Terminated) -> bool:
    began, end = utc_time(ended.started_at), utc_time(ended.finished_at)
    if not ended.exit_code or began is None or end is None:
        return False
    return (end - began).total_seconds() <= FAILURE_SECONDS


class _Use(Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""


class _Mounted(Struct, frozen=True, gc=False):
    pods: tuple[_Use, ...] = ()


class _Mounts(Struct, frozen=True, gc=False):
    caches: dict[str, _Mounted] = field(default_factory=dict)


class NodeMounts(Struct, frozen=True, gc=False):
    """A GKMCacheNode or ClusterGKMCacheNode, reduced to the pods that mount each cache on the node."""

    status: _Mounts = _Mounts()


class Tally(NamedTuple):
    """How many pods mount a generation of a family, and how many of these pods failed."""

    failed: int
    pods: int

    @property
    def share(self) -> float:
        """Return the share of pods that failed, from 0 to 1."""
        return self.failed / max(self.failed, self.pods, 1)


def is_worse(newer: Tally, older: Tally) -> bool:
    """Return whether the newer generation makes so many more pods fail than the older one that it must be held back."""
    return newer.failed >= LEAST_PODS and newer.failed > older.failed and newer.share > older.share


@dataclass(frozen=True)
class FailedPods:
    """Reads from the API server which pods failed, and which caches they mount."""

    api: Api

    def by_cache(self, namespace: str, *, cluster: bool) -> Mapping[str, int]:
        """Return the number of failed pods of a namespace by the name of the cache that they mount.

        Raises:
            ApiError: the API server does not answer.
        """
        nodes: dict[str, set[str]] = defaultdict(set)
        for page in self.api.list_pages(LISTED_PODS, ListSelector(namespace)):
            for pod in (entry.value for entry in page.entries):
                if pod.spec.node_name and has_failed(pod):
                    nodes[pod.spec.node_name].add(pod.metadata.name)
        if sum(map(len, nodes.values())) < LEAST_PODS:
            return {}
        found: dict[str, int] = defaultdict(int)
        for node in sorted(nodes, key=lambda node: (-len(nodes[node]), node))[:MAX_NODES]:
            for name, mounted in self._mounts(node, "" if cluster else namespace).items():
                found[name] += len({use.name for use in mounted.pods if use.namespace == namespace} & nodes[node])
        return found

    def _mounts(self, node: str, namespace: str) -> Mapping[str, _Mounted]:
        resource: Resource[Any] = (GKMCACHENODES if namespace else CLUSTERGKMCACHENODES).of(NodeMounts)
        selector = ListSelector(namespace, fields=f"metadata.name={node}")
        listed = (entry.value for page in self.api.list_pages(resource, selector) for entry in page.entries)
        return next((each.status.caches for each in listed), {})


class Trials:
    """Judges whether new generations of families make pods fail; `changed` gets each cache with a new verdict.

    One thread checks; any thread may ask for a condition.
    """

    def __init__(self, failed: FailedPods, clock: Clock, changed: Callable[[CacheKey], object]) -> None:
        self._failed = failed
        self._clock = clock
        self._changed = changed
        self._began: LRUCache[str, float] = LRUCache(_TRIALS)
        self._shares: LRUCache[str, float] = LRUCache(_TRIALS)
        self._next: LRUCache[str, float] = LRUCache(_TRIALS)
        """By namespace: before which time its pods are not listed again."""
        self._verdicts: LRUCache[str, ConditionValue] = LRUCache(_TRIALS)
        """By uid, of this process: what was found not to be the cause is not held back again."""

    def check(self, namespace: str, offered: Iterable[CapturedCache], now: datetime, *, cluster: bool) -> float:
        """Judge the generations on trial in a namespace; return the seconds until the next check."""
        families = [family for family in _families(offered) if self._is_on_trial(family, now)]
        if not families:
            return float("inf")
        wait = (self._next.get(namespace) or 0.0) - self._clock()
        if wait > 0:
            return wait
        self._next.put(namespace, self._clock() + CHECK_SECONDS)
        try:
            failed = self._failed.by_cache(namespace, cluster=cluster)
        except ApiError as error:
            _LOG.warning(
                "failed pods of captured caches not read, tried again",
                extra=fields(namespace=namespace, why=str(error)),
            )
            return CHECK_SECONDS
        for family in families:
            tallies = [Tally(failed.get(each.key.name, 0), each.pods_using) for each in family]
            self._judge(family, tallies)
        return CHECK_SECONDS

    def condition(self, cache: CapturedCache) -> ConditionValue | None:
        """Return the condition HeldBack for a cache; None if this process does not change it."""
        if not cache.pinned:
            return self._verdicts.get(cache.uid)
        # The user who pins a generation decides, also after the pin is removed.
        self._verdicts.remove(cache.uid)
        return (
            ConditionValue(HELD_BACK, FALSE, HeldBackReason.PINNED, "spec.pinned is true") if cache.held_back else None
        )

    def is_held(self, cache: CapturedCache) -> bool:
        """Return whether a generation is held back, so that nodes take it last; thread-safe."""
        verdict = self._verdicts.get(cache.uid)
        return not cache.pinned and (cache.held_back if verdict is None else verdict.status == TRUE)

    def _is_on_trial(self, family: Sequence[CapturedCache], now: datetime) -> bool:
        """Return whether the generation that nodes take is new, has enough pods, and had them not long enough."""
        tried = next((each for each in family if not self.is_held(each)), None)
        created = utc_time(family[0].created)
        if tried is None or len(family) == 1 or tried.pods_using < LEAST_PODS:
            return False
        if created is None or (now - created).total_seconds() > NEW_SECONDS:
            return False
        began = self._began.get_or_create(tried.uid, self._clock)
        return self._clock() - began <= TRIAL_SECONDS

    def _judge(self, family: Sequence[CapturedCache], tallies: Sequence[Tally]) -> None:
        # The oldest first: one on top of a bad one is compared with what is before both.
        for number in range(len(family) - 2, -1, -1):
            older = next((n for n in range(number + 1, len(family)) if not self.is_held(family[n])), None)
            if older is None or family[number].pinned:
                continue
            if self.is_held(family[number]):
                self._free(family[number], tallies[older])
            elif self._verdicts.get(family[number].uid) is None:
                self._hold(family[number], tallies[number], family[older], tallies[older])

    def _hold(self, newer: CapturedCache, tally: Tally, older: CapturedCache, before: Tally) -> None:
        if is_worse(tally, before):
            self._shares.put(newer.uid, tally.share)
            beside = f"and {_words(before)} of generation {older.generation}"
            why = f"{_words(tally)} ended with an error soon, {beside}"
            self._record(newer, TRUE, HeldBackReason.PODS_FAILED, why)

    def _free(self, newer: CapturedCache, before: Tally) -> None:
        if before.failed >= LEAST_PODS and before.share >= (self._shares.get(newer.uid) or UNKNOWN_SHARE):
            why = f"it is not the cause: {_words(before)} with the generation before it fail too"
            self._record(newer, FALSE, HeldBackReason.NOT_WORSE, why)

    def _record(self, cache: CapturedCache, status: str, reason: str, message: str) -> None:
        self._verdicts.put(cache.uid, ConditionValue(HELD_BACK, status, reason, message))
        _LOG.warning(
            "condition HeldBack of a captured cache changed",
            extra=fields(cache=str(cache.key), reason=reason, why=message),
        )
        self._changed(cache.key)


def _families(offered: Iterable[CapturedCache]) -> list[list[CapturedCache]]:
    """Return the verified generations of each family and hardware, the newest first."""
    found: dict[tuple[str, str], list[CapturedCache]] = defaultdict(list)
    for each in sorted(offered, key=lambda each: -each.generation):
        if each.family and each.verified:
            found[each.group].append(each)
    return list(found.values())


def _words(tally: Tally) -> str:
    return f"{tally.failed} of {max(tally.pods, tally.failed)} pods"
