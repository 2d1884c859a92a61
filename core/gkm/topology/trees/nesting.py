"""Decide the domains of each node from all sources, and which domain contains which (docs/decisions/0037). Pure.

1. By node: at each level the first source that names a domain gives it; an NVLink domain that NVML measured comes
   before a name that was written. Nodes of one path are one row.
2. By domain, from the closest level: its rows must agree about each wider level. If they differ, the strongest row
   decides, and each row that says otherwise loses the claim of the later source. A row is as strong as the later of
   the two sources that it is from: the source of its domain, and the source of the wider domain.
3. Equally strong rows that differ give no decision: each loses the claim of its later source. If one source makes both
   claims of these rows, it contradicts itself: the nodes of the domain are quarantined, and are ignored in later steps,
   so one mistake affects few nodes.

A majority is no proof, so the set of rows matters, not how many nodes have each. An NVLink domain that NVML measured is
the exception (docs/decisions/0028): another network does not dissolve it. Nodes that this puts elsewhere than most of
the domain are quarantined; without a majority, the other network is ignored.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology.labels import is_of_cliques, level_keys
from gkm.topology.locations import is_world_unique
from gkm.topology.placements import Place

# Names are part of identities; these characters separate the parts (`escaped`).
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F", ":": "%3A"})
_SPARE_ROWS = 1024


class Claim(NamedTuple):
    """A source's statement that a node is in a domain.

    `rank` is the place of the source in the order of trust, 0 first. `identity` differs between all domains of a level;
    it is "" while the parent that makes the name unique is unknown.
    """

    identity: str
    name: str
    rank: int

    @property
    def key(self) -> tuple[str, str]:
        """Return identity and name, which are equal in two claims about the same domain."""
        return self.identity, self.name

    @property
    def shown(self) -> str:
        """Return the domain's name for a message."""
        return self.identity or self.name

    @property
    def is_measured(self) -> bool:
        """Return whether NVML measured the domain: its name is a UUID."""
        return is_world_unique(self.name)


Row = tuple[Claim | None, ...]
"""The claims about one node, from the closest level to the widest. Thousands of nodes have a few hundred rows."""


class Elsewhere(NamedTuple):
    """An ignored statement: the source `other` puts a node into another domain than the used source `rank`."""

    level: int
    other: int
    rank: int

    @property
    def is_measured(self) -> bool:
        """Return whether the less trusted of the two sources is used, because NVML measured its domain."""
        return self.rank > self.other


class Path(NamedTuple):
    """The claims about a node that are used, and the differing claims of its other sources."""

    row: Row
    elsewhere: tuple[Elsewhere, ...] = ()


class Rows:
    """Creates rows (a node's claims, by level) from the places of all sources; equal rows are the same object."""

    def __init__(self, settings: Topology) -> None:
        widest = len(settings.levels) - 1
        self._scoped = [level.unique == "parent" and at < widest for at, level in enumerate(settings.levels)]
        self._cliques = [
            is_of_cliques(level.name, keys, settings)
            for level, keys in zip(settings.levels, level_keys(settings), strict=True)
        ]
        self._paths: dict[tuple[Place | None, ...], Path] = {}
        self._unique: dict[Row, Row] = {}

    def row(self, places: Sequence[Place | None]) -> Row:
        """Return the row of a node; `places` has its place, or None, by each source."""
        return self.path(places).row

    def path(self, places: Sequence[Place | None]) -> Path:
        """Return the row of a node with the ignored claims; `places` has its place, or None, by each source."""
        key = tuple(places)
        path = self._paths.get(key)
        if path is None:
            row, elsewhere = self._decide(key)
            path = self._paths[key] = Path(self._unique.setdefault(row, row), elsewhere)
        return path

    def forget(self, used: int) -> None:
        """Drop all cached rows if there are many more than the `used` ones."""
        if len(self._paths) > 2 * used + _SPARE_ROWS:
            self._paths, self._unique = {}, {}

    def _decide(self, places: Sequence[Place | None]) -> Path:
        told = [self._claims(rank, place) for rank, place in enumerate(places) if place]
        row: list[Claim | None] = []
        elsewhere: list[Elsewhere] = []
        for level, is_clique in enumerate(self._cliques):
            claims = [claim for source in told if (claim := source[level])]
            measured = (claim for claim in claims if is_clique and claim.is_measured)
            chosen = next(measured, claims[0] if claims else None)
            row.append(chosen)
            if chosen is not None:
                others = (claim.rank for claim in claims if claim.name != chosen.name)
                elsewhere += [Elsewhere(level, other, chosen.rank) for other in others]
        return Path(tuple(row), tuple(elsewhere))

    def _claims(self, rank: int, place: Place) -> list[Claim | None]:
        """Return the claims of one source. It names a domain within its own parent, if it names that."""
        claims: list[Claim | None] = []
        above = ""
        for name, is_scoped in zip(place[::-1], self._scoped[::-1], strict=True):
            own = escaped(name)
            above = own if not is_scoped else f"{above}/{own}" if own and above else ""
            claims.append(Claim(above, name, rank) if name else None)
        return claims[::-1]


def escaped(name: str) -> str:
    """Escape the name of a domain for use in an identity."""
    return name.translate(_ESCAPES)


def _scoped(row: Row) -> Claim | None:
    """Return the closest claim of a row with its identity, None if the parent of its name is unknown."""
    identity = ""
    for claim in reversed(row):
        identity = "" if claim is None else claim.identity or (identity and f"{identity}/{escaped(claim.name)}")
    closest = row[0]
    return closest._replace(identity=identity) if closest and identity else None


class NestingConflict(NamedTuple):
    """A domain that lies in several domains of a wider level, with the rows that say so: its nodes are quarantined."""

    level: int
    name: str
    above: int
    rows: Mapping[str, Sequence[Row]]


class Overruled(NamedTuple):
    """A claim that is not used because a stronger source contradicts it.

    It is that the domain lies in `other` at the level `above`, or, without `other`, that nodes lie in the domain.
    """

    rank: int
    level: int
    name: str
    above: int
    other: str = ""
    is_measured: bool = False
    """Whether the claim is ignored because it contradicts a domain that NVML measured."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each row, the claims that are used, or the conflict that quarantines its nodes.

    `by_number`: the numbers of nodes decided something, so another number of a row may decide otherwise.
    """

    places: Mapping[Row, Row]
    conflicts: Mapping[Row, NestingConflict]
    overruled: frozenset[Overruled]
    by_number: bool = False


def nest(rows: Mapping[Row, Row], sizes: Mapping[Row, int]) -> Nesting:
    """Return which claims of each row are used; `sizes` has the number of nodes with each row."""
    weighing = _Weighing(dict(rows), sizes)
    # No level is wider than the last one, so its names are unique and agree.
    for level in range(max(map(len, rows.values()), default=1) - 1):
        _complete_names(weighing.now, level)
        for domain in _rows_of(_unequal(weighing.now, level), weighing.now, level):
            weighing.settle(domain, level)
    return Nesting(weighing.now, weighing.conflicts, frozenset(weighing.overruled), weighing.by_number)


def _complete_names(now: dict[Row, Row], level: int) -> None:
    """Complete the names that are unique in their parent. Within an unknown one they go."""
    pending = [original for original, row in now.items() if (claim := row[level]) and not claim.identity]
    for original in pending:
        row = now[original]
        now[original] = (*row[:level], _scoped(row[level:]), *row[level + 1 :])


def _unequal(now: Mapping[Row, Row], level: int) -> set[str]:
    """Return the domains of a level whose rows differ in their claims about wider levels."""
    known: dict[str, Row] = {}
    return {
        claim.identity
        for row in now.values()
        if (claim := row[level]) and known.setdefault(claim.identity, above := row[level + 1 :]) != above
    }


def _rows_of(identities: set[str], now: Mapping[Row, Row], level: int) -> list[dict[Row, Row]]:
    """Return the rows of domains of a level."""
    domains: dict[str, dict[Row, Row]] = {}
    for original, row in now.items() if identities else ():
        claim = row[level]
        if claim is not None and claim.identity in identities:
            domains.setdefault(claim.identity, {})[original] = row
    return list(domains.values())


class _Statement(NamedTuple):
    """A row says that a domain (`inner`) lies in a wider one (`outer`)."""

    original: Row
    inner: Claim
    outer: Claim

    @property
    def weakness(self) -> tuple[int, int]:
        """Return the later source of both claims; if equally late, the claim about the wider level gives way."""
        return max(self.inner.rank, self.outer.rank), self.outer.rank

    @property
    def loses_inner(self) -> bool:
        """Return whether the nodes are not in the domain if the statement does not count; else not in the wider one."""
        return self.inner.rank > self.outer.rank and not self.inner.is_measured


class _Verdict(NamedTuple):
    """Where a domain lies at a wider level, None if that is not known; or which rows are not in it.

    With a `conflict` the nodes of these rows are quarantined.
    """

    outer: Claim | None = None
    overruled: frozenset[Overruled] = frozenset()
    leaving: frozenset[Row] = frozenset()
    conflict: NestingConflict | None = None
    by_number: bool = False


@dataclass(slots=True)
class _Weighing:
    """The decisions so far; `now` has the rest of each row."""

    now: dict[Row, Row]
    sizes: Mapping[Row, int]
    conflicts: dict[Row, NestingConflict] = field(default_factory=dict)
    overruled: set[Overruled] = field(default_factory=set)
    by_number: bool = False

    def settle(self, members: dict[Row, Row], level: int) -> None:
        """Decide where a domain lies, and which of its rows are in it."""
        while members:
            agreed: Row = ()
            reports: set[Overruled] = set()
            verdict = _Verdict()
            # From the widest level: it may tell which of several parents of one name is meant.
            for above in reversed(range(level + 1, len(next(iter(members))))):
                verdict = _weigh(_said(members, level, above, agreed), _Question(level, above, members, self.sizes))
                self.by_number |= verdict.by_number
                if verdict.leaving:
                    break
                agreed, reports = (verdict.outer, *agreed), reports | verdict.overruled
            else:
                self.overruled |= reports
                self.now |= {original: (*row[: level + 1], *agreed) for original, row in members.items()}
                return
            self._leave(members, level, verdict)

    def _leave(self, members: dict[Row, Row], level: int, verdict: _Verdict) -> None:
        # The remaining rows' claims about wider levels are weighed anew, without the rows that leave.
        self.overruled |= {entry for entry in verdict.overruled if not entry.other}
        for original in verdict.leaving:
            row = members.pop(original)
            if verdict.conflict is None:
                self.now[original] = (*row[:level], None, *row[level + 1 :])
            else:
                del self.now[original]
                self.conflicts[original] = verdict.conflict


class _Question(NamedTuple):
    """In which domain of the level `above` a domain of `level` lies; `members` are its rows."""

    level: int
    above: int
    members: Mapping[Row, Row]
    sizes: Mapping[Row, int]

    def ranks(self) -> Iterator[tuple[Row, int]]:
        """Yield each row with the rank of the source that puts it in the domain."""
        for original, row in self.members.items():
            if (claim := row[self.level]) is not None:
                yield original, claim.rank

    def conflict(self, said: Iterable[_Statement]) -> NestingConflict:
        """Return the answers as a conflict."""
        listed = list(said)
        rows: dict[str, list[Row]] = {}
        for each in listed:
            rows.setdefault(each.outer.shown, []).append(each.original)
        return NestingConflict(self.level, listed[0].inner.shown, self.above, rows)

    def most(self, said: Iterable[_Statement]) -> tuple[str, str] | None:
        """Return the answer of more than half of the nodes, None without a majority."""
        numbers: Counter[tuple[str, str]] = Counter()
        for each in said:
            numbers[each.outer.key] += self.sizes[each.original]
        key, number = max(numbers.items(), key=lambda item: item[1])
        return key if 2 * number > numbers.total() else None

    def overruled(self, loser: _Statement, *, is_measured: bool) -> Overruled:
        """Return the claim of a statement that does not count."""
        if loser.loses_inner:
            return Overruled(loser.inner.rank, self.level, loser.inner.shown, self.above)
        named, other = loser.inner.shown, loser.outer.shown
        return Overruled(loser.outer.rank, self.level, named, self.above, other, is_measured=is_measured)


def _said(members: Mapping[Row, Row], level: int, above: int, agreed: Row) -> list[_Statement]:
    """Return what a domain's rows say about a wider level. Names of unknown parents are completed if possible."""
    claims = {original: claim for original, row in members.items() if (claim := row[above]) is not None}
    known: dict[str, set[str]] = {}
    for claim in claims.values():
        if claim.identity:
            known.setdefault(claim.name, set()).add(claim.identity)
    found: list[_Statement] = []
    for original, claim in claims.items():
        inner, complete = members[original][level], claim
        if not claim.identity:
            identities = known.get(claim.name, set())
            only = claim._replace(identity=min(identities)) if len(identities) == 1 else None
            complete = only or _scoped((claim, *agreed)) or claim
        if inner is not None:
            found.append(_Statement(original, inner, complete))
    return found


def _weigh(said: Sequence[_Statement], question: _Question) -> _Verdict:
    """Return where a domain lies by what its rows say."""
    if not said:
        return _Verdict()
    strongest = min(each.weakness for each in said)
    first = [each for each in said if each.weakness == strongest]
    inner, outer = first[0].inner, first[0].outer
    differ = len({each.outer.key for each in first}) > 1
    if len({each.outer.key for each in first if each.inner.rank == each.outer.rank}) > 1:
        return _Verdict(leaving=frozenset(question.members), conflict=question.conflict(first))
    by_number = differ and inner.is_measured
    if by_number and (most := question.most(first)):
        leaving = frozenset(each.original for each in first if each.outer.key != most)
        return _Verdict(leaving=leaving, conflict=question.conflict(first), by_number=True)
    losers = [each for each in said if differ or each.outer.key != outer.key]
    gone = {each.original for each in losers if each.loses_inner}
    if differ and first[0].loses_inner:
        # Earlier sources put its nodes apart, so the domain of this source does not count.
        gone |= {original for original, rank in question.ranks() if rank == inner.rank}
    rank = min((each.outer.rank for each in said if each.outer.key == outer.key), default=0)
    return _Verdict(
        None if differ else outer._replace(rank=rank),
        frozenset(question.overruled(each, is_measured=by_number and each in first) for each in losers),
        frozenset(gone),
        by_number=by_number,
    )
