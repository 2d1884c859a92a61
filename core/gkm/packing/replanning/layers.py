"""Number the groups that move to a domain, so that consecutive groups (a layer) lie in one area (calculus.md). Pure.

A layer is every so many groups by number. The groups that stay say where their layers are; the other layers go where
areas have room for them, the outermost first, in the order of numbers and of areas.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gkm.packing.inventory import Inventory
from gkm.packing.values import AreaRule, Request


def arrivals(
    inventory: Inventory,
    request: Request,
    staying: Mapping[int, int],
    open_numbers: Iterable[int],
    coming: Sequence[int],
) -> list[int]:
    """Return the number of each group that moves to the domains `coming`.

    `staying` has the domain of the other groups. The domains have room for whole layers.
    """
    waiting = [number for number in open_numbers if number not in staying]
    if not request.layers:
        return waiting[: len(coming)]
    rules = [(rule, inventory.areas(rule.level).tolist()) for rule in reversed(request.layers)]
    places = Counter([*staying.values(), *coming])
    of_domain: dict[int, list[int]] = defaultdict(list)
    for number, domain in _placed(rules, staying, [*staying, *waiting], places):
        of_domain[domain].append(number)
    left = {domain: iter(sorted(numbers)) for domain, numbers in of_domain.items()}
    return [next(left[domain]) for domain in coming]


_Rules = Sequence[tuple[AreaRule, Sequence[int]]]
"""The layers, the outermost first, each with the area of every domain."""


def _placed(
    rules: _Rules, staying: Mapping[int, int], numbers: Sequence[int], places: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield each number that does not stay, with its domain; `places` are the groups of each domain."""
    if not rules:
        left = Counter(places)
        left.subtract(Counter(staying[number] for number in numbers if number in staying))
        yield from zip(
            sorted(number for number in numbers if number not in staying), sorted(left.elements()), strict=True
        )
        return
    (rule, areas), *inner = rules
    layers: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        layers[number // rule.multiple].append(number)
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for domain, count in places.items():
        counts[areas[domain]][domain] += count
    of_area: dict[int, list[int]] = defaultdict(list)
    for _, members in sorted(layers.items(), key=lambda item: (not staying.keys() & item[1], item[0])):
        stays = [areas[staying[number]] for number in members if number in staying]
        room = (area for area, here in sorted(counts.items()) if len(of_area[area]) + rule.multiple <= here.total())
        of_area[stays[0] if stays else next(room)] += members
    for area, members in of_area.items():
        yield from _placed(inner, staying, members, counts[area])
