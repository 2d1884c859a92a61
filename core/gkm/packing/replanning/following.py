"""Adapt a plan to pods that run on other nodes than planned: which groups they form, and where. Pure.

A group stays where the plan has it while pods hold its GPUs there. A group that pods hold where an older plan had it is
there again, such as on a node that returned. The rest is planned on the GPUs that pods hold and no other group has. A
group of which pods hold only a part stays where the plan has it: its other pods may still come.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Group, Node, Plan, Request, TooLargeError


def following(
    request: Request, plans: Sequence[Sequence[Group]], held: Mapping[str, int], nodes: Sequence[Node]
) -> tuple[Group, ...]:
    """Return the groups of a new plan that matches where pods run.

    `plans` are the run's plans, the current one first. `held` are the GPUs that its pods use by node, and `nodes` those
    of these nodes that have a known place.
    """
    current, *older = plans
    rest = Counter(held)
    found = {group.index: group for group in current if _take(rest, group)}
    places = {node.name: node.place for node in nodes}
    sizes = {group.index: group.gpus for group in current}
    for group in (group for groups in older for group in groups):
        if group.index in found or sizes.get(group.index) != group.gpus:
            continue
        if all(places.get(name, group.place) == group.place for name, _ in group.nodes) and _take(rest, group):
            found[group.index] = group
    open_groups = [group for group in current if group.index not in found]
    found.update((group.index, group) for group in _regrouped(request, open_groups, rest, nodes))
    return tuple(found.get(group.index, group) for group in current)


def _take(rest: Counter[str], group: Group) -> bool:
    """Take the GPUs of a group, without spares, from the rest, if that has them all; return whether it has."""
    if any(rest[name] < gpus for name, gpus in group.nodes):
        return False
    rest.subtract(dict(group.nodes))
    return True


def _regrouped(
    request: Request, groups: Sequence[Group], rest: Mapping[str, int], nodes: Sequence[Node]
) -> Iterator[Group]:
    """Yield as many groups as the rest gives, each with its new nodes."""
    free = [
        replace(node, free=min(rest[node.name], node.total)) for node in nodes if rest[node.name] >= request.pod_gpus
    ]
    if not groups or not free:
        return
    placed = _groups_of_best_plan(Inventory.from_nodes(free), request, groups)
    shared: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        for name, _ in group.nodes:
            shared[name].append(group)
    # A group of which pods hold a part, where it is, is the last to go elsewhere.
    fewest_first = sorted(groups, key=lambda group: sum(min(rest[name], gpus) for name, gpus in group.nodes))
    left = {group.index: group for group in fewest_first}
    for new in placed:
        near = [group for name, _ in new.nodes for group in shared[name] if group.index in left]
        old = next((group for group in (*near, *left.values()) if group.gpus == new.gpus), None)
        if old is not None:
            del left[old.index]
            yield replace(old, place=new.place, scope=new.scope, nodes=new.nodes)


def _groups_of_best_plan(inventory: Inventory, request: Request, groups: Sequence[Group]) -> Sequence[Group]:
    """Return the groups of the best plan for all groups, or for as many whole ones as there are GPUs for."""
    sized = replace(
        request, gpus=sum(group.gpus for group in groups), spares=0, malleability=None, balanced=False, per_area=()
    )
    try:
        found = plan(inventory, sized, "")
        if not isinstance(found, Plan) and found.largest_groups:
            found = plan(inventory, replace(sized, gpus=found.largest_groups * request.group_gpus), "")
    except TooLargeError:
        return ()
    return found.groups if isinstance(found, Plan) else ()
