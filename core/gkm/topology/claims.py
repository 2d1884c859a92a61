"""What providers claim about a node, level by level, the most trusted provider first. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology.placements import Place

# Names are part of identities; these characters separate the parts (`_escaped`).
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F", ":": "%3A"})


class Claim(NamedTuple):
    """A domain of a level, by one provider. `rank` is the provider's: 0 is the most trusted one.

    `identity` differs between all domains of a level; it is "" while the parent that makes the name unique is unknown.
    """

    identity: str
    name: str
    rank: int

    @property
    def key(self) -> tuple[str, str]:
        """Return the part that is equal in two claims of one domain."""
        return self.identity, self.name

    @property
    def shown(self) -> str:
        """Return the domain for a person."""
        return self.identity or self.name


Row = tuple[Claim | None, ...]
"""The claims about a node, from the closest level to the widest. Thousands of nodes have a few hundred rows."""


_SPARE_ROWS = 1024


class Rows:
    """Makes rows from the places of all providers, and returns equal rows as one object until they are forgotten."""

    def __init__(self, settings: Topology) -> None:
        widest = len(settings.levels) - 1
        self._scoped = [
            level.unique == "parent" and position < widest for position, level in enumerate(settings.levels)
        ]
        self._none: Place = ("",) * len(settings.levels)
        self._rows: dict[tuple[Place | None, ...], Row] = {}
        self._unique: dict[Row, Row] = {}

    def row(self, places: Sequence[Place | None]) -> Row:
        """Return the row of a node with a place, or none, by each provider."""
        key = tuple(places)
        row = self._rows.get(key)
        if row is None:
            decided = self._decide(key)
            row = self._rows[key] = self._unique.setdefault(decided, decided)
        return row

    def forget(self, used: int) -> None:
        """Forget rows if there are many more than the `used` ones: an agent can name another domain all the time."""
        if len(self._rows) > 2 * used + _SPARE_ROWS:
            self._rows, self._unique = {}, {}

    def _decide(self, places: Sequence[Place | None]) -> Row:
        claims = [list(self._claims(rank, place or self._none)) for rank, place in enumerate(places or (None,))]
        return tuple([next((claim for claim in level if claim), None) for level in zip(*claims, strict=True)])

    def _claims(self, rank: int, place: Place) -> Iterator[Claim | None]:
        """Yield the claims of one provider. It names a domain within its own parent, if it names that."""
        identities = [""] * (len(place) + 1)
        for level in range(len(place) - 1, -1, -1):
            name = escaped(place[level])
            above = identities[level + 1]
            identities[level] = name if not self._scoped[level] else f"{above}/{name}" if name and above else ""
        for name, identity in zip(place, identities, strict=False):
            yield Claim(identity, name, rank) if name else None


def escaped(name: str) -> str:
    """Return a name as a part of an identity."""
    return name.translate(_ESCAPES)


def scoped(row: Row) -> Claim | None:
    """Return the closest claim of a row with its identity, None if the parent of its name is unknown."""
    identity = ""
    for claim in reversed(row):
        identity = "" if claim is None else claim.identity or (identity and f"{identity}/{escaped(claim.name)}")
    closest = row[0]
    return closest._replace(identity=identity) if closest and identity else None
