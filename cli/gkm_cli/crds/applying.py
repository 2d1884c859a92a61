"""Apply the kinds of this version: all of them, or no kind if the cluster has a later kind or another product's."""

from collections.abc import Mapping
from typing import Any

from gkm.api.definition_origin import MIGRATION, DefinitionOrigin, compare
from gkm.kube.errors import ApiError
from gkm.kube.resources import DEFINITIONS

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.clusters.reads import get
from gkm_cli.output import CommandFailed, Output, line, show

FIELD_MANAGER = "gkm-crds"


def apply_all(cluster: ClusterOptions, definitions: Mapping[str, Any], output: Output) -> None:
    """Apply all CustomResourceDefinitions of this version to a cluster, and print their names.

    Raises:
        CommandFailed: a definition of the cluster is another product's or a later version's, or the API server refuses
            one of ours.
    """
    api = connected(cluster).api
    wanted = {str(ours["metadata"]["name"]): ours for ours in definitions.values()}
    for name, ours in wanted.items():
        if theirs := get(api, DEFINITIONS, name):
            _check_replaceable(name, ours, theirs)
    for name, ours in wanted.items():
        try:
            api.apply(DEFINITIONS, ours, field_manager=FIELD_MANAGER)
        except ApiError as error:
            raise CommandFailed(f"{name}: {error.message}; correct that, and run the command again") from error
        if output is Output.TABLE:
            line(f"{name} applied")
    show({"applied": list(wanted)}, output, lambda: None)


def _check_replaceable(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    comparison = compare(ours, theirs)
    if comparison.origin is DefinitionOrigin.FOREIGN:
        raise CommandFailed(
            f"CustomResourceDefinition {name} is another product's: it {comparison.difference}; no kind was applied: "
            f"uninstall that product first; for upstream GKM see {MIGRATION}"
        )
    if comparison.origin is DefinitionOrigin.LATER:
        raise CommandFailed(
            f"CustomResourceDefinition {name} is of a later version of GKM, or another product's: it "
            f"{comparison.difference}, which this version lacks; no kind was applied: use the gkm of the later "
            "version, or uninstall the other product first"
        )
