"""From options to the tree, and `gkm topology build`: read, merge, print."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gkm.api import documents
from gkm.api.topology_settings import AREAS, Topology, TopologyLevel
from gkm.hoststate.escaping import escape
from gkm.topology.hypernodes import HyperNode
from gkm.topology.labels import label_placements
from gkm.topology.lists import NodeList
from gkm.topology.nodes import Node
from gkm.topology.placements import Placements, placements
from gkm.topology.providers import by_trust
from gkm.topology.trees.merge import Named, build_tree
from gkm.topology.trees.tree import Tree
from msgspec import structs

from gkm_cli.inputs import files
from gkm_cli.inputs.cluster_lists import read_nodes
from gkm_cli.output import Output, line, show, supports_unicode
from gkm_cli.topology import manifests, render, sources
from gkm_cli.topology.json_output import tree_result
from gkm_cli.topology.options import BuildOutput, SourceOptions
from gkm_cli.topology.outline import Outline, outline
from gkm_cli.topology.sources import NETWORKS, Sources

LABELS = "labels"


@dataclass(frozen=True, slots=True)
class Built:
    """The tree, the settings that made it, its outline and the listed nodes. `notes` are sentences for the user."""

    tree: Tree
    settings: Topology
    outline: Outline
    nodes: Mapping[str, Node]
    notes: tuple[str, ...]


def print_tree(options: SourceOptions, output: BuildOutput) -> None:
    """Print the tree, or the objects of a scheduler.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs.
    """
    built = build(options)
    if output in (BuildOutput.TREE, BuildOutput.JSON):
        result = tree_result(built.tree, built.outline, built.notes)
        form = Output.JSON if output is BuildOutput.JSON else Output.TABLE
        show(result, form, lambda: render.render_tree(built.tree, built.outline, built.notes))
        return
    if output is BuildOutput.LABELS:
        for command in manifests.label_commands(built.tree, built.settings, built.nodes.values()):
            line(command)
    for object_ in manifests.objects(output, built.tree, built.settings):
        sys.stdout.write("---\n" + documents.encode(object_, ascii_only=not supports_unicode()))
    # Standard output may be piped to kubectl.
    for text in (*render.problems(built.tree), *(f"note: {note}" for note in built.notes)):
        sys.stderr.write(escape(text) + "\n")


def build(options: SourceOptions, more: Sequence[Any] = ()) -> Built:
    """Return the tree of the sources; `more` are other files that the command reads.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs, or standard input is given twice.
    """
    files.check_stdin_once([*options.files, *more])
    settings = files.configured(options.config).topology
    listed = read_nodes(options.nodes)
    found = sources.read(options, frozenset(node.name for node in listed.nodes), settings)
    if options.config is None:
        settings = with_levels_of(found, settings)
    notes = (*found.notes, *_notes(found, settings, is_configured=options.config is not None))
    names = {node.name for node in listed.nodes} | {entry.node for entry in listed.unread}
    tree = build_tree(
        _by_provider(listed, found, settings),
        settings,
        existing=names,
        unplaced=[node.name for node in listed.nodes if node.gpus is not None],
    )
    nodes = {node.name: node for node in listed.nodes}
    return Built(tree, settings, outline(tree, settings, found.switches), nodes, notes)


def with_levels_of(found: Sources, settings: Topology) -> Topology:
    """Return settings with the levels that the sources name, above `nvlink`, from the closest to the widest.

    They take the place of a level that neither a source names nor the administrator configured: labels of blocks say
    nothing about which switches are below or above them.
    """
    tiers: dict[str, int] = {}
    for hypernode in _hypernodes(found):
        tiers[hypernode.tier_name] = max(hypernode.tier, tiers.get(hypernode.tier_name, 0))
    known = {level.name for level in settings.levels}
    new = [TopologyLevel(name) for _, name in sorted((tier, name) for name, tier in tiers.items() if name not in known)]
    if not new:
        return settings
    closest, *wider = settings.levels
    rest = [level for level in wider if level.name in tiers or level.name in AREAS]
    return structs.replace(settings, levels=[closest, *new, *rest])


def _notes(found: Sources, settings: Topology, *, is_configured: bool) -> Iterator[str]:
    """Yield the parts of the sources that do not count, and the assumptions."""
    levels = [level.name for level in settings.levels]
    ignored = sorted({hypernode.tier_name for hypernode in _hypernodes(found)} - set(levels))
    if ignored:
        yield f"topology.levels lacks {', '.join(ignored)}, which the sources have: those domains do not count"
    if found.found and not is_configured:
        yield f"no --config is given: the levels are {', '.join(levels)}"
    for provider in settings.providers:
        if provider.name != LABELS and provider.name not in found.found:
            yield f"topology.providers has {provider.name}, and no option gives its data"


def _hypernodes(found: Sources) -> Iterable[HyperNode]:
    return (hypernode for discovery in found.found.values() for hypernode in discovery.hypernodes)


def _by_provider(listed: NodeList, found: Sources, settings: Topology) -> Named:
    """Return the placements of all providers in their order; those that are not configured come first."""
    levels = [level.name for level in settings.levels]
    names = [provider.name for provider in settings.providers]
    placed = {LABELS: label_placements(listed.nodes, settings)} if LABELS in names else {}
    for provider, discovery in found.found.items():
        placed[provider] = placements(discovery.hypernodes, levels, discovery.quarantined)
    order = by_trust([*(name for name in NETWORKS if name not in names), *names])
    # No provider knows where a node is that cannot be read.
    unread = ("nodes", Placements(quarantined=listed.unread))
    return [unread, *((name, placed[name]) for name in order if name in placed)]
