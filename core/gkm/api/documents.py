r"""The one YAML loader for text from outside, and the writer.

The loader reads YAML 1.2: `off`, `no` and `yes` are strings, only true and false are booleans, and a date is a string.
(PyYAML alone reads YAML 1.1, where `mode: off` means false.) Before it builds any value, it parses the events of the
text and refuses too many values, too many levels, merge keys and, unless the caller allows them, aliases. It also
refuses a mapping that holds a key twice: PyYAML would silently drop the first value.

The writer escapes every text that is not printable (`"\u202e"`), because YAML allows bidirectional overrides and C1
control characters in plain text.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any, TypeVar

import msgspec
import yaml

T = TypeVar("T")
MAX_VALUES = 32_768
"""Values in a text that people write by hand: a thousand caches with a dozen lines each.

PyYAML uses up to a kilobyte for a value of two bytes: 1 MiB of `[[],[],…]` took 371 MiB, with this limit about 40.
"""
MAX_DEPTH = 64
"""Limit of nested levels. PyYAML's fast loader recurses at each level: 65,000 brackets crashed the process
(SIGSEGV)."""
_UNREADABLE = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""PyYAML's constructors raise all of these for an explicit tag whose text does not fit: `!!bool x`, `!!int ""`."""
_BOOL, _TIMESTAMP = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"


class InvalidYAML(ValueError):
    """The text is not YAML, or exceeds a limit; the message is one line."""


class _Loader(yaml.CSafeLoader):
    """The safe loader, with the types of YAML 1.2 (core schema, section 10.3.2) and unique keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- PyYAML's own
        first: [(tag, pattern) for tag, pattern in found if tag not in {_BOOL, _TIMESTAMP}]
        for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 -- PyYAML's signature
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            counts = Counter(str(key.value) for key, _ in node.value)
            twice = next((key for key, count in counts.items() if count > 1), "")
            raise InvalidYAML(f"line {node.start_mark.line + 1}: a mapping has the key {twice[:60]!r} twice")
        return mapping


_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def decode(text: str | bytes, kind: type[T], values: int = MAX_VALUES, *, aliases: bool = False) -> T:
    """Return the only document of a YAML text as a typed value.

    Raises:
        InvalidYAML: it is not YAML, or has more than `values` values, too many levels, or refused constructs.
        msgspec.ValidationError: it is YAML of another shape.
    """
    found = list(decode_all(text, values, aliases=aliases))
    if len(found) > 1:
        raise InvalidYAML(f"it holds {len(found)} documents, one is expected")
    return msgspec.convert(found[0] if found else None, type=kind)


def decode_all(text: str | bytes, values: int = MAX_VALUES, *, aliases: bool = False) -> Iterator[object]:
    """Yield the documents of a YAML text as plain values; raises InvalidYAML as `decode` does."""
    try:
        _check(text, values, aliases=aliases)
        yield from yaml.load_all(text, _Loader)
    except InvalidYAML:
        raise
    except _UNREADABLE as error:
        raise InvalidYAML(" ".join(str(error).split())[:300]) from error


def _check(text: str | bytes, values: int, *, aliases: bool) -> None:
    """Refuse a text by its events, before any value is built from it."""
    count = depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        count += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if count > values or depth > MAX_DEPTH:
            raise InvalidYAML(f"it holds more than {values} values, or more than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent) and not aliases:
            raise InvalidYAML("it has aliases, with which a few lines can stand for gigabytes")
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
            raise InvalidYAML("it has merge keys (<<), which are not part of YAML 1.2")


def encode(value: Any, *, width: int = 80, ascii_only: bool = False) -> str:  # noqa: ANN401 -- anything that msgspec takes
    """Return a value as YAML text whose lines are printable, of about `width` characters.

    `ascii_only` also escapes printable characters beyond ASCII. The fields stay in their order.
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
