"""The outcome of a link, and command lines in next steps. Pure."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holds:
    """The link holds; `detail` is the evidence."""

    detail: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The link is broken: the fact, and what to do next."""

    detail: str
    hint: str


Outcome = Holds | Broken


def kubectl(*words: str) -> str:
    """Return a command line for a shell. Names from the cluster are quoted: they cannot add a word."""
    return shlex.join(("kubectl", *words))
