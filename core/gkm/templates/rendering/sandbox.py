"""The language of expressions: a safe part of Jinja2 without access to Python.

Everything is a closed list: kinds of syntax, filters, tests, and methods by the type of their object. Additions of a
new Jinja2 version are refused until it is listed here. Time and memory are limited by the process, not here.
"""

import json
import math
import re
from typing import Any, Final, cast

from jinja2 import nodes
from jinja2.runtime import LoopContext, StrictUndefined, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

_SYNTAX: Final = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign),
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword),
    *(nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call, nodes.Getattr, nodes.Getitem, nodes.Slice),
    *(nodes.Compare, nodes.Operand, nodes.Concat, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod),
)
"""No macro, block, import or include, and no `**`: 9**9**9 needs an hour, and a text of a few bytes names it."""
_FILTERS = "abs count d default first join last length lower max min replace round sum trim upper"
_TESTS = (
    "boolean defined divisibleby eq even false float ge gt in integer le lt mapping ne none number odd sequence string "
    "true undefined"
)
_METHODS = {
    str: "capitalize count endswith find isdigit join lower lstrip partition removeprefix removesuffix replace rfind "
    "rpartition rsplit rstrip split splitlines startswith strip title upper",
    list: "count index",
    dict: "get items keys values",
    LoopContext: "first index index0 last length revindex revindex0",
}
_ALLOWED_METHODS: dict[type, frozenset[str]] = {of: frozenset(names.split()) for of, names in _METHODS.items()}
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64 = 1 << 63


class ExpressionInvalid(ValueError):
    """An expression or its value is not allowed; the message has no value of a variable."""


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja2 environment without state, so that templates cannot influence each other."""

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined, finalize=_as_text, keep_trailing_newline=True, optimized=False, cache_size=0
        )
        self.filters = {name: self.filters[name] for name in _FILTERS.split()} | TYPES
        self.tests = {name: self.tests[name] for name in _TESTS.split()}
        self.globals = {"range": self.globals["range"]}  # of at most 100,000 numbers

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Return whether an expression may read an attribute of an object; `value` is not used."""
        return attr in _ALLOWED_METHODS.get(type(obj), ()) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: object) -> None:
        """Refuse the special path of `str.format`: it is no allowed method."""

    def problem(self, tree: nodes.Node) -> str | None:
        """Return the first part of a syntax tree that is not allowed, None if all is allowed."""
        pending = [tree]
        while pending:
            node = pending.pop()
            kind = type(node).__name__.lower()
            if type(node) not in _SYNTAX:
                return f"{'**' if kind == 'pow' else kind} cannot be used in templates"
            for of, names in ((nodes.Filter, self.filters), (nodes.Test, self.tests)):
                if isinstance(node, of) and node.name not in names:
                    return f"there is no {kind} {node.name[:40]!r}; there are: {', '.join(sorted(names))}"
            pending.extend(node.iter_child_nodes())
        return None


def plain(value: object) -> Any:  # noqa: ANN401 -- any JSON value
    """Return an expression's value as plain JSON; raise ExpressionInvalid if JSON or Kubernetes cannot express it."""
    match value:
        case None | bool() | str():
            return value
        case int() if -_INT64 <= value < _INT64:
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [plain(each) for each in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: plain(each) for key, each in value.items()}
    raise ExpressionInvalid(f"it gives {_kind(value)}, which JSON objects of Kubernetes cannot have")


def _as_text(value: object) -> object:
    """Return what an expression adds to a text: lists and objects as JSON."""
    match value:
        case str() | int() | float():
            return value
        case list() | tuple() | dict():
            return json.dumps(plain(value), ensure_ascii=False)
        case Undefined():
            return str(value)  # which fails, unless it is `x if y` without an else
    raise ExpressionInvalid(f"it gives {_kind(value)}, which is no text")


def _int(value: object) -> int:
    match defined(value):
        case int() | float() as number if math.isfinite(number):
            return int(number)
        case str() as text if _INTEGER.fullmatch(text.strip()):
            return int(text)
    raise ExpressionInvalid(f"| int: {_kind(value)} that is no integer")


def _float(value: object) -> float:
    try:
        number = float(cast("str", defined(value)))
    except (TypeError, ValueError, OverflowError):
        raise ExpressionInvalid(f"| float: {_kind(value)} that is no number") from None
    return number


def _bool(value: object) -> bool:
    match defined(value):
        case bool() as boolean:
            return boolean
        case str() as text if text.strip().lower() in ("true", "false"):
            return text.strip().lower() == "true"
    raise ExpressionInvalid(f"| bool: {_kind(value)} is not true or false")


def _json(value: object) -> object:
    """Return what a text holds as JSON; other values are JSON already."""
    if not isinstance(defined(value), str):
        return value
    try:
        return json.loads(cast("str", value))
    except ValueError:
        raise ExpressionInvalid("| json: a text that is no JSON") from None


def defined(value: object) -> object:
    """Return an expression's value; raise Jinja2's UndefinedError if it is undefined."""
    if isinstance(value, Undefined):
        str(value)
    return value


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


TYPES: Final = {"int": _int, "float": _float, "bool": _bool, "json": _json}
"""The filters that make a whole value an integer, number, boolean or JSON value."""
