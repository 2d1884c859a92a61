"""The outcome of a link, and command lines in next steps. Pure."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holds:
    """The outcome of a link between a pod and its kernels: it holds; `detail` is the evidence."""

    detail: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The outcome of a link between a pod and its kernels: it is broken; the fact, and what to do next."""

    detail: str
    hint: str


Outcome = Holds | Broken


def kubectl(*words: str) -> str:
    """Return a kubectl command line for a shell. Names from the cluster are quoted: they cannot add a word."""
    return shlex.join(("kubectl", *words))
