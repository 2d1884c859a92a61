"""Small trees and runs on them, as hypothesis draws them: tight, uneven and full of equals."""

from gkm.packing.values import Ceiling, Location, Malleability, Node, Policy, Request
from hypothesis import strategies as st

Case = tuple[tuple[Node, ...], Request]


@st.composite
def places(draw: st.DrawFn, most: int) -> list[Location]:
    """Return domains in few blocks, so that blocks are shared. A domain's own name may be there in several blocks."""
    names = st.builds(
        Location,
        st.sampled_from(["north", "north", "south"]),
        st.sampled_from(["c1", "c1", "c2"]),
        st.sampled_from(["b1", "b2", "b3"]),
        st.sampled_from(["d1", "d2", "d3", "d4"]),
    )
    count = draw(st.integers(0, most))
    return draw(st.lists(names, min_size=count, max_size=count, unique=True))


@st.composite
def inventories(draw: st.DrawFn, *, domains: int, scopes: tuple[str, ...] = ()) -> tuple[Node, ...]:
    """Return up to `domains` domains of three nodes at most. Nodes of a domain may differ in size and in scope."""
    found: list[Node] = []
    by_node = draw(st.booleans())
    widest = draw(st.integers(1, len(scopes))) if scopes else 0
    some = [frozenset(scopes[at : at + width]) for width in range(1, widest + 1) for at in range(len(scopes))]
    taken_by = st.sampled_from([*some, *some, frozenset[str]()])
    size = st.just(draw(st.integers(2, 8))) if draw(st.booleans()) else st.integers(0, 8)
    for place in draw(places(domains)):
        alike = draw(taken_by)
        for _ in range(draw(st.integers(1, 3))):
            total = draw(size)
            free = total if draw(st.booleans()) else draw(st.integers(0, total))
            found.append(Node(f"n{len(found)}", place, total, free, draw(taken_by) if by_node else alike))
    return tuple(draw(st.permutations(found)))


@st.composite
def requests(draw: st.DrawFn, nodes: tuple[Node, ...], *, groups: int, ceilings: tuple[Ceiling, ...] = ()) -> Request:
    """Return a run of up to so many groups, seldom much larger than what is free. The last group may be short."""
    pod = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))
    group_pods, spares = draw(st.sampled_from([1, 2, 2, 3, 4])), draw(st.sampled_from([0, 0, 1, 1, 2, 3]))
    slots = sum(node.free // pod for node in nodes)
    most = min(groups, slots // (group_pods + spares) + 1)
    pods = max(1, draw(st.sampled_from([most, most - 1, most - 1, most * 2 // 3, most // 2, most // 3]))) * group_pods
    pods -= draw(st.integers(0, group_pods - 1)) if draw(st.booleans()) else 0
    malleability = None
    if draw(st.integers(0, 3)) == 0:
        malleability = Malleability(draw(st.integers(1, 2 * pod)), draw(st.integers(1, pods * pod)))
    return Request(
        gpus=pods * pod,
        pod_gpus=pod,
        group_gpus=group_pods * pod,
        spares=spares,
        may_spread=draw(st.integers(0, 4)) != 0,
        policy=draw(st.sampled_from(list(Policy))),
        ceilings=ceilings,
        malleability=malleability,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return an inventory of up to six domains and a run of up to six groups."""
    nodes = draw(inventories(domains=6))
    return nodes, draw(requests(nodes, groups=6))


@st.composite
def scoped_cases(draw: st.DrawFn) -> Case:
    """Return a smaller case whose run has one to three scopes, which may overlap and may or may not bind."""
    names = tuple(draw(st.lists(st.sampled_from(["s1", "s2", "s3"]), min_size=1, max_size=3, unique=True)))
    small = len(names) > 2
    nodes = draw(inventories(domains=3 if small else 4, scopes=names))
    free = sum(node.free for node in nodes)
    given = st.one_of(st.just(free + 1), st.integers(free // 3, free), st.integers(0, free))
    ceilings = tuple(Ceiling(name, draw(given)) for name in names)
    return nodes, draw(requests(nodes, groups=3 if small else 4, ceilings=ceilings))
