"""Says to a person what a new plan does to the groups of the former one, and why."""

from collections.abc import Iterable, Sequence
from itertools import islice

from gkm.api.grammar import agree, count_of
from gkm.packing.replanning.values import Repair, Standing
from gkm.packing.values import Group, Plan, Share

MAX_SENTENCES = 32
"""Of groups that are named one by one. What follows is counted."""
NOT_ALL_SEEN = (
    "not every way was looked at: the scopes and domains are too many for that, so that fewer groups may have to move"
)


def reasons(
    previous: Standing, made: Plan, kept: Sequence[int], repaired: Sequence[Repair], moved: Sequence[int]
) -> tuple[str, ...]:
    """Return one sentence for all that stays, and one for each group that is repaired or moves."""
    before = {group.index: group for group in previous.groups}
    after = {group.index: group for group in made.groups}
    said = [f"{len(kept)} of {len(before)} groups stay on their nodes"]
    said += _first(_paid_otherwise(kept, before, after))
    said += _first(_repairs(repaired, after))
    said += _first(_moves(moved, before, after))
    if new := sorted(set(after) - set(before)):
        said.append(f"{_groups(new)} {agree(len(new), 'is', 'are')} new")
    if gone := sorted(set(before) - set(after)):
        run = agree(len(gone), "runs", "run")
        said.append(f"{_groups(gone)} of the former plan {run} no more: the run is of {count_of(made.gpus, 'GPU')}")
    return tuple(said)


def lacking(made: Plan, spares: int) -> list[str]:
    """Return which groups lack spares; nothing where all have so many."""
    short = [group.index for group in made.groups if len(group.spares) < spares]
    if not short:
        return []
    count = sum(spares - len(group.spares) for group in made.groups)
    where = "in their scope" if made.request.ceilings else "on the nodes that the run may use"
    if not made.request.may_spread:
        where = "in their domain"
    missing = f"{count_of(count, 'spare')} {agree(count, 'finds', 'find')}"
    have = agree(len(short), "has", "have")
    return [f"{missing} no room {where}: {_groups(short)} {have} fewer than {spares}"]


def reasons_from_scratch(made: Plan, former: int, moved: int) -> tuple[str, ...]:
    """Return why the run was planned as if it had no plan."""
    return (
        "beside the groups that could stay the others do not fit, so that the run is planned from scratch",
        f"{moved} of {former} groups move; the run is of {count_of(made.gpus, 'GPU')}",
    )


def _repairs(repaired: Sequence[Repair], after: dict[int, Group]) -> Iterable[str]:
    for repair in repaired:
        spares = f", {repair.spares} of its pods to spares" if repair.spares else ""
        lost = f"gives up {_shares(repair.lost)}" if repair.lost else "gives up nothing"
        taken = f"takes {_shares(repair.taken)}" if repair.taken else "takes nothing instead"
        yield f"group {repair.group} stays in domain {after[repair.group].place.domain}: it {lost} and {taken}{spares}"


def _paid_otherwise(kept: Sequence[int], before: dict[int, Group], after: dict[int, Group]) -> Iterable[str]:
    for index in kept:
        if after[index].scope and before[index].scope != after[index].scope:
            yield f"group {index} stays on its nodes, and scope {after[index].scope!r} pays for it now"


def _moves(moved: Sequence[int], before: dict[int, Group], after: dict[int, Group]) -> Iterable[str]:
    for index in moved:
        old, new = before[index], after[index]
        if old.place != new.place:
            here, there = "/".join(old.place), "/".join(new.place)
            scope = f" and from scope {old.scope!r} to {new.scope!r}" if old.scope != new.scope else ""
            yield f"group {index} moves from {here} to {there}{scope}: there is no room for it where it was"
        elif old.scope != new.scope:
            yield f"group {index} moves from scope {old.scope!r} to {new.scope!r} in its domain: that gives less now"
        else:
            yield f"group {index} is laid out anew in its domain: its pods are of another size"


def _first(sentences: Iterable[str]) -> list[str]:
    waiting = iter(sentences)
    said = list(islice(waiting, MAX_SENTENCES))
    more = sum(1 for _ in waiting)
    return [*said, f"and {count_of(more, 'more group')} alike"] if more else said


def _groups(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:MAX_SENTENCES])
    more = f" and {len(numbers) - MAX_SENTENCES} more" if len(numbers) > MAX_SENTENCES else ""
    return f"{agree(len(numbers), 'group', 'groups')} {shown}{more}"


def _shares(shares: Sequence[Share]) -> str:
    return ", ".join(f"{count_of(share.gpus, 'GPU')} of {share.node}" for share in shares)
