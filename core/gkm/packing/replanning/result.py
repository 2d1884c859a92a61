"""A new plan held against the former one: what stays, what moves, what it costs, and in sentences why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from gkm.api.grammar import agree, count_of
from gkm.packing.domains.capacity import Capacity
from gkm.packing.plan import metrics
from gkm.packing.replanning.values import FormerPlan, Repair, Replanned
from gkm.packing.values import Group, Metrics, Plan, Policy, Request, Share

__all__ = ("cost", "replanned")

MAX_SENTENCES = 32
"""Of groups that are named one by one. What follows is counted."""
_RELEASED = "beside the groups that lost nothing the others do not fit, so that some of those may move as well"
NOT_PROVEN = "the search for fewer moves ended at its limit, so that fewer groups may have to move"


def cost(offer: Capacity, request: Request, groups: Sequence[Group]) -> Metrics:
    """Return what a plan costs. Where spares lack its bound is that of a plan without any, which is true too."""
    numbers = {place: number for number, place in enumerate(offer.inventory.places)}
    domains = sorted({numbers[group.place] for group in groups})
    if all(len(group.spares) == request.spares for group in groups):
        return metrics(offer, request, domains, groups)
    bare = metrics(offer, replace(request, spares=0), domains, [replace(group, spares=()) for group in groups])
    used = {group.place for group in groups}
    inside = sum(spare.gpus for group in groups for spare in group.spares if spare.place in used)
    elsewhere = sum(any(spare.place != group.place for spare in group.spares) for group in groups)
    found = replace(bare, stranded_gpus=bare.stranded_gpus - inside, spares_elsewhere=elsewhere)
    if request.policy is not Policy.LEAST_WASTE:
        return found
    least = max(0, bare.lower_bound - inside)
    return replace(found, lower_bound=least, gap=found.stranded_gpus - least)


def replanned(
    previous: FormerPlan, made: Plan, spares: int, stays: Mapping[int, int], *, proven: bool, freed: bool
) -> Replanned:
    """Return the plan and what became of each group of the former one.

    `stays` has the groups that keep their domain and scope, each with its pods that took slots of spares. `proven` says
    that no fewer groups can move, and `freed` that groups may have moved that lost nothing.
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
        lost = f"gives up {_shares(repair.lost)}" if repair.lost else "gives up nothing"
        taken = f"takes {_shares(repair.taken)}" if repair.taken else "takes nothing instead"
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
    shown = ", ".join(str(number) for number in numbers[:MAX_SENTENCES])
    more = f" and {len(numbers) - MAX_SENTENCES} more" if len(numbers) > MAX_SENTENCES else ""
    return f"{agree(len(numbers), 'group', 'groups')} {shown}{more}"


def _shares(shares: Sequence[Share]) -> str:
    return ", ".join(f"{count_of(share.gpus, 'GPU')} of {share.node}" for share in shares)
