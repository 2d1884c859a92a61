r"""YAML as people mean it: `off`, `no` and `yes` are words, as in YAML 1.2; only true and false are truth values.

PyYAML reads YAML 1.1, where `mode: off` says false, and a namespace called `no` is none.

Written, a text that is not printable is escaped (`"\u202e"`): YAML lets bidirectional overrides and C1
stand as they are.
"""

import re
from typing import Any, TypeVar

import msgspec
import yaml

T = TypeVar("T")
MAX_VALUES = 32_768
"""Of a text that people write by hand: a thousand caches with a dozen lines each.

PyYAML makes up to a kilobyte of a value of two bytes: 1 MiB of `[[],[],…]` took 371 MiB, now some 40.
"""
MAX_DEPTH = 64
"""PyYAML's fast loader calls itself for each level: 65,000 brackets ended the process (SIGSEGV)."""
_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.CSafeLoader):
    """The safe loader, with the truth values of YAML 1.2 (core schema, section 10.3.2)."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- PyYAML's own
        first: [(tag, pattern) for tag, pattern in found if tag != _BOOL]
        for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def check(text: str | bytes, values: int = MAX_VALUES) -> None:
    """Refuse a text with more values, or deeper ones, than people write, before anything is made of it.

    Raises:
        ValueError: it has more than `values`, or more than MAX_DEPTH levels.
        yaml.YAMLError, UnicodeDecodeError: it is no YAML.
    """
    count = depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        count += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if count > values or depth > MAX_DEPTH:
            raise ValueError(f"it holds more than {values} values, or more than {MAX_DEPTH} levels")


def decode(text: str | bytes, kind: type[T], values: int = MAX_VALUES) -> T:
    """Return a YAML text of at most so many values as a typed value.

    Raises:
        ValueError: it has too many, or is too deep.
        msgspec.ValidationError: it is YAML of another shape.
        yaml.YAMLError, RecursionError, UnicodeDecodeError: it is no YAML.
    """
    check(text, values)
    return msgspec.convert(yaml.load(text, _Loader), type=kind)  # noqa: S506 -- a safe loader


def encode(value: Any, *, width: int = 80, ascii_only: bool = False) -> str:  # noqa: ANN401 -- anything that msgspec takes
    """Return a value as YAML whose lines are printable, of about `width` characters; `ascii_only` escapes the rest too.

    The fields stay in their order.
    """
    plain = msgspec.to_builtins(value)
    if not ascii_only:
        try:
            text = yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=width)
        except UnicodeEncodeError:
            text = "\0"  # libyaml takes no lone surrogates
        if all(map(str.isprintable, text.split("\n"))):
            return text
    return yaml.dump(plain, Dumper=yaml.SafeDumper, sort_keys=False, width=width)
