"""Find fields that the schema of runs does not have: a misspelt field must not be ignored. Pure."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from gkm.api import schemas
from gkm.api.runs import RUN_RULES, Run


@cache
def of_runs() -> Mapping[str, Any]:
    """Return the schema in the CustomResourceDefinition of runs."""
    return schemas.of_kind(Run, RUN_RULES)


def unknown_fields(value: object, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
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
