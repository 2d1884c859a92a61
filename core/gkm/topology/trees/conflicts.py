"""Decide which HyperNodes GKM may write beside HyperNodes of other owners, and report conflicts. Pure.

One invalid HyperNode makes Volcano's scheduler ignore all of them, so ours give way wherever both together would be
invalid. Linear in the number of members, and without recursion: strangers write these objects. Names here are names of
API objects, never a provider's names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from gkm.api.grammar import listed
from gkm.topology.hypernodes import Forest, HyperNode, forest

_SHOWN = 4
_DEEPEST = 32
"""The levels above a node that are compared; there are at most as many tiers in a tree of GKM."""


class ConflictKind(StrEnum):
    """The kind of a conflict: a rule of Volcano about all HyperNodes that its API does not check, or two writers.

    Volcano accepts a tier name of several tiers, and uses one of these tiers; it also accepts a node in several
    domains.
    """

    NAME_TAKEN = "NameTaken"
    UNREADABLE = "Unreadable"
    SECOND_PARENT = "SecondParent"
    CYCLE = "Cycle"
    TIER_DOES_NOT_RISE = "TierDoesNotRise"
    TIER_NAME_WITH_SEVERAL_TIERS = "TierNameWithSeveralTiers"
    NODE_IN_SEVERAL_DOMAINS = "NodeInSeveralDomains"
    CHANGED_BY_OTHERS = "ChangedByOthers"


_TEXTS = {
    ConflictKind.NAME_TAKEN: "HyperNode {about} is not GKM's, and a domain of GKM has this name",
    ConflictKind.UNREADABLE: "HyperNode {about} cannot be read, so its members are not known; delete it",
    ConflictKind.SECOND_PARENT: "{about} has several parents: {names}",
    ConflictKind.CYCLE: "{about} is in a cycle: {names}",
    ConflictKind.TIER_DOES_NOT_RISE: "{about} is a member of a HyperNode whose tier is not higher: {names}",
    ConflictKind.TIER_NAME_WITH_SEVERAL_TIERS: "several tiers have the name {about}: {names}",
    ConflictKind.NODE_IN_SEVERAL_DOMAINS: "node {about} is in several domains: {names}",
    ConflictKind.CHANGED_BY_OTHERS: (
        "HyperNode {about} is GKM's, and another writer changed it again after a repair; "
        "`kubectl get hypernode {about} --show-managed-fields -o yaml` names it"
    ),
}
_MAKES_ALL_INVALID = frozenset({ConflictKind.SECOND_PARENT, ConflictKind.CYCLE, ConflictKind.TIER_DOES_NOT_RISE})


@dataclass(frozen=True, slots=True, order=True)
class Conflict:
    """A conflict about a HyperNode, a node or a tier name; `hypernodes` are the other objects involved."""

    kind: ConflictKind
    about: str
    hypernodes: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Return a sentence about the conflict for a person, with the names of the objects."""
        return _TEXTS[self.kind].format(about=self.about, names=listed(self.hypernodes, _SHOWN))


def conflicts(
    wanted: Mapping[str, HyperNode], foreign: Mapping[str, HyperNode], unreadable: AbstractSet[str] = frozenset()
) -> tuple[Conflict, ...]:
    """Return the conflicts of GKM's HyperNodes with HyperNodes of other owners, and among themselves.

    The `unreadable` objects may be of any source.
    """
    taken = wanted.keys() & foreign.keys()
    found = [Conflict(ConflictKind.NAME_TAKEN, name) for name in taken]
    found += [Conflict(ConflictKind.UNREADABLE, name) for name in unreadable]
    for conflict in invalid(forest({**wanted, **foreign}.values())):
        involved = {conflict.about, *conflict.hypernodes}
        has_theirs, has_ours = not foreign.keys().isdisjoint(involved), bool(involved & wanted.keys() - foreign.keys())
        # No HyperNode of ours becomes a parent of a HyperNode whose name is taken.
        if has_theirs and conflict.about not in taken and (has_ours or conflict.kind in _MAKES_ALL_INVALID):
            found.append(conflict)
    return tuple(sorted(found))


def compatible(wanted: Mapping[str, HyperNode], foreign: Mapping[str, HyperNode]) -> dict[str, HyperNode]:
    """Return the HyperNodes of GKM that stay valid beside HyperNodes of other owners.

    A HyperNode is left out if its name is taken, or if a foreign parent has no higher tier or is not the only one. It
    has no parent of ours if it has a foreign one. One that loses all members is left out too.
    """
    adopted = Counter(name for other in foreign.values() for kind, name in set(other.members) if kind == "HyperNode")
    left_out = {name for name, parents in adopted.items() if parents > 1} | foreign.keys()
    for other in foreign.values():
        left_out.update(
            name
            for kind, name in other.members
            if kind == "HyperNode" and name in wanted and wanted[name].tier >= other.tier
        )
    written: dict[str, HyperNode] = {}
    # From the lowest tier up: what is left out is no member either.
    for hypernode in sorted(wanted.values(), key=lambda one: one.tier):
        members = tuple(
            member
            for member in hypernode.members
            if member.kind == "Node" or (member.name in written and member.name not in adopted)
        )
        if members and hypernode.name not in left_out:
            written[hypernode.name] = HyperNode(hypernode.name, hypernode.tier_name, members, hypernode.tier)
    return written


def invalid(found: Forest) -> Iterator[Conflict]:
    """Yield violations of Volcano's rules in a set of HyperNodes with different names."""
    yield from _relations(found)
    yield from _shared(found)


def _relations(found: Forest) -> Iterator[Conflict]:
    for child, parents in found.parents.items():
        if len(parents) > 1:
            yield Conflict(ConflictKind.SECOND_PARENT, child, tuple(sorted(parents)))
        if child not in found.missing:
            tier = found.hypernodes[child].tier
            if flat := [name for name in parents if found.hypernodes[name].tier <= tier]:
                yield Conflict(ConflictKind.TIER_DOES_NOT_RISE, child, tuple(sorted(flat)))
    for name in found.cyclic:
        yield Conflict(ConflictKind.CYCLE, name, tuple(sorted(found.parents[name])))


def _shared(found: Forest) -> Iterator[Conflict]:
    """Yield the tier names of several tiers, with one HyperNode of each tier, and the nodes of several domains."""
    tiers: dict[str, dict[int, str]] = {}
    owners: dict[str, set[str]] = {}
    for name, hypernode in sorted(found.hypernodes.items()):
        tiers.setdefault(hypernode.tier_name, {}).setdefault(hypernode.tier, name)
        for kind, member in hypernode.members:
            if kind == "Node":
                owners.setdefault(member, set()).add(name)
    for tier_name, names in tiers.items():
        if tier_name and len(names) > 1:
            yield Conflict(ConflictKind.TIER_NAME_WITH_SEVERAL_TIERS, tier_name, tuple(sorted(names.values())))
    for node, around in owners.items():
        if len(around) > 1 and not _contain_one_another(found, around):
            yield Conflict(ConflictKind.NODE_IN_SEVERAL_DOMAINS, node, tuple(sorted(around)))


def _contain_one_another(found: Forest, names: AbstractSet[str]) -> bool:
    """Return whether HyperNodes contain one another, by their first parents."""
    name: str | None = min(names, key=lambda name: (found.hypernodes[name].tier, name))
    left = set(names)
    for _ in range(_DEEPEST):
        left.discard(name or "")
        if name is None or not left:
            break
        name = next(iter(found.parents.get(name, ())), None)
    return not left
