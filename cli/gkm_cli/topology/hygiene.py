"""Faults of node labels: what GKM quarantines, and what another scheduler misreads although GKM does not. Pure.

Only nodes that matter for placement count: those with GPUs, or with a fabric domain.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gkm.api.cliques import CLIQUE_LEVEL
from gkm.api.topology_presets import OPTIONAL_LEVELS
from gkm.api.topology_settings import AREAS, Topology, TopologyLevel
from gkm.topology.labels import is_of_cliques, label_placements, level_keys, relevant_labels
from gkm.topology.lists import NodeList
from gkm.topology.quarantine import Quarantined
from gkm.topology.survey import survey_nodes
from gkm.topology.trees.merge import build_tree

from gkm_cli.topology.label_rules import label_faults
from gkm_cli.topology.label_values import (
    MISREAD_BY,
    Axis,
    Labeled,
    LabelFault,
    LabelFinding,
    LabelReason,
    LabelSeverity,
)
from gkm_cli.topology.mending import Mend

_RACK, _BLOCK, _FLAVOR = "rack", "block", "flavor"


@dataclass(frozen=True, slots=True)
class Hygiene:
    """The findings, the most severe ones first, and the quarantined nodes with their labels."""

    nodes: int
    findings: tuple[LabelFinding, ...]
    quarantined: tuple[tuple[Quarantined, Mapping[str, str]], ...]

    @property
    def ok(self) -> bool:
        """Return whether there is no problem."""
        return all(finding.severity is not LabelSeverity.PROBLEM for finding in self.findings)

    @property
    def corrections(self) -> tuple[Mend, ...]:
        """Return the corrections of all findings."""
        return tuple(mend for finding in self.findings for mend in finding.corrections)


def check(listed: NodeList, settings: Topology) -> Hygiene:
    """Return the faults of the labels of nodes."""
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
