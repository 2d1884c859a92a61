"""Is a plan that was made again what it says, and does it leave alone what nothing happened to?"""

from collections.abc import Iterator, Sequence

from gkm.packing.values import Group, Node, Replanned, Request
from support.packing.checker import problems
from support.packing.replanning import all_spares_at_home, most_spares, untouched


def wrong(
    nodes: Sequence[Node], former: Sequence[Group], request: Request, answer: Replanned, *, released: bool = False
) -> list[str]:
    """Return whatever is wrong, each in one sentence; nothing where all is well. The run is of its full size.

    Where groups are `released`, those that lost nothing may move as well.
    """
    found = [
        problem
        for problem in problems(nodes, request, answer.plan)
        if not _stood(former, answer, problem) and not _stood_beside(former, answer, problem)
    ]
    short = [group.index for group in answer.plan.groups if len(group.spares) < request.spares]
    if short:
        found = [problem for problem in found if not _lacking(request, answer, problem)]
    touched = [] if released else _touched(nodes, former, request, answer)
    return [*found, *_short_of_spares(nodes, request, answer, short), *touched]


def _stood_beside(former: Sequence[Group], answer: Replanned, problem: str) -> bool:
    """Return whether a spare shares a node with its group because both stood there before: nobody moves for that."""
    after = {group.index: group for group in answer.plan.groups}
    return any(
        problem.startswith((f"a spare of group {group.index} shares node ", f"spares of groups {group.index} and "))
        and {spare.node for spare in set(group.spares) & set(after[group.index].spares)} & dict(group.nodes).keys()
        for group in former
        if group.index in answer.kept
    )


def _lacking(request: Request, answer: Replanned, problem: str) -> bool:
    """Return whether that is said because spares are fewer than asked for. That they must be is judged apart."""
    # Which groups have spares comes before how near these are.
    return "spares stay within their" in problem or any(
        problem == f"group {group.index} has {len(group.spares)} spares, not {request.spares}"
        for group in answer.plan.groups
        if len(group.spares) < request.spares
    )


def _short_of_spares(nodes: Sequence[Node], request: Request, answer: Replanned, short: Sequence[int]) -> Iterator[str]:
    count = sum(len(group.spares) for group in answer.plan.groups)
    most = most_spares(nodes, request, answer.plan.groups)
    if count != most:
        yield f"{count} spares stand ready, and there is room for {most}"
    said = [reason for reason in answer.reasons if "find no slot" in reason or "finds no slot" in reason]
    names = f"{', '.join(map(str, short))} {'has' if len(short) == 1 else 'have'} fewer"
    if len(said) != bool(short) or (short and names not in said[0]):
        yield f"groups {short} lack spares, and what is said is {said}"


def _stood(former: Sequence[Group], answer: Replanned, problem: str) -> bool:
    """Return whether a spare is further than it could be because it stood there before: that one stays."""
    if "spares stay within their" in problem:
        return not all_spares_at_home(former)
    after = {group.index: group for group in answer.plan.groups}
    return "is nearer and has a slot left" in problem and any(
        problem.startswith(f"a spare of group {group.index} is on {spare.node}, ")
        for group in former
        for spare in group.spares
        if group.index in after and after[group.index].place == group.place
    )


def _touched(nodes: Sequence[Node], former: Sequence[Group], request: Request, answer: Replanned) -> Iterator[str]:
    after = {group.index: group for group in answer.plan.groups}
    for group in untouched(nodes, former, request):
        now = after[group.index]
        if (now.nodes, now.place, now.scope) != (group.nodes, group.place, group.scope):
            yield f"group {group.index} was touched for no reason"
        if group.index not in answer.kept:
            yield f"group {group.index} stays, and is not said to be kept"
