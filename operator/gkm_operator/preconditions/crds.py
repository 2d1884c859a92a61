"""Compares the CustomResourceDefinitions of an API server with those that this version needs. Pure.

Upstream GKM has definitions of the same names. An API server silently drops fields that are not in a schema, so a
foreign definition must be recognized by its fields: some of ours are missing, or have another type.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from gkm.api import crds
from gkm.api.meta import GROUP, VERSION
from gkm.kube.resources import Resource
from msgspec import Struct, field

SHOWN = 4
"""Number of fields in one message; the message counts the others."""

_ANYTHING = "x-kubernetes-preserve-unknown-fields"


class Schema(Struct):
    """The schema of a version."""

    open_api: dict[str, Any] = field(default_factory=dict, name="openAPIV3Schema")


class Version(Struct):
    """One version of a kind."""

    name: str
    served: bool = False
    schema: Schema = field(default_factory=Schema)


class DefinitionSpec(Struct):
    """The fields of a definition's spec that are read."""

    scope: str
    versions: list[Version]


class Definition(Struct):
    """A CustomResourceDefinition, reduced to the fields in use."""

    spec: DefinitionSpec


DEFINITIONS: Resource[Definition] = Resource(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    type=Definition,
)


def foreign(plural: str, found: Definition) -> str:
    """Return the difference of a definition from this version's; "" for none. Additional fields are allowed."""
    ours = crds.definition(next(kind for kind in crds.KINDS if kind.plural == plural))["spec"]
    name = f"the API server's CustomResourceDefinition {plural}.{GROUP}"
    what_next = "uninstall the product it belongs to (upstream GKM has kinds of the same names), or apply our crds/"
    version = next((version for version in found.spec.versions if version.name == VERSION and version.served), None)
    if version is None:
        return f"{name} serves no {VERSION}: {what_next}"
    if found.spec.scope != ours["scope"]:
        return f"{name} is {found.spec.scope}, ours is {ours['scope']}: {what_next}"
    lacking = _lacking(ours["versions"][0]["schema"]["openAPIV3Schema"], version.schema.open_api, "")
    first = list(islice(lacking, SHOWN))
    more = f" and {count} more" if (count := sum(1 for _ in lacking)) else ""
    return f"{name} is not ours or of another version, it lacks {', '.join(first)}{more}: {what_next}" if first else ""


def _lacking(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of our fields that their schema does not have."""
    if theirs.get(_ANYTHING) is True:
        return
    if ours.get("type") != theirs.get("type"):
        yield path or "."
        return
    for name, schema in ours.get("properties", {}).items():
        inner = f"{path}.{name}".lstrip(".")
        there = _mapping(theirs.get("properties")).get(name)
        if there is None:
            yield inner
        else:
            yield from _lacking(schema, _mapping(there), inner)
    for inside, sign in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(ours.get(inside), Mapping):
            yield from _lacking(ours[inside], _mapping(theirs.get(inside)), f"{path}{sign}")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
