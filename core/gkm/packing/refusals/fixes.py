"""The smallest changes that would make a run fit, each planned before it is told (calculus.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gkm.api.grammar import agree, count_of
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.refusals.feasible import smallest
from gkm.packing.refusals.freeing import to_free
from gkm.packing.refusals.proposing import FINDERS, short_name
from gkm.packing.refusals.verifying import Missing, Proposal, verified
from gkm.packing.values import Fix, FixKind, Request

MAX_FIXES = 8
MAX_NAMED = 6
"""A sentence names so many nodes; `changes` has all of them."""
_FREEING = "freeing nodes"


class Changes(NamedTuple):
    """Changes that would make a run fit; and a sentence for each reason why others that may do are not among them."""

    fixes: tuple[Fix, ...]
    notes: tuple[str, ...]


def fixes(inventory: Inventory, request: Request) -> tuple[Fix, ...]:
    """Return changes that would make a run fit, see `changes`."""
    return changes(inventory, request).fixes


def changes(inventory: Inventory, request: Request) -> Changes:
    """Return changes that would make a run fit, at most eight, each of them enough alone and the smallest of its kind.

    The run must not fit in any of its sizes; malleable, it is made to fit in its smallest one. What a change of its
    kind cannot mend is left out; what is too large to be planned exactly, or more than is told, is left out and noted.
    Of ceilings the smallest raises come first, so that these are told where there is not room for all.
    """
    missing = Missing()
    proposals = [*_freed(inventory, request, missing)]
    for what, find in FINDERS:
        try:
            # One by one: a finder that fails keeps what came before.
            for changed, fix in find(inventory, request):
                proposals.append(Proposal(what, inventory, changed, fix))
        except TooLargeError as error:
            missing.add(what, str(error))
    order = list(FixKind)
    given = {ceiling.scope: ceiling.gpus for ceiling in request.ceilings}

    def rank(fix: Fix) -> tuple[bool, int, int]:
        raised = fix.kind is FixKind.RAISE_CEILING
        by = sum(gpus - given[scope] for scope, gpus in fix.changes.items()) if raised else 0
        return raised, order.index(fix.kind), by

    proposals.sort(key=lambda one: rank(one.fix))
    found = sorted(verified(proposals, missing), key=rank)
    more = len(found) - MAX_FIXES
    untold = (f"{count_of(more, 'larger change')} would do as well",) if more > 0 else ()
    return Changes(tuple(found[:MAX_FIXES]), missing.notes() + untold)


def _freed(inventory: Inventory, request: Request, missing: Missing) -> Iterator[Proposal]:
    try:
        freed = to_free(inventory, smallest(request))
    except TooLargeError as error:
        missing.add(_FREEING, str(error))
        return
    if freed is None:
        return
    nodes = list(inventory.nodes)
    busy: dict[str, int] = {}
    for number in freed.nodes:
        node = nodes[number]
        busy[node.name] = node.total - node.free
        nodes[number] = replace(node, free=node.total)
    free = np.array([node.free for node in nodes], dtype=np.int64)
    fix = Fix(FixKind.FREE_NODES, _sentence(busy, fewest=freed.fewest), busy, freed.fewest)
    yield Proposal(_FREEING, replace(inventory, nodes=tuple(nodes), free=free), request, fix)


def _sentence(busy: Mapping[str, int], *, fewest: bool) -> str:
    count, gpus = len(busy), sum(busy.values())
    named = ", ".join(short_name(name) for name in list(busy)[:MAX_NAMED])
    if count > MAX_NAMED:
        named += f" and {count - MAX_NAMED} more"
    in_use = f"{count_of(gpus, 'GPU')} {agree(gpus, 'is', 'are')} in use there"
    told = "the fewest that do" if fewest else "these would do, and fewer may"
    # One is the fewest there can be.
    return f"free {count_of(count, 'node')} ({in_use}){f', {told}' if count > 1 else ''}: {named}"
