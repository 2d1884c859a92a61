"""Plan a run again that already has a plan, and move as few groups as possible (calculus.md). Pure.

Each result says in sentences what stays, what moves, and why.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from time import monotonic

from gkm.api.grammar import agree, count_of, listed
from gkm.api.plans import PlanMetrics
from gkm.packing.area_rules import by_slots, used_slots
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.hashing import plan_hash
from gkm.packing.inventory import Inventory
from gkm.packing.placement import best_placement
from gkm.packing.plan import largest_fitting, metrics, plan
from gkm.packing.program import SECONDS
from gkm.packing.replanning.model import Assignment, assign, matched
from gkm.packing.replanning.node_assignment import assign_nodes
from gkm.packing.replanning.surviving_groups import NewGroup, SurvivingPlan, surviving_plan
from gkm.packing.self_check import verify
from gkm.packing.values import (
    FormerPlan,
    Group,
    Node,
    Plan,
    Refusal,
    Repair,
    Replanned,
    Request,
    Share,
    TooLargeError,
)


def replan(
    nodes: Iterable[Node] | Inventory, previous: FormerPlan, request: Request, inventory_version: str
) -> Replanned | Refusal:
    """Return a new plan for a planned run, which moves the fewest groups and leaves the others as they are.

    `nodes` are those that the run may use now, without the lost and the cordoned; the GPUs of the run itself are free.
    Where groups cannot be placed beside the undamaged groups, some of these move as well. If that does not fit either,
    a malleable run keeps its standing groups and becomes smaller. Otherwise the refusal is the same as for a plan from
    scratch.

    Raises:
        InvalidInventoryError: the nodes contradict each other or themselves.
        TooLargeError: the run and the inventory are together too large to be planned.
        InvalidPlanError: the planner broke its own rules.
    """
    # 1. The others are placed beside the untouched groups; where they do not fit, some of the untouched may move.
    # 2. Else a malleable run keeps what stands and becomes smaller.
    # 3. Else the plan from scratch is taken, in which groups stay that find their domain and scope; or its refusal.
    inventory = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
    offer = capacity(inventory, request)
    if request.limits_nodes:
        offer = by_slots(offer, {share.node for group in previous.groups for share in group.shares})
    task = _Task(offer, request, previous, inventory_version, monotonic() + SECONDS)
    proven = True
    try:
        found = task.beside_untouched(request) or task.with_untouched_released()
    except TooLargeError:
        found, proven = None, False
    if found is not None:
        return found
    fresh = plan(inventory, request, inventory_version)
    try:
        smaller = None if isinstance(fresh, Plan) and fresh.gpus == request.gpus else task.smaller()
    except TooLargeError:
        smaller, proven = None, False
    return smaller or (task.from_scratch(fresh, proven=proven) if isinstance(fresh, Plan) else fresh)


@dataclass(frozen=True, slots=True)
class _Task:
    """A run with its former plan, and what the nodes offer to it."""

    offer: Capacity
    request: Request
    previous: FormerPlan
    version: str
    deadline: float

    def beside_untouched(self, sized: Request) -> Replanned | None:
        """Return the plan in which undamaged groups stay as they are; None if the others do not fit beside them."""
        surviving = self._surviving(sized)
        chosen = surviving and assign(self.offer, sized, surviving, self.deadline)
        return self._result(sized, surviving, chosen) if surviving and chosen else None

    def with_untouched_released(self) -> Replanned | None:
        """Return the plan with the fewest moves where undamaged groups may move as well; None if no plan fits."""
        surviving = self._surviving(self.request)
        if surviving is None:
            return None
        # In one scope groups of one size are interchangeable: a touched one can move wherever an untouched one can, so
        # that only the short one, which fits where no whole one does, may have to make way.
        free = not self.request.depth and not self.request.balanced and not self.request.per_area
        alike = len(self.request.ceilings) <= 1 and free
        freed = [one for one in surviving.untouched if not alike or one.index == surviving.short]
        if not freed:
            return None
        surviving = surviving.with_released(freed)
        chosen = assign(self.offer, self.request, surviving, self.deadline)
        return self._result(self.request, surviving, chosen, freed=True) if chosen else None

    def smaller(self) -> Replanned | None:
        """Return the largest smaller size of a malleable run that keeps its standing groups; None if no size does."""
        if self.request.layers:
            return None  # the groups that stand may be of more layers than a smaller run has

        def fits(sized: Request) -> bool:
            surviving = self._surviving(sized)
            return bool(surviving and assign(self.offer, sized, surviving, self.deadline, any_way=True))

        sized = largest_fitting(self.request, self.request.smaller_sizes, fits)
        return None if sized is None else self.beside_untouched(sized)

    def from_scratch(self, fresh: Plan, *, proven: bool) -> Replanned:
        """Return a plan from scratch; groups that find their domain and scope stay there, but for rules for areas."""
        sized = replace(self.request, gpus=fresh.gpus)
        surviving = None if self.request.per_area else self._surviving(sized)
        if surviving is not None:
            surviving = surviving.with_released(surviving.untouched)
            found = self._result(sized, surviving, matched(self.offer, sized, surviving, fresh.groups, proven=proven))
            if found is not None:
                return found
        return replanned(self.previous, fresh, sized.spares, {}, proven=proven, freed=False)

    def _surviving(self, sized: Request) -> SurvivingPlan | None:
        """Return the remaining groups for a run of a size; None without any, or with too few slots."""
        if sized.gpus // sized.pod_gpus > int(self.offer.domain_slots.sum()):
            return None
        surviving = surviving_plan(self.offer, sized, self.previous.groups, self.request.groups)
        return surviving if surviving.untouched or surviving.touched else None

    def _result(
        self, sized: Request, surviving: SurvivingPlan, chosen: Assignment, *, freed: bool = False
    ) -> Replanned | None:
        """Return the plan of an assignment; None if its spares find no slots, and may not be lacking."""
        offer = self.offer
        if chosen.nodes:
            offer = offer.with_node_slots(used_slots(offer, chosen.nodes))
        placed = assign_nodes(offer, sized, surviving, chosen)
        if not surviving.lenient and any(len(group.spares) < sized.spares for group in placed):
            return None
        groups = tuple(_group(sized, group) for group in placed)
        verify(self.offer.inventory, sized, groups)
        made = Plan(
            request=self.request,
            gpus=sized.gpus,
            groups=groups,
            metrics=_metrics(self.offer, sized, groups),
            inventory_version=self.version,
            hash=plan_hash(self.request, groups, self.version),
        )
        stays = {group.index: group.from_spares for group in placed if group.member}
        return replanned(self.previous, made, sized.spares, stays, proven=chosen.proven, freed=freed)


def _group(request: Request, group: NewGroup) -> Group:
    scope = request.scope_names[group.scope]
    shares = tuple(Share(name, pods * request.pod_gpus) for name, pods in sorted(group.nodes.items()))
    return Group(group.index, group.pods * request.pod_gpus, group.place, scope, shares, tuple(group.spares))


MAX_SENTENCES = 32
"""Limit of groups that are named one by one; the others are counted."""
_RELEASED = "the other groups do not fit beside the undamaged groups, so that some of these may move as well"
NOT_PROVEN = "the search for fewer moves ended at its limit, so that fewer groups may have to move"


def _metrics(offer: Capacity, request: Request, groups: Sequence[Group]) -> PlanMetrics:
    """Return the costs of a plan. Where spares lack, the bound is for a plan without spares, which is also true."""
    lacking = any(len(group.spares) < request.spares for group in groups)
    wanted = replace(request, spares=0) if lacking else request
    scratch = best_placement(capacity(offer.inventory, request) if request.limits_nodes else offer, wanted)
    return metrics(offer, request, groups, scratch and scratch.bound)


def replanned(
    previous: FormerPlan, made: Plan, spares: int, stays: Mapping[int, int], *, proven: bool, freed: bool
) -> Replanned:
    """Return the new plan, and for each group of the former plan whether it stayed, was repaired or moved.

    `stays` has the groups that keep their domain and scope, each with its pods that took slots of spares. `proven` says
    that no fewer groups can move, and `freed` that undamaged groups may have moved.
    """
    before = {group.index: group for group in previous.groups}
    after = {group.index: group for group in made.groups}
    both = sorted(set(before) & set(after))
    kept = tuple(index for index in both if set(before[index].nodes) == set(after[index].nodes))
    changed = [index for index in both if index not in set(kept)]
    repaired = tuple(_repair(before[index], after[index], stays[index]) for index in changed if index in stays)
    moved = tuple(index for index in changed if index not in stays)
    sentences = [f"{len(kept)} of {len(before)} groups stay on their nodes", *[_RELEASED] * freed]
    for some in (_paid_otherwise(kept, before, after), _repairs(repaired, after), _moves(moved, before, after)):
        sentences += _first(some)
    sentences += [*_numbers(before, made), *_lacking(made, spares), *[NOT_PROVEN] * (not proven)]
    return Replanned(made, kept, repaired, moved, sum(repair.spares for repair in repaired), tuple(sentences))


def _repair(old: Group, new: Group, spares: int) -> Repair:
    had, has = Counter(dict(old.nodes)), Counter(dict(new.nodes))
    lost, taken = (tuple(Share(name, gpus) for name, gpus in sorted(some.items())) for some in (had - has, has - had))
    return Repair(new.index, lost, taken, spares)


def _numbers(before: Mapping[int, Group], made: Plan) -> Iterator[str]:
    """Yield which groups are new, and which are gone."""
    after = {group.index for group in made.groups}
    if new := sorted(after - set(before)):
        yield f"{_groups(new)} {agree(len(new), 'is', 'are')} new"
    if gone := sorted(set(before) - after):
        run = agree(len(gone), "runs", "run")
        yield f"{_groups(gone)} of the former plan {run} no more: the run is of {count_of(made.gpus, 'GPU')}"


def _lacking(made: Plan, spares: int) -> Iterator[str]:
    """Yield which groups lack spares."""
    short = [group.index for group in made.groups if len(group.spares) < spares]
    if short:
        count = sum(spares - len(group.spares) for group in made.groups)
        where = "in their scope" if made.request.ceilings else "on the nodes that the run may use"
        if not made.request.may_spread:
            where = "in their domain"
        missing = f"{count_of(count, 'spare')} {agree(count, 'finds', 'find')}"
        yield f"{missing} no slot {where}: {_groups(short)} {agree(len(short), 'has', 'have')} fewer than {spares}"


def _repairs(repaired: Sequence[Repair], after: Mapping[int, Group]) -> Iterator[str]:
    for repair in repaired:
        spares = f", {repair.spares} of its pods to spares" if repair.spares else ""
        lost = f"gives up {_shares(repair.lost)}" if repair.lost else "gives up no GPUs"
        taken = f"takes {_shares(repair.taken)}" if repair.taken else "takes no other GPUs"
        domain = "/".join(after[repair.group].place)
        yield f"group {repair.group} stays in domain {domain}: it {lost} and {taken}{spares}"


def _paid_otherwise(kept: Sequence[int], before: Mapping[int, Group], after: Mapping[int, Group]) -> Iterator[str]:
    for index in kept:
        if after[index].scope and before[index].scope != after[index].scope:
            yield f"group {index} stays on its nodes, and scope {after[index].scope!r} pays for it now"


def _moves(moved: Sequence[int], before: Mapping[int, Group], after: Mapping[int, Group]) -> Iterator[str]:
    for index in moved:
        old, new = before[index], after[index]
        if old.place != new.place:
            here, there = "/".join(old.place), "/".join(new.place)
            scope = f" and from scope {old.scope!r} to {new.scope!r}" if old.scope != new.scope else ""
            yield f"group {index} moves from {here} to {there}{scope}: it does not fit where it was"
        elif old.scope != new.scope:
            yield f"group {index} moves from scope {old.scope!r} to {new.scope!r} in its domain: that gives less now"
        else:
            yield f"group {index} is laid out anew in its domain: its pods are of another size"


def _first(sentences: Iterable[str]) -> list[str]:
    waiting = iter(sentences)
    found = list(islice(waiting, MAX_SENTENCES))
    more = sum(1 for _ in waiting)
    return [*found, f"and {count_of(more, 'more group')} alike"] if more else found


def _groups(numbers: Sequence[int]) -> str:
    return f"{agree(len(numbers), 'group', 'groups')} {listed([*map(str, numbers)], MAX_SENTENCES)}"


def _shares(shares: Sequence[Share]) -> str:
    return ", ".join(f"{count_of(share.gpus, 'GPU')} of {share.node}" for share in shares)
