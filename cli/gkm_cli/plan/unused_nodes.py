"""The nodes that a run does not use, for programs: why it does not fit is often there. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from gkm.packing.inventory_of import Usable
from gkm.topology.quarantine import Quarantined

from gkm_cli.plan.names import fold_names

Json = dict[str, Any]


def unused_nodes(usable: Usable) -> Json:
    """Return every node that the run does not use, and why: names of excluded ones folded, as they are many."""
    alike: dict[tuple[str, str], list[str]] = {}
    for entry in usable.excluded:
        alike.setdefault((entry.why.value, entry.detail), []).append(entry.node)
    return {
        "unusedNodes": counts(usable),
        "excluded": [
            {"reason": reason, "detail": detail, "count": len(names), "nodes": fold_names(names)}
            for (reason, detail), names in sorted(alike.items())
        ],
        "quarantined": quarantined(usable.quarantined),
        "overcommitted": [
            {"node": entry.node, "taken": entry.taken, "total": entry.total} for entry in usable.overcommitted
        ],
    }


def quarantined(entries: Iterable[Quarantined]) -> list[Json]:
    """Return the nodes that are set aside for every run."""
    return [{"node": entry.node, "reason": entry.why.value, "message": entry.message} for entry in entries]


def counts(usable: Usable) -> Mapping[str, int]:
    """Return how many nodes are not used, for each reason."""
    return {why.value: count for why, count in sorted(usable.counts.items())}
