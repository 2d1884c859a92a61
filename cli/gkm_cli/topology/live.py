"""The nodes of a cluster, and its topology settings: what `gkm topology` reads where no lists are given."""

from dataclasses import dataclass

from gkm.api.topology_settings import Topology
from gkm.kube.api import Api
from gkm.topology.lists import NodeList
from gkm.topology.usage import Usage

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.clusters.topology import Notes, read_config
from gkm_cli.clusters.usage import read_nodes, read_usage
from gkm_cli.output import CommandFailed


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """The nodes of a cluster, what its pods use, and the settings of its controllers, None if they are not known."""

    nodes: NodeList
    usage: Usage
    settings: Topology | None
    notes: Notes
    api: Api


def read(options: ClusterOptions, *, with_usage: bool) -> ClusterNodes:
    """Return the nodes and topology settings of a cluster, and with `with_usage` what pods use of the nodes.

    Raises:
        CommandFailed: no API server answers, or nodes or pods cannot be read.
    """
    try:
        cluster = connected(options)
    except CommandFailed as error:
        raise CommandFailed(f"{error}; or give lists with --nodes") from error
    nodes = read_nodes(cluster.api)
    usage = read_usage(cluster.api).others if with_usage else Usage()
    config, notes = read_config(cluster.api)
    return ClusterNodes(nodes, usage, config.topology if config else None, notes, cluster.api)
