"""Definitions of other versions and products are told apart; a planted difference on any level is found."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from gkm.api import crds
from gkm.api.definition_origin import DefinitionOrigin, compare
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.operator.upstream import upstream

Json = dict[str, Any]
OURS = list(crds.definitions().values())
NESTED = ("items", "additionalProperties")


def schemas(schema: Json, path: str = "") -> list[tuple[str, Json]]:
    """Return every schema of an object in a schema, with its path."""
    inner = [(f"{path}.{name}" if path else name, below) for name, below in schema.get("properties", {}).items()] + [
        (f"{path}{sign}", schema[key])
        for key, sign in zip(NESTED, ("[]", ".*"), strict=True)
        if isinstance(schema.get(key), dict)
    ]
    own = [(path, schema)] if schema.get("properties") else []
    return own + [found for where, below in inner for found in schemas(below, where)]


def schema_of(definition: Json) -> Json:
    found: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


CHANGES = st.sampled_from(
    [
        (definition, index, name)
        for definition in OURS
        for index, (_, schema) in enumerate(schemas(schema_of(definition)))
        for name in schema["properties"]
    ]
)


def changed(definition: Json, index: int) -> tuple[Json, str, Json]:
    """Return a copy, and the path and the properties of one of its schemas."""
    copied = copy.deepcopy(definition)
    path, schema = schemas(schema_of(copied))[index]
    return copied, f"{path}." if path else "", schema["properties"]


@pytest.mark.parametrize("ours", OURS, ids=lambda ours: str(ours["metadata"]["name"]))
def test_a_definition_is_the_same_as_itself(ours: Json) -> None:
    assert compare(ours, copy.deepcopy(ours)).origin is DefinitionOrigin.SAME
    assert compare(ours, copy.deepcopy(ours)).difference == ""


@settings(max_examples=examples(30))
@given(CHANGES)
def test_without_a_field_it_is_an_earlier_one_and_without_our_label_a_foreign_one(
    change: tuple[Json, int, str],
) -> None:
    ours, index, name = change
    earlier, path, properties = changed(ours, index)
    del properties[name]
    assert compare(ours, earlier).origin is DefinitionOrigin.EARLIER
    assert compare(ours, earlier).lacking == (f"{path}{name}",)
    del earlier["metadata"]["labels"]
    assert compare(ours, earlier).origin is DefinitionOrigin.FOREIGN


@settings(max_examples=examples(30))
@given(CHANGES)
def test_with_another_field_it_is_a_later_one(change: tuple[Json, int, str]) -> None:
    ours, index, _ = change
    later, path, properties = changed(ours, index)
    properties["another"] = {"type": "string"}
    found = compare(ours, later)
    assert (found.origin, found.difference) == (DefinitionOrigin.LATER, f"has {path}another")


@settings(max_examples=examples(30))
@given(CHANGES)
def test_with_a_field_of_another_type_or_name_it_is_foreign(change: tuple[Json, int, str]) -> None:
    ours, index, name = change
    foreign, path, properties = changed(ours, index)
    properties[name] = {"type": "null"}
    found = compare(ours, foreign)
    assert (found.origin, found.difference) == (DefinitionOrigin.FOREIGN, f"lacks {path}{name}")
    properties["renamed"] = properties.pop(name)
    found = compare(ours, foreign)
    assert (found.origin, found.difference) == (DefinitionOrigin.FOREIGN, f"lacks {path}{name} and has {path}renamed")


def enumerations(value: object) -> list[Json]:
    """Return the schemas with an enumeration in a JSON value, in its order."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, dict) and isinstance(value.get("enum"), list) else []
    return own + [found for below in inner for found in enumerations(below)]


WITH_VALUES = st.sampled_from([(ours, index) for ours in OURS for index in range(len(enumerations(schema_of(ours))))])


EDITS: list[tuple[Callable[[Json], object], DefinitionOrigin]] = [
    (lambda schema: schema["enum"].pop(), DefinitionOrigin.EARLIER),
    (lambda schema: schema["enum"].append("Another"), DefinitionOrigin.LATER),
    (lambda schema: schema.pop("enum"), DefinitionOrigin.LATER),
]


@settings(max_examples=examples(30))
@given(WITH_VALUES)
def test_values_of_an_enumeration_count_as_fields_do(change: tuple[Json, int]) -> None:
    ours, index = change
    for edit, origin in EDITS:
        other = copy.deepcopy(ours)
        edit(enumerations(schema_of(other))[index])
        assert compare(ours, other).origin is origin
        # The other way round: what this version lacks, the other one has.
        assert (
            compare(other, ours).origin
            is {DefinitionOrigin.EARLIER: DefinitionOrigin.LATER, DefinitionOrigin.LATER: DefinitionOrigin.EARLIER}[
                origin
            ]
        )


def test_a_value_is_named_in_the_difference() -> None:
    ours = next(one for one in OURS if enumerations(schema_of(one)))
    earlier = copy.deepcopy(ours)
    value = enumerations(schema_of(earlier))[0]["enum"].pop()
    assert compare(ours, earlier).difference.endswith(f"={value}")


def test_a_field_that_must_be_there_is_of_an_earlier_version_than_an_optional_one() -> None:
    ours = next(one for one in OURS if one["metadata"]["name"] == "gkmcaches.gkm.io")
    later = copy.deepcopy(ours)
    schema_of(later)["properties"]["spec"]["required"].remove("image")
    assert (compare(ours, later).origin, compare(ours, later).difference) == (
        DefinitionOrigin.LATER,
        "has spec.image (optional)",
    )
    assert (compare(later, ours).origin, compare(later, ours).difference) == (
        DefinitionOrigin.EARLIER,
        "lacks spec.image (optional)",
    )


def test_upstreams_definition_is_foreign_with_any_label() -> None:
    ours = next(one for one in OURS if one["metadata"]["name"] == "gkmcaches.gkm.io")
    theirs = upstream()
    assert compare(ours, theirs).origin is DefinitionOrigin.FOREIGN
    theirs["metadata"]["labels"] = crds.LABELS
    assert compare(ours, theirs).origin is DefinitionOrigin.FOREIGN


@settings(max_examples=examples(30))
@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "spec",
                        "versions",
                        "name",
                        "served",
                        "schema",
                        "openAPIV3Schema",
                        "properties",
                        "type",
                        "metadata",
                        "labels",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_a_definition_of_any_shape_is_compared(value: object) -> None:
    theirs = value if isinstance(value, dict) else {"spec": value}
    version = {"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": value}}
    for one in (theirs, {"spec": {"scope": "Namespaced", "versions": [value, version]}, "metadata": value}):
        assert compare(OURS[0], one).origin is DefinitionOrigin.FOREIGN
