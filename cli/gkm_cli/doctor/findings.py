"""Findings: the values that every check returns, and every output format prints. Pure."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gkm.api.grammar import listed

MAX_NAMES = 5


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and may not for long."""
    PROBLEM = "problem"
    """It harms workloads, or will never end by itself."""
    NOT_CHECKED = "not checked"
    """The check could not read what it needs, so nothing is known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result about an object ("" for the whole check): the state, its cause, and the next step.

    The texts may hold names from the cluster: whoever prints them must escape them.
    """

    severity: Severity
    object: str
    detail: str
    why: str = ""
    hint: str = ""


def named(kind: str, namespace: str, name: str) -> str:
    """Return kind and name of an object, as messages print it."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def some(names: Iterable[str]) -> str:
    """Return the first names, and the number of the others."""
    return listed(sorted(names), MAX_NAMES)


def command(*words: str) -> str:
    """Return a command line for a shell. Names from the cluster are quoted: none of them can add a word."""
    return shlex.join(words)
