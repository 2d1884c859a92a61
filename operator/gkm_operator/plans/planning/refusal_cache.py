"""The last refusal of each run, with the request and the state that led to it. In memory only."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from gkm.packing.values import Fix

from gkm_operator.plans.planning.refusals import Unfit

RETRY_SECONDS = 60.0
"""The API server may accept a refused plan later: no watch reports changes of quotas, rights and policies."""
FIXES_SECONDS = 60.0
"""The minimum interval between two searches for the fixes of a run: one can take seconds, and free capacity changes all
the time."""


@dataclass(slots=True)
class CachedRefusal:
    """A refusal, valid for the same `request` and the same inventory `version`.

    `state` is a cheaper key: while it is equal, so is the version. `fixes` belong to the inventory version `fixed`, and
    the planner searched for them at `fixed_at`. At `until` the refusal expires. Times are seconds of the clock.
    """

    request: Hashable
    version: str
    state: Hashable
    unfit: Unfit
    fixes: Sequence[Fix] | None = None
    fixed: str = ""
    fixed_at: float = float("-inf")
    until: float = float("inf")


class RefusalCache:
    """Refusals by the uid of the run. For the one thread that plans."""

    def __init__(self) -> None:
        self._refusals: dict[str, CachedRefusal] = {}

    def get(self, uid: str) -> CachedRefusal | None:
        """Return the last refusal of a run."""
        return self._refusals.get(uid)

    def put(self, uid: str, refusal: CachedRefusal) -> None:
        """Store a refusal. It takes over the fixes of an older one of the same request and reason."""
        old = self._refusals.get(uid)
        if old is not None and (old.request, old.unfit.reason) == (refusal.request, refusal.unfit.reason):
            refusal.fixes, refusal.fixed, refusal.fixed_at = old.fixes, old.fixed, old.fixed_at
        self._refusals[uid] = refusal

    def remove(self, uid: str) -> None:
        """Remove the refusal of a run that fits."""
        self._refusals.pop(uid, None)

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget all other runs."""
        for uid in self._refusals.keys() - set(uids):
            del self._refusals[uid]

    def to_fix(self, uids: Iterable[str], now: float) -> list[str]:
        """Return the runs that need a search for fixes, those without any search first."""
        due = []
        for uid in uids:
            refusal = self._refusals.get(uid)
            if refusal is not None and refusal.fixed != refusal.version and now >= refusal.fixed_at + FIXES_SECONDS:
                due.append((refusal.fixed_at, uid))
        # The sort is stable: runs of one time stay in the order of `uids`, which is by priority.
        return [uid for _, uid in sorted(due, key=lambda item: item[0])]
