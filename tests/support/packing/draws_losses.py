"""Random re-plan cases from a seed: groups that lie somewhere, and then nodes, ceilings or sizes that are others.

The former plan comes from dice and not from the planner: it is valid and seldom the best, so that a draw is the same
case whatever the planner becomes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from gkm.packing.values import Ceiling, Group, Node, Request
from support.packing.draws import inventory, request, scope_names
from support.packing.draws_placement import placed


@dataclass(frozen=True)
class Loss:
    """The nodes that are left, what the run itself takes being free; the groups as they were; the run as it is now."""

    nodes: tuple[Node, ...]
    former: tuple[Group, ...]
    request: Request


def loss_drawn(seed: int) -> Loss:
    """Return the re-plan case of a seed."""
    chance = Random(f"loss {seed}")
    former: tuple[Group, ...] = ()
    while not former:
        names = scope_names(chance)
        nodes = inventory(chance, names)
        run = request(chance, nodes, names)
        former = _fewer(chance, placed(chance, nodes, run))
    sizes = sum(group.gpus for group in former)
    return _changed(chance, Loss(nodes, former, replace(run, gpus=sizes)))


def _fewer(chance: Random, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return some of the groups, numbered anew, so that others find slots beside them; or all."""
    if chance.random() < 0.3:
        return tuple(groups)
    stay = [group for group in groups if chance.random() < 0.8]
    return tuple(replace(group, index=index) for index, group in enumerate(stay))


def _changed(chance: Random, loss: Loss) -> Loss:
    """Return the case after one to three changes; the first mostly takes nodes that groups are on."""
    changes = [_nodes_lost, _nodes_lost, _domain_lost, _nodes_taken, _ceiling_lowered, _resized]
    for number in range(chance.choice((1, 1, 1, 2, 3))):
        loss = chance.choice(changes[:3] if number == 0 and chance.random() < 0.6 else changes)(chance, loss)
    return loss


def _nodes_lost(chance: Random, loss: Loss) -> Loss:
    used = sorted({name for group in loss.former for name, _ in group.nodes})
    lost = set(chance.sample(used, min(len(used), chance.choice((1, 1, 2, 3)))))
    return replace(loss, nodes=tuple(node for node in loss.nodes if node.name not in lost))


def _domain_lost(chance: Random, loss: Loss) -> Loss:
    lost = chance.choice(loss.former).place
    return replace(loss, nodes=tuple(node for node in loss.nodes if node.place != lost))


def _nodes_taken(chance: Random, loss: Loss) -> Loss:
    """Another run takes some of what is free, or of what this run had."""
    return replace(
        loss,
        nodes=tuple(
            replace(node, free=chance.randint(0, node.free)) if chance.random() < 0.25 else node for node in loss.nodes
        ),
    )


def _ceiling_lowered(chance: Random, loss: Loss) -> Loss:
    run = loss.request
    if not run.ceilings:
        return _nodes_lost(chance, loss)
    lowered = chance.choice(run.ceilings)
    gpus = max(0, lowered.gpus - chance.randint(1, 2) * (run.group_gpus + run.spares * run.pod_gpus))
    ceilings = tuple(Ceiling(lowered.scope, gpus) if ceiling == lowered else ceiling for ceiling in run.ceilings)
    return replace(loss, request=replace(run, ceilings=ceilings))


def _resized(chance: Random, loss: Loss) -> Loss:
    """The run has more pods or fewer, by up to two groups."""
    run = loss.request
    most = 2 * run.group_pods
    pods = run.gpus // run.pod_gpus + chance.choice((-1, 1)) * chance.randint(1, most)
    return replace(loss, request=replace(run, gpus=max(1, pods) * run.pod_gpus))
