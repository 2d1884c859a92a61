"""GroupTemplates, Pools and TaskGroups as files for `gkm template`, and the samples that ship."""

import json
import subprocess
from pathlib import Path
from typing import Any

from support.cli.command import gkm

Json = dict[str, Any]
API_VERSION = "gkm.io/v1alpha1"
SAMPLES = Path(__file__).parents[3] / "deploy" / "samples" / "group-templates"
UID = "12e45678-0000-4000-8000-000000000001"


def group_template(name: str, template: Json, **spec: object) -> Json:
    return _manifest("GroupTemplate", name, {"template": template, **spec})


def pool(*templates: str, name: str = "pool-a") -> Json:
    return _manifest("Pool", name, {"commonGroupTemplates": list(templates)})


def task_group(**spec: object) -> Json:
    group = _manifest("TaskGroup", "train", {"pool": "pool-a", "groupUUID": UID} | spec)
    return group | {"metadata": {"name": "train", "namespace": "team-a"}}


def config_map(name: str = "settings-{{ WF_GROUP_UUID }}", **data: object) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class TemplateWorkspace:
    """A directory with one template, its pool and a group of it, unless a test changes them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, *values: object) -> Path:
        """Write a file: a text unchanged, other values as YAML documents."""
        path = self.directory / name
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        path.write_text("\n---\n".join(texts), encoding="utf-8", errors="surrogatepass")
        return path

    def render(
        self,
        *templates: Json,
        of_pool: Json | None = None,
        group: Json | None = None,
        config: str = "",
        arguments: tuple[str, ...] = ("-o", "json"),
    ) -> subprocess.CompletedProcess[str]:
        """Run `gkm template render`; without `of_pool`, the pool names all templates in their order."""
        named = [template["metadata"]["name"] for template in templates]
        options: list[object] = [
            *("--templates", self.write("templates.yaml", *templates)),
            *("--pool", self.write("pool.yaml", of_pool or pool(*named))),
            *("--group", self.write("group.yaml", group or task_group())),
        ]
        options += ["--config", self.write("config.yaml", config)] if config else []
        return gkm("template", "render", *options, *arguments)


def rendered(done: subprocess.CompletedProcess[str]) -> list[Json]:
    """Return the objects that the command printed as JSON."""
    assert done.returncode == 0, done.stderr
    objects: list[Json] = json.loads(done.stdout)
    return objects


def render_sample(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Render a sample that ships, with one file for all three options."""
    path = SAMPLES / f"{name}.yaml"
    return gkm("template", "render", "--templates", path, "--pool", path, "--group", path, *arguments)


def _manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
