"""What kustomize makes of deploy/, in a form that can be compared with a rendering of the chart."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from kustomizations.patches import MERGE_KEYS
from support.chart.deploy_files import rendered
from support.chart.helm import Document
from support.host.waiting import scaled
from support.peers import build as peers

Key = tuple[str, str, str]
Objects = dict[Key, dict[str, Any]]
SECONDS = scaled(60.0)
COMMANDS = (("kubectl", "kustomize"), ("kustomize", "build"))
"""kubectl of the tests' cluster, and the kustomize that kubectl 1.32 contains."""


def overlay(directory: Path, components: Sequence[str], base: str = "base") -> Path:
    """Write the kustomization of an administrator with components over a base; return its directory."""
    # Kustomize takes no absolute paths.
    deploy = os.path.relpath(rendered(), directory)
    lists = {
        "resources": [f"{deploy}/{base}"],
        "components": [f"{deploy}/components/{name}" for name in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(lists), encoding="utf-8")
    return directory


def build(directory: Path, command: Sequence[str]) -> Objects:
    """Return the objects of a kustomization, built by one of COMMANDS; fails if it exits with another code than 0."""
    words = [str(peers.binary(command[0])), *command[1:], str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return _by_key(yaml.load_all(done.stdout, yaml.CSafeLoader))


def of_chart(documents: Iterable[Document]) -> Objects:
    """Return the objects of a rendering."""
    return _by_key(document.value for document in documents)


def _by_key(values: Iterable[dict[str, Any]]) -> Objects:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): _ordered(each)
        for each in values
    }


def _ordered(value: Any, by: str | None = None) -> Any:  # noqa: ANN401 -- any JSON
    """Return a value whose lists with names are in the order of these names, which means the same to Kubernetes."""
    match value:
        case dict():
            return {key: _ordered(each, MERGE_KEYS.get(key)) for key, each in value.items()}
        case list():
            found = [_ordered(each) for each in value]
            return sorted(found, key=lambda each: str(each[by])) if by else found
    return value
