"""Why a run may use no node at all: the planner sees only nodes that it may use, and cannot tell. Pure."""

from gkm.api.grammar import count_of
from gkm.packing.inventory_of import Usable
from gkm.packing.values import Level, Refusal
from gkm.topology.eligibility import Exclusion

_BEFORE_FLAVOR = frozenset({Exclusion.NO_GPUS, Exclusion.FLAVOR})
_LEVELS = {Exclusion.SELECTOR: Level.SELECTOR, Exclusion.SCOPE: Level.SCOPE}


def none_usable(usable: Usable) -> Refusal | None:
    """Return why there is no node, by the last check that any of them came to; None where there is one."""
    if usable.nodes:
        return None
    reached = {entry.why for entry in usable.excluded} - _BEFORE_FLAVOR
    # What is behind the scopes is about nodes that are right and cannot be used now.
    last = max(reached, key=list(Exclusion).index, default=Exclusion.FLAVOR)
    level = Level.FLAVOR if last is Exclusion.FLAVOR else _LEVELS.get(last, Level.NODE)
    counted = ", ".join(f"{why} {count}" for why, count in sorted(usable.counts.items()))
    nodes = sum(usable.counts.values())
    message = f"0 of {count_of(nodes, 'node')} can be used: {counted}" if nodes else "there are no nodes"
    return Refusal(level, message, 0)
