"""Find fields that the schema of a kind does not have: a misspelt field must not be ignored. Pure."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from gkm.api import schemas

Schema = Mapping[str, Any]


@cache
def of(kind: type[Any]) -> Schema:
    """Return the schema in the CustomResourceDefinition of a kind, without its rules."""
    return schemas.of_kind(kind, ())


def unknown_fields(value: object, schema: Schema, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that a schema does not have, as the API server's strict validation does.

    If the schema names no fields, as for labels and metadata, it accepts any.
    """
    if isinstance(value, list):
        items = schema.get("items", {})
        for number, item in enumerate(value):
            yield from unknown_fields(item, items, f"{path}[{number}]")
    fields = schema.get("properties")
    if isinstance(value, dict) and fields is not None:
        for key, inner in value.items():
            at = f"{path}.{key}" if path else str(key)
            if key in fields:
                yield from unknown_fields(inner, fields[key], at)
            else:
                yield at


def suggestion(path: str, schema: Schema) -> str:
    """Return the field that an unknown field may stand for, or all fields."""
    *above, field = re.sub(r"\[[0-9]+\]", ".", path).split(".")
    here = schema
    for part in above:
        here = here.get("items", here) if not part else here.get("properties", {}).get(part, here)
    fields = sorted(here.get("properties", {}))
    close = get_close_matches(field, fields, n=1)
    return f"{close[0]} may be meant" if close else f"it has {', '.join(fields)}"
