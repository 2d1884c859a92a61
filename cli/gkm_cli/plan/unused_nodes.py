"""The nodes that a run cannot use, for programs: they often explain a refusal. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from gkm.packing.inventory_of import Usable
from gkm.topology.quarantine import Quarantined

from gkm_cli.plan.names import fold_names

Json = dict[str, Any]


def unused_nodes(usable: Usable) -> Json:
    """Return every node that the run cannot use, with the reason; the names of excluded nodes are ranges."""
    nodes_by_reason: dict[tuple[str, str], list[str]] = {}
    for entry in usable.excluded:
        nodes_by_reason.setdefault((entry.why.value, entry.detail), []).append(entry.node)
    return {
        "unusedNodes": counts(usable),
        "excluded": [
            {"reason": reason, "detail": detail, "count": len(names), "nodes": fold_names(names)}
            for (reason, detail), names in sorted(nodes_by_reason.items())
        ],
        "quarantined": quarantined_nodes(usable.quarantined),
        "overcommitted": [
            {"node": entry.node, "taken": entry.taken, "total": entry.total} for entry in usable.overcommitted
        ],
    }


def quarantined_nodes(entries: Iterable[Quarantined]) -> list[Json]:
    """Return the nodes that no run can use until a person corrects them."""
    return [{"node": entry.node, "reason": entry.why.value, "message": entry.message} for entry in entries]


def counts(usable: Usable) -> Mapping[str, int]:
    """Return the number of unused nodes for each reason."""
    return {why.value: count for why, count in sorted(usable.counts.items())}
