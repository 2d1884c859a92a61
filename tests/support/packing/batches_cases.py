"""Batches as they come: queues of runs from a seed, and small ones as hypothesis draws them."""

import random
from collections.abc import Sequence

from gkm.packing.batches.batch import Queued
from gkm.packing.values import Ceiling, Node, Request
from hypothesis import strategies as st
from support.packing.cases import inventories, requests
from support.packing.inventories import SHAPES

_GROUP_NODES = ((1, 4), (2, 6), (3, 1), (4, 8), (8, 6), (12, 1), (16, 5), (18, 1))
"""Nodes of a group, and how often a run has such groups."""
_PRIORITIES = (0, 0, 0, 5, 9)


def queue(
    name: str, nodes: tuple[Node, ...], seed: int, *, runs: int = 64, load: float = 1.4, priorities: bool = True
) -> list[Queued]:
    """Return runs of whole-node pods that ask for `load` of what is free, the largest a tenth of all."""
    chance = random.Random(f"{name} {seed}")
    pod = SHAPES[name].node_gpus
    slots = sum(node.free // pod for node in nodes)
    weights = [chance.lognormvariate(0, 1) for _ in range(runs)]
    found = []
    for number, weight in enumerate(weights):
        sizes, often = zip(*_GROUP_NODES, strict=True)
        (group,) = chance.choices(sizes, often)
        share = min(0.1, load * weight / sum(weights))
        request = Request(max(1, round(slots * share / group)) * group * pod, pod, group * pod)
        found.append(Queued(f"run-{number:03}", request, None, chance.choice(_PRIORITIES) if priorities else 0))
    return found


@st.composite
def small(draw: st.DrawFn, *, scopes: tuple[str, ...] = ()) -> tuple[tuple[Node, ...], list[Queued]]:
    """Return up to three domains and three runs, some with nodes of their own, of two priorities.

    Where there are scopes, some of the runs have one or two of them.
    """
    nodes = draw(inventories(domains=3, scopes=scopes))
    runs = []
    for number in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from(scopes), max_size=2, unique=True)) if scopes else []
        ceilings = tuple(Ceiling(name, draw(st.integers(0, 24))) for name in names)
        request = draw(requests(nodes, groups=3, ceilings=ceilings))
        own = tuple(node for node in nodes if draw(st.booleans())) if draw(st.integers(0, 3)) == 0 else None
        runs.append(Queued(f"r{number}", request, own, draw(st.sampled_from([0, 0, 0, 1]))))
    return nodes, runs


@st.composite
def alike(draw: st.DrawFn, sizes: Sequence[int]) -> tuple[tuple[Node, ...], list[Queued]]:
    """Return runs of groups of these sizes on the same nodes, in pods of one GPU."""
    nodes = draw(inventories(domains=3))
    runs = []
    for number in range(draw(st.integers(1, 5))):
        group = draw(st.sampled_from(sizes))
        request = Request(group * draw(st.integers(1, 3)), 1, group)
        runs.append(Queued(f"r{number}", request, None, draw(st.sampled_from([0, 0, 0, 1]))))
    return nodes, runs
