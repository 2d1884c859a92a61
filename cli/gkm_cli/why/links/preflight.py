"""Preflight: a GPU of the node can use the cache; each one that cannot has its reason."""

from collections.abc import Iterable

from gkm.api.nodes import IncompatibleGPUs, NodeCacheStatus

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome
from gkm_cli.why.remedies import remedy


def decide(facts: Facts) -> Outcome:
    """Decide about the GPUs."""
    found = facts.on_node or NodeCacheStatus(state="Pending")
    others = _others(found.incompatible_gpus)
    if found.state == "Incompatible":
        first = found.incompatible_gpus[0].reason if found.incompatible_gpus else found.reason
        return Broken(f"no GPU of the node can use it: {others or found.message}", remedy(found.reason or first))
    fitting = [index for group in found.compatible_gpus for index in group.ids]
    if not fitting:
        return Holds("not checked yet")
    return Holds(f"it fits GPU {_ids(fitting)}" + (f"; not {others}" if others else ""))


def _others(groups: Iterable[IncompatibleGPUs]) -> str:
    return "; ".join(f"GPU {_ids(group.ids)}: {group.reason}: {group.message}" for group in groups)


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
