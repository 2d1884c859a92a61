"""The last step of every planner: the sums of a finished plan, held against the nodes and the request.

The planners prove their plans by argument; this module adds up what they wrote. A plan that exceeds a node, a ceiling
or the size of its run would be bound by schedulers and stop the runs of others, so it is an error and never an answer.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gkm.api.grammar import count_of
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Request


class InvalidPlanError(RuntimeError):
    """A planner broke its own rules: a defect of GKM, not of the run."""


def verify(inventory: Inventory, request: Request, groups: Sequence[Group]) -> None:
    """Check the sums of the groups of a plan; `request` is of the size that was planned.

    Group numbers may have gaps, since a malleable run that becomes smaller leaves numbers out.

    Raises:
        InvalidPlanError: the first sum that is wrong.
    """
    problem = next(_problems(inventory, request, groups), None)
    if problem:
        raise InvalidPlanError(
            f"the planner made an invalid plan: {problem}; it was not used. "
            "Report this with the node list and the run as a defect of GKM"
        )


def _problems(inventory: Inventory, request: Request, groups: Sequence[Group]) -> Iterator[str]:
    indexes = [group.index for group in groups]
    if indexes != sorted(set(indexes)):
        yield "a group number is there twice or out of order"
    if len(groups) != request.groups:
        yield f"it has {count_of(len(groups), 'group')} instead of {request.groups}"
    if sum(group.gpus for group in groups) != request.gpus:
        yield f"it has {count_of(sum(group.gpus for group in groups), 'GPU')} instead of {request.gpus}"
    taken: Counter[str] = Counter()
    scopes: Counter[str] = Counter()
    for group in groups:
        given = 0
        for name, gpus in group.nodes:
            taken[name] += gpus
            given += gpus
        if given != group.gpus:
            yield f"group {group.index} has {count_of(group.gpus, 'GPU')} and its nodes give {given}"
        if len(group.spares) > request.spares:
            yield f"group {group.index} has {count_of(len(group.spares), 'spare')} instead of {request.spares}"
        for spare in group.spares:
            taken[spare.node] += spare.gpus
            given += spare.gpus
        scopes[group.scope] += given
    yield from _exceeded(inventory, request, taken, scopes)


def _exceeded(inventory: Inventory, request: Request, taken: Counter[str], scopes: Counter[str]) -> Iterator[str]:
    for name, gpus in taken.items():
        number = inventory.numbers.get(name)
        free = 0 if number is None else inventory.nodes[number].free
        if gpus > free:
            yield f"it takes {count_of(gpus, 'GPU')} of node {name}, which has {free} free"
    for ceiling in request.ceilings:
        if scopes[ceiling.scope] > ceiling.gpus:
            gives = count_of(scopes[ceiling.scope], "GPU")
            yield f"scope {ceiling.scope} gives {gives} and has a ceiling of {ceiling.gpus}"
