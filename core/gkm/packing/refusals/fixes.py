"""The smallest changes that would make a run fit, each planned before it is told (calculus.md)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gkm.packing.domains.cover import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.refusals.feasible import smallest
from gkm.packing.refusals.freeing import to_free
from gkm.packing.refusals.proposing import FINDERS, raised_ceilings, short_name
from gkm.packing.values import Fix, FixKind, Plan, Request

MAX_FIXES = 8
MAX_NAMED = 6
"""A sentence names so many nodes; `changes` has all of them."""


def fixes(inventory: Inventory, request: Request) -> tuple[Fix, ...]:
    """Return changes that would make a run fit, at most eight, each of them enough alone and the smallest of its kind.

    The run must not fit in any of its sizes; malleable, it is made to fit in its smallest one. What is too large to be
    planned exactly is left out, and so is what a change of its kind cannot mend. Of ceilings the smallest raises come
    first, so that these are told where there is not room for all.
    """
    found = [*_freed(inventory, request)]
    for find in (*FINDERS, raised_ceilings):
        found += _planned(inventory, find(inventory, request))
    order = list(FixKind)
    raises = {ceiling.scope: ceiling.gpus for ceiling in request.ceilings}

    def rank(fix: Fix) -> tuple[bool, int, int]:
        raised = fix.kind is FixKind.RAISE_CEILING
        by = sum(gpus - raises[scope] for scope, gpus in fix.changes.items()) if raised else 0
        return raised, order.index(fix.kind), by

    return tuple(sorted(found, key=rank)[:MAX_FIXES])


def _planned(inventory: Inventory, proposed: Iterator[tuple[Request, Fix]]) -> list[Fix]:
    """Return those that were planned and fit. A finder that fails keeps what came before."""
    found: list[Fix] = []
    try:
        for request, fix in proposed:
            if _fits(inventory, request):
                found.append(fix)
    except TooLargeError:
        pass
    return found


def _fits(inventory: Inventory, request: Request) -> bool:
    try:
        return isinstance(plan(inventory, request, ""), Plan)
    except TooLargeError:
        return False


def _freed(inventory: Inventory, request: Request) -> list[Fix]:
    try:
        freed = to_free(inventory, smallest(request))
    except TooLargeError:
        return []
    if freed is None:
        return []
    nodes = list(inventory.nodes)
    changes: dict[str, int] = {}
    for number in freed.nodes:
        node = nodes[number]
        changes[node.name] = node.total - node.free
        nodes[number] = replace(node, free=node.total)
    free = np.array([node.free for node in nodes], dtype=np.int64)
    count, gpus = len(changes), sum(changes.values())
    named = ", ".join(short_name(name) for name in list(changes)[:MAX_NAMED])
    if count > MAX_NAMED:
        named += f" and {count - MAX_NAMED} more"
    told = "the fewest that do" if freed.fewest else "these would do, and fewer may"
    sentence = f"free {count} {'node' if count == 1 else 'nodes'} ({gpus} GPUs are in use there), {told}: {named}"
    fix = Fix(FixKind.FREE_NODES, sentence, changes, freed.fewest)
    return _planned(replace(inventory, nodes=tuple(nodes), free=free), iter([(request, fix)]))
