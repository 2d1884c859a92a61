"""Findings: the values that every check returns, and every output format prints; and values in JSON. Pure."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from gkm.api.grammar import listed

MAX_NAMES = 5
CORRECT_CONFIGURATION = "correct it: gkm-operator --check-config --config FILE"


class Severity(StrEnum):
    """How bad a finding of `gkm doctor` is."""

    OK = "ok"
    WARNING = "warning"
    """It works now, but may fail later."""
    PROBLEM = "problem"
    """It harms workloads, or will not end without help."""
    NOT_CHECKED = "not checked"
    """The check could not read its objects, so the state is unknown."""
    SKIPPED = "skipped"
    """The cluster has no object that the check is about."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of `gkm doctor` about an object ("" for the whole check): the state, its cause, and the next step.

    The texts may hold names from the cluster: printing code must escape them.
    """

    severity: Severity
    object: str
    detail: str
    why: str = ""
    hint: str = ""


def nothing(absent: str) -> Finding:
    """Return the finding of a check that has no objects to look at; `absent` says which are missing."""
    return Finding(Severity.SKIPPED, "", f"no objects: {absent}")


def named(kind: str, namespace: str, name: str) -> str:
    """Return kind and name of an object, as messages print it."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def some(names: Iterable[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    return listed(sorted(names), MAX_NAMES)


def command(*words: str) -> str:
    """Return a command line for a shell, with names from the cluster quoted."""
    return shlex.join(words)


def at(value: Any, *path: str) -> Any:  # noqa: ANN401 -- JSON
    """Return the value at a path in nested JSON, None if the path does not exist."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def items_at(value: object, *path: str) -> list[Any]:
    """Return the list at a path in nested JSON, empty if there is no list."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def text_at(value: object, *path: str) -> str:
    """Return the text at a path in nested JSON, "" if there is no text."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def moment(text: object) -> datetime | None:
    """Return the time in a text with a time zone; None for any other text."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
