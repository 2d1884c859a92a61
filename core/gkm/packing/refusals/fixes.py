"""The smallest changes that would make a run fit, each of them planned before it is reported (calculus.md)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

import numpy as np

from gkm.api.grammar import agree, count_of
from gkm.packing.errors import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.refusals.search import SECONDS, RefusalSearch
from gkm.packing.values import MAX_GPUS, Ceiling, Fix, FixKind, Plan, Request, Within

MAX_FIXES = 8
MAX_NAMED, MAX_NAME = 6, 63
"""Nodes that a sentence names, of which `changes` has all, and characters of a name in a sentence."""
MAX_WORK = 120_000
"""Groups and spares of all plans together, some 60,000 a second: counted, so that every machine reports the same."""


class Changes(NamedTuple):
    """Changes that would make a run fit; and a sentence for each reason why other changes are not among them."""

    fixes: tuple[Fix, ...]
    notes: tuple[str, ...]


class _Proposal(NamedTuple):
    """A changed run, the nodes that it is planned on, and its fix."""

    request: Request
    inventory: Inventory
    fix: Fix


def fixes(inventory: Inventory, request: Request) -> tuple[Fix, ...]:
    """Return changes that would make a run fit, see `changes`."""
    return changes(inventory, request).fixes


def changes(inventory: Inventory, request: Request) -> Changes:
    """Return changes that would make a run fit, at most eight, each of them enough alone and the smallest of its kind.

    The run must not fit in any of its sizes; a malleable run is made to fit in its smallest one. A kind of change that
    cannot make the run fit is left out; one that takes too long to search or to plan is left out and noted. Of ceilings
    the smallest raises come first.
    """
    search = RefusalSearch(inventory, request)
    missing: dict[str, list[str]] = {}
    proposals: list[tuple[str, _Proposal]] = []
    for what, find in _FINDERS.items():
        try:
            # One by one: what a finder proposed before it failed stays.
            proposals.extend((what, proposal) for proposal in find(search, inventory, request))
        except TooLargeError as error:
            missing.setdefault(str(error), []).append(what)
    proposals.sort(key=lambda one: _rank(one[1].fix, request))
    found = sorted(_planned(search, proposals, missing), key=lambda fix: _rank(fix, request))
    notes = [f"left out: {', '.join(dict.fromkeys(kinds))}; {reason}" for reason, kinds in missing.items()]
    if len(found) > MAX_FIXES:
        notes.append(f"{count_of(len(found) - MAX_FIXES, 'larger change')} would do as well")
    return Changes(tuple(found[:MAX_FIXES]), tuple(notes))


def _rank(fix: Fix, request: Request) -> tuple[bool, int, int]:
    given = {ceiling.scope: ceiling.gpus for ceiling in request.ceilings}
    raised = fix.kind is FixKind.RAISE_CEILING
    by = sum(gpus - given[scope] for scope, gpus in fix.changes.items()) if raised else 0
    return raised, list(FixKind).index(fix.kind), by


def _planned(
    search: RefusalSearch, proposals: list[tuple[str, _Proposal]], missing: dict[str, list[str]]
) -> Iterator[Fix]:
    """Yield the fixes of the changed runs that can be planned, the smallest runs first."""
    left = MAX_WORK
    until = monotonic() + SECONDS
    for what, proposal in sorted(proposals, key=lambda one: _work(search, one[1].request)):
        left -= _work(search, proposal.request)
        reason = "a change is reported only when it was planned, and that would take seconds"
        if left >= 0 and monotonic() < until:
            try:
                answer = plan(proposal.inventory, proposal.request, "")
            except TooLargeError as error:
                reason = str(error)
            else:
                if isinstance(answer, Plan):
                    yield proposal.fix
                # What is found is enough for any run but one that is balanced, which may need more.
                if isinstance(answer, Plan) or not proposal.request.balanced:
                    continue
                reason = "the smallest such change does not give each domain equally many groups"
        missing.setdefault(reason, []).append(what)


def _work(search: RefusalSearch, request: Request) -> int:
    groups = request.groups if request.malleability is None else search.request.groups
    return groups * (1 + request.spares)


def _spread(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    if not request.may_spread and search.fits(replace(search.request, may_spread=True)):
        fix = Fix(FixKind.SPREAD, "let the run spread over several domains", {"spread": 1})
        yield _Proposal(replace(request, may_spread=True), inventory, fix)


def _wider_area(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    """Yield the run within the closest wider area that holds it."""
    if request.within is None or not request.may_spread:
        return
    levels = [*Within]
    for level in (*levels[levels.index(request.within) + 1 :], None):
        if search.fits(replace(search.request, within=level)):
            stays = f", and stay within one {level.value}" if level else ""
            sentence = f"let the run leave its {request.within.value}{stays}"
            fix = Fix(FixKind.LEAVE_AREA, sentence, {level.value if level else "anywhere": 1})
            yield _Proposal(replace(request, within=level), inventory, fix)
            return


def _unbalanced(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    if request.balanced and search.fits(search.request):
        fix = Fix(FixKind.UNBALANCED, "let domains have different numbers of groups", {"balanced": 0})
        yield _Proposal(replace(request, balanced=False), inventory, fix)


def _smaller_pods(_search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    """Yield the run in the largest smaller pods that divide its own, where no node is as large as one of these."""
    if max((node.total for node in inventory.nodes), default=0) >= request.pod_gpus:
        return
    for gpus in range(request.pod_gpus - 1, 0, -1):
        if request.pod_gpus % gpus:
            continue
        # Smaller pods also allow a malleable run smaller sizes.
        search = RefusalSearch(inventory, replace(request, pod_gpus=gpus))
        if search.fits(search.request):
            sentence = f"ask for pods of {count_of(gpus, 'GPU')} instead of {request.pod_gpus}"
            fix = Fix(FixKind.SMALLER_PODS, sentence, {"pod": gpus})
            yield _Proposal(replace(request, pod_gpus=gpus), inventory, fix)
            return


def _fewer_spares(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    spares = search.fewer_spares(search.request)
    if spares is not None:
        fix = Fix(FixKind.FEWER_SPARES, f"ask for {_spares(spares, request)}", {"spares": spares})
        yield _Proposal(replace(request, spares=spares), inventory, fix)


def _spread_and_fewer_spares(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    """Yield the run with both changed, where neither alone is enough."""
    wider = replace(search.request, may_spread=True)
    if (
        request.may_spread
        or not request.spares
        or search.fits(wider)
        or search.fewer_spares(search.request) is not None
    ):
        return
    spares = search.fewer_spares(wider)
    if spares is not None:
        sentence = f"let the run spread over several domains and ask for {_spares(spares, request)}"
        fix = Fix(FixKind.SPREAD_AND_FEWER_SPARES, sentence, {"spread": 1, "spares": spares})
        yield _Proposal(replace(request, may_spread=True, spares=spares), inventory, fix)


def _smaller(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    """Yield the largest run of whole groups that fits, and the one with the largest short last group besides."""
    found = search.largest()
    if found is None:
        return
    groups, pods = (-reached for reached in found.reached)
    asked, group = search.request.gpus, request.group_gpus
    # A malleable run has other smallest sizes than those a step below, so that a smaller `minGPUs` alone is not enough.
    only, least = ("", "") if request.malleability is None else (", in this size only,", " at least")
    sizes = [(groups * group, count_of(groups, "group"))] if groups else []
    if pods:
        last = pods * request.pod_gpus
        whole = f"{count_of(groups, 'group')} and a last one of {last}" if groups else "one short group"
        sizes.append((groups * group + last, whole))
    for gpus, what in sizes:
        sentence = f"ask for {count_of(gpus, 'GPU')}{only} instead of {asked}{least}: {what}"
        fix = Fix(FixKind.SMALLER, sentence, {"gpus": gpus}, found.proven)
        yield _Proposal(replace(request, gpus=gpus, malleability=None), inventory, fix)


def _raised_ceilings(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    """Yield the run with the least ceiling of each scope that alone is enough."""
    for number, ceiling in enumerate(request.ceilings):
        found = search.least_ceiling(number)
        gpus = found.reached[0] * request.pod_gpus if found else 0
        if found and ceiling.gpus < gpus <= MAX_GPUS:
            raised = (*request.ceilings[:number], Ceiling(ceiling.scope, gpus), *request.ceilings[number + 1 :])
            by = f"from {ceiling.gpus} to {count_of(gpus, 'GPU')}"
            sentence = f"raise the ceiling of scope {_short(ceiling.scope)} {by}"
            fix = Fix(FixKind.RAISE_CEILING, sentence, {ceiling.scope: gpus}, found.proven)
            yield _Proposal(replace(request, ceilings=raised), inventory, fix)


def _freed_nodes(search: RefusalSearch, inventory: Inventory, request: Request) -> Iterator[_Proposal]:
    """Yield the run on the nodes with the fewest of them freed: all GPUs of a node are free then."""
    found = search.fewest_nodes()
    if found is None or not found.nodes:
        return
    nodes = list(inventory.nodes)
    busy: dict[str, int] = {}
    for number in found.nodes:
        node = nodes[number]
        busy[node.name] = node.total - node.free
        nodes[number] = replace(node, free=node.total)
    free = np.array([node.free for node in nodes], dtype=np.int64)
    fix = Fix(FixKind.FREE_NODES, _free(busy, fewest=found.proven), busy, found.proven)
    yield _Proposal(request, replace(inventory, nodes=tuple(nodes), free=free), fix)


_FINDERS: Mapping[str, Callable[[RefusalSearch, Inventory, Request], Iterator[_Proposal]]] = {
    "spreading": _spread,
    "leaving the area": _wider_area,
    "unequal shares": _unbalanced,
    "smaller pods": _smaller_pods,
    "fewer spares": _fewer_spares,
    "spreading with fewer spares": _spread_and_fewer_spares,
    "a smaller run": _smaller,
    "higher ceilings": _raised_ceilings,
    "freeing nodes": _freed_nodes,
}
"""Kinds of changes, as a sentence names them, and what finds them: what takes longest comes last."""


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def _spares(spares: int, request: Request) -> str:
    return f"{spares or 'no'} spare {agree(spares, 'pod', 'pods')} a group instead of {request.spares}"


def _free(busy: Mapping[str, int], *, fewest: bool) -> str:
    count, gpus = len(busy), sum(busy.values())
    named = ", ".join(_short(name) for name in list(busy)[:MAX_NAMED])
    if count > MAX_NAMED:
        named += f" and {count - MAX_NAMED} more"
    in_use = f"{count_of(gpus, 'GPU')} {agree(gpus, 'is', 'are')} in use there"
    how = "the fewest that do" if fewest else "these would do, and fewer may"
    # One is the fewest there can be.
    return f"free {count_of(count, 'node')} ({in_use}){f', {how}' if count > 1 else ''}: {named}"
