"""Faults of node labels: what GKM quarantines, and what another scheduler misreads although GKM does not. Pure.

Only nodes that matter for placement count: those with GPUs, or with a fabric domain. A rule yields a fault for each
node: a problem makes the labels wrong for GKM or for a scheduler, a warning is worth a look. `kubectl label` commands
correct what can be corrected; a correction that only a person can choose is a comment, for instance which of two blocks
a rack is in.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from gkm.api.cliques import CLIQUE_LEVEL, PLACEHOLDERS, names_clique
from gkm.api.grammar import count_of
from gkm.api.topology_presets import FAMILIES, HAS_PRESET, NO_TOPOLOGY, OPTIONAL_LEVELS
from gkm.api.topology_settings import AREAS, Topology, TopologyLevel
from gkm.topology.labels import is_of_cliques, label_placements, level_keys, relevant_labels
from gkm.topology.lists import NodeList
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.survey import survey_nodes
from gkm.topology.trees.merge import build_tree
from gkm.topology.trees.names import hypernode_name
from msgspec import Struct

_RACK, _BLOCK, _FLAVOR = "rack", "block", "flavor"
HOSTNAME = "kubernetes.io/hostname"
PRESET_KEYS = frozenset(chain(*(family.keys for family in FAMILIES.values())))
"""Each source has its own names for one place, so these keys differ from others of a level."""
_TO_DECIDE = "REPLACE"
_LONGEST_VALUE = 63
VOLCANO = "Volcano's discovery by labels"
KUEUE = "Kueue"
KAI = "KAI"
_NODES_OF_A_COMMAND = 50


class LabelSeverity(StrEnum):
    """How bad a finding about labels is."""

    PROBLEM = "problem"
    WARNING = "warning"


class Mend(Struct, frozen=True):
    """A correction: a label to set on a node, or to remove (None). `sure`: no person must choose the value."""

    node: str
    key: str
    value: str | None
    sure: bool


class LabelFinding(Struct, frozen=True, rename="camel"):
    """A fault of the labels of some nodes, as `-o json` prints it."""

    reason: str
    severity: LabelSeverity
    message: str
    nodes: tuple[str, ...]
    misread_by: tuple[str, ...] = ()
    corrections: tuple[Mend, ...] = ()


@dataclass(frozen=True, slots=True)
class Hygiene:
    """The result of `gkm topology check`: findings, the worst first, and the quarantined nodes with their labels."""

    nodes: int
    findings: tuple[LabelFinding, ...]
    quarantined: tuple[tuple[Quarantined, Mapping[str, str]], ...]

    @property
    def ok(self) -> bool:
        """Return whether there is no problem; warnings are allowed."""
        return all(finding.severity is not LabelSeverity.PROBLEM for finding in self.findings)

    @property
    def corrections(self) -> tuple[Mend, ...]:
        """Return the label changes that would correct all findings."""
        return tuple(mend for finding in self.findings for mend in finding.corrections)


def check(listed: NodeList, settings: Topology) -> Hygiene:
    """Check the topology labels of nodes and return the findings."""
    sources = [("labels", label_placements(listed.nodes, settings))]
    surveyed = survey_nodes(listed.nodes, settings, listed.unread, sources)
    tree = build_tree(sources, settings)
    labels = {node.name: node.labels for node in listed.nodes}
    quarantined = {entry.node: entry for entry in (*tree.quarantined, *surveyed.quarantined)}
    bare = frozenset(surveyed.bare)
    axes = tuple(_axes(settings))
    nodes = [
        Labeled.of(node.name, node.labels, axes, has_gpus=node.gpus is not None)
        for node in sorted(listed.nodes, key=lambda node: node.name)
        if node.name not in bare
    ]
    faults = _with_quarantine(
        [*label_faults(nodes, axes), *_uncounted(surveyed.uncounted)],
        sorted(quarantined.values(), key=attrgetter("why", "message")),
    )
    return Hygiene(
        len(nodes) + len(listed.unread),
        tuple(sorted(_findings(faults), key=lambda finding: finding.severity is LabelSeverity.WARNING)),
        tuple(
            (entry, relevant_labels(labels.get(name, {}), settings.labels))
            for name, entry in sorted(quarantined.items())
        ),
    )


class Axis(NamedTuple):
    """A property of nodes with the keys of its labels: a level of the tree, a rack that is no level, or the flavor."""

    name: str
    keys: tuple[str, ...]
    is_level: bool = True
    is_place: bool = True
    is_scoped: bool = False
    """Names are unique within their parent only, and configured so."""
    is_of_cliques: bool = False
    is_chosen: bool = False
    """People have configured the level, and expect labels of it."""

    def counts(self, value: str) -> bool:
        """Return whether GKM uses this label value; otherwise it ignores the label."""
        return names_clique(value) if self.is_of_cliques else bool(value)


def _axes(settings: Topology) -> Iterator[Axis]:
    """Yield the levels from the closest to the widest, with racks where they belong, then the flavor."""
    names = [level.name for level in settings.levels]
    rack = Axis(_RACK, tuple(settings.labels.rack), is_level=False)
    before = names.index(_BLOCK) if _BLOCK in names else min(1, len(names))
    for position, (level, keys) in enumerate(zip(settings.levels, level_keys(settings), strict=True)):
        if position == before and _RACK not in names:
            yield rack
        yield Axis(
            level.name,
            tuple(keys),
            is_scoped=level.unique == "parent",
            is_of_cliques=is_of_cliques(level.name, keys, settings),
            is_chosen=settings.has_own_levels and _is_chosen(level, settings),
        )
    yield Axis(_FLAVOR, tuple(settings.labels.flavor), is_level=False, is_place=False)


class LabelFault(NamedTuple):
    """A fault of the labels of one node."""

    reason: str
    node: str
    message: str
    mends: tuple[Mend, ...] = ()
    severity: LabelSeverity = LabelSeverity.PROBLEM


def _uncounted(names: Iterable[str]) -> Iterator[LabelFault]:
    """Yield the nodes whose flavor names GPUs that GKM does not count: they would look like nodes without any."""
    message = (
        "these nodes have a GPU flavor and no allocatable nvidia.com/gpu: GPUs that only DRA hands out are not "
        "counted; if a device plugin should offer them, look at it"
    )
    for name in names:
        yield LabelFault(LabelReason.GPUS_NOT_COUNTED, name, message, severity=LabelSeverity.WARNING)


def _is_chosen(level: TopologyLevel, settings: Topology) -> bool:
    """Return whether people expect labels of a level: not with a default, nor where a preset has nodes without any."""
    optional = {CLIQUE_LEVEL, *OPTIONAL_LEVELS} if settings.presets and not level.keys else set[str]()
    return level.name not in {*AREAS, *optional}


def _findings(faults: Iterable[LabelFault]) -> Iterator[LabelFinding]:
    """Yield a finding for each reason and message."""
    found: dict[tuple[str, str], list[LabelFault]] = {}
    for fault in faults:
        found.setdefault((fault.reason, fault.message), []).append(fault)
    for (reason, message), same in found.items():
        nodes = sorted({fault.node for fault in same})
        mends = dict.fromkeys(mend for fault in same for mend in fault.mends)
        yield LabelFinding(reason, same[0].severity, message, tuple(nodes), MISREAD_BY.get(reason, ()), tuple(mends))


def _with_quarantine(found: Sequence[LabelFault], quarantined: Iterable[Quarantined]) -> Iterator[LabelFault]:
    """Yield the faults that quarantine nodes, then the others.

    A contradiction that quarantines a node is one fault, with the corrections of the rule that found it too.
    """
    mends: dict[str, tuple[Mend, ...]] = {}
    for fault in found:
        if fault.reason == LabelReason.SEVERAL_PARENTS:
            mends[fault.node] = (*mends.get(fault.node, ()), *fault.mends)
    contradicting: set[str] = set()
    for entry in quarantined:
        is_contradiction = entry.why in MISREAD_BY
        contradicting.update([entry.node] if is_contradiction else [])
        yield LabelFault(entry.why, entry.node, entry.message, mends.get(entry.node, ()) if is_contradiction else ())
    for fault in found:
        if fault.reason != LabelReason.SEVERAL_PARENTS or fault.node not in contradicting:
            yield fault


class Labeled(NamedTuple):
    """A node with its labels, and for each axis the key and value of the label that GKM uses."""

    name: str
    labels: Mapping[str, str]
    has_gpus: bool
    values: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, labels: Mapping[str, str], axes: Sequence[Axis], *, has_gpus: bool) -> "Labeled":
        """Return a node with the key and value that GKM uses for each axis."""
        values = [
            next(((key, value) for key in axis.keys if axis.counts(value := labels.get(key, ""))), ("", ""))
            for axis in axes
        ]
        return cls(name, labels, has_gpus, tuple(values))


def label_faults(nodes: Sequence[Labeled], axes: Sequence[Axis]) -> Iterator[LabelFault]:
    """Yield the faults of the labels of all nodes."""
    levels = [axis.name for axis in axes if axis.is_level]
    for at, axis in enumerate(axes):
        for node in nodes:
            yield from _of_value(node, axis, *node.values[at], levels)
        yield from _missing(nodes, axis, at)
        if axis.is_place:
            yield from _cases(nodes, axis, at)
            yield from _several_parents(nodes, axes, at)
        if axis.is_chosen:
            yield from _without_labels(nodes, axis, at)
    yield from _unread(nodes, frozenset(key for axis in axes for key in axis.keys))
    yield from _hostnames(nodes)


def _without_labels(nodes: Sequence[Labeled], axis: Axis, at: int) -> Iterator[LabelFault]:
    """Yield all nodes if they all lack a label of a level."""
    if any(node.values[at][1] for node in nodes):
        return
    message = f"no node has a label of the level {axis.name} ({', '.join(axis.keys) or 'it has no keys'}): it is empty"
    for node in nodes:
        yield LabelFault(LabelReason.LEVEL_WITHOUT_LABELS, node.name, message, severity=LabelSeverity.WARNING)


def _unread(nodes: Sequence[Labeled], read: frozenset[str]) -> Iterator[LabelFault]:
    """Yield the nodes with labels of a known family of which no key is read."""
    for name, family in FAMILIES.items():
        having = {node.name: keys for node in nodes if (keys := [key for key in family.keys if key in node.labels])}
        if not having or not read.isdisjoint(chain(*having.values())):
            continue
        found = ", ".join(dict.fromkeys(chain(*having.values())))
        step = f"add {name} to topology.presets" if name in HAS_PRESET else "name their keys in topology.levels"
        message = f"labels of {name} say where these nodes are, and no level reads them ({found}): {step}"
        for node in having:
            yield LabelFault(LabelReason.LABELS_UNREAD, node, message, severity=LabelSeverity.WARNING)


def _of_value(node: Labeled, axis: Axis, counting: str, value: str, levels: Sequence[str]) -> Iterator[LabelFault]:
    """Yield empty values, placeholders, values that fit no name, and keys that others may read instead."""
    for key in axis.keys:
        other = node.labels.get(key)
        if other == "":
            message = f"label {key} is empty: GKM takes it as missing, {KUEUE} as one domain of all nodes that have it"
            yield LabelFault(LabelReason.EMPTY_VALUE, node.name, message, (Mend(node.name, key, None, sure=True),))
        elif other is not None and not axis.counts(other):
            message = (
                f"label {key} is {other}, which names no NVLink clique: GKM takes it as missing, other schedulers as "
                "one domain of all nodes that have it; remove it"
            )
            yield LabelFault(LabelReason.PLACEHOLDER, node.name, message, (Mend(node.name, key, None, sure=True),))
        elif axis.is_place and other not in (None, value) and key not in PRESET_KEYS:
            message = f"labels {counting} and {key} differ, and GKM uses {counting}: another scheduler may read {key}"
            mends = (Mend(node.name, key, value, sure=False),)
            yield LabelFault(LabelReason.KEYS_DISAGREE, node.name, message, mends, LabelSeverity.WARNING)
    if value.lower() in (*PLACEHOLDERS, NO_TOPOLOGY):
        message = (
            f"label {counting} is {value}: all nodes with it appear close together; remove it where it is not known"
        )
        yield LabelFault(LabelReason.PLACEHOLDER, node.name, message, (Mend(node.name, counting, None, sure=True),))
    if value and axis.is_level:
        written = hypernode_name(axis.name, value, value, levels, hashed=False)
        if written != f"{axis.name}-{value}":
            message = f"{axis.name} {value} cannot be part of a HyperNode's name, which is {written}"
            yield LabelFault(LabelReason.NO_PLAIN_NAME, node.name, message, severity=LabelSeverity.WARNING)


def _missing(nodes: Sequence[Labeled], axis: Axis, at: int) -> Iterator[LabelFault]:
    """Yield nodes with GPUs that lack a label which others have, and nodes without a flavor."""
    # An unused label is a separate fault.
    lacking = [node.name for node in nodes if node.has_gpus and not any(map(node.labels.get, axis.keys))]
    is_known = any(node.values[at][1] for node in nodes)
    if not axis.keys or (axis.is_level and not is_known) or (axis.is_place and not axis.is_level):
        return
    label = f"no label for {axis.name} ({', '.join(axis.keys)})"
    for name in lacking:
        mends = (Mend(name, axis.keys[0], _TO_DECIDE, sure=False),)
        if axis.is_level:
            message = f"{label}, which other nodes have"
            yield LabelFault(LabelReason.LABEL_MISSING, name, message, mends, LabelSeverity.WARNING)
        else:
            yield LabelFault(LabelReason.FLAVOR_MISSING, name, f"{label}: no run fits on these nodes", mends)


def _cases(nodes: Sequence[Labeled], axis: Axis, at: int) -> Iterator[LabelFault]:
    """Yield values of a level that differ in upper and lower case only. Flavors are compared without it."""
    for same in _grouped(nodes, lambda node: node.values[at][1].lower()).values():
        spellings = _by_frequency(_grouped(same, lambda node: node.values[at][1]))
        (usual, most), *others = spellings.items()
        shown = ", ".join(f"{value} ({len(found)})" for value, found in spellings.items())
        message = f"values of {axis.name} differ in case only, so they are several domains: {shown}"
        for node in (node for _, found in others for node in found):
            mend = Mend(node.name, node.values[at][0], usual, sure=2 * len(most) > len(same))
            yield LabelFault(LabelReason.DIFFERS_IN_CASE, node.name, message, (mend,))


def _several_parents(nodes: Sequence[Labeled], axes: Sequence[Axis], at: int) -> Iterator[LabelFault]:
    """Yield values that are in several values of a wider axis, the closest contradiction.

    Volcano makes one HyperNode of a key and a value; with two parents it is invalid, and then no job with a topology is
    scheduled in the whole cluster. A node without a label at the wider level is no contradiction.
    """
    axis = axes[at]
    for value, members in sorted(_grouped(nodes, lambda node: node.values[at][1]).items()):
        for above in (above for above in range(at + 1, len(axes)) if axes[above].is_level):
            parents = _by_frequency(_grouped(members, partial(_value, above)))
            if len(parents) == 1 or not parents:
                continue
            shown = ", ".join(f"{parent} ({count_of(len(found), 'node')})" for parent, found in parents.items())
            message = f"{axis.name} {value} is in several of level {axes[above].name}: {shown}"
            severity = LabelSeverity.WARNING if axis.is_scoped else LabelSeverity.PROBLEM
            usual = next(iter(parents))
            for parent, found in parents.items():
                for node in found:
                    moved = Mend(node.name, node.values[above][0], usual, sure=False)
                    renamed = Mend(node.name, node.values[at][0], f"{parent}-{value}", sure=False)
                    mends = (moved, renamed) if len(f"{parent}-{value}") <= _LONGEST_VALUE else (moved,)
                    own = mends if parent != usual else ()
                    yield LabelFault(LabelReason.SEVERAL_PARENTS, node.name, message, own, severity)
            break


def _hostnames(nodes: Sequence[Labeled]) -> Iterator[LabelFault]:
    """Yield nodes without the label of the lowest level of every Topology, and nodes that share its value."""
    for node in nodes:
        if not node.labels.get(HOSTNAME):
            message = f"no label {HOSTNAME}: {KUEUE} and {KAI} ignore these nodes; kubelet writes it when it starts"
            yield LabelFault(LabelReason.HOSTNAME_MISSING, node.name, message, severity=LabelSeverity.WARNING)
    for value, same in sorted(_grouped(nodes, lambda node: node.labels.get(HOSTNAME, "")).items()):
        message = f"label {HOSTNAME} is {value} on several nodes, so they are one node for {KUEUE} and {KAI}"
        yield from (LabelFault(LabelReason.HOSTNAME_SHARED, node.name, message) for node in same if len(same) > 1)


def _value(at: int, node: Labeled) -> str:
    return node.values[at][1]


def _grouped(nodes: Iterable[Labeled], value: Callable[[Labeled], str]) -> dict[str, list[Labeled]]:
    """Return the nodes by their value; those without one are left out."""
    found: dict[str, list[Labeled]] = {}
    for node in nodes:
        found.setdefault(value(node), []).append(node)
    found.pop("", None)
    return found


def _by_frequency(groups: dict[str, list[Labeled]]) -> dict[str, list[Labeled]]:
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


class LabelReason(StrEnum):
    """Reasons of findings about labels, beside the reasons of quarantine."""

    EMPTY_VALUE = "EmptyValue"
    PLACEHOLDER = "Placeholder"
    DIFFERS_IN_CASE = "DiffersInCase"
    SEVERAL_PARENTS = "SeveralParents"
    FLAVOR_MISSING = "FlavorMissing"
    LABEL_MISSING = "LabelMissing"
    KEYS_DISAGREE = "KeysDisagree"
    NO_PLAIN_NAME = "NoPlainName"
    HOSTNAME_MISSING = "HostnameMissing"
    HOSTNAME_SHARED = "HostnameShared"
    LABELS_UNREAD = "LabelsUnread"
    LEVEL_WITHOUT_LABELS = "LevelWithoutLabels"
    GPUS_NOT_COUNTED = "GPUsNotCounted"


MISREAD_BY: Mapping[str, tuple[str, ...]] = {
    QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS: (VOLCANO,),
    QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS: (VOLCANO,),
    QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS: (VOLCANO,),
    QuarantineReason.RACK_IN_SEVERAL_BLOCKS: (VOLCANO,),
    QuarantineReason.DOMAIN_IN_SEVERAL_DOMAINS: (VOLCANO,),
    LabelReason.EMPTY_VALUE: (KUEUE,),
    LabelReason.PLACEHOLDER: (VOLCANO, KUEUE, KAI),
    LabelReason.DIFFERS_IN_CASE: (VOLCANO, KUEUE, KAI),
    LabelReason.SEVERAL_PARENTS: (VOLCANO,),
    LabelReason.LABEL_MISSING: (KUEUE, KAI),
    LabelReason.KEYS_DISAGREE: (VOLCANO, KUEUE, KAI),
    LabelReason.HOSTNAME_MISSING: (KUEUE, KAI),
    LabelReason.HOSTNAME_SHARED: (KUEUE, KAI),
}
"""The schedulers other than GKM that misread labels."""


def commands(mends: Iterable[Mend]) -> Iterator[str]:
    """Yield the lines of a shell script that corrects labels, the sure ones first; a command has several nodes."""
    nodes: dict[tuple[bool, str, str | None], dict[str, None]] = {}
    for mend in mends:
        nodes.setdefault((not mend.sure, mend.key, mend.value), {})[mend.node] = None
    for (unsure, key, value), found in sorted(nodes.items(), key=lambda item: (item[0][:2], item[0][2] or "")):
        names = list(found)
        change = shlex.quote(f"{key}-" if value is None else f"{key}={value}")
        for first in range(0, len(names), _NODES_OF_A_COMMAND):
            listed = " ".join(map(shlex.quote, names[first : first + _NODES_OF_A_COMMAND]))
            overwrite = "" if value is None else " --overwrite"
            yield f"{'# ' if unsure else ''}kubectl label nodes {listed} {change}{overwrite}"
