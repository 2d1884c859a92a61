"""A run that has a plan is planned again: the fewest groups move, and none that can stay as it is (calculus.md). Pure.

Untouched groups stay where they are, and the placement model places the others beside them. Only where that has no
solution the untouched have the price of a move as well. What has no solution then does not fit at all: a malleable run
becomes smaller, any other is refused.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from time import monotonic

from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.errors import TooLargeError
from gkm.packing.hashing import plan_hash
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.program import SECONDS
from gkm.packing.replanning.dealing import deal
from gkm.packing.replanning.groups import NewGroup
from gkm.packing.replanning.model import Assignment, assign, matched
from gkm.packing.replanning.remains import Remains, released, remains
from gkm.packing.replanning.result import cost, replanned
from gkm.packing.replanning.values import FormerPlan, Replanned
from gkm.packing.self_check import verify
from gkm.packing.values import Group, Node, Plan, Refusal, Request, Share


def replan(
    nodes: Iterable[Node] | Inventory, previous: FormerPlan, request: Request, inventory_version: str
) -> Replanned | Refusal:
    """Return a plan for a run that has one, which moves the fewest groups and touches none that can stay as it is.

    `nodes` are those that the run may use now, without the lost and the cordoned; what the run itself takes counts as
    free. Where groups cannot be placed beside those that lost nothing, some of these move as well; where that does not
    fit either, a malleable run keeps what stands and becomes smaller; else the refusal is that of a plan from scratch.

    Raises:
        InvalidInventoryError: the nodes contradict each other or themselves.
        TooLargeError: the run and the inventory are together too large to be planned.
        InvalidPlanError: the planner broke its own rules.
    """
    inventory = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
    task = _Task(capacity(inventory, request), request, previous, inventory_version, monotonic() + SECONDS)
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
        """Return the plan in which untouched groups stay as they are; None where the others do not fit beside them."""
        what = self._remains(sized)
        chosen = None if what is None else assign(self.offer, sized, what, self.deadline)
        return None if what is None or chosen is None else self._result(sized, what, chosen)

    def with_untouched_released(self) -> Replanned | None:
        """Return the plan with the fewest moves where untouched groups may move as well; None where nothing fits."""
        what = self._remains(self.request)
        # In one scope groups of one size are interchangeable: a touched one can move wherever an untouched one can, so
        # that only the short one, which fits where no whole one does, may have to make way.
        alike = len(self.request.ceilings) <= 1 and not self.request.depth and not self.request.balanced
        freed = [] if what is None else [one for one in what.untouched if not alike or one.index == what.short]
        if what is None or not freed:
            return None
        what = released(what, freed)
        chosen = assign(self.offer, self.request, what, self.deadline)
        return None if chosen is None else self._result(self.request, what, chosen, freed=True)

    def smaller(self) -> Replanned | None:
        """Return the largest smaller size of a malleable run that keeps what stands; None if there is none."""
        step, steps = self.request.size_step, self.request.size_steps
        # What is larger than all slots together need not be tried, and may be far more.
        most = int(self.offer.domain_slots.sum()) * self.request.pod_gpus
        first = max(1, -(-(self.request.gpus - most) // step))
        sizes = range(self.request.gpus - first * step, self.request.gpus - steps * step - 1, -step)

        def fits(gpus: int, *, balanced: bool = False) -> bool:
            sized = replace(self.request, gpus=gpus, balanced=balanced)
            what = self._remains(sized)
            return what is not None and assign(self.offer, sized, what, self.deadline, any_way=True) is not None

        # A smaller run fits wherever a larger does: False and then True. With equal shares some sizes fit.
        at = bisect_left(sizes, 1, key=fits)
        if self.request.balanced:
            at = next((size for size in range(at, len(sizes)) if fits(sizes[size], balanced=True)), len(sizes))
        return self.beside_untouched(replace(self.request, gpus=sizes[at])) if at < len(sizes) else None

    def from_scratch(self, fresh: Plan, *, proven: bool) -> Replanned:
        """Return a plan from scratch in which groups that find their domain and scope in it stay there."""
        sized = replace(self.request, gpus=fresh.gpus)
        what = self._remains(sized)
        if what is not None:
            what = released(what, what.untouched)
            found = self._result(sized, what, matched(self.offer, sized, what, fresh.groups, proven=proven))
            if found is not None:
                return found
        return replanned(self.previous, fresh, sized.spares, {}, proven=proven, freed=False)

    def _remains(self, sized: Request) -> Remains | None:
        """Return what remains for a run of a size; None where that is nothing, or the slots are too few."""
        if sized.gpus // sized.pod_gpus > int(self.offer.domain_slots.sum()):
            return None
        what = remains(self.offer, sized, self.previous.groups, self.request.groups)
        return what if what.untouched or what.touched else None

    def _result(self, sized: Request, what: Remains, chosen: Assignment, *, freed: bool = False) -> Replanned | None:
        """Return the plan of an assignment; None where its spares find no slots, and may not be lacking."""
        placed = deal(self.offer, sized, what, chosen)
        if not what.lenient and any(len(group.spares) < sized.spares for group in placed):
            return None
        groups = tuple(_group(sized, group) for group in placed)
        verify(self.offer.inventory, sized, groups)
        made = Plan(
            request=self.request,
            gpus=sized.gpus,
            groups=groups,
            metrics=cost(self.offer, sized, groups),
            inventory_version=self.version,
            hash=plan_hash(self.request, groups, self.version),
        )
        stays = {group.index: group.from_spares for group in placed if group.member}
        return replanned(self.previous, made, sized.spares, stays, proven=chosen.proven, freed=freed)


def _group(request: Request, group: NewGroup) -> Group:
    scope = request.ceilings[group.scope].scope if request.ceilings else ""
    shares = tuple(Share(name, pods * request.pod_gpus) for name, pods in sorted(group.nodes.items()))
    return Group(group.index, group.pods * request.pod_gpus, group.place, scope, shares, tuple(group.spares))
