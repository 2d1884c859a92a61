"""What a domain can take: the most groups for each number of groups whose spares lie elsewhere (calculus.md)."""

from typing import NamedTuple

from gkm.packing.values import Request


class Shape(NamedTuple):
    """Sizes of a run's groups in pods: of a whole one, its spares, and how many pods the last group has less."""

    pods: int
    spares: int
    missing: int

    @property
    def unit(self) -> int:
        """Return the slots of a whole group and its spares."""
        return self.pods + self.spares


class Step(NamedTuple):
    """Up to so many whole groups, the short one beside them or not, and how many of all have spares elsewhere."""

    groups: int
    overflow: int
    short: bool


def shape(request: Request) -> Shape:
    """Return the sizes of a request's groups."""
    return Shape(request.group_pods, request.spares, request.group_pods - request.last_pods)


def steps(slots: int, size: Shape, most: int, *, overflow: bool, share: int = 0) -> list[Step]:
    """Return the steps of a domain, those without the short group first; each with more groups than the one before.

    Without `overflow` all spares stay. No more than `most` groups are wanted. With a `share` a domain takes so many
    groups or none, the short one among them, and a step counts such shares: 1, or 0 beside the short group's share.
    """
    found: list[Step] = []
    for short in (False, True) if size.missing else (False,):
        ways = _ways(slots, size, most, overflow=overflow, short=short)
        if share:
            fewest = next((away for groups, away in ways if groups >= share), None)
            found += [] if fewest is None else [Step(1 - short, fewest, short)]
        else:
            found += [Step(groups - short, away, short) for groups, away in ways]
    return found


def _ways(slots: int, size: Shape, most: int, *, overflow: bool, short: bool) -> list[tuple[int, int]]:
    """Return (most groups, groups whose spares lie elsewhere), both rising; the short group is one of them or not."""
    offered = slots + (size.missing if short else 0)
    highest = min(offered // (size.pods if overflow else size.unit), most)
    found: list[tuple[int, int]] = []
    groups = min(offered // size.unit, highest)
    if groups:
        found.append((groups, 0))
    while groups < highest:
        # The fewest that must lie elsewhere for one group more; what that makes space for may be several.
        away = -(-((groups + 1) * size.unit - offered) // size.spares)
        groups = min((offered + away * size.spares) // size.unit, highest)
        found.append((groups, away))
    return found
