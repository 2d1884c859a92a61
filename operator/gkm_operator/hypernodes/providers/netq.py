"""The provider `netq`: a file with LLDP neighbors as NVIDIA NetQ prints them in JSON."""

from collections.abc import Mapping
from typing import Any

from gkm.topology.fabrics import lldp, netq
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.providers import Provider

from gkm_operator.hypernodes.providers.file_source import file_provider
from gkm_operator.hypernodes.providers.polling import Known


def provider(config: Mapping[str, Any], _credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider."""
    return file_provider("netq", config, _parse, OutputUnreadable)


def _parse(data: bytes, known: Known) -> FabricDiscovery:
    return lldp.from_netq(netq.decode(data), known.nodes, known.existing)
