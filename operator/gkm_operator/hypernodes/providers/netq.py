"""The provider `netq`: a file with LLDP neighbors as NVIDIA NetQ prints them in JSON."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gkm.api.topology_settings import CountedInterfaces
from gkm.topology.fabrics import lldp, netq
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.providers import Provider

from gkm_operator.hypernodes.providers.file_source import INTERVAL_SECONDS, FilePath, Interval, file_provider
from gkm_operator.hypernodes.providers.polling import Known, parse_config


class NetqConfig(CountedInterfaces, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`config` of the provider: the file, how often it is read, and which cables in it count."""

    file: FilePath
    interval_seconds: Interval = INTERVAL_SECONDS


def provider(config: Mapping[str, Any], _credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider."""
    settings = parse_config(config, NetqConfig)
    return file_provider(
        "netq",
        settings.file,
        settings.interval_seconds,
        partial(_parse, Counted(settings.interfaces, settings.switches)),
        OutputUnreadable,
    )


def _parse(counted: Counted, data: bytes, known: Known) -> FabricDiscovery:
    return lldp.from_netq(netq.decode(data), known.nodes, known.existing, counted)
