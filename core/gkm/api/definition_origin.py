"""Compare a CustomResourceDefinition of an API server with ours of the same name: same, of another version, or foreign.

Upstream GKM has kinds of the same names. An API server silently drops fields that are not in a schema, so a foreign
definition must be recognized before it is used, and must not be replaced. GKM only adds fields and values, and makes
fields optional: a definition of an earlier version lacks some of this one's and has no others; a later version's
definition has more. Rules, bounds and descriptions are not compared: they do not tell which of two versions is the
later. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gkm.api.crds import LABELS
from gkm.api.grammar import listed

MIGRATION = "docs/how-to/migrate-from-upstream.md"
SHOWN = 4
"""Number of fields in one message; the message counts the others."""
MAX_VALUE = 40
"""Characters of a value in a message."""
_ANYTHING = "x-kubernetes-preserve-unknown-fields"


class DefinitionOrigin(StrEnum):
    """Where a CustomResourceDefinition comes from: this, an earlier or a later version of GKM, or another product."""

    SAME = "same"
    EARLIER = "earlier"
    """It has our label and lacks fields or values of this version."""
    LATER = "later"
    """It has all fields and values of this version, and others."""
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between a CustomResourceDefinition in a cluster and ours, which this version of GKM installs.

    They are paths of fields such as `status.conditions[].type`.

    A value of an enumeration is `spec.mode=Track`, `spec.mode=*` stands for any, and `spec.image (optional)` for a
    field that may be absent.
    """

    lacking: tuple[str, ...] = ()
    """Fields that only this version's definition has, or that have another type in the cluster."""
    added: tuple[str, ...] = ()
    """Fields that only the cluster's definition has, or that have another type in this version."""
    other: str = ""
    """A difference other than a field, as the end of a sentence."""
    is_labelled: bool = False

    @property
    def origin(self) -> DefinitionOrigin:
        """Return the origin of the CustomResourceDefinition in the cluster."""
        if self.other or (self.lacking and (self.added or not self.is_labelled)):
            return DefinitionOrigin.FOREIGN
        if self.lacking:
            return DefinitionOrigin.EARLIER
        return DefinitionOrigin.LATER if self.added else DefinitionOrigin.SAME

    @property
    def difference(self) -> str:
        """Return the differences as the end of a sentence, in one line; "" if there are none."""
        fields = (("lacks", self.lacking), ("has", tuple(path for path in self.added if path not in self.lacking)))
        return self.other or " and ".join(f"{verb} {listed(paths, SHOWN)}" for verb, paths in fields if paths)


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Comparison:
    """Compare a CustomResourceDefinition from a cluster with this version's definition of the same name."""
    version, spec = ours["spec"]["versions"][0], _mapping(theirs.get("spec"))
    versions = spec.get("versions")
    found = next(
        (
            one
            for one in map(_mapping, versions if isinstance(versions, list) else ())
            if one.get("name") == version["name"] and one.get("served") is True
        ),
        None,
    )
    if found is None:
        return Comparison(other=f"serves no {version['name']}")
    if spec.get("scope") != ours["spec"]["scope"]:
        return Comparison(other=f"is {spec.get('scope')}, ours is {ours['spec']['scope']}")
    schema = version["schema"]["openAPIV3Schema"]
    there = _mapping(_mapping(found.get("schema")).get("openAPIV3Schema"))
    labels = _mapping(_mapping(theirs.get("metadata")).get("labels"))
    return Comparison(
        tuple(_lacking(schema, there, "")),
        tuple(_lacking(there, schema, "")),
        is_labelled=LABELS.items() <= labels.items(),
    )


def _lacking(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of fields that only the first schema has; and not the paths inside of such a field."""
    is_same_type = ours.get("type") == theirs.get("type")
    if theirs.get(_ANYTHING) is True and (is_same_type or "type" not in theirs):
        return
    if not is_same_type:
        yield path or "."
        return
    if ours.get(_ANYTHING) is True:
        yield f"{path}.*".lstrip(".")
        return
    yield from (f"{path}={value}" for value in _lacking_values(ours.get("enum"), theirs.get("enum")))
    required, required_there = _names(ours.get("required")), _names(theirs.get("required"))
    for name in sorted((required_there - required) & _mapping(ours.get("properties")).keys()):
        yield f"{path}.{name} (optional)".lstrip(".")
    for name, schema in _mapping(ours.get("properties")).items():
        inner = f"{path}.{name}".lstrip(".")
        there = _mapping(theirs.get("properties")).get(name)
        if there is None:
            yield inner
        else:
            yield from _lacking(_mapping(schema), _mapping(there), inner)
    for inside, sign in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(ours.get(inside), Mapping):
            yield from _lacking(ours[inside], _mapping(theirs.get(inside)), f"{path}{sign}")


def _lacking_values(ours: object, theirs: object) -> list[str]:
    """Return the values that only the first enumeration has; without one, a field has any value."""
    if not isinstance(theirs, list):
        return []
    return [str(value)[:MAX_VALUE] for value in ours if value not in theirs] if isinstance(ours, list) else ["*"]


def _names(value: object) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
