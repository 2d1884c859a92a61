"""Explain why a run does not fit, with a reason and a sentence with numbers, and cache the last refusal of each run.

A refusal is cached, in memory only, with the request and the state that led to it.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gkm.api.grammar import agree, count_of
from gkm.packing.usable_nodes import UsableNodes, no_usable_node, with_holders
from gkm.packing.values import Fix, Level, Refusal
from gkm.topology import labels
from gkm.topology.eligibility import Exclusion
from gkm.topology.quarantine import QuarantineReason
from gkm.topology.survey import TopologySurvey

CONDITION = "Planned"


class PlanReason(StrEnum):
    """Reasons of the condition Planned of a Run (docs/reference/reasons.md)."""

    PLANNED = "Planned"
    DOES_NOT_FIT = "DoesNotFit"
    OUTSIDE_SCOPES = "OutsideScopes"
    LABELS_INVALID = "LabelsInvalid"
    INVALID_REQUEST = "InvalidRequest"
    TOO_LARGE = "TooLarge"
    NAMESPACE_SHARE = "NamespaceShare"
    PLAN_EXPIRED = "PlanExpired"
    PLANNER_FAILED = "PlannerFailed"
    NOT_WRITTEN = "NotWritten"


_MAX_NAMED_FLAVORS = 8
_NEVER_USABLE = (Exclusion.NO_GPUS, Exclusion.FLAVOR)
"""Reasons of exclusion for nodes that the run could never use; such nodes are not listed as unused."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a Run gets no plan. `largest` is the number of whole groups that would fit, None if it was not computed."""

    reason: str
    message: str
    level: str = ""
    largest: int | None = None


def unfit(refusal: Refusal, usable: UsableNodes, survey: TopologySurvey, flavor: str) -> Unfit:
    """Return why a Run does not fit, from the planner's refusal and the excluded nodes.

    `refusal` explains the usable nodes. Without any, the exclusions of the other nodes do.
    """
    wanted = labels.flavor(flavor)
    excluded = Counter(entry.why for entry in usable.excluded if entry.why not in _NEVER_USABLE)
    unused: Counter[Exclusion | QuarantineReason] = Counter(entry.why for entry in usable.quarantined_of_flavor)
    for why, count in excluded.items():
        unused[why] = count
    if usable.nodes:
        reason = PlanReason.OUTSIDE_SCOPES if refusal.level is Level.SCOPE else PlanReason.DOES_NOT_FIT
        more = f"; not counted are {_counts(unused)}" if unused else ""
        message = with_holders(refusal, usable).message
        return Unfit(reason, f"{message}{more}", refusal.level.value, refusal.largest_groups)
    if not unused:
        return Unfit(PlanReason.DOES_NOT_FIT, _no_flavor(flavor, survey, wanted), Level.FLAVOR.value, 0)
    none = no_usable_node(usable) or refusal
    if not excluded:
        return Unfit(PlanReason.LABELS_INVALID, none.message, none.level.value, 0)
    reason = PlanReason.OUTSIDE_SCOPES if none.level is Level.SCOPE else PlanReason.DOES_NOT_FIT
    message = f"0 of {count_of(sum(unused.values()), 'node')} of flavor {wanted} can be used: {_counts(unused)}"
    return Unfit(reason, message, none.level.value, 0)


def _no_flavor(flavor: str, survey: TopologySurvey, wanted: str) -> str:
    found = Counter(located.flavor for located in survey.located if located.flavor)
    empty = {located.node.name for located in survey.located if located.flavor == wanted}
    empty.update(name for name, flavor in survey.uncounted.items() if flavor == wanted)
    if empty:
        nodes = f"{count_of(len(empty), 'node')} of flavor {wanted}, all without GPUs"
        return f"{nodes}: is the device plugin there? GPUs that only DRA hands out are not counted"
    flavors = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(
        f"{name} ({count:,} {agree(count, 'node', 'nodes')})" for name, count in flavors[:_MAX_NAMED_FLAVORS]
    )
    more = f" and {len(flavors) - _MAX_NAMED_FLAVORS} more" if len(flavors) > _MAX_NAMED_FLAVORS else ""
    return f"no node has flavor {flavor}; there are {named}{more}" if flavors else f"no node has a flavor, nor {flavor}"


def _counts(counts: Mapping[Exclusion | QuarantineReason, int]) -> str:
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {why.value}" for why, count in by_count)


RETRY_SECONDS = 60.0
"""Seconds after which a plan that the API server refused is tried again: no watch reports changed quotas or
policies."""
FIXES_SECONDS = 60.0
"""Minimum seconds between two searches for changes that would make a run fit; a search can take seconds."""


@dataclass(slots=True)
class CachedRefusal:
    """The cached refusal of a Run, valid for the same request and the same free capacity.

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
    """Caches refusals by the uid of the Run. Only the planning thread may use it."""

    def __init__(self) -> None:
        self._refusals: dict[str, CachedRefusal] = {}

    def get(self, uid: str) -> CachedRefusal | None:
        """Return the last refusal of the Run with this uid, None if absent."""
        return self._refusals.get(uid)

    def put(self, uid: str, refusal: CachedRefusal) -> None:
        """Store the refusal of a Run; fixes found earlier for the same request and reason are kept."""
        old = self._refusals.get(uid)
        if old is not None and (old.request, old.unfit.reason) == (refusal.request, refusal.unfit.reason):
            refusal.fixes, refusal.fixed, refusal.fixed_at = old.fixes, old.fixed, old.fixed_at
        self._refusals[uid] = refusal

    def remove(self, uid: str) -> None:
        """Remove the refusal of a Run, because the Run fits."""
        self._refusals.pop(uid, None)

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget all Runs whose uid is not among `uids`."""
        for uid in self._refusals.keys() - set(uids):
            del self._refusals[uid]

    def to_fix(self, uids: Iterable[str], now: float) -> list[str]:
        """Return the uids of refused Runs for which a search for fixes is due, first those that were never searched."""
        due = []
        for uid in uids:
            refusal = self._refusals.get(uid)
            if refusal is not None and refusal.fixed != refusal.version and now >= refusal.fixed_at + FIXES_SECONDS:
                due.append((refusal.fixed_at, uid))
        # The sort is stable: runs of one time stay in the order of `uids`, which is by priority.
        return [uid for _, uid in sorted(due, key=lambda item: item[0])]
