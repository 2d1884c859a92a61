"""Read the files of all sources, and make a provider of each: docs/design/hypernodes.md."""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from gkm.api.fabrics import NodeFabric
from gkm.api.grammar import count_of
from gkm.api.topology_settings import Topology
from gkm.topology.fabrics import ibnetdiscover, infiniband, lldp, lldpd, tree_file, ufm
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.leaf_groups import name_of
from gkm.topology.fabrics.network import FabricDiscovery, MatchedHosts
from gkm.topology.fabrics.rails import TooIrregular
from gkm.topology.fabrics.subnet import Subnet

from gkm_cli.inputs import files
from gkm_cli.inputs.cluster_lists import read_fabrics
from gkm_cli.output import UsageError
from gkm_cli.topology.options import SourceOptions

T = TypeVar("T")
NETWORKS = ("infiniband", "ufm", "lldp", "tree-file")
"""Providers that read files, the most trusted first, where the configuration states no order."""
# NVIDIA's managed switches: MF0;<name>:<model>/U<number of the chip>
_MANAGED = re.compile(r"MF\d{1,3};([^:;]+):[^:;]+")
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib: 16 for the header of gzip, and 15


@dataclass(slots=True)
class Sources:
    """What the files hold: what each provider found, names of switches by the groups they name, and notes."""

    found: dict[str, FabricDiscovery] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read(options: SourceOptions, nodes: frozenset[str], settings: Topology) -> Sources:
    """Return what the sources report about `nodes`.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs.
    """
    sources = Sources()
    fabrics = read_fabrics(options.fabrics or ())
    if fabrics.unread:
        sources.notes.append(f"{count_of(fabrics.unread, 'NodeFabric')} cannot be read and counts for no node")
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
    """Yield how many nodes a source shows, and which of its hosts are none, unless all is matched."""
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
        rows = chain.from_iterable(_parsed(path, "ufm", ufm.MAX_PAGE_BYTES, ufm.decode) for path in pages)
        yield "ufm", lambda: from_subnets([ufm.subnet(rows)], "ufm")
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
            raise ibnetdiscover.NotASurvey("it ends in the middle")
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


_PRINTED_BY = {
    "ibnetdiscover": "ibnetdiscover",
    "ufm": "curl -su USER https://UFM/ufmRest/resources/ports",
}
