"""What each run asks of domains at least, whatever else is planned (calculus.md, Several runs)."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.placement import fits
from gkm.packing.plan import plan
from gkm.packing.values import Plan, Request


class Item(NamedTuple):
    """Pods that lie in one domain together, and how many such items there are."""

    pods: int
    copies: int


@dataclass(frozen=True, slots=True)
class Demand:
    """A run that is admitted has at most `gpus`, for which it needs the `items`; each of up to `steps` more needs more.

    A step is worth `step_gpus` and needs the `step_items`; only runs that may be smaller have any. A run that does not
    fit alone has 0 GPUs.
    """

    gpus: int
    items: tuple[Item, ...] = ()
    step_gpus: int = 0
    step_items: tuple[Item, ...] = ()
    steps: int = 0

    @property
    def most(self) -> int:
        """Return the most GPUs that the run can have."""
        return self.gpus + self.steps * self.step_gpus


def demand(offer: Capacity, request: Request) -> Demand:
    """Return what a run asks for that may use what is offered.

    Raises:
        TooLargeError: the run and the inventory are together too large to be solved exactly.
    """
    largest = _largest_alone(offer, request)
    if not largest:
        return Demand(0)
    if request.malleability is None:
        return Demand(largest, _items(request, largest))
    group = request.group_gpus
    step = request.size_step
    smallest = largest - replace(request, gpus=largest).size_steps * step
    if smallest == largest:
        return Demand(largest, _items(request, largest))
    # Pods of a last group that is short are given for nothing, so that the sizes between are steps of whole groups.
    short = largest % group if step % group == 0 else group - request.pod_gpus
    whole, steps = smallest // group, largest // group - smallest // group
    return Demand(
        min(largest, whole * group + short),
        _items(request, whole * group),
        group if steps else 0,
        _items(request, group),
        steps,
    )


def _items(request: Request, gpus: int) -> tuple[Item, ...]:
    """Return what must lie in one domain each: spares of a run that may spread can lie anywhere, each for itself."""
    pods, group = gpus // request.pod_gpus, request.group_pods
    spares = -(-pods // group) * request.spares
    items = [Item(group, pods // group), Item(pods % group, 1), Item(1, spares)]
    if not request.may_spread:
        items = [Item(pods + spares, 1)]
    return tuple(item for item in items if item.pods and item.copies)


def _largest_alone(offer: Capacity, request: Request) -> int:
    """Return the GPUs that the run has at most where no other is planned."""
    if request.malleability is None:
        return request.gpus if fits(offer, request) else 0
    alone = plan(offer.inventory, request, "")
    return alone.gpus if isinstance(alone, Plan) else 0
