"""Renders deploy/chart/gkm with the real Helm, as `helm template` does."""

import copy
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from support.host.waiting import scaled
from support.peers import build as peers

CHART = Path(__file__).resolve().parents[3] / "deploy" / "chart" / "gkm"
NAMESPACE = "gkm-system"
SECONDS = scaled(300.0)
"""Helm waits for the Jobs that the chart has before an upgrade or removal: 240 s."""
Values = Mapping[str, Any]
Object = dict[str, Any]


class HelmFailed(RuntimeError):
    """Helm refused; the message is what it printed."""


@dataclass(frozen=True)
class Document:
    """One object of the chart: the template it came from, below templates/, and its text with comments."""

    source: str
    text: str

    @property
    def value(self) -> Object:
        """The object, which the caller may change."""
        return copy.deepcopy(_parsed(self.text))

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name, by which the API server finds it."""
        found = _parsed(self.text)
        return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]


def helm(*words: str | Path, values: Values | None = None) -> str:
    """Run Helm and return what it printed; `values` are those of `--values -`.

    Raises:
        HelmFailed: its exit code is not 0.
        support.peers.missing.Missing: Helm must be built, and there is no Go.
    """
    given = [] if values is None else ["--values", "-"]
    command = [str(peers.binary("helm")), *map(str, words), *given]
    text = "" if values is None else json.dumps(values)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise HelmFailed((done.stderr + done.stdout).strip())
    return done.stdout


def render(
    values: Values | None = None, files: Sequence[Path] = (), *, namespace: str = "default", hooks: bool = False
) -> list[Document]:
    """Return the objects of the chart with these values over those of the values files, `hooks` among them.

    Helm renders the same values once in a process.
    """
    return list(_rendered(json.dumps(values or {}), tuple(files), namespace, hooks))


@cache
def _rendered(values: str, files: Sequence[Path], namespace: str, hooks: bool) -> Sequence[Document]:  # noqa: FBT001 -- a key of the cache
    words: list[str | Path] = ["template", "gkm", CHART, "--namespace", namespace]
    words += [] if hooks else ["--no-hooks"]
    for file in files:
        words += ["--values", file]
    found = []
    for part in helm(*words, values=json.loads(values)).split("\n---\n"):
        head, _, text = part.removeprefix("---\n").partition("\n")
        source = head.removeprefix("# Source: gkm/templates/")
        found.append(Document(source, _without_blank_lines(text)))
    return found


@cache
def _without_blank_lines(text: str) -> str:
    """Return a text without the lines that templates leave behind, which no value of ours contains."""
    lines = [line.rstrip() for line in text.splitlines()]
    short = "".join(f"{line}\n" for line in lines if line)
    assert _parsed(short) == yaml.load(text, yaml.CSafeLoader)
    return short


@cache
def _parsed(text: str) -> Object:
    """Return the object of a text; most texts are the same for many values."""
    found: Object = yaml.load(text, yaml.CSafeLoader)
    return found
