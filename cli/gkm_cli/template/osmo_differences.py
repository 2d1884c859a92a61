"""Find the values and merges of group templates that OSMO treats otherwise. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gkm.templates.merge import merge_patch
from gkm.templates.planning import PoolTemplate
from gkm.templates.pools import Identity, identity
from gkm.templates.values import Json

_SHOWN = 200
"""Characters of a path in a message."""
_ARRAY = re.compile(r"ARRAY:\[")
_TYPED = re.compile(r"\{\{[^{}]*\|\s*(int|float|bool|json)\s*\}\}")


def of_values(template: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 -- any JSON value
    """Yield the values of a template that OSMO renders to something else."""
    match template:
        case dict():
            for key, value in template.items():
                yield from of_values(value, _at(path, key))
        case list():
            for number, value in enumerate(template):
                yield from of_values(value, f"{path}[{number}]"[:_SHOWN])
        case str():
            if _ARRAY.search(template):
                yield f"{path}: ARRAY:[…] stays text; write a list, or one expression that ends in | json"
            if typed := _TYPED.fullmatch(template):
                yield f"{path}: the value gets the type {typed[1]}; in OSMO it is text"
            if template.endswith("\n"):
                yield f"{path}: the newline at the end stays; OSMO removes it"


def of_merge(templates: Sequence[PoolTemplate]) -> Iterator[str]:
    """Yield the fields of a pool's templates that OSMO merges otherwise; raises TemplateInvalid as `identity` does."""
    merged: dict[Identity, Json] = {}
    for template in templates:
        key = identity(template.object)
        if key in merged:
            yield from (f"{template.name}: {each}" for each in _of_patch(merged[key], template.object))
        merged[key] = merge_patch(merged[key], template.object) if key in merged else template.object


def _of_patch(target: Json, patch: Json, path: str = "") -> Iterator[str]:
    for key, value in patch.items():
        at, before = _at(path, key), target.get(key)
        if value is None:
            yield f"{at}: null deletes the field; OSMO stores null"
        elif isinstance(value, list) and isinstance(before, list):
            yield f"{at}: the list replaces the one before it; OSMO merges their items by name"
        elif isinstance(value, dict) and isinstance(before, dict):
            yield from _of_patch(before, value, at)


def _at(path: str, key: str) -> str:
    return f"{path}.{key}"[:_SHOWN] if path else key[:_SHOWN]
