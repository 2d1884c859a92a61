"""The provider `tree-file`: it reads the tree of the network from a file, in GKM's or topograph's format.

The file, such as a mounted ConfigMap, is read again when it changes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.topology.fabrics import tree_file
from gkm.topology.fabrics.domain_tree import TreeInvalid
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.providers import Provider, ProviderFailed
from msgspec import Meta, Struct

from gkm_operator.hypernodes.providers.polling import Known, PollingProvider, parse_config

MAX_FILE_BYTES = 64 << 20


FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
Interval = Annotated[float, Meta(ge=0.1, le=86_400)]
INTERVAL_SECONDS = 10.0


class FileConfig(Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The `config` of the provider `tree-file`: the path of the file, and the seconds between readings."""

    file: FilePath
    interval_seconds: Interval = INTERVAL_SECONDS


def _read(path: str) -> bytes:
    try:
        # kubelet replaces the links of a mounted ConfigMap, so they are followed anew each time.
        return read_bounded(Path(path).resolve(), MAX_FILE_BYTES)
    except (OSError, UnreadableState) as error:
        raise ProviderFailed(f"cannot read its file: {error}") from None


def provider(config: Mapping[str, Any], _credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider `tree-file`; `config` is its configuration."""
    settings = parse_config(config, FileConfig)

    def read(known: Known) -> FabricDiscovery:
        data = _read(settings.file)
        try:
            return tree_file.discover(data, known.nodes)
        except TreeInvalid as error:  # its message has no content
            raise ProviderFailed(f"cannot read its file: {error}") from None

    return PollingProvider("tree-file", read, settings.interval_seconds)
