"""Find the smallest changes that would make a refused run fit; each is planned before it is reported (calculus.md).

The smallest change of each kind is an objective of one program (`Pools`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from time import monotonic
from typing import NamedTuple

import numpy as np

from gkm.api.grammar import agree, count_of, listed
from gkm.packing.area_rules import rule_text
from gkm.packing.domains.capacity import capacity
from gkm.packing.inventory import Inventory
from gkm.packing.plan import first_that, largest_groups, plan
from gkm.packing.pools import Gains, Pools, Sizes
from gkm.packing.program import SearchLimits, Solution, Terms, total
from gkm.packing.values import MAX_GPUS, Ceiling, Fix, FixKind, Plan, Request, TooLargeError, Within

SECONDS = 2.0
MAX_PARTS = 200
"""Limit of areas that are tried for a run that must stay in one area."""
_NODES = 2_000
MAX_FIXES = 8
MAX_NAMED, MAX_NAME = 6, 63
"""Limit of node names in a sentence (`changes` has all), and of characters of a name."""
MAX_WORK = 120_000
"""Limit of groups and spares over all plans, as a measure of work that is equal on every machine."""


class Changes(NamedTuple):
    """The changes that would make a run fit, and sentences that say why other kinds of changes are missing."""

    fixes: tuple[Fix, ...]
    notes: tuple[str, ...]


class _Proposal(NamedTuple):
    """A changed run, the nodes that it is planned on, and its fix."""

    request: Request
    inventory: Inventory
    fix: Fix


class _Least(NamedTuple):
    """The least values of the objectives, whether they are proven least, and the nodes that are freed for them."""

    reached: tuple[int, ...]
    proven: bool
    nodes: tuple[int, ...] = ()


class RefusalSearch:
    """A refused run, a version of it in its smallest size, and the time left for all searches.

    Methods that yield proposals look for the smallest change of one kind.
    """

    def __init__(self, inventory: Inventory, request: Request) -> None:
        self.inventory, self.request, self.smallest = inventory, request, request.smallest
        self.offer = capacity(inventory, self.smallest)
        self.until = monotonic() + SECONDS

    def fits(self, request: Request) -> bool:
        """Return whether a run with the same pods and scopes, and the sizes of `request`, fits."""
        return self._least(request, Sizes.of(request), lambda _: [{}]) is not None

    def _proposal(
        self, request: Request, kind: FixKind, sentence: str, changes: Mapping[str, int], *, least: bool = True
    ) -> _Proposal:
        return _Proposal(request, self.inventory, Fix(kind, sentence, changes, least))

    def spread(self) -> Iterator[_Proposal]:
        """Yield the run with permission to use several domains."""
        if not self.request.may_spread and self.fits(replace(self.smallest, may_spread=True)):
            wider = replace(self.request, may_spread=True)
            yield self._proposal(wider, FixKind.SPREAD, "let the run spread over several domains", {"spread": 1})

    def wider_area(self) -> Iterator[_Proposal]:
        """Yield the run with the closest wider area in which it fits; the widest is no area at all."""
        if self.request.within is None or not self.request.may_spread:
            return
        levels = [*Within]
        for level in (*levels[levels.index(self.request.within) + 1 :], None):
            if self.fits(replace(self.smallest, within=level)):
                stays = f", and stay within one {level.value}" if level else ""
                sentence = f"let the run leave its {self.request.within.value}{stays}"
                wider, changes = replace(self.request, within=level), {level.value if level else "anywhere": 1}
                yield self._proposal(wider, FixKind.LEAVE_AREA, sentence, changes)
                return

    def unruled(self) -> Iterator[_Proposal]:
        """Yield the run without its rule for areas, once for each level with a rule."""
        for rule in self.request.per_area:
            rest = tuple(other for other in self.request.per_area if other is not rule)
            sentence = f"do not ask for {rule_text(rule)}"
            yield self._proposal(replace(self.request, per_area=rest), FixKind.UNRULED, sentence, {rule.level.value: 0})

    def unbalanced(self) -> Iterator[_Proposal]:
        """Yield the run without equal numbers of groups in its domains."""
        if self.request.balanced and self.fits(self.smallest):
            sentence = "let domains have different numbers of groups"
            yield self._proposal(replace(self.request, balanced=False), FixKind.UNBALANCED, sentence, {"balanced": 0})

    def smaller_pods(self) -> Iterator[_Proposal]:
        """Yield the run with smaller pods, if each node is smaller than a pod."""
        pod = self.request.pod_gpus
        if max((node.total for node in self.inventory.nodes), default=0) >= pod:
            return
        for gpus in (gpus for gpus in range(pod - 1, 0, -1) if pod % gpus == 0):
            # Smaller pods also allow a malleable run smaller sizes.
            search = RefusalSearch(self.inventory, replace(self.request, pod_gpus=gpus))
            if search.fits(search.smallest):
                sentence = f"ask for pods of {count_of(gpus, 'GPU')} instead of {pod}"
                yield self._proposal(search.request, FixKind.SMALLER_PODS, sentence, {"pod": gpus})
                return

    def fewer_spares(self) -> Iterator[_Proposal]:
        """Yield the run with fewer spares, as many as fit."""
        spares = self._most_spares(self.smallest)
        if spares is not None:
            fewer, sentence = replace(self.request, spares=spares), f"ask for {_spares(spares, self.request)}"
            yield self._proposal(fewer, FixKind.FEWER_SPARES, sentence, {"spares": spares})

    def spread_and_fewer_spares(self) -> Iterator[_Proposal]:
        """Yield the run in several domains with fewer spares, if one change alone is not enough."""
        wider = replace(self.smallest, may_spread=True)
        if self.request.may_spread or not self.request.spares or self.fits(wider):
            return
        spares = None if self._most_spares(self.smallest) is not None else self._most_spares(wider)
        if spares is not None:
            sentence = f"let the run spread over several domains and ask for {_spares(spares, self.request)}"
            changed, changes = replace(self.request, may_spread=True, spares=spares), {"spread": 1, "spares": spares}
            yield self._proposal(changed, FixKind.SPREAD_AND_FEWER_SPARES, sentence, changes)

    def smaller(self) -> Iterator[_Proposal]:
        """Yield the largest smaller run that fits: in whole groups, and with a larger short last group."""
        if self.request.per_area:
            yield from self._smaller_in_layers()
            return
        found = self._least(
            self.smallest, Sizes.below(self.smallest), lambda model: [total(model.whole) * -1, total(model.pods) * -1]
        )
        if found is None:
            return
        groups, pods = (-reached for reached in found.reached)
        wanted, group = self.smallest.gpus, self.request.group_gpus
        # A malleable run has other smallest sizes than those a step below: a smaller `minGPUs` alone is not enough.
        only, least = ("", "") if self.request.malleability is None else (", in this size only,", " at least")
        sizes = [(groups * group, count_of(groups, "group"))] if groups else []
        if pods:
            last = pods * self.request.pod_gpus
            whole = f"{count_of(groups, 'group')} and a last group of {last}" if groups else "one short group"
            sizes.append((groups * group + last, whole))
        for gpus, what in sizes:
            sentence = f"ask for {count_of(gpus, 'GPU')}{only} instead of {wanted}{least}: {what}"
            smaller = replace(self.request, gpus=gpus, malleability=None)
            yield self._proposal(smaller, FixKind.SMALLER, sentence, {"gpus": gpus}, least=found.proven)

    def _smaller_in_layers(self) -> Iterator[_Proposal]:
        """Yield the largest run of whole groups, in whole layers, that keeps the rules for areas."""
        groups = largest_groups(self.offer, self.smallest)
        gpus = groups * self.request.group_gpus
        if 0 < gpus < self.smallest.gpus:
            smaller = replace(self.request, gpus=gpus, malleability=None)
            sentence = f"ask for {count_of(gpus, 'GPU')} instead of {self.smallest.gpus}: {count_of(groups, 'group')}"
            yield self._proposal(smaller, FixKind.SMALLER, sentence, {"gpus": gpus})

    def raised_ceilings(self) -> Iterator[_Proposal]:
        """Yield the run with a higher ceiling for one scope, as low as possible, for each scope that suffices alone."""
        ceilings = self.request.ceilings
        for number, ceiling in enumerate(ceilings):
            found = self._least_ceiling(number)
            gpus = found.reached[0] * self.request.pod_gpus if found else 0
            if found and ceiling.gpus < gpus <= MAX_GPUS:
                raised = (*ceilings[:number], Ceiling(ceiling.scope, gpus), *ceilings[number + 1 :])
                by = f"from {ceiling.gpus} to {count_of(gpus, 'GPU')}"
                sentence = f"raise the ceiling of scope {_short(ceiling.scope)} {by}"
                changed, changes = replace(self.request, ceilings=raised), {ceiling.scope: gpus}
                yield self._proposal(changed, FixKind.RAISE_CEILING, sentence, changes, least=found.proven)

    def freed_nodes(self) -> Iterator[_Proposal]:
        """Yield the run after some nodes are freed of other pods, as few nodes as possible."""
        gains = self._gains()
        found = self._least(self.smallest, Sizes.of(self.smallest), lambda model: [model.freed], gains=gains)
        if found is None or not found.nodes:
            return
        nodes, busy = list(self.inventory.nodes), dict[str, int]()
        for number in found.nodes:
            node = nodes[number]
            busy[node.name] = node.total - node.free
            nodes[number] = replace(node, free=node.total)
        free = np.array([node.free for node in nodes], dtype=np.int64)
        fix = Fix(FixKind.FREE_NODES, _free(busy, fewest=found.proven), busy, found.proven)
        yield _Proposal(self.request, replace(self.inventory, nodes=tuple(nodes), free=free), fix)

    def _least_ceiling(self, scope: int) -> _Least | None:
        """Return the fewest pods that a scope has to give, the others as they are."""
        given = [None if number == scope else pods for number, pods in enumerate(self.smallest.scope_pods)]
        sizes = Sizes.of(self.smallest)
        return self._least(self.smallest, sizes, lambda model: [model.pods_of(scope)], ceilings=given)

    def _most_spares(self, request: Request) -> int | None:
        """Return the most spares a group, fewer than the request's, with which it fits: fewer fit where more do."""
        return first_that(range(request.spares - 1, -1, -1), lambda spares: self.fits(replace(request, spares=spares)))

    def _gains(self) -> Gains:
        """Return the nodes whose freeing makes slots; among equals, nodes with fewest GPUs in use come first."""
        pod, found = self.smallest.pod_gpus, Gains()
        nodes, kinds = self.inventory.nodes, self.offer.node_kinds.tolist()
        domains = self.inventory.domain_of.tolist()
        for number, (node, kind, domain) in enumerate(zip(nodes, kinds, domains, strict=True)):
            gain = node.total // pod - node.free // pod
            if gain and kind >= 0:
                found.setdefault((domain, kind), []).append((gain, number))
        for members in found.values():
            members.sort(key=lambda one: (-one[0], nodes[one[1]].total - nodes[one[1]].free, one[1]))
        return found

    def _least(
        self,
        request: Request,
        sizes: Sizes,
        objectives: Callable[[Pools], Sequence[Terms]],
        *,
        ceilings: Sequence[int | None] | None = None,
        gains: Gains | None = None,
    ) -> _Least | None:
        """Return the least objectives in any part of the cluster that can hold the run, None if no part can.

        Raises:
            TooLargeError: the time or the number of domains that are tried does not suffice.
        """
        best: _Least | None = None
        proven = True
        given = self.smallest.scope_pods if ceilings is None else ceilings
        for tried, (bound, domains) in enumerate(self._parts(request, sizes, gains or {})):
            if best and gains and bound >= best.reached[0]:
                break
            if monotonic() >= self.until or tried >= MAX_PARTS:
                if best is None:
                    raise TooLargeError(
                        f"the search for changes that would help ended after {SECONDS:g} seconds or {MAX_PARTS} areas"
                    )
                return best._replace(proven=False)
            model = Pools(self.offer, request, sizes, domains, ceilings=given, gains=gains or {})
            solved = model.program.solve(objectives(model), SearchLimits(self.until, _NODES))
            if solved is not None:
                proven = proven and solved.proven
                if best is None or solved.reached < best.reached:
                    best = _Least(solved.reached, proven, _chosen(model, solved, gains or {}))
        return best and best._replace(proven=proven)

    def _parts(self, request: Request, sizes: Sizes, gains: Gains) -> list[tuple[int, list[int]]]:
        """Return the areas that may hold the run, each with its domains: the cluster, or the area that it stays within.

        Each has the nodes that are to be freed there at least, and comes after those where these are fewer. Domains
        that offer no more than another of them are left out where the run does not spread.
        """
        needed = sizes.whole[0] * (request.group_pods + request.spares)
        needed = max(1, needed + (sizes.short[0] + request.spares) * (sizes.short[0] > 0))
        slots, kinds = self.offer.slots.tolist(), range(len(self.offer.kinds))
        areas: dict[tuple[str, ...], list[int]] = {}
        for domain, place in enumerate(self.inventory.places):
            areas.setdefault(place[: request.depth], []).append(domain)
        parts: list[tuple[int, int, list[int]]] = []
        for domains in areas.values():
            each = (gains.get((domain, kind), []) for domain in domains for kind in kinds)
            added = sorted((gain for nodes in each for gain, _ in nodes), reverse=True)
            reached = list(accumulate(added, initial=sum(sum(slots[domain]) for domain in domains)))
            if reached[-1] >= needed:
                parts.append((bisect_left(reached, needed), -reached[-1], domains))
        found: list[tuple[int, list[int]]] = []
        for bound, _, domains in sorted(parts):
            larger = [slots[other] for _, (other,) in found] if not gains and not request.may_spread else []
            here = slots[domains[0]]
            if not any(all(one >= two for one, two in zip(there, here, strict=True)) for there in larger):
                found.append((bound, domains))
        return found


def _chosen(model: Pools, solved: Solution, gains: Gains) -> tuple[int, ...]:
    """Return the numbers of the nodes that a solution frees."""
    found: list[int] = []
    left: dict[tuple[tuple[int, int], ...], int] = {}
    for column, nodes, domains in model.options:
        first = left.get(domains, 0)
        left[domains] = first + solved.of(column)
        for key in domains[first : left[domains]]:
            found += [number for _, number in gains[key][:nodes]]
    for (domain, kind, gain), column in model.nodes.items():
        here = [number for size, number in gains[domain, kind] if size == gain]
        found += here[: solved.of(column)]
    return tuple(sorted(found))


_FINDERS: Mapping[str, Callable[[RefusalSearch], Iterator[_Proposal]]] = {
    "spreading": RefusalSearch.spread,
    "leaving the area": RefusalSearch.wider_area,
    "no rule for areas": RefusalSearch.unruled,
    "unequal shares": RefusalSearch.unbalanced,
    "smaller pods": RefusalSearch.smaller_pods,
    "fewer spares": RefusalSearch.fewer_spares,
    "spreading with fewer spares": RefusalSearch.spread_and_fewer_spares,
    "a smaller run": RefusalSearch.smaller,
    "higher ceilings": RefusalSearch.raised_ceilings,
    "freeing nodes": RefusalSearch.freed_nodes,
}
"""Kinds of changes, as a sentence names them, and what finds them: what takes longest comes last."""


def changes(inventory: Inventory, request: Request) -> Changes:
    """Return at most eight changes that would make a run fit; each suffices alone and is the smallest of its kind.

    The run must not fit in any of its sizes; a malleable run is made to fit in its smallest one. A kind of change that
    cannot make the run fit is left out; a change that takes too long to search or to plan is left out and noted. The
    smallest raises of ceilings come first.
    """
    search = RefusalSearch(inventory, request)
    missing: dict[str, list[str]] = {}
    proposals: list[tuple[str, _Proposal]] = []
    # 1. Each kind of change is searched; what a search proposed before it failed stays.
    for what, find in _FINDERS.items():
        try:
            proposals.extend((what, proposal) for proposal in find(search))
        except TooLargeError as error:
            missing.setdefault(str(error), []).append(what)
    # 2. Each proposal is planned, and those that can be carried out are reported, the smallest of their kind first.
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
                # The found change is enough for any run except a balanced one, or one with rules for areas: these may
                # need more.
                if isinstance(answer, Plan) or proposal.fix.kind is FixKind.UNRULED or not _counted_out(proposal):
                    continue
                reason = f"the smallest such change does not {_counted_out(proposal)}"
        missing.setdefault(reason, []).append(what)


def _counted_out(proposal: _Proposal) -> str:
    """Return what counts do not tell of a run; "" if they tell all."""
    if proposal.request.per_area:
        return "keep the rules for areas"
    return "give each domain equally many groups" if proposal.request.balanced else ""


def _work(search: RefusalSearch, request: Request) -> int:
    groups = request.groups if request.malleability is None else search.smallest.groups
    return groups * (1 + request.spares)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def _spares(spares: int, request: Request) -> str:
    return f"{spares or 'no'} spare {agree(spares, 'pod', 'pods')} a group instead of {request.spares}"


def _free(busy: Mapping[str, int], *, fewest: bool) -> str:
    count, gpus = len(busy), sum(busy.values())
    named = listed([_short(name) for name in busy], MAX_NAMED)
    in_use = f"{count_of(gpus, 'GPU')} {agree(gpus, 'is', 'are')} in use there"
    how = "the fewest that do" if fewest else "these would do, and fewer may"
    # One is the fewest there can be.
    return f"free {count_of(count, 'node')} ({in_use}){f', {how}' if count > 1 else ''}: {named}"
