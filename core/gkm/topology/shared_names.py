"""Tell domains of one name in several clusters apart, in the rows of claims: docs/design/hypernodes.md, "Merge". Pure.

The key of a domain is (region, cluster, name); a name that is a UUID is a key by itself. A name that one cluster alone
uses stays the identity of its domain, so that names of HyperNodes and labels depend on nothing else; only a name that
several clusters use gets the cluster (or region) before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gkm.topology.claims import Claim, Row, escaped
from gkm.topology.locations import is_world_unique

AREAS = ("cluster", "region")
"""The levels that domains of one name may differ in."""


class _Shared(NamedTuple):
    """A name that several domains of a level have, by what identifies one of them so far."""

    level: int
    identity: str


def separated(rows: Iterable[Row], levels: Sequence[str]) -> Mapping[Row, Row]:
    """Return each row with the claims that identify its domains: those of shared names by cluster or region too.

    `levels` are the names of all levels, from the closest to the widest.
    """
    found = {row: row for row in rows}
    areas = [at for at, level in enumerate(levels) if level in AREAS]
    # From the widest one: clusters of one name in two regions are told apart before what is in them.
    for start, area in reversed([*zip([0, *areas], areas, strict=False)]):
        if shared := _shared(found.values(), start, area):
            found = {original: _prefixed(row, area, shared) for original, row in found.items()}
    return found


def _shared(rows: Iterable[Row], start: int, area: int) -> frozenset[_Shared]:
    """Return what of the levels from `start` lies in several domains of the level `area`, by claims of equal trust.

    A claim about the area that is less trusted than the domain divides none: cables that lead to two clusters are a
    contradiction, which is weighed later.
    """
    listed = list(rows)
    if len({claim.key for row in listed if (claim := row[area])}) < 2:  # noqa: PLR2004 -- nearly always one cluster
        return frozenset()
    first: dict[tuple[_Shared, int, int], tuple[str, str]] = {}
    shared: set[_Shared] = set()
    for row in listed:
        where = row[area]
        for level, claim in enumerate(row[start:area] if where else (), start):
            if where and claim and claim.identity and where.rank <= claim.rank:
                of = _Shared(level, claim.identity)
                if first.setdefault((of, claim.rank, where.rank), where.key) != where.key:
                    shared.update(() if is_world_unique(claim.name) else [of])
    return frozenset([*shared, *_inside(shared, listed, area)])


def _inside(shared: Iterable[_Shared], rows: Iterable[Row], area: int) -> Iterator[_Shared]:
    """Yield the domains whose names are unique in a parent that has a shared name."""
    parents = tuple(f"{one.identity}/" for one in shared)
    for row in rows if parents else ():
        for level, claim in enumerate(row[:area]):
            if claim and claim.identity.startswith(parents):
                yield _Shared(level, claim.identity)


def _prefixed(row: Row, area: int, shared: frozenset[_Shared]) -> Row:
    """Return a row whose claims of shared names have the identity of the area before their own."""
    where = row[area]
    if where is None:
        return row
    prefix = where.identity or escaped(where.name)

    def claimed(level: int, claim: Claim | None) -> Claim | None:
        if claim is None or (level, claim.identity) not in shared:
            return claim
        return claim._replace(identity=f"{prefix}/{claim.identity}")

    return tuple([claimed(level, claim) for level, claim in enumerate(row)])
