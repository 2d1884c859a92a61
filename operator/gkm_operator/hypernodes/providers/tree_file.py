"""The provider `tree-file`: a file with the tree of the network, of our shape or of topograph's."""

from collections.abc import Mapping
from typing import Any

from gkm.topology.fabrics import tree_file
from gkm.topology.fabrics.domain_tree import TreeInvalid
from gkm.topology.providers import Provider

from gkm_operator.hypernodes.providers.file_source import FileConfig, file_provider
from gkm_operator.hypernodes.providers.polling import parse_config


def provider(config: Mapping[str, Any], _credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider."""
    settings = parse_config(config, FileConfig)
    return file_provider(
        "tree-file",
        settings.file,
        settings.interval_seconds,
        lambda data, known: tree_file.discover(data, known.nodes),
        TreeInvalid,
    )
