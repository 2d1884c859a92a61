"""Explanations for configuration errors: allowed values, a known key that is similar, or why a key was removed."""

import difflib
import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import inspect

_LOCATED = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[A-Za-z0-9_]+)|\[(?:[0-9]+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)
_VALUE = re.compile(r"Invalid enum value '?(?P<value>.*?)'?", re.DOTALL)
_LONGEST_KEY = 64
_INDEX = re.compile(r"\[[^\]]*\]")
_PROVIDER_POD = "a provider is a pod with a memory limit and mounts:"
REMOVED = {
    "grove": "GKM no longer makes the pods of PodCliqueSets: install the Grove operator for them, and delete the "
    "section `grove` from the configuration",
    "topology.providerPath": f"{_PROVIDER_POD} mount the packages there, name the directory in "
    "`topology.providers[].path` of the chart, and delete the key from the configuration",
    "topology.providers[].credentialsSecret": f"{_PROVIDER_POD} name the Secret in `topology.providers[].secret` of "
    "the chart, and delete the key from the configuration",
    "topology.providers[].maxMemoryBytes": f"{_PROVIDER_POD} set `topology.providers[].resources` of the chart, and "
    "delete the key from the configuration",
}
"""Keys of earlier releases by their path: why a key is gone, and what to do."""
_CAPTURES_OFF = (
    "to capture no files, set `capture.mode` to `off`; captured files need time and space until they are sent"
)
_TOO_SMALL = re.compile(r"Expected `[a-z]+` >=? .*")
_EXPLAINED = {"capture.retention": _CAPTURES_OFF, "capture.maxBytes": _CAPTURES_OFF}
"""Keys by their path whose too small values are often meant for another key: which one."""


def explained(error: msgspec.ValidationError, kind: type) -> str:
    """Return a configuration error as one sentence, with allowed values, a similar key, or why a key was removed."""
    text = str(error)
    found = _LOCATED.fullmatch(text)
    if found is None:
        return text
    types = list(_at(inspect.type_info(kind), found["path"] or ""))
    if unknown := _UNKNOWN.fullmatch(found["what"]):
        path = _INDEX.sub("[]", f"{found['path'] or ''}.{unknown['key']}").removeprefix(".")
        return f"{text}; {REMOVED[path]}" if path in REMOVED else text + _suggestion(unknown["key"], _keys(types))
    if value := _VALUE.fullmatch(found["what"]):
        allowed = list(_values(types))
        return f"{text}; allowed is {' or '.join(allowed)}{_suggestion(value['value'], allowed)}" if allowed else text
    hint = _TOO_SMALL.fullmatch(found["what"]) and _EXPLAINED.get((found["path"] or "").removeprefix("."))
    return f"{text}; {hint}" if hint else text


def _at(kind: inspect.Type, path: str) -> Iterator[inspect.Type]:
    """Yield the possible types of the value at a path, which is in msgspec's form and relative to `kind`."""
    if isinstance(kind, inspect.Metadata):
        yield from _at(kind.type, path)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _at(each, path)
    elif not path:
        yield kind
    elif step := _STEP.match(path):
        below = _below(kind, step["key"])
        if below is not None:
            yield from _at(below, path[step.end() :])


def _below(kind: inspect.Type, key: str | None) -> inspect.Type | None:
    if isinstance(kind, inspect.StructType) and key is not None:
        return next((field.type for field in kind.fields if field.encode_name == key), None)
    if isinstance(kind, inspect.ListType) and key is None:
        return kind.item_type
    return kind.value_type if isinstance(kind, inspect.DictType) else None


def _keys(types: Iterable[inspect.Type]) -> list[str]:
    return [field.encode_name for kind in types if isinstance(kind, inspect.StructType) for field in kind.fields]


def _values(types: Iterable[inspect.Type]) -> Iterator[str]:
    for kind in types:
        if isinstance(kind, inspect.LiteralType):
            yield from map(str, kind.values)
        elif isinstance(kind, inspect.IntType):
            yield "a number"


def _suggestion(word: str, known: Iterable[str]) -> str:
    """Return a suggestion if a known word is similar; ignore long words, because the comparison is quadratic."""
    if len(word) > _LONGEST_KEY:
        return ""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return f"; `{by_lower[near[0]]}` may be meant" if near else ""
