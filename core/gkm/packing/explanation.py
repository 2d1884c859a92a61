"""Explain a plan in sentences with numbers, and compare it with the plans under other policies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gkm.api.grammar import agree, count_of
from gkm.api.plans import PlanMetrics
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.fixes import changes
from gkm.packing.inventory import Integers, Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Fix, Plan, Policy, Refusal, Request, TooLargeError


@dataclass(frozen=True, slots=True)
class Alternative:
    """The figures of the plan under one policy, or a sentence that says why it has none. `chosen`: the run's policy."""

    policy: Policy
    metrics: PlanMetrics | None
    chosen: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan uses these domains, or which changes make a refused run fit; with the plans under all policies.

    `reasons` of a refusal are its message, and why changes that may do are not among the `fixes`.
    """

    alternatives: tuple[Alternative, ...]
    reasons: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()


def explain(inventory: Inventory, answer: Plan | Refusal, request: Request) -> Explanation:
    """Return why a run was planned like this on an inventory, or why it was refused, with the fixes that are found."""
    if isinstance(answer, Refusal):
        looked = changes(inventory, request)
        # No policy makes a run fit: it only chooses among plans.
        nothing = tuple(Alternative(each, None, each is request.policy, "the run does not fit") for each in Policy)
        return Explanation(nothing, (answer.message, *looked.notes), looked.fixes)
    compared = tuple(_alternative(inventory, answer, policy) for policy in Policy)
    metrics = {each.policy: each.metrics for each in compared if each.metrics is not None}
    return Explanation(compared, _reasons(capacity(inventory, answer.request), answer, metrics))


def _alternative(inventory: Inventory, answer: Plan, policy: Policy) -> Alternative:
    if policy is answer.request.policy:
        return Alternative(policy, answer.metrics, chosen=True)
    try:
        other = plan(inventory, replace(answer.request, policy=policy), answer.inventory_version)
    except TooLargeError as error:
        return Alternative(policy, None, chosen=False, problem=str(error))
    if isinstance(other, Refusal):
        return Alternative(policy, None, chosen=False, problem=other.message)
    return Alternative(policy, other.metrics, chosen=False)


def _reasons(offer: Capacity, answer: Plan, by_policy: Mapping[Policy, PlanMetrics]) -> tuple[str, ...]:
    """Return a few sentences: size, spares, what the policy compares first, the next of it, and what others give.

    `by_policy` are the metrics of every policy under which the run was planned.
    """
    sized = replace(answer.request, gpus=answer.gpus, malleability=None)
    return (*_size(answer), *_spares(answer), *_domains(offer, answer, sized), *_trade(answer, by_policy))


def _size(answer: Plan) -> Iterator[str]:
    if answer.gpus < answer.request.gpus:
        yield f"the run has {answer.gpus} of {answer.request.gpus} GPUs: the largest of its sizes that fits"


def _spares(answer: Plan) -> Iterator[str]:
    if away := answer.metrics.spares_elsewhere:
        yield (
            f"the run does not fit with all spares in the domains of their groups: {count_of(away, 'group')} "
            f"{agree(away, 'has', 'have')} some elsewhere, and it cannot be fewer"
        )
    elif answer.request.spares:
        yield "all spares are in the domains of their groups"


def _domains(offer: Capacity, answer: Plan, sized: Request) -> Iterator[str]:
    metrics = answer.metrics
    if not sized.may_spread:
        many = int((offer.domain_slots >= sized.all_pods).sum())
        # A domain that could hold it may be one whose scopes do not give enough.
        within = " that its scopes allow" if len(sized.ceilings) > 1 else ""
        held = f"the run may not spread: {count_of(many, 'domain')} can hold all of it"
        left = count_of(metrics.stranded_gpus, "GPU")
        yield (
            f"{held}; of those{within}, this has the least left over, {left}"
            if many > 1
            else f"{held}, and {left} over"
        )
        return
    over = f"this leaves the least over: {_stranded(offer, answer)}"
    domains, blocks = f"it has the fewest domains, {metrics.domains}", f"it has the fewest blocks, {metrics.blocks}"
    if sized.policy is Policy.FEWEST_BLOCKS:
        yield _count(offer, answer, sized, blocks=True)
        first, then = f"the plans in {count_of(metrics.blocks, 'block')}", (domains, over)
    elif sized.policy is Policy.LEAST_WASTE:
        yield f"no plan leaves less over: {_stranded(offer, answer)}"
        first, then = "the plans that leave as little", (domains, blocks)
    else:
        yield _count(offer, answer, sized, blocks=False)
        first, then = f"the plans in {count_of(metrics.domains, 'domain')}", (over, blocks)
    for reason in (*_areas(offer, answer), *then):
        yield f"of {first}, {reason}"
        first = "those"


def _areas(offer: Capacity, answer: Plan) -> Iterator[str]:
    """Yield how many regions and clusters a plan has, where there is more than one."""
    for names, what in ((1, "regions"), (2, "clusters")):
        if len({place[:names] for place in offer.inventory.places}) > 1:
            yield f"it has the fewest {what}, {len({group.place[:names] for group in answer.groups})}"


def _stranded(offer: Capacity, answer: Plan) -> str:
    if not answer.metrics.spares_elsewhere:
        return f"{_free(answer.metrics.stranded_gpus, 'stays', 'stay')} free in the domains that it uses"
    # Spares that leave may lie in domains without groups, so what is compared is what was free before.
    used = {group.place for group in answer.groups}
    places = offer.inventory.places
    free = sum(int(offer.free[number]) for number, place in enumerate(places) if place in used)
    return f"{_free(free, 'was', 'were')} free in the domains that it uses"


def _count(offer: Capacity, answer: Plan, sized: Request, *, blocks: bool) -> str:
    """Return why fewer domains or blocks are not enough: what the largest hold, where that proves it."""
    metrics = answer.metrics
    name, used = ("block", metrics.blocks) if blocks else ("domain", metrics.domains)
    spares = " with their spares" if sized.spares and not metrics.spares_elsewhere else ""
    groups = "the one group" if sized.groups == 1 else f"the {sized.groups} groups"
    held = f"{count_of(used, name)} {agree(used, 'holds', 'hold')} {groups}{spares}"
    if used == 1:
        return held
    fewer = used - 1
    most = _most_groups(fewer, _capacities(offer, answer, sized, blocks=blocks))
    # Spares that leave, and ceilings, can ask for more domains than the groups alone: then these figures are no proof.
    if metrics.gap or most >= sized.groups:
        return f"{held}; fewer cannot, once scopes, spares and rules for areas are taken into account"
    largest = f"the {fewer} largest hold" if fewer > 1 else "the largest holds"
    without = ", their spares left aside" if metrics.spares_elsewhere else ""
    cannot = f"no {fewer} can" if fewer > 1 else "one alone cannot"
    return f"{held}; {cannot}: {largest} {most} at most{without}"


def _capacities(offer: Capacity, answer: Plan, sized: Request, *, blocks: bool) -> tuple[Integers, Integers]:
    """Return the whole groups that each domain or block holds, and which hold one more if it is the short one."""
    unit = sized.group_pods + (0 if answer.metrics.spares_elsewhere else sized.spares)
    whole = offer.domain_slots // unit
    extra = (offer.domain_slots + sized.missing_pods) // unit - whole
    if not blocks:
        return whole, extra
    counted = [np.zeros(int(offer.inventory.blocks[-1]) + 1, dtype=np.int64) for _ in range(2)]
    np.add.at(counted[0], offer.inventory.blocks, whole)
    np.maximum.at(counted[1], offer.inventory.blocks, extra)
    return counted[0], counted[1]


def _most_groups(count: int, capacities: tuple[Integers, Integers]) -> int:
    """Return the most groups that so many domains hold, one of the groups short."""
    whole, extra = capacities
    order = np.argsort(-whole, kind="stable")
    whole, extra = whole[order], extra[order]
    most = int(whole[:count].sum())
    if extra[:count].any():
        return most + 1
    # One that can also hold the short group may take the place of the last of them.
    other = int(whole[count:][extra[count:] > 0].max(initial=-1))
    return max(most, most - int(whole[count - 1]) + other + 1)


def _trade(answer: Plan, by_policy: Mapping[Policy, PlanMetrics]) -> Iterator[str]:
    """Yield the improvements that each other policy gives, or that no policy gives any."""
    mine = answer.metrics
    others = {policy: metrics for policy, metrics in by_policy.items() if policy is not answer.request.policy}
    differing = {policy: metrics for policy, metrics in others.items() if _figures(metrics) != _figures(mine)}
    for policy, metrics in differing.items():
        yield (
            f"{policy} would take {count_of(metrics.domains, 'domain')} in {count_of(metrics.blocks, 'block')} "
            f"and leave {count_of(metrics.stranded_gpus, 'GPU')} over; "
            f"this takes {count_of(mine.domains, 'domain')} in {count_of(mine.blocks, 'block')} "
            f"and leaves {mine.stranded_gpus}"
        )
    if others and not differing:
        yield f"{' and '.join(sorted(others))} would give the same figures"


def _figures(metrics: PlanMetrics) -> tuple[int, int, int]:
    return metrics.domains, metrics.blocks, metrics.stranded_gpus


def _free(gpus: int, one: str, many: str) -> str:
    return f"{count_of(gpus, 'GPU')} {agree(gpus, one, many)}"
