"""Whether the CustomResourceDefinitions of an API server are those that this version was written for. Pure.

Upstream GKM owns definitions of the same names (design/architecture.md). An API server drops what a schema does not
have without a word, so a foreign one must be told by its fields: those that are missing, or are of another type.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from gkm.api import crds
from gkm.api.crds import Kind
from gkm.api.meta import GROUP, VERSION
from gkm.kube.resources import Resource
from msgspec import Struct, field

SHOWN = 4
"""Fields in one message; how many there are beyond, is said."""

_ANYTHING = "x-kubernetes-preserve-unknown-fields"
KINDS: Mapping[str, Kind] = {kind.plural: kind for kind in crds.KINDS}
"""Ours, by plural."""


class Schema(Struct):
    """The schema of a version."""

    open_api: dict[str, Any] = field(default_factory=dict, name="openAPIV3Schema")


class Version(Struct):
    """One version of a kind."""

    name: str
    served: bool = False
    schema: Schema = field(default_factory=Schema)


class DefinitionSpec(Struct):
    """What is read of a definition."""

    scope: str
    versions: list[Version]


class Definition(Struct):
    """A CustomResourceDefinition, as far as it is read."""

    spec: DefinitionSpec


DEFINITIONS: Resource[Definition] = Resource(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    type=Definition,
)


def foreign(plural: str, found: Definition) -> str:
    """Return in a line why a definition is not that of this version, "" where it is; more fields than ours are good."""
    ours = crds.definition(KINDS[plural])["spec"]
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
    """Yield the paths of what we say or read, and their schema does not have."""
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
