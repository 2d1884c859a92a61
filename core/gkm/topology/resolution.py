"""Decide contradictions between claims, so that each domain lies in one domain of every wider level. Pure.

Level by level from the closest one: the claims of a domain's nodes about all wider levels must agree. If they do not,
the weakest claims of the contradiction do not count, if they are of a less trusted provider; if all are of one,
the nodes of the domain are quarantined, and count no more in what comes after: one mistake affects few nodes. A
majority decides nothing, so only the set of rows matters, not how many nodes have each.

An NVLink domain that NVML measured, whose name is a UUID, is the exception: cables of another network do not dissolve
it. Its nodes that these put elsewhere than most of them are quarantined; if most agree on none, no cable counts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gkm.topology.claims import Claim, Row, scoped
from gkm.topology.locations import is_world_unique


class NestingConflict(NamedTuple):
    """A domain of `level` that lies in several domains of the level `above`, by one provider, with the rows of each."""

    level: int
    name: str
    above: int
    rows: Mapping[str, Sequence[Row]]


class Overruled(NamedTuple):
    """A claim of a provider (`rank`) about a domain that does not count.

    It is that the domain lies in `other` at the level `above`, or, without `other`, that nodes lie in the domain.
    """

    rank: int
    level: int
    name: str
    above: int
    other: str = ""
    is_measured: bool = False
    """NVML measured the domain, whatever the rank of the claim."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """For each row either the claims that count, which nest, or the conflict that quarantines its nodes.

    `by_number`: the numbers of nodes decided something, so another number of a row may decide otherwise.
    """

    places: Mapping[Row, Row]
    conflicts: Mapping[Row, NestingConflict]
    overruled: frozenset[Overruled]
    by_number: bool = False


def resolve(rows: Mapping[Row, Row], sizes: Mapping[Row, int]) -> Resolution:
    """Return which claims count. For each row of claims the one whose identities tell all domains apart is weighed.

    `sizes` are the numbers of nodes of the rows.
    """
    now = dict(rows)
    conflicts: dict[Row, NestingConflict] = {}
    overruled: set[Overruled] = set()
    votes = _Votes(sizes)
    # Nothing is wider than the last level, so there names are unique and agree.
    for level in range(max(map(len, now), default=1) - 1):
        _complete_names(now, level)
        for domain in _rows_of(_unequal(now, level), now, level):
            for original, result in _settle(domain, level, overruled, votes).items():
                if isinstance(result, NestingConflict):
                    conflicts[original] = result
                    del now[original]
                else:
                    now[original] = result
    return Resolution(now, conflicts, frozenset(overruled), votes.counted)


@dataclass(slots=True)
class _Votes:
    """The numbers of nodes, and whether they were counted."""

    sizes: Mapping[Row, int]
    counted: bool = False

    def most(self, evidence: Iterable["_Evidence"]) -> tuple[str, str] | None:
        """Return the key of the claim that more than half of the nodes have, None if there is none."""
        self.counted = True
        numbers: Counter[tuple[str, str]] = Counter()
        for each in evidence:
            numbers[each.claim.key] += self.sizes[each.original]
        key, number = max(numbers.items(), key=lambda item: item[1])
        return key if 2 * number > numbers.total() else None


def _complete_names(now: dict[Row, Row], level: int) -> None:
    """Complete the names that are unique in their parent. Within an unknown one they go."""
    pending = [original for original, row in now.items() if (claim := row[level]) and not claim.identity]
    for original in pending:
        row = now[original]
        now[original] = (*row[:level], scoped(row[level:]), *row[level + 1 :])


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


def _settle(
    domain: Mapping[Row, Row], level: int, overruled: set[Overruled], votes: _Votes
) -> Mapping[Row, Row | NestingConflict]:
    """Return the rows of a domain, so that those that are in it agree about all wider levels, or are in conflict."""
    settled: dict[Row, Row | NestingConflict] = {}
    members = dict(domain)
    while members:
        reports: set[Overruled] = set()
        agreed: Row = ()
        # From the widest level: it may tell which of several parents of one name is meant.
        for above in reversed(range(level + 1, len(next(iter(members))))):
            only = {row[above] for row in members.values()}
            if len(only) == 1 and (claim := only.pop()) and claim.identity:
                agreed = (claim, *agreed)
                continue
            verdict = _Verdict(level, above)
            verdict.weigh(_evidence(members, level, above, agreed), members, votes)
            if verdict.conflict is not None and not verdict.leaving:
                return settled | dict.fromkeys(members, verdict.conflict)
            if verdict.leaving:
                overruled |= {report for report in verdict.overruled if not report.other}
                break
            reports |= verdict.overruled
            agreed = (verdict.claim, *agreed)
        else:
            overruled |= reports
            return settled | {original: (*row[: level + 1], *agreed) for original, row in members.items()}
        for original in verdict.leaving:
            row = members.pop(original)
            settled[original] = verdict.conflict or (*row[:level], None, *row[level + 1 :])
    return settled


class _Evidence(NamedTuple):
    """A row of a domain with a claim about a wider level; `weakest` is the rank of the weaker one of its two claims."""

    original: Row
    member: Claim
    claim: Claim
    weakest: int


def _evidence(members: Mapping[Row, Row], level: int, above: int, agreed: Row) -> list[_Evidence]:
    """Return the claims of a domain's rows about a wider level. Names of unknown parents are completed if possible."""
    claims = {original: claim for original, row in members.items() if (claim := row[above]) is not None}
    known: dict[str, set[str]] = {}
    for claim in claims.values():
        if claim.identity:
            known.setdefault(claim.name, set()).add(claim.identity)
    found: list[_Evidence] = []
    for original, claim in claims.items():
        member = members[original][level]
        complete = claim
        if not claim.identity:
            identities = known.get(claim.name, set())
            only = claim._replace(identity=min(identities)) if len(identities) == 1 else None
            complete = only or scoped((claim, *agreed)) or claim
        if member is not None:
            found.append(_Evidence(original, member, complete, max(member.rank, complete.rank)))
    return found


def _is_of_another_network(evidence: Sequence[_Evidence]) -> bool:
    """Return whether claims of other providers about a domain that NVML measured contradict one another."""
    others = all(is_world_unique(each.member.name) and each.claim.rank != each.member.rank for each in evidence)
    return others and len({each.claim.key for each in evidence}) > 1


@dataclass(slots=True)
class _Verdict:
    """Where a domain lies at a wider level: a claim, or a conflict. Rows that are `leaving` are not in the domain.

    A conflict is that of the rows that are leaving, or of all if none is.
    """

    level: int
    above: int
    claim: Claim | None = None
    conflict: NestingConflict | None = None
    leaving: set[Row] = field(default_factory=set)
    overruled: set[Overruled] = field(default_factory=set)

    def weigh(self, evidence: list[_Evidence], members: Mapping[Row, Row], votes: _Votes) -> None:
        """Weigh the evidence from the strongest to the weakest, or by the number of nodes where NVML measured."""
        if _is_of_another_network(evidence):
            self._weigh_cables(evidence, votes)
            return
        for rank in sorted({each.weakest for each in evidence}):
            now = [each for each in evidence if each.weakest == rank]
            evidence = [each for each in evidence if each.weakest > rank]
            self._weigh_rank(now, evidence, rank, members)
            if self.claim or self.conflict or self.leaving:
                return

    def _weigh_cables(self, evidence: list[_Evidence], votes: _Votes) -> None:
        """Set aside the rows that cables put elsewhere than most nodes; if most agree on none, no cable counts."""
        winner = votes.most(evidence)
        if winner is None:
            self.overruled |= {
                Overruled(
                    each.claim.rank, self.level, each.member.shown, self.above, each.claim.shown, is_measured=True
                )
                for each in evidence
            }
            return
        self.leaving = {each.original for each in evidence if each.claim.key != winner}
        self.conflict = self._conflict(evidence)

    def _conflict(self, evidence: Sequence[_Evidence]) -> NestingConflict:
        rows: dict[str, list[Row]] = {}
        for each in evidence:
            rows.setdefault(each.claim.shown, []).append(each.original)
        return NestingConflict(self.level, evidence[0].member.shown, self.above, rows)

    def _weigh_rank(self, now: list[_Evidence], later: list[_Evidence], rank: int, members: Mapping[Row, Row]) -> None:
        """Weigh evidence of one rank, when no stronger evidence decided."""
        # Of two claims equally weak the one about the wider level gives way.
        strongest = [each for each in now if each.claim.rank < rank] or now
        if len({each.claim.key for each in strongest}) == 1:
            self._decide(strongest[0].claim, [*now, *later])
        elif strongest[0].claim.rank < rank:
            # More trusted providers put the nodes apart, so this one's domain does not count.
            self.leaving = {row for row, now in members.items() if (claim := now[self.level]) and claim.rank == rank}
            self.overruled.add(Overruled(rank, self.level, strongest[0].member.name, self.above))
        elif len({each.claim.key for each in now if each.member.rank == rank}) > 1:
            self.conflict = self._conflict(now)
        else:
            for each in now:
                self._overrule(each)

    def _decide(self, winner: Claim, evidence: Iterable[_Evidence]) -> None:
        """Accept a claim, and overrule those that contradict it."""
        rank = winner.rank
        for each in evidence:
            if each.claim.key == winner.key:
                rank = min(rank, each.claim.rank)
            else:
                self._overrule(each)
        self.claim = winner._replace(rank=rank)

    def _overrule(self, evidence: _Evidence) -> None:
        """Take the weaker of the two claims of a row as void."""
        member, claim = evidence.member, evidence.claim
        if member.rank > claim.rank:
            self.leaving.add(evidence.original)
            self.overruled.add(Overruled(member.rank, self.level, member.shown, self.above))
        else:
            self.overruled.add(Overruled(claim.rank, self.level, member.shown, self.above, claim.shown))
