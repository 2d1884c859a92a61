"""What another controller gets of the watches of caches and node objects, and the condition that it adds to a cache."""

from typing import NamedTuple, Protocol

from gkm.api.caches import Cache

from gkm_operator.caches.nodes.reports import NodeObject


class ConditionValue(NamedTuple):
    """A condition without its times."""

    kind: str
    status: str
    reason: str
    message: str


class CacheObserver(Protocol):
    """Called from the threads of the watches, before the change has another effect. Must not wait."""

    def report_changed(self, old: NodeObject | None, new: NodeObject | None) -> None:
        """Handle a change of a node object."""

    def cache_changed(self, old: Cache | None, new: Cache | None) -> None:
        """Handle a change of a cache."""

    def condition(self, cache: Cache) -> ConditionValue | None:
        """Return the condition to add to a cache; None leaves its status as it is."""


class _NoObserver:
    def report_changed(self, _old: NodeObject | None, _new: NodeObject | None) -> None:
        return

    def cache_changed(self, _old: Cache | None, _new: Cache | None) -> None:
        return

    def condition(self, _cache: Cache) -> ConditionValue | None:
        return None


NO_OBSERVER: CacheObserver = _NoObserver()
