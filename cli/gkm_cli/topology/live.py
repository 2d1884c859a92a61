"""The nodes of a cluster, and its topology settings: what `gkm topology` reads where no lists are given."""

from dataclasses import dataclass

from gkm.api.config import ConfigInvalid, parse
from gkm.api.installation import CONFIG_KEY, CONFIG_MAP, NAMESPACE
from gkm.api.topology_settings import Topology
from gkm.kube.api import Api
from gkm.kube.resources import CONFIGMAPS
from gkm.topology.lists import NodeList
from gkm.topology.usage import Usage

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.clusters.reads import Unreadable, get
from gkm_cli.clusters.usage import read_nodes, read_usage
from gkm_cli.output import CommandFailed

_WHERE = f"ConfigMap {NAMESPACE}/{CONFIG_MAP}"


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """The nodes of a cluster, what its pods use, and the settings of its controllers, None if they are not known.

    `notes` are sentences for the user.
    """

    nodes: NodeList
    usage: Usage
    settings: Topology | None
    notes: tuple[str, ...] = ()


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
    try:
        return ClusterNodes(nodes, usage, _settings(cluster.api))
    except (ConfigInvalid, Unreadable) as fault:
        return ClusterNodes(nodes, usage, None, (f"the levels are not those of {_WHERE}: {fault}",))


def _settings(api: Api) -> Topology | None:
    """Return the settings of the controllers; None if GKM is not installed."""
    found = get(api, CONFIGMAPS, CONFIG_MAP, NAMESPACE)
    text = (found or {}).get("data", {}).get(CONFIG_KEY)
    return parse(text).topology if isinstance(text, str) else None
