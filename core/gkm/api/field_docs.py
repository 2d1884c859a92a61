"""Descriptions of the fields of a struct, from the string below each field (an attribute docstring).

The interpreter discards these strings, so this module reads them from the source. Schemas show them, and they cost no
process memory at run time.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import ModuleType

from msgspec import Struct


@cache
def of_module(module: ModuleType) -> Mapping[str, Mapping[str, str]]:
    """Return {class: {field: description}} of a module, each description as one line.

    Raises:
        OSError: the source of the module is not available.
    """
    tree = ast.parse(inspect.getsource(module))
    return {node.name: dict(_documented(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def of(kind: type[Struct]) -> Mapping[str, str]:
    """Return {field: description} of a struct, by the names of its attributes.

    Empty without the source (an interpreter with compiled files only). Validation at run time needs no descriptions,
    and the shipped definitions are generated from the source.
    """
    module = inspect.getmodule(kind)
    try:
        return {} if module is None else of_module(module).get(kind.__name__, {})
    except OSError:
        return {}


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for pair in pairwise(node.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
