"""The smallest case that still has a fault, and the code that makes it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gkm.packing.values import Ceiling, Node, Policy, Request
from support.packing.draws import Draw
from support.packing.draws_losses import Loss


def shrunk(draw: Draw, has_fault: Callable[[Draw], bool]) -> Draw:
    """Return a case that has the fault too and of which no smaller neighbor has it."""
    while (smaller := next((case for case in _smaller(draw) if has_fault(case)), None)) is not None:
        draw = smaller
    return draw


def shrunk_loss(loss: Loss, has_fault: Callable[[Loss], bool]) -> Loss:
    """Return a re-plan case without the nodes and groups that the fault does not need."""
    while (smaller := next((case for case in _smaller_losses(loss) if has_fault(case)), None)) is not None:
        loss = smaller
    return loss


def _smaller(draw: Draw) -> Iterator[Draw]:
    for number in range(len(draw.nodes)):
        yield replace(draw, nodes=draw.nodes[:number] + draw.nodes[number + 1 :])
    for request in _smaller_requests(draw.request):
        yield replace(draw, request=request)
    for number, node in enumerate(draw.nodes):
        for free in {node.free // 2, node.free - 1} - {node.free, -1}:
            changed = replace(node, free=free, total=free)
            yield replace(draw, nodes=(*draw.nodes[:number], changed, *draw.nodes[number + 1 :]))


def _smaller_requests(request: Request) -> Iterator[Request]:
    for number in range(len(request.ceilings)):
        yield replace(request, ceilings=request.ceilings[:number] + request.ceilings[number + 1 :])
    for pods in {request.group_pods, 1}:
        if request.gpus > pods * request.pod_gpus:
            yield replace(request, gpus=request.gpus - pods * request.pod_gpus)
    if request.spares:
        yield replace(request, spares=request.spares - 1)
    for number, ceiling in enumerate(request.ceilings):
        for gpus in {ceiling.gpus // 2, ceiling.gpus - 1} - {ceiling.gpus, -1}:
            changed = Ceiling(ceiling.scope, gpus)
            yield replace(request, ceilings=(*request.ceilings[:number], changed, *request.ceilings[number + 1 :]))


def _smaller_losses(loss: Loss) -> Iterator[Loss]:
    for number in range(len(loss.nodes)):
        yield replace(loss, nodes=loss.nodes[:number] + loss.nodes[number + 1 :])
    # The last group is the short one, so that it stays; the others are numbered anew.
    whole = loss.request.group_gpus
    for number in range(len(loss.former) - 1):
        left = loss.former[:number] + loss.former[number + 1 :]
        if loss.request.gpus > whole:
            former = tuple(replace(group, index=index) for index, group in enumerate(left))
            yield Loss(loss.nodes, former, replace(loss.request, gpus=loss.request.gpus - whole))
    if loss.request.spares:
        former = tuple(replace(group, spares=group.spares[:-1]) for group in loss.former)
        yield Loss(loss.nodes, former, replace(loss.request, spares=loss.request.spares - 1))


def written(case: Draw | Loss) -> str:
    """Return code that makes a case; a node is (name, place, free, scopes)."""
    lines = [f"    {_node(node)}," for node in sorted(case.nodes, key=lambda node: (node.place, node.name))]
    run = case.request
    ceilings = "".join(f'Ceiling("{ceiling.scope}", {ceiling.gpus}), ' for ceiling in run.ceilings)
    request = (
        f"Request({run.gpus}, {run.pod_gpus}, {run.group_gpus}, spares={run.spares}, may_spread={run.may_spread}, "
        f"policy=Policy.{Policy(run.policy).name}, ceilings=({ceilings}))"
    )
    text = "\n".join(["nodes = (", *lines, ")", f"request = {request}"])
    if isinstance(case, Loss):
        text += "\nformer = (\n" + "\n".join(f"    {group!r}," for group in case.former) + "\n)"
    return text


def _node(node: Node) -> str:
    scopes = ", ".join(f'"{scope}"' for scope in sorted(node.scopes))
    place = ", ".join(f'"{name}"' for name in node.place)
    of = f"frozenset({{{scopes}}})" if scopes else "frozenset()"
    return f'Node("{node.name}", Location({place}), {node.total}, {node.free}, {of})'
