"""Is a plan that was made again what it says, and does it leave alone what nothing happened to?"""

from collections.abc import Iterator, Sequence

from gkm.packing.replanning.values import Replanned
from gkm.packing.values import Group, Node, Request
from packing_checker import problems
from packing_replanning import all_spares_at_home, untouched


def wrong(nodes: Sequence[Node], former: Sequence[Group], request: Request, answer: Replanned) -> list[str]:
    """Return whatever is wrong, each in one sentence; nothing where all is well. The run is of its full size."""
    found = [problem for problem in problems(nodes, request, answer.plan) if not _stood(former, answer, problem)]
    return [*found, *_touched(nodes, former, request, answer)]


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
