"""From options to the tree, and `gkm topology build`: read, merge, print.

Each source becomes a provider (docs/design/hypernodes.md).
"""

import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gkm.api.fabrics import NodeFabric
from gkm.api.grammar import count_of
from gkm.api.topology_settings import AREAS, Topology, TopologyLevel
from gkm.hoststate.escaping import escape
from gkm.topology.fabrics import ibnetdiscover, infiniband, lldp, lldpd, tree_file, ufm
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.leaf_groups import name_of
from gkm.topology.fabrics.network import FabricDiscovery, MatchedHosts
from gkm.topology.fabrics.rails import TooIrregular
from gkm.topology.fabrics.subnet import Subnet
from gkm.topology.hypernodes import HyperNode
from gkm.topology.labels import label_placements
from gkm.topology.lists import NodeList
from gkm.topology.nodes import Node
from gkm.topology.placements import Placements, placements
from gkm.topology.providers import by_trust
from gkm.topology.trees import slurm, topologies, volcano
from gkm.topology.trees.merge import Named, build_tree
from gkm.topology.trees.topologies import level_labels, node_labels
from gkm.topology.trees.tree import Tree
from msgspec import structs

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.inputs import files
from gkm_cli.inputs.cluster_lists import read_fabrics, read_nodes
from gkm_cli.output import UsageError, line, print_manifests, show
from gkm_cli.progress import waiting
from gkm_cli.topology import render
from gkm_cli.topology.hygiene import Mend, commands
from gkm_cli.topology.options import BuildOutput, SourceOptions
from gkm_cli.topology.render import Outline, outline, tree_result

if TYPE_CHECKING:
    from gkm_cli.topology.live import ClusterNodes

LABELS = "labels"
T = TypeVar("T")
NETWORKS = ("infiniband", "ufm", "lldp", "tree-file")
"""Providers that read files, the most trusted first, where the configuration states no order."""
# NVIDIA's managed switches: MF0;<name>:<model>/U<number of the chip>
_MANAGED = re.compile(r"MF\d{1,3};([^:;]+):[^:;]+")
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib: 16 for the header of gzip, and 15
_PRINTED_BY = {"ibnetdiscover": "ibnetdiscover", "ufm": "curl -su USER https://UFM/ufmRest/resources/ports"}
DEFAULT_NAME = "gkm"
"""The name of a topology whose name is not configured."""
_NFD_NAMESPACE = "node-feature-discovery"
Documents = Iterable[Any]


def documents_of(output: BuildOutput, tree: Tree, settings: Topology) -> Documents:
    """Return the documents of an output format of `gkm topology build`; HyperNodes have the children first.

    Raises:
        UsageError: Slurm cannot start with the tree.
    """
    make = _FORMS.get(output)
    return make(tree, settings) if make else ()


def _slurm(convert: Callable[[Tree, Topology, str], Any], tree: Tree, settings: Topology) -> Documents:
    try:
        return [convert(tree, settings, DEFAULT_NAME)]
    except slurm.NoDomains as error:
        raise UsageError(
            f"slurmctld would not start with this topology.yaml: {error}",
            "`-o tree` shows the domains: give a source of the level, or name other levels in topology.levels",
        ) from error


_FORMS: Mapping[BuildOutput, Callable[[Tree, Topology], Documents]] = {
    BuildOutput.HYPERNODES: lambda tree, settings: map(
        volcano.manifest, volcano.volcano(tree, settings).hypernodes.values()
    ),
    BuildOutput.KUEUE: lambda _tree, settings: [
        topologies.kueue(structs.replace(settings, kueue=settings.kueue or DEFAULT_NAME, node_labels=True))
    ],
    BuildOutput.KAI: lambda _tree, settings: [
        topologies.kai(structs.replace(settings, kai=settings.kai or DEFAULT_NAME, node_labels=True))
    ],
    BuildOutput.GROVE: lambda _tree, settings: [topologies.grove(settings, settings.kai or DEFAULT_NAME)],
    BuildOutput.NFD: lambda tree, settings: topologies.node_features(tree, settings, _NFD_NAMESPACE),
    BuildOutput.SLURM_TREE: partial(_slurm, slurm.tree_topology),
    BuildOutput.SLURM_BLOCK: partial(_slurm, slurm.block_topology),
}


def label_commands(tree: Tree, settings: Topology, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the commands for the labels that the levels of a Topology are, and that remove the labels of other trees.

    Nodes that are not in the tree, such as quarantined ones, keep no labels. These are no Node objects: `kubectl apply`
    would create a Node that was deleted since the list was made.
    """
    return commands(_mends(tree, settings, nodes))


def _mends(tree: Tree, settings: Topology, nodes: Iterable[Node]) -> Iterator[Mend]:
    wanted = node_labels(tree, settings)
    for node in sorted(nodes, key=lambda node: node.name):
        of_node = wanted.get(node.name, {})
        for key in {**level_labels(node.labels), **of_node}:
            yield Mend(node.name, key, of_node.get(key), sure=True)


@dataclass(frozen=True, slots=True)
class Built:
    """The tree of `gkm topology`, the settings that made it, its outline and the nodes. `notes` are sentences."""

    tree: Tree
    settings: Topology
    outline: Outline
    nodes: Mapping[str, Node]
    notes: tuple[str, ...]


def print_tree(options: SourceOptions, where: ClusterOptions, output: BuildOutput) -> None:
    """Print the tree of the topology, or the objects of a scheduler.

    Raises:
        CommandFailed: there are no lists, and the cluster cannot be read.
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs, or Slurm cannot start with the tree.
    """
    built = build(options, cluster=of_cluster(options, where, with_usage=False))
    if output in (BuildOutput.TREE, BuildOutput.JSON):
        result = tree_result(built.tree, built.outline, built.notes)
        show(result, output, lambda: render.render_tree(built.tree, built.outline, built.notes))
        return
    if output is BuildOutput.LABELS:
        for command in label_commands(built.tree, built.settings, built.nodes.values()):
            line(command)
    print_manifests(documents_of(output, built.tree, built.settings))
    # Standard output may be piped to kubectl.
    for text in (*render.problems(built.tree), *(f"note: {note}" for note in built.notes)):
        sys.stderr.write(escape(text) + "\n")


def of_cluster(options: SourceOptions, where: ClusterOptions, *, with_usage: bool) -> "ClusterNodes | None":
    """Return the nodes and settings of a cluster; None if files have the nodes.

    Raises:
        CommandFailed: no API server answers, or nodes or pods cannot be read.
    """
    if options.nodes:
        where.check_unnamed()
        return None
    from gkm_cli.topology import live  # noqa: PLC0415 -- only with a cluster: its client takes half a second

    with waiting("reading the cluster"):
        return live.read(where, with_usage=with_usage)


def build(options: SourceOptions, more: Sequence[Any] = (), cluster: "ClusterNodes | None" = None) -> Built:
    """Return the tree of the topology from the sources; `more` are other files that the command reads.

    Nodes come from a `cluster`, if it is given, and so do settings that no file has.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs, or standard input is given twice.
    """
    files.check_stdin_once([*options.files, *more])
    settings = cluster.settings if cluster and options.config is None else None
    is_configured = bool(settings or options.config)
    settings = settings or files.configured(options.config).topology
    listed = cluster.nodes if cluster else read_nodes(options.nodes or [])
    found = read(options, frozenset(node.name for node in listed.nodes), settings)
    if not is_configured:
        settings = with_levels_of(found, settings)
    trees, notes = _trees(found, settings, cluster)
    notes = (*found.notes, *_notes(found, settings, is_configured=is_configured), *notes)
    names = {node.name for node in listed.nodes} | {entry.node for entry in listed.unread}
    tree = build_tree(
        _by_provider(listed, found, trees, settings),
        settings,
        existing=names,
        unplaced=[node.name for node in listed.nodes if node.gpus is not None],
    )
    nodes = {node.name: node for node in listed.nodes}
    return Built(tree, settings, outline(tree, settings, found.switches), nodes, notes)


@dataclass(slots=True)
class Sources:
    """The content of the sources' files: discoveries by provider, names of switches by group, and notes."""

    found: dict[str, FabricDiscovery] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def with_levels_of(found: Sources, settings: Topology) -> Topology:
    """Return settings with the levels that the sources name, above `nvlink`, from the closest to the widest.

    They take the place of a level that no source names and the administrator did not configure: labels of blocks do not
    show which switches are below or above them.
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


def _trees(
    found: Sources, settings: Topology, cluster: "ClusterNodes | None"
) -> tuple[Mapping[str, Placements], Sequence[str]]:
    """Return the placements by the cluster's providers of which no option gives data, and notes about the others."""
    missing = [one.name for one in settings.providers if one.name != LABELS and one.name not in found.found]
    if cluster is None:
        return {}, [f"topology.providers has {name}, and no option gives its data" for name in missing]
    from gkm_cli.clusters.topology import read_trees  # noqa: PLC0415 -- as above

    trees, notes = read_trees(cluster.api, missing, settings.levels)
    return trees, (*cluster.notes, *notes)


def _hypernodes(found: Sources) -> Iterable[HyperNode]:
    return (hypernode for discovery in found.found.values() for hypernode in discovery.hypernodes)


def _by_provider(listed: NodeList, found: Sources, trees: Mapping[str, Placements], settings: Topology) -> Named:
    """Return the placements of all providers in their order; those that are not configured come first."""
    levels = [level.name for level in settings.levels]
    names = [provider.name for provider in settings.providers]
    placed = {**trees, LABELS: label_placements(listed.nodes, settings)} if LABELS in names else {**trees}
    for provider, discovery in found.found.items():
        placed[provider] = placements(discovery.hypernodes, levels, discovery.quarantined)
    order = by_trust([*(name for name in NETWORKS if name not in names), *names])
    # No provider knows where a node is that cannot be read.
    unread = ("nodes", Placements(quarantined=listed.unread))
    return [unread, *((name, placed[name]) for name in order if name in placed)]


def read(options: SourceOptions, nodes: frozenset[str], settings: Topology) -> Sources:
    """Return what the sources' files report about `nodes`.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs.
    """
    sources = Sources()
    fabrics = read_fabrics(options.fabrics or ())
    if fabrics.unread:
        sources.notes.append(f"{count_of(fabrics.unread, 'NodeFabric')} cannot be read and is used for no node")
    named = MatchedHosts.of((fabric.metadata.name for fabric in fabrics.fabrics), nodes)
    if others := named.unmatched(with_examples=True):
        sources.notes.append(f"--fabrics: {others}")
    for provider, discover in _discoveries(options, fabrics.fabrics, nodes, settings, sources.switches):
        try:
            found = discover()
        except TooIrregular as error:
            raise UsageError(
                f"the network of {provider} cannot be used: {error}", "check the cables in its files, or leave it out"
            ) from error
        sources.found[provider] = found
        sources.notes += [f"{provider}: {text}" for text in (*_hosts(found.hosts, len(nodes)), *found.faults)]
    return sources


def _hosts(hosts: MatchedHosts | None, nodes: int) -> Iterator[str]:
    """Yield how many nodes a source shows, and which of its hosts are no nodes, unless all is matched."""
    if hosts is None:
        return
    if nothing := hosts.nothing_placed(nodes, with_examples=True):
        yield nothing
    elif others := hosts.unmatched(with_examples=True):
        yield f"{hosts.nodes} of {count_of(nodes, 'node')} are in it; {others}"
    elif hosts.nodes < nodes:
        yield f"{hosts.nodes} of {count_of(nodes, 'node')} are in it"


def _discoveries(
    options: SourceOptions,
    fabrics: Sequence[NodeFabric],
    nodes: frozenset[str],
    settings: Topology,
    switches: dict[str, str],
) -> Iterator[tuple[str, Callable[[], FabricDiscovery]]]:
    """Yield the providers that have files, with the function that reads these."""

    def counted(provider: str) -> Counted:
        return Counted(*settings.counted(provider))

    def from_subnets(subnets: Iterable[Subnet], provider: str) -> FabricDiscovery:
        known = list(subnets)
        switches.update((name_of(guid), _switch(name)) for subnet in known for guid, name in subnet.switches.items())
        return infiniband.from_subnets(known, fabrics, nodes, counted=counted(provider))

    if surveys := options.ibnetdiscover:
        limit = ibnetdiscover.MAX_BYTES
        parsed = (_parsed(path, "ibnetdiscover", limit, _parse_survey) for path in surveys)
        yield "infiniband", partial(from_subnets, parsed, "infiniband")
    if pages := options.ufm:
        answers = (_parsed(path, "ufm", ufm.MAX_PAGE_BYTES, ufm.decode) for path in pages)
        yield "ufm", lambda: from_subnets([ufm.subnet(answers)], "ufm")
    if outputs := options.lldp:
        yield "lldp", lambda: lldp.from_neighbors(_neighbors(outputs), nodes, counted=counted("lldp"))
    elif fabrics and any(provider.name == "lldp" for provider in settings.providers):
        yield "lldp", partial(lldp.discover, fabrics, nodes, counted=counted("lldp"))
    if (path := options.tree_file) is not None:
        parse = partial(tree_file.discover, nodes=nodes)
        yield "tree-file", lambda: _parsed(path, "tree-file", tree_file.MAX_BYTES, parse)


def _switch(description: str) -> str:
    managed = _MANAGED.fullmatch(description)
    return managed[1] if managed else description


def _parse_survey(text: bytes) -> Subnet:
    if text.startswith(_GZIP):
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            text = stream.decompress(text, ibnetdiscover.MAX_BYTES + 1)
        except zlib.error as error:
            raise ibnetdiscover.NotASurvey("it cannot be unpacked by gzip") from error
        if len(text) <= ibnetdiscover.MAX_BYTES and not stream.eof:
            raise ibnetdiscover.NotASurvey("the survey is truncated")
    return ibnetdiscover.parse(text)


def _neighbors(paths: Iterable[Path]) -> dict[str, tuple[lldpd.Neighbor, ...]]:
    found: dict[str, tuple[lldpd.Neighbor, ...]] = {}
    for path in paths:
        for node, neighbors in _parsed(path, "lldp", lldpd.MAX_BYTES, lldpd.decode_nodes).items():
            found[node] = (*found.get(node, ()), *neighbors)
    return found


def _parsed(path: Path, option: str, limit: int, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(files.read_all(path, limit))
    except ValueError as problem:
        hint = f"give what `{_PRINTED_BY[option]}` prints" if option in _PRINTED_BY else "correct the file"
        raise UsageError(f"--{option} {files.name(path)}: {problem}", hint) from problem
