"""All reflectors of our processes, found in the sources: a new one cannot escape a test that reads this."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gkm.kube.discovery import KindName
from gkm.kube.resources import Resource
from gkm_operator.taskgroups.members import JOB, watched

_ROOT = Path(__file__).parents[3]
_PACKAGES = (
    ("core", "gkm"),
    ("agent", "gkm_agent"),
    ("csi", "gkm_csi"),
    ("operator", "gkm_operator"),
    ("cli", "gkm_cli"),
)
_JOBS: Resource[Any] = Resource("batch/v1", "Job", "jobs", namespaced=True, type=dict)
_ANY: Resource[Any] = Resource("example.test/v1", "Anything", "anythings", namespaced=True, type=dict)


def _computed() -> dict[tuple[str, str], tuple[Resource[Any], ...]]:
    """Return the resources of the calls whose argument is no name of a module: module and argument, as written."""
    assert KindName.of(_JOBS.api_version, _JOBS.kind) == JOB
    return {
        ("gkm_operator.taskgroups.kinds", "watched(resource)"): (watched(_JOBS), watched(_ANY)),
    }


@dataclass(frozen=True)
class Watched:
    """A resource that a module watches."""

    module: str
    resource: Resource[Any]

    def __str__(self) -> str:
        return f"{self.module}:{self.resource.kind}"


def all_watched() -> list[Watched]:
    """Return what each call of Reflector and of Informers watches; fail for an argument that is not known."""
    computed, found = _computed(), list[Watched]()
    for module, argument in _calls():
        named = getattr(import_module(module), argument, None) if argument.isidentifier() else None
        resources = (named,) if isinstance(named, Resource) else computed.get((module, argument))
        assert resources, f"{module} watches {argument}: add it to {__name__}, so that its memory is tested"
        found += [Watched(module, resource) for resource in resources if Watched(module, resource) not in found]
    return found


def _calls() -> Iterator[tuple[str, str]]:
    for folder, package in _PACKAGES:
        for path in sorted((_ROOT / folder / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "Reflector" not in text and "Informers" not in text:
                continue
            module = ".".join(path.relative_to(_ROOT / folder).with_suffix("").parts)
            for node in ast.walk(ast.parse(text)):
                if not isinstance(node, ast.Call):
                    continue
                called = ast.unparse(node.func)
                if called.rpartition(".")[2] == "Reflector" and module != "gkm.kube.informers":
                    yield module, ast.unparse(node.args[1])
                if re.search(r"(shared|informers|Informers\(api\)\)?)\.(of|select)$", called):
                    yield module, ast.unparse(node.args[0])
