"""Why a run does not fit, as a reason for machines and a sentence with the numbers for people. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gkm.api.grammar import agree, count_of
from gkm.api.topology_settings import TopologyLabels
from gkm.packing.inventory_of import Usable
from gkm.packing.unusable import none_usable
from gkm.packing.values import Level, Refusal
from gkm.topology.eligibility import Exclusion
from gkm.topology.labels import flavor as spelled
from gkm.topology.nodes import Node
from gkm.topology.quarantine import QuarantineReason
from gkm.topology.survey import TopologySurvey

CONDITION = "Planned"


class PlanReason(StrEnum):
    """Reasons of the condition Planned (docs/reference/reasons.md)."""

    PLANNED = "Planned"
    DOES_NOT_FIT = "DoesNotFit"
    OUTSIDE_SCOPES = "OutsideScopes"
    LABELS_INVALID = "LabelsInvalid"
    INVALID_REQUEST = "InvalidRequest"
    TOO_LARGE = "TooLarge"
    PLAN_EXPIRED = "PlanExpired"
    PLANNER_FAILED = "PlannerFailed"
    NOT_WRITTEN = "NotWritten"


_SHOWN = 8
_ELSEWHERE = (Exclusion.NO_GPUS, Exclusion.FLAVOR)
"""Of all nodes that a run does not use, those that it could never have."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why there is no plan. `largest` are the whole groups that would fit, None where nobody looked."""

    reason: str
    message: str
    level: str = ""
    largest: int | None = None


def unfit(refusal: Refusal, usable: Usable, survey: TopologySurvey, flavored: Mapping[str, str], flavor: str) -> Unfit:
    """Return why a run does not fit; `flavored` has the flavor of every node that names one, of quarantined ones too.

    The planner knows of the nodes that it may use. Where there are none, what became of the others is the answer.
    """
    wanted = spelled(flavor)
    aside = [entry for entry in usable.quarantined if flavored.get(entry.node) == wanted]
    others = Counter(entry.why for entry in usable.excluded if entry.why not in _ELSEWHERE)
    unused: Counter[Exclusion | QuarantineReason] = Counter(entry.why for entry in aside)
    for why, count in others.items():
        unused[why] = count
    if usable.nodes:
        reason = PlanReason.OUTSIDE_SCOPES if refusal.level is Level.SCOPE else PlanReason.DOES_NOT_FIT
        more = f"; not counted are {_counts(unused)}" if unused else ""
        return Unfit(reason, f"{refusal.message}{more}", refusal.level.value, refusal.largest_groups)
    if not unused:
        return Unfit(PlanReason.DOES_NOT_FIT, _no_flavor(flavor, survey, wanted), Level.FLAVOR.value, 0)
    total = sum(unused.values())
    if not others:
        # Whose pod it is is not said: it may be of a namespace that this one's users cannot see.
        shown = next((f". {entry.message}" for entry in aside if entry.why is not QuarantineReason.POD_INVALID), "")
        message = f"{count_of(total, 'node')} of flavor {wanted}, all set aside: {_counts(unused)}{shown}"
        return Unfit(PlanReason.LABELS_INVALID, message, Level.FLAVOR.value, 0)
    none = none_usable(usable)
    level = Level.FLAVOR if none is None else none.level
    reason = PlanReason.OUTSIDE_SCOPES if level is Level.SCOPE else PlanReason.DOES_NOT_FIT
    return Unfit(
        reason, f"0 of {count_of(total, 'node')} of flavor {wanted} can be used: {_counts(unused)}", level.value, 0
    )


def _no_flavor(flavor: str, survey: TopologySurvey, wanted: str) -> str:
    found = Counter(located.flavor for located in survey.located if located.flavor)
    if found[wanted]:
        return f"{count_of(found[wanted], 'node')} of flavor {wanted}, none with GPUs: is the device plugin there?"
    there = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} ({count:,} {agree(count, 'node', 'nodes')})" for name, count in there[:_SHOWN])
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return f"no node has flavor {flavor}; there are {shown}{more}" if there else f"no node has a flavor, nor {flavor}"


def _counts(counts: Mapping[Exclusion | QuarantineReason, int]) -> str:
    said = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {why.value}" for why, count in said)


def flavors_of(nodes: Iterable[Node], keys: TopologyLabels) -> dict[str, str]:
    """Return the flavor of every node that names one, as it is compared."""
    return {node.name: found for node in nodes if (found := first_label(node.labels, keys.flavor))}


def first_label(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the first of some labels that says something, as flavors are compared; "" where none does."""
    return next((spelled(value) for key in keys if (value := labels.get(key))), "")
