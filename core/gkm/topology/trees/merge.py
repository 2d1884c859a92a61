"""Merge the placements of several providers into one tree: docs/reference/topology-tree.md, "Merge". Pure.

The order of nodes never matters. Each node that takes part is in the tree or quarantined. The claims in use depend only
on the set of different rows of claims. So a merge is changed node by node, and all is weighed anew only where a change
adds or removes a row. Where numbers of nodes decided (gkm.topology.trees.nesting), a change of these numbers also
weighs all anew.

The key of a domain is (region, cluster, name); a name that is a UUID is a key by itself. A name that one cluster alone
uses stays the identity of its domain, so that names of HyperNodes and labels depend on it alone. Only a name that
several clusters use gets the cluster (or region) before it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, repeat
from operator import is_not
from typing import NamedTuple, TypeVar

from gkm.api.cliques import CLIQUE_LEVEL
from gkm.api.grammar import agree, count_of, listed
from gkm.api.topology_settings import AREAS, PLANNED_LEVELS, Topology
from gkm.topology.locations import is_world_unique
from gkm.topology.nodes import Node
from gkm.topology.placements import Place, Placements
from gkm.topology.quarantine import Quarantined, QuarantineReason, contradiction, reason_of
from gkm.topology.trees.nesting import (
    Claim,
    Elsewhere,
    Nesting,
    NestingConflict,
    Overruled,
    Path,
    Row,
    Rows,
    escaped,
    nest,
)
from gkm.topology.trees.tree import Contradiction, Tree, arrange

Named = Sequence[tuple[str, Placements]]
"""The names and placements of providers, the most trusted first."""
Role = Callable[[str], bool | None]
"""Returns whether a node takes part even if no provider places it; None if the node does not exist."""
T = TypeVar("T")
_PART = 256
_MAX_NAMED = 3


@dataclass(frozen=True)
class Merge:
    """The merge of several providers' placements: the path of each node, quarantined nodes, and the claims in use."""

    settings: Topology
    reader: Rows
    by_provider: Named = ()
    paths: Mapping[str, Path] = field(default_factory=dict)
    faults: Mapping[str, Quarantined] = field(default_factory=dict)
    groups: Mapping[Row, Sequence[str]] = field(default_factory=dict)
    nesting: Nesting = field(default_factory=lambda: nest({}, {}))

    def changed(self, by_provider: Named, names: Iterable[str], role: Role) -> "Merge":
        """Return the merge after the same providers changed their placements.

        `names` are nodes whose role may have changed.
        """
        changed = set(names)
        known = dict(self.by_provider)
        for name, placed in by_provider:
            before = known.get(name, Placements())
            changed |= differing(before.places, placed.places)
            if before.quarantined != placed.quarantined:
                changed |= {entry.node for entry in {*before.quarantined} ^ {*placed.quarantined}}
        located = list(self._located(sorted(changed), by_provider, role))
        self.reader.forget(len(self.groups))
        if all((self.paths.get(name) or self.faults.get(name)) == found for name, found in located):
            same = replace(self, by_provider=by_provider)
            vars(same)["tree"] = self.tree  # no path changes, so both have the cached tree
            return same
        paths, faults, groups = dict(self.paths), dict(self.faults), dict(self.groups)
        members: dict[Row, set[str]] = {}
        for name, found in located:
            faults.pop(name, None)
            if (path := paths.pop(name, None)) is not None:
                _members(path.row, groups, members).discard(name)
            if isinstance(found, Quarantined):
                faults[name] = found
            elif found is not None:
                paths[name] = found
                _members(found.row, groups, members).add(name)
        for row, nodes in members.items():
            groups[row] = sorted(nodes)
            if not nodes:
                del groups[row]
        sizes = {row: len(nodes) for row, nodes in groups.items()}
        is_same = groups.keys() == self.groups.keys() and not self._votes_changed(sizes)
        levels = [level.name for level in self.settings.levels]
        nesting = self.nesting if is_same else nest(separated(groups, levels), sizes)
        return Merge(self.settings, self.reader, by_provider, paths, faults, groups, nesting)

    def _votes_changed(self, sizes: Mapping[Row, int]) -> bool:
        return self.nesting.by_number and any(len(nodes) != sizes[row] for row, nodes in self.groups.items())

    @cached_property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """Return the quarantined nodes: those with a fault, and those whose domains contradict each other."""
        levels = [level.name for level in self.settings.levels]
        quarantined = [*self.faults.values()]
        messages: dict[int, str] = {}
        for row, conflict in self.nesting.conflicts.items():
            reason = reason_of(levels[conflict.level], levels[conflict.above])
            message = messages.get(id(conflict)) or _message(conflict, self.groups, levels)
            messages[id(conflict)] = message
            quarantined += [Quarantined(name, reason, message) for name in self.groups[row]]
        return tuple(sorted(quarantined))

    @cached_property
    def tree(self) -> Tree:
        """Return the tree of all nodes that take part."""
        levels = [level.name for level in self.settings.levels]
        return arrange(
            levels,
            ((claims, self.groups[row]) for row, claims in self.nesting.places.items()),
            self.quarantined,
            (
                *self._elsewhere(levels),
                *(_contradiction(entry, levels, self.by_provider) for entry in sorted(self.nesting.overruled)),
            ),
        )

    def _elsewhere(self, levels: Sequence[str]) -> Iterator[Contradiction]:
        """Yield where a source names another domain for nodes than the domain in use.

        It is one sentence for a level and two sources. Names of domains are left out: a source that changes what does
        not count makes no new tree.
        """
        found: dict[Elsewhere, list[str]] = {}
        several = self.by_provider[1:]
        for name, path in self.paths.items() if several else ():
            for entry in path.elsewhere if path.row in self.nesting.places else ():
                found.setdefault(entry, []).append(name)
        for entry, nodes in sorted(found.items()):
            level, count = levels[entry.level], len(nodes)
            rest = f"{count_of(count, 'node')} {agree(count, 'lies', 'lie')} in another {level} by"
            why = "whose domain NVML measured" if entry.is_measured else "which comes first"
            other, chosen = self.by_provider[entry.other][0], self.by_provider[entry.rank][0]
            yield Contradiction(level, other, f"{rest} {chosen}, {why}: {listed(sorted(nodes), _MAX_NAMED)}")

    def _located(
        self, names: Iterable[str], by_provider: Named, role: Role
    ) -> Iterator[tuple[str, Path | Quarantined | None]]:
        places = [placed.places for _, placed in by_provider]
        faults = [{entry.node: entry for entry in placed.quarantined} for _, placed in by_provider]
        for name in names:
            placed, wrong = [each.get(name) for each in places], [each.get(name) for each in faults]
            takes_part = role(name)
            if takes_part or (takes_part is not None and (any(placed) or any(wrong))):
                yield name, self._locate(name, placed, wrong)
            else:
                yield name, None

    def _locate(
        self, name: str, places: Sequence[Place | None], faults: Sequence[Quarantined | None]
    ) -> Path | Quarantined:
        """Return the path of a node with these places and faults by each provider, or why it is quarantined.

        The fault of a provider does not matter if more trusted ones place the node at every level.
        """
        for rank, fault in enumerate(faults):
            if fault is not None and not all(self.reader.row(places[:rank])):
                return fault
        path = self.reader.path(places)
        if self.settings.missing_fabric == "quarantine" and path.row[0] is None:
            return Quarantined(name, QuarantineReason.NO_FABRIC_DOMAIN, "it has no domain at the closest level")
        return path


@dataclass(frozen=True)
class Snapshot:
    """The merge of all nodes of a cluster, updated by differences. Create it with `start`, update it with `changed`.

    A change costs a comparison of all nodes with those before, and a new tree if claims changed.
    """

    merge: Merge
    nodes: Mapping[str, Node] = field(default_factory=dict)

    @staticmethod
    def start(settings: Topology) -> "Snapshot":
        """Return the snapshot of an empty cluster."""
        return Snapshot(Merge(settings, Rows(settings)))

    def changed(self, nodes: Mapping[str, Node], by_provider: Named) -> "Snapshot":
        """Return the snapshot after a change of nodes or placements."""

        def role(name: str) -> bool | None:
            return nodes[name].gpus is not None if name in nodes else None

        return Snapshot(self.merge.changed(by_provider, differing(self.nodes, nodes), role), nodes)

    @property
    def tree(self) -> Tree:
        """Return the tree; the same object as long as its content is the same."""
        return self.merge.tree


def build_tree(
    by_provider: Named,
    settings: Topology,
    *,
    existing: Collection[str] | None = None,
    unplaced: Iterable[str] = (),
) -> Tree:
    """Build the tree of all nodes that a provider places.

    Claims about nodes that are not `existing` do not count; without it all do. The `unplaced` nodes, such as those with
    GPUs, take part even if no provider places them.
    """
    bare = frozenset(unplaced)

    def role(name: str) -> bool | None:
        return None if existing is not None and name not in existing else name in bare

    return Merge(settings, Rows(settings)).changed(by_provider, bare, role).tree


def differing(before: Mapping[str, T], after: Mapping[str, T]) -> set[str]:
    """Return the keys whose values differ between two mappings, or that only one of them has."""
    if before is after:
        return set()
    keys, old, new = list(after), list(before.values()), list(after.values())
    if keys != list(before):
        # A value may be None, but no value is the list of all.
        changed = compress(keys, map(is_not, new, map(before.get, keys, repeat(keys))))
        removed = before.keys() - after.keys()
        return {key for key in changed if key not in before or before[key] != after[key]} | removed
    # Nearly always few values differ; lists of the same objects compare fast.
    parts = [slice(start, start + _PART) for start in range(0, len(keys), _PART)]
    pairs = (zip(keys[part], old[part], new[part], strict=True) for part in parts if old[part] != new[part])
    return {key for part in pairs for key, value, other in part if value is not other and value != other}


def _members(row: Row, groups: Mapping[Row, Sequence[str]], changed: dict[Row, set[str]]) -> set[str]:
    members = changed.get(row)
    if members is None:
        members = changed[row] = set(groups.get(row, ()))
    return members


def _message(conflict: NestingConflict, groups: Mapping[Row, Sequence[str]], levels: Sequence[str]) -> str:
    """Return a conflict for a person. It has names of providers' domains, so it must not stand in a log."""
    nodes = {where: [name for row in rows for name in groups[row]] for where, rows in conflict.rows.items()}
    level, above = levels[conflict.level], levels[conflict.above]
    others = f"{above}s" if above in PLANNED_LEVELS[1:] else f"domains of level {above}"
    return contradiction("domain" if level == CLIQUE_LEVEL else level, others, conflict.name, nodes)


def _contradiction(entry: Overruled, levels: Sequence[str], by_provider: Named) -> Contradiction:
    level, above, provider = levels[entry.level], levels[entry.above], by_provider[entry.rank][0]
    if entry.other:
        text = f"{level} {entry.name} does not lie in {above} {entry.other}"
        if entry.is_measured:
            return Contradiction(level, provider, f"{text}: NVML measured it, and {provider} divides its nodes")
    else:
        text = f"nodes of {level} {entry.name} lie in several domains of level {above}, so they are not in it"
    return Contradiction(level, provider, f"{text}: a provider that is more trusted than {provider} contradicts it")


class _Shared(NamedTuple):
    """A name that several domains of a level have, by the identity of each domain so far."""

    level: int
    identity: str


def separated(rows: Iterable[Row], levels: Sequence[str]) -> Mapping[Row, Row]:
    """Return each row with claims whose identities are unique: shared names get their cluster or region.

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

    A claim about the area with less trust than the domain divides no domain: cables that lead to two clusters are a
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
