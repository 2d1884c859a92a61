"""Decides whether the controllers can work with a CustomResourceDefinition of an API server. Pure."""

from collections.abc import Mapping
from typing import Any

from gkm.api import crds
from gkm.api.definition_origin import MIGRATION, DefinitionOrigin, compare
from gkm.api.meta import GROUP


def foreign(plural: str, found: Mapping[str, Any]) -> str:
    """Return why a definition cannot be used; "" if it can. Additional fields are allowed."""
    comparison = compare(crds.definitions()[f"{GROUP}_{plural}.yaml"], found)
    if comparison.origin in (DefinitionOrigin.SAME, DefinitionOrigin.LATER):
        return ""
    name, difference = f"the API server's CustomResourceDefinition {plural}.{GROUP}", comparison.difference
    if comparison.origin is DefinitionOrigin.EARLIER:
        return f"{name} is of an earlier version, it {difference}: apply our crds/"
    # Upstream GKM has kinds of the same names.
    what_next = f"uninstall the product it belongs to (upstream GKM: {MIGRATION}), or apply our crds/"
    return f"{name} is not ours, it {difference}: {what_next}"
