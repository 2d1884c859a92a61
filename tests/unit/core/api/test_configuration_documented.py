"""docs/reference/configuration.md has every key of the configuration once, with its type and its default."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gkm.api.config import Config, ConfigInvalid, parse
from msgspec import inspect

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "configuration.md"
COLUMNS = ["key", "type", "default", "unit", "meaning"]
WORDS = {
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.NoneType: "null",
    inspect.AnyType: "any value",
}


@dataclass(frozen=True)
class Key:
    """A key with its path (`[]` is any item, `*` any name), from the structs or from a row of the page."""

    path: str
    kind: str
    default: str


def keys_of(struct: type, path: str = "") -> Iterator[Key]:
    """Yield every key with a value, those of nested structs with their paths."""
    found = inspect.type_info(struct)
    assert isinstance(found, inspect.StructType)
    for field in found.fields:
        here = f"{path}{field.encode_name}"
        inner, below = inside(field.type, here)
        if inner is not None:
            yield from keys_of(inner, f"{below}.")
        if inner is None or below != here:
            yield Key(here, kind_of(field.type), default_of(field))


def inside(found: inspect.Type, path: str) -> tuple[type | None, str]:
    """Return the struct in a value with its path: the value itself, an item of a list, or a value of a map."""
    match found:
        case inspect.StructType():
            return found.cls, path
        case inspect.ListType():
            return inside(found.item_type, f"{path}[]")
        case inspect.DictType():
            return inside(found.value_type, f"{path}.*")
        case _:
            return None, path


def kind_of(found: inspect.Type) -> str:
    match found:
        case inspect.StructType():
            return "section"
        case inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in found.values)
        case inspect.ListType():
            plural = "" if isinstance(found.item_type, inspect.LiteralType) else "s"
            return f"list of {kind_of(found.item_type)}{plural}"
        case inspect.DictType():
            return f"map of {kind_of(found.value_type)}s"
        case inspect.UnionType():
            # The documentation names a literal first.
            named = sorted(map(kind_of, found.types), key=lambda kind: not kind.startswith("`"))
            return " or ".join(kind for kind in named if kind != "null")
        case _:
            return WORDS[type(found)]


def default_of(field: inspect.Field) -> str:
    value: Any = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    if value is msgspec.NODEFAULT:
        return "needed"
    if value in ("", [], {}, None):
        return "–"
    plain = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"`{plain.removesuffix('.0')}`"


def rows() -> list[list[str]]:
    """Return the cells of every row of the page's tables."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row != COLUMNS]


KEYS = {key.path: key for key in keys_of(Config)}


def test_every_key_has_one_row_and_no_row_has_another() -> None:
    assert sorted(row[0].strip("`") for row in rows()) == sorted(KEYS)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_has_the_actual_type_and_default_and_a_meaning(row: list[str]) -> None:
    key, kind, default, unit, meaning = row
    known = KEYS[key.strip("`")]
    assert (kind, default) == (known.kind, known.default)
    assert len(meaning) > 10
    assert ("number" in kind or "integer" in kind) <= (unit != "–"), "a number has a unit"


@pytest.mark.parametrize("path", sorted({path.rpartition(".")[0] for path in KEYS} | {""}))
def test_an_unknown_key_is_refused_with_its_path(path: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(msgspec.yaml.encode(holding(path, {"nobodyKnowsThis": 1})))
    message = str(caught.value)
    assert "unknown field `nobodyKnowsThis`" in message
    # msgspec writes `[0]` for an item and `[...]` for a name that the file chose.
    where = re.sub(r"\.\*", "[...]", path).replace("[]", "[0]")
    assert message.endswith(f"at `$.{where}`" if path else "`nobodyKnowsThis`")


def holding(path: str, value: object) -> object:
    """Return a document that has a value at a path."""
    if not path:
        return value
    head, _, rest = path.partition(".")
    inner = holding(rest, value)
    if head == "*":
        return {"registry.example": inner}
    return {head.removesuffix("[]"): [inner] if head.endswith("[]") else inner}
