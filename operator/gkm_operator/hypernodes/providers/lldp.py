"""The provider `lldp`: it reads the Ethernet neighbors in NodeFabrics."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gkm.api.topology_settings import LldpConfig
from gkm.topology.fabrics import lldp
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.providers import Provider

from gkm_operator.hypernodes.providers.polling import Known, following, parse_config


def provider(config: Mapping[str, Any], _credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider `lldp`; `config` is its configuration."""
    settings = parse_config(config, LldpConfig)
    return following("lldp", partial(_read, Counted(settings.interfaces, settings.switches)))


def _read(counted: Counted, known: Known) -> FabricDiscovery:
    return lldp.discover(known.view.fabrics("Neighbors"), known.nodes, known.existing, counted)
