"""Why a run may use no node at all: the planner sees only nodes that it may use, and cannot tell. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gkm.api.grammar import count_of
from gkm.packing.inventory_of import Usable
from gkm.packing.values import Level, Refusal
from gkm.topology.eligibility import Exclusion
from gkm.topology.quarantine import Quarantined, QuarantineReason

_NOT_OF_GPUS = frozenset({Level.SCOPE, Level.BALANCE})
"""Levels of runs that would fit on the GPUs that are free."""
_LONGEST_NAME = 128
_BEFORE_FLAVOR = frozenset({Exclusion.NO_GPUS, Exclusion.FLAVOR})
_LEVELS = {Exclusion.SELECTOR: Level.SELECTOR, Exclusion.SCOPE: Level.SCOPE}
_CONTRADICTED = {
    QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS: Level.REGION,
    QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS: Level.CLUSTER,
    QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS: Level.BLOCK,
    QuarantineReason.RACK_IN_SEVERAL_BLOCKS: Level.RACK,
    QuarantineReason.NO_FABRIC_DOMAIN: Level.DOMAIN,
    QuarantineReason.DOMAIN_IN_SEVERAL_DOMAINS: Level.DOMAIN,
}
"""The level of each contradiction between labels; every other reason is one of the node alone."""


def none_usable(usable: Usable) -> Refusal | None:
    """Return why there is no node, by the last check that any of them came to; None where there is one."""
    if usable.nodes:
        return None
    reached = {entry.why for entry in usable.excluded} - _BEFORE_FLAVOR
    if not reached and usable.quarantined_of_flavor:
        return _all_quarantined(usable.quarantined_of_flavor)
    # What is behind the scopes is about nodes that are right and cannot be used now.
    last = max(reached, key=list(Exclusion).index, default=Exclusion.FLAVOR)
    level = Level.FLAVOR if last is Exclusion.FLAVOR else _LEVELS.get(last, Level.NODE)
    counted = ", ".join(f"{why} {count}" for why, count in sorted(usable.counts.items()))
    nodes = sum(usable.counts.values())
    message = f"0 of {count_of(nodes, 'node')} can be used: {counted}" if nodes else "there are no nodes"
    return Refusal(level, message, 0)


def with_holders(refusal: Refusal, usable: Usable) -> Refusal:
    """Return a refusal whose message says what holds GPUs of the nodes that the run may use, if anything does.

    Where no pod may be named the message has no numbers either: it would change with every pod of the cluster.
    """
    held = usable.held
    if not held.pods + held.plans or refusal.level in _NOT_OF_GPUS:
        return refusal
    named = ", ".join(f"{ascii(name[:_LONGEST_NAME])[1:-1]} {gpus}" for name, gpus in held.named)
    pods = (f"pods hold {held.pods} (most: {named})" if named else "pods hold some") if held.pods else ""
    plans = f"plans of other runs {f'hold {held.plans}' if named else 'hold some'}" if held.plans else ""
    text = " and ".join(filter(None, (pods, plans)))
    of = f"Of {count_of(held.total, 'GPU')}" if named else "Of the GPUs"
    return replace(refusal, message=f"{refusal.message}. {of} {text}")


def _all_quarantined(entries: Sequence[Quarantined]) -> Refusal:
    """Return the refusal of a run whose nodes are all quarantined, by the reason that most of them have."""
    counts = Counter(entry.why for entry in entries)
    reasons = sorted(counts, key=lambda why: (-counts[why], list(QuarantineReason).index(why)))
    counted = ", ".join(f"{counts[why]:,} {why.value}" for why in reasons)
    # The message of POD_INVALID names a pod, maybe of a namespace that the user of the run must not see.
    shown = [why for why in reasons if why is not QuarantineReason.POD_INVALID]
    example = next((f". {entry.message}" for why in shown for entry in entries if entry.why is why), "")
    message = f"0 of {count_of(len(entries), 'node')} of its flavor can be used: {counted}{example}"
    return Refusal(_CONTRADICTED.get(reasons[0], Level.NODE), message, 0)
