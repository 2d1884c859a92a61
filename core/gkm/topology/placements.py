"""Convert a provider's HyperNodes to places: the domain of each node at each level. Pure.

Contradictions are quarantined and reported; all else is used. No message has the provider's content.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gkm.api.cliques import CLIQUE_LEVEL, names_clique
from gkm.topology.hypernodes import Forest, HyperNode, forest
from gkm.topology.quarantine import Quarantined, QuarantineReason

Place = tuple[str, ...]
"""The name of a node's domain at each level, from the closest to the widest, "" without a domain."""


class FaultKind(StrEnum):
    """The kinds of faults in a provider's HyperNodes."""

    DUPLICATE_NAME = "DuplicateName"
    SECOND_PARENT = "SecondParent"
    CYCLE = "Cycle"
    MISSING_MEMBER = "MissingMember"
    SEVERAL_DOMAINS = "SeveralDomains"
    NO_CLIQUE = "NoClique"


_TEXTS = {
    FaultKind.DUPLICATE_NAME: "names of several HyperNodes",
    FaultKind.SECOND_PARENT: "HyperNodes with a second parent",
    FaultKind.CYCLE: "HyperNodes in a cycle or below one",
    FaultKind.MISSING_MEMBER: "members that are no HyperNode of the provider",
    FaultKind.SEVERAL_DOMAINS: "nodes or HyperNodes in several domains of one level",
    FaultKind.NO_CLIQUE: f"HyperNodes of level {CLIQUE_LEVEL} with names that stand for no clique",
}


@dataclass(frozen=True, slots=True)
class PlacementFault:
    """A kind of fault with the names that the provider gives to the faulty HyperNodes.

    The names must never be logged.
    """

    kind: FaultKind
    names: tuple[str, ...]

    @property
    def message(self) -> str:
        """Return a sentence with the kind of the fault and a count, without names."""
        return f"{len(self.names)} {_TEXTS[self.kind]}"


@dataclass(frozen=True, slots=True)
class Placements:
    """The places of nodes in the topology according to one provider. A quarantined node has no place."""

    places: Mapping[str, Place] = field(default_factory=dict)
    quarantined: tuple[Quarantined, ...] = ()
    faults: tuple[PlacementFault, ...] = ()

    def completed(self, fresh: "Placements") -> "Placements":
        """Return these placements, with nodes added that only `fresh` placements of the same provider have."""
        known = {*self.places, *(entry.node for entry in self.quarantined)}
        places = {name: place for name, place in fresh.places.items() if name not in known}
        more = (entry for entry in fresh.quarantined if entry.node not in known)
        return replace(self, places=places | {**self.places}, quarantined=tuple(sorted([*self.quarantined, *more])))


def placements(
    hypernodes: Iterable[HyperNode], levels: Sequence[str], quarantined: Iterable[Quarantined] = ()
) -> Placements:
    """Return the places of nodes in a provider's HyperNodes; only HyperNodes with the tier name of a level are domains.

    A HyperNode of level `nvlink` whose name stands for no clique is no domain either (gkm.api.cliques).

    `quarantined` are nodes that the source of the HyperNodes could not place.

    Nodes are quarantined below a HyperNode that has a second parent, shares its name or is in a cycle, and in several
    domains of one level. A missing member is ignored.
    """
    listed = list(hypernodes)
    found = forest(listed)
    domains, inside_own_level = _domains(found, levels)
    places: dict[str, Place] = {}
    wrong: set[str] = set()
    several: set[str] = set()
    for hypernode in listed:
        place = domains.get(hypernode.name)
        for kind, name in hypernode.members:
            if kind != "Node":
                continue
            if place is None:
                wrong.add(name)
            elif (known := places.setdefault(name, place)) is not place:
                union = _union(known, place)
                if union is None:
                    several.add(name)
                else:
                    places[name] = union
    wrong |= several
    for name in wrong:
        places.pop(name, None)
    message = "the HyperNodes of its provider contradict each other"
    contradictory = (Quarantined(name, QuarantineReason.PROVIDER_CONTRADICTORY, message) for name in wrong)
    return Placements(places, tuple(sorted({*contradictory, *quarantined})), _faults(found, several | inside_own_level))


def _domains(found: Forest, levels: Sequence[str]) -> tuple[dict[str, Place], set[str]]:
    """Return the domains of each HyperNode that has one chain of parents, itself included.

    Also return the HyperNodes inside another HyperNode of the same level.
    """
    index = {level: position for position, level in enumerate(levels)}
    root: Place = ("",) * len(levels)
    domains: dict[str, Place] = {}
    several: set[str] = set()
    for name in found.order:
        parents = found.parents.get(name, ())
        above = root if not parents else domains.get(parents[0])
        if above is None or len(parents) > 1 or name in found.duplicates:
            continue
        level = None if _no_clique(found.hypernodes[name]) else index.get(found.hypernodes[name].tier_name)
        if level is None:
            domains[name] = above
        elif above[level]:
            several.add(name)
        else:
            domains[name] = (*above[:level], name, *above[level + 1 :])
    return domains, several


def _no_clique(hypernode: HyperNode) -> bool:
    return hypernode.tier_name == CLIQUE_LEVEL and not names_clique(hypernode.name)


def _union(one: Place, other: Place) -> Place | None:
    """Return the domains of both places, None if they differ at a level."""
    union = tuple([mine or its for mine, its in zip(one, other, strict=True)])
    agrees = all(not its or its == both for its, both in zip(other, union, strict=True))
    return union if agrees else None


def _faults(found: Forest, several: set[str]) -> tuple[PlacementFault, ...]:
    """Return the faults that there are."""
    second = [name for name, parents in found.parents.items() if len(parents) > 1]
    names: dict[FaultKind, Iterable[str]] = {
        FaultKind.DUPLICATE_NAME: found.duplicates,
        FaultKind.SECOND_PARENT: second,
        FaultKind.CYCLE: found.cyclic,
        FaultKind.MISSING_MEMBER: found.missing,
        FaultKind.SEVERAL_DOMAINS: several,
        FaultKind.NO_CLIQUE: [name for name, hypernode in found.hypernodes.items() if _no_clique(hypernode)],
    }
    return tuple(PlacementFault(kind, tuple(sorted(each))) for kind, each in names.items() if each)
