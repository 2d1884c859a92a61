"""When which announced capture is tried, so that no node delays the captures of other nodes. For one thread.

A proof may take two minutes, and whoever has the token of a node can announce many captures that prove nothing. So the
nodes take turns, and a node whose captures failed often waits, with all that it announces and in all namespaces.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from gkm.api.errors import GKMError
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Backoff, Clock, TokenBucket

from gkm_operator.captures.announcements import Announcement

FAILURES_AT_ONCE: Final = 16
FAILURE_SECONDS: Final = 600.0
"""A node may cause so many failed proofs at once, and another one after each of these seconds."""
STABLE_SECONDS: Final = 3600.0
"""A registered capture that is announced without its object sooner than this after its pause is tried less often."""
_NODES: Final = 16_384
_NEVER: Final = float("-inf")


class AttemptKey(NamedTuple):
    """What one attempt is about: a claim, or the faulty announcements of a node, with its name."""

    name: str
    claim: object = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last attempt of several; `reason` is that of its failure, "" after a success."""

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
    """The attempts at what nodes announce now, by namespace."""

    def __init__(self, clock: Clock, backoff: Backoff) -> None:
        self._clock = clock
        self._backoff = backoff
        self._attempts: dict[str, dict[AttemptKey, _Attempt]] = {}
        self._nodes: LRUCache[str, _Node] = LRUCache(_NODES)

    def retain_only(self, namespace: str, keys: Collection[AttemptKey]) -> None:
        """Forget all other attempts of a namespace."""
        known = self._attempts.pop(namespace, {})
        if found := {key: known[key] for key in known.keys() & set(keys)}:
            self._attempts[namespace] = found

    def due(self, announced: Iterable[Announcement]) -> list[tuple[str, Announcement]]:
        """Return what may be tried now, each with the node on whose account, in the order of the attempts.

        The first of each node come before the second ones, and the node that waits longest comes first. Of one node,
        what was never tried comes first, the newest at first, then what waits longest.
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
        """Return whether too many proofs of a node failed."""
        return self._node(node).next_try > self._clock()

    def next_try(self, namespace: str, key: AttemptKey) -> float:
        """Return the time before which something is not tried again; minus infinity if it never was tried."""
        known = self._attempts.get(namespace, {}).get(key)
        return _NEVER if known is None else known.next_try

    def wait(self, announced: Announcement) -> float:
        """Return the seconds until a capture may be tried; 0 or less: now."""
        nodes = min((self._node(node).next_try for node in announced.nodes), default=_NEVER)
        return max(nodes, self.next_try(announced.namespace, key_of(announced))) - self._clock()

    def begin(self, node: str) -> None:
        """Record that an attempt begins on account of a node."""
        self._node(node).last_attempt = self._clock()

    def succeeded(self, namespace: str, key: AttemptKey) -> None:
        """Record a success: whoever deletes the object again and again gets it back later and later."""
        before, now = self._attempts.get(namespace, {}).get(key), self._clock()
        repeated = before is not None and not before.reason and now - before.next_try <= STABLE_SECONDS
        self._record(namespace, key, before.count + 1 if before is not None and repeated else 1, "")

    def failed(self, namespace: str, key: AttemptKey, error: GKMError) -> bool:
        """Record a failure; return whether its reason is another one than before."""
        before = self._attempts.get(namespace, {}).get(key)
        reason = error.reason.value
        self._record(namespace, key, before.count + 1 if before is not None and before.reason else 1, reason)
        return before is None or before.reason != reason

    def charge(self, node: str) -> None:
        """Count a failed proof of a node; it waits if there were too many."""
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
    """Return the key of the attempts at a capture: another time, or another node, is the same claim."""
    return AttemptKey(announced.name, (announced.image, announced.hardware))
