"""Says to a person what a new plan does to the groups of the former one, and why."""

from collections.abc import Iterable, Sequence
from itertools import islice

from gkm.packing.replanning.values import Repair, Standing
from gkm.packing.values import Group, Plan, Share

MAX_SENTENCES = 32
"""Of groups that are named one by one. What follows is counted."""


def reasons(
    previous: Standing, made: Plan, kept: Sequence[int], repaired: Sequence[Repair], moved: Sequence[int]
) -> tuple[str, ...]:
    """Return one sentence for all that stays, and one for each group that is repaired or moves."""
    before = {group.index: group for group in previous.groups}
    after = {group.index: group for group in made.groups}
    said = [f"{len(kept)} of {len(before)} groups stay on their nodes"]
    said += _first(_repairs(repaired, after))
    said += _first(_moves(moved, before, after))
    if new := sorted(set(after) - set(before)):
        said.append(f"groups {_names(new)} are new")
    if gone := sorted(set(before) - set(after)):
        said.append(f"groups {_names(gone)} of the former plan run no more: the run is of {made.gpus} GPUs")
    return tuple(said)


def reasons_from_scratch(made: Plan, former: int, moved: int) -> tuple[str, ...]:
    """Return why the run was planned as if it had no plan."""
    return (
        "beside the groups that could stay the others do not fit, so that the run is planned from scratch",
        f"{moved} of {former} groups move; the run is of {made.gpus} GPUs",
    )


def _repairs(repaired: Sequence[Repair], after: dict[int, Group]) -> Iterable[str]:
    for repair in repaired:
        spares = f", {repair.spares} of its pods to spares" if repair.spares else ""
        lost = f"gives up {_shares(repair.lost)}" if repair.lost else "gives up nothing"
        taken = f"takes {_shares(repair.taken)}" if repair.taken else "takes nothing instead"
        yield f"group {repair.group} stays in domain {after[repair.group].place.domain}: it {lost} and {taken}{spares}"


def _moves(moved: Sequence[int], before: dict[int, Group], after: dict[int, Group]) -> Iterable[str]:
    for index in moved:
        old, new = before[index], after[index]
        if old.place != new.place:
            here, there = "/".join(old.place), "/".join(new.place)
            yield f"group {index} moves from {here} to {there}: what it lost cannot be replaced where it was"
        elif old.scope != new.scope:
            yield f"group {index} moves from scope {old.scope!r} to {new.scope!r} in its domain: that gives less now"
        else:
            yield f"group {index} is laid out anew in its domain: its pods are of another size"


def _first(sentences: Iterable[str]) -> list[str]:
    waiting = iter(sentences)
    said = list(islice(waiting, MAX_SENTENCES))
    more = sum(1 for _ in waiting)
    return [*said, f"and {more} groups more alike"] if more else said


def _names(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:MAX_SENTENCES])
    return shown if len(numbers) <= MAX_SENTENCES else f"{shown} and {len(numbers) - MAX_SENTENCES} more"


def _shares(shares: Sequence[Share]) -> str:
    return ", ".join(f"{share.gpus} GPUs of {share.node}" for share in shares)
