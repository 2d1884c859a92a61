"""Apply a run's rules for each area, such as a limit of groups for each rack (calculus.md, Rules for each area).

A rule about racks needs racks that are known: a domain that is in no single known rack offers nothing to such a run.
Where each area of a rule about nodes is one domain whose nodes are in the same scopes, the nodes with the most slots
hold all that any so many nodes hold: the rule is kept by leaving the others aside, and the tables can place the run.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gkm.api.grammar import count_of
from gkm.packing.domains.capacity import Capacity
from gkm.packing.values import AreaRule, Level, Request

if TYPE_CHECKING:
    from gkm.packing.inventory import Integers

NodeKind = tuple[int, int]
"""A number of a domain and a number of a kind of nodes."""


def without_racks(offer: Capacity, request: Request) -> int:
    """Return how many domains a run with a rule about racks cannot use, because their rack is not known."""
    if all(rule.level is not Level.RACK for rule in request.per_area):
        return 0
    return int((offer.inventory.areas(Level.RACK) < 0).sum())


def rule_text(rule: AreaRule) -> str:
    """Return a rule in words that follow "with"."""
    most = [(rule.max_groups, "group"), (rule.max_nodes, "node")]
    parts = [f"at most {count_of(count, what)}" for count, what in most if count is not None]
    if rule.multiple > 1:
        parts.append(f"groups in multiples of {rule.multiple}")
    return f"{' and '.join(parts) or 'any number of groups'} in each {rule.level}"


def by_area(offer: Capacity, rule: AreaRule) -> Mapping[int, list[int]]:
    """Return the numbers of the domains with slots, grouped by area of the rule's level."""
    found: dict[int, list[int]] = defaultdict(list)
    areas = offer.inventory.areas(rule.level).tolist()
    for domain in np.flatnonzero(offer.domain_slots).tolist():
        found[areas[domain]].append(domain)
    return found


def reserved(offer: Capacity, request: Request) -> tuple[Capacity, Request]:
    """Replace the rules about nodes that can be kept by leaving out slots; return the reduced capacity and request."""
    for rule in request.per_area:
        if rule.max_nodes is not None and _one_kind_each(offer, rule):
            offer = _with_largest(offer, by_area(offer, rule).values(), rule.max_nodes)
            request = replace(request, per_area=tuple(_without_nodes(request.per_area, rule)))
    return offer, request


def _one_kind_each(offer: Capacity, rule: AreaRule) -> bool:
    areas, counts = offer.inventory.areas(rule.level), (offer.slots > 0).sum(axis=1)
    used = counts > 0
    return bool((np.bincount(areas[used], weights=counts[used]) <= 1).all()) if used.any() else True


def _with_largest(offer: Capacity, areas: Iterable[Iterable[int]], most: int) -> Capacity:
    left = np.zeros_like(offer.node_slots)
    slots, usable = offer.node_slots.tolist(), (offer.node_kinds >= 0).tolist()
    for domains in areas:
        nodes = [number for domain in domains for number in offer.inventory.in_domain(domain) if usable[number]]
        for number in sorted(nodes, key=lambda number: (-slots[number], number))[:most]:
            left[number] = slots[number]
    return offer.with_node_slots(left)


def _without_nodes(rules: Iterable[AreaRule], kept: AreaRule) -> Iterable[AreaRule]:
    """Yield the rules, without the limit of nodes of one of them; a rule without any number is none."""
    for rule in rules:
        if rule is not kept:
            yield rule
        elif rule.max_groups is not None or rule.multiple > 1:
            yield replace(rule, max_nodes=None)


def by_slots(offer: Capacity, alone: Collection[str] = ()) -> Capacity:
    """Return a capacity whose nodes of one kind have equal numbers of slots; nodes in `alone` are a kind each."""
    names = [node.name if node.name in alone else "" for node in offer.inventory.nodes] if alone else None
    keys: dict[tuple[int, int, str], int] = {}
    kinds = np.full_like(offer.node_kinds, -1)
    for number, (kind, slots) in enumerate(zip(offer.node_kinds.tolist(), offer.node_slots.tolist(), strict=True)):
        if kind >= 0:
            kinds[number] = keys.setdefault((kind, slots, names[number] if names else ""), len(keys))
    found = tuple(offer.kinds[kind] for kind, _, _ in keys)
    empty = np.zeros((len(offer.inventory.places), max(1, len(keys))), dtype=np.int64)
    return replace(offer, node_kinds=kinds, kinds=found, slots=empty).with_node_slots(offer.node_slots)


def nodes_of_kinds(offer: Capacity) -> dict[NodeKind, tuple[int, int]]:
    """Return, for each domain and kind of nodes, the number of nodes with slots and the slots of one node."""
    found: dict[NodeKind, tuple[int, int]] = {}
    rows = zip(offer.inventory.domain_of.tolist(), offer.node_kinds.tolist(), offer.node_slots.tolist(), strict=True)
    for domain, kind, slots in rows:
        if kind >= 0 and slots:
            count, _ = found.get((domain, kind), (0, slots))
            found[domain, kind] = count + 1, slots
    return found


def used_slots(offer: Capacity, counts: Mapping[NodeKind, int]) -> "Integers":
    """Return the slots of each node if only `counts` nodes of each domain and kind are used, the first ones."""
    left = dict(counts)
    slots = np.zeros_like(offer.node_slots)
    domains, kinds = offer.inventory.domain_of.tolist(), offer.node_kinds.tolist()
    for number, key in enumerate(zip(domains, kinds, strict=True)):
        if left.get(key, 0) and offer.node_slots[number]:
            left[key] -= 1
            slots[number] = offer.node_slots[number]
    return slots
