"""The judge is judged: counting slots by domain and scope gives what placing pod after pod on nodes gives."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

from gkm.packing.values import Ceiling, Node, Request
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.brute import Best, best
from support.packing.cases import Case, inventories, requests
from support.packing.costs import Cost

Taken = list[tuple[str, tuple[Node, ...], tuple[Node, ...]]]
"""Of every group its scope, the nodes of its pods and those of its spares; a node that takes two is there twice."""


@st.composite
def tiny_cases(draw: st.DrawFn) -> Case:
    names = tuple(draw(st.sampled_from([(), (), ("s1",), ("s1", "s2"), ("s1", "s2"), ("s2", "s3")])))
    nodes = tuple(replace(node, free=min(node.free, 3)) for node in draw(inventories(domains=2, scopes=names)))[:5]
    free = sum(node.free for node in nodes)
    ceilings = tuple(Ceiling(name, draw(st.sampled_from([free, free - free // 3, free // 2]))) for name in names)
    run = draw(requests(nodes, groups=3, ceilings=ceilings))
    return nodes, replace(run, malleability=None, spares=min(run.spares, 2))


@settings(max_examples=examples(300))
@given(tiny_cases())
def test_counting_slots_is_as_good_as_placing_every_pod(case: Case) -> None:
    nodes, run = case
    assert best(nodes, run) == literally(nodes, run)


def literally(nodes: tuple[Node, ...], run: Request) -> Best | None:
    """Return the best of all plans that there are, made pod by pod."""
    usable = [node for node in nodes if not run.ceilings or {c.scope for c in run.ceilings} & node.scopes]
    found = [priced(usable, run, taken) for taken in _plans(usable, run, Counter(), 0)]
    return min(found, key=lambda plan: (plan.cost.by(run.policy), plan.domains), default=None)


def priced(usable: list[Node], run: Request, taken: Taken) -> Best:
    used = {pods[0].place for _, pods, _ in taken}
    free = sum(node.free for node in usable if node.place in used)
    elsewhere = sum(any(spare.place != pods[0].place for spare in spares) for _, pods, spares in taken)
    return Best(run.gpus, Cost.of(elsewhere, free, used), tuple(sorted(used)))


def _plans(usable: list[Node], run: Request, given: Counter[str], index: int) -> Iterator[Taken]:
    """Yield every way to place the groups from `index` on. `given` are pods by node, and by scope with its name."""
    if index == run.groups:
        yield []
        return
    pods = run.last_pods if index == run.groups - 1 else run.group_pods
    for ceiling in run.ceilings or (Ceiling("", sum(node.free for node in usable)),):
        scope = ceiling.scope
        of_scope = [node for node in usable if not scope or scope in node.scopes]
        for one in combinations_with_replacement(of_scope, pods):
            for spares in combinations_with_replacement(of_scope, run.spares):
                after = given + Counter(node.name for node in one + spares)
                after[f"scope {scope}"] += pods + run.spares
                near = run.may_spread or all(spare.place == one[0].place for spare in spares)
                whole = all(after[node.name] * run.pod_gpus <= node.free for node in one + spares)
                within = after[f"scope {scope}"] * run.pod_gpus <= ceiling.gpus
                if near and whole and within and len({node.place for node in one}) == 1:
                    for rest in _plans(usable, run, after, index + 1):
                        if run.may_spread or not rest or rest[0][1][0].place == one[0].place:
                            yield [(scope, one, spares), *rest]
