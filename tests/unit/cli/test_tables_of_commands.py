"""Every command that prints a table prints it whole in a pipe of 80 columns: no folded word, no trailing blank."""

import ast
import copy
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from gkm.api import crds
from gkm.kube import client
from gkm.kube.resources import (
    CLUSTERGKMCACHES,
    CSI_DRIVERS,
    CSI_NODES,
    DEFINITIONS,
    GKMCACHENODES,
    GKMCACHES,
    NODES,
    RUNS,
    Resource,
)
from gkm_cli.clusters import connection
from gkm_cli.clusters.connection import KubeconfigSelection
from gkm_cli.main import app
from gkm_cli.why.observation import PODS
from support.cli.command import CACHE, KEY, gkm_in_this_process, pushed
from support.cli.plan_files import PlanWorkspace, run
from support.cli.template_files import TemplateWorkspace, config_map, group_template, pool, task_group
from support.cli.why_site import NAMESPACE, objects
from support.cluster.gkm_objects import cache
from support.kube.fake_api import FakeApi
from support.registry.server import Registry
from support.topology.clusters import surveyed_cluster

WORDS = " ".join(f"word{number}" for number in range(60))
TIMES = re.compile(r"\d+ ms|\d+\.\d+ s|T\d\d:\d\d:\d\dZ")
NAME = "a-long-name/" * 12 + "llama"
REF = f"registry.example/team/caches/{NAME}:1"


class DatedApi(FakeApi):
    """The API in memory, with the header Date of an API server that sends none."""

    date = ""


@dataclass(frozen=True)
class Place:
    """The files, image and cluster of the commands."""

    directory: Path
    image: str

    def file(self, name: str) -> str:
        return str(self.directory / name)


def _plan(place: Place) -> list[str]:
    workspace = PlanWorkspace(place.directory)
    return ["plan", "--nodes", str(workspace.nodes), "--run", str(workspace.write("r.json", run(gpus=64, spares=1)))]


def _unfold(place: Place) -> list[str]:
    plan = gkm_in_this_process(*_plan(place), "-o", "json").stdout
    return ["plan", "unfold", str(PlanWorkspace(place.directory).write("plan.json", plan))]


def _template(place: Place) -> list[str]:
    workspace = TemplateWorkspace(place.directory)
    made = (("templates", group_template("cm", config_map(tasks="1"))), ("pool", pool("cm")), ("group", task_group()))
    return [
        "template",
        "render",
        *(word for name, value in made for word in (f"--{name}", _yaml(workspace, name, value))),
    ]


def _yaml(workspace: TemplateWorkspace, name: str, value: object) -> str:
    return str(workspace.write(f"{name}.yaml", value))


def _diff(place: Place) -> list[str]:
    other = f"docker-archive:{place.file('other.tar')}"
    gkm_in_this_process("cache", "build", CACHE, "--image", "x.example/other:1", "--to", other)
    return ["cache", "diff", "--plain-http", place.image, other]


def _topology(*words: str, pods: bool = False) -> Callable[[Place], list[str]]:
    def made(place: Place) -> list[str]:
        nodes, used = surveyed_cluster(place.directory)
        return ["topology", *words, "--nodes", str(nodes), *(["--pods", str(used)] if pods else [])]

    return made


WITH_TABLE: dict[str, Callable[[Place], list[str]]] = {
    "cache build": lambda _: ["cache", "build", str(CACHE), "--image", REF, "--dry-run"],
    "cache inspect": lambda place: ["cache", "inspect", "--plain-http", place.image],
    "cache verify": lambda place: ["cache", "verify", "--plain-http", place.image, "--key", place.file("key.pub")],
    "cache check": lambda place: ["cache", "check", "--plain-http", place.image, "--gpu", "h100"],
    "cache diff": _diff,
    "cache explain": lambda place: ["cache", "explain", "--plain-http", place.image, "--pod", place.file("pod.json")],
    "cache list": lambda _: ["cache", "list", "-A"],
    "node detect": lambda _: ["node", "detect"],
    "topology build": _topology("build"),
    "topology check": _topology("check"),
    "topology show": _topology("show", pods=True),
    "template render": _template,
    "plan": _plan,
    "plan unfold": _unfold,
    "why": lambda _: ["why", "server", "-n", NAMESPACE],
    "why -n": lambda _: ["why", "-n", NAMESPACE, "-l", "app=server"],
    "status": lambda _: ["status"],
    "doctor": lambda _: ["doctor"],
    "uninstall": lambda _: ["uninstall", "--check"],
    "version": lambda _: ["version"],
}
WITHOUT_TABLE = {
    *(
        f"cache {name}"
        for name in ("push", "sign", "attest", "extract", "copy", "tags", "delete", "pin", "promote", "drop")
    ),
    *("login", "logout", "keygen", "exec", "crds", "template rights", "template import"),
}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 -- typer's
    """Yield the name and the function of every command."""
    if getattr(command, "callback", None) is not None and path:
        yield " ".join(path), command
    for name in getattr(command, "commands", {}):
        yield from commands(command.resolve_command(typer.Context(command), [name])[1], (*path, name))


def test_every_command_is_piped_here_or_prints_no_table() -> None:
    known = {name for name, _ in commands(typer.main.get_command(app))} - {"cache", "template", "topology", "node"}
    assert known - {*WITH_TABLE} - WITHOUT_TABLE == set()
    assert known >= WITHOUT_TABLE


@pytest.mark.parametrize("name", sorted(WITHOUT_TABLE))
def test_a_command_that_is_not_piped_here_draws_no_table(name: str) -> None:
    (callback,) = (one.callback for found, one in commands(typer.main.get_command(app)) if found == name)
    source = Path(inspect.getfile(inspect.unwrap(callback))).read_text(encoding="utf-8")
    imported = {
        alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert not imported & {"table", "Terminal"}


@pytest.fixture(scope="module")
def published() -> Iterator[str]:
    """An image in a registry, by a long name."""
    with Registry.start() as registry:
        yield pushed(registry, NAME)


@pytest.fixture
def place(published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A registry with an image, files, and a cluster with a fault of a long text."""
    (tmp_path / "key.pub").write_bytes(KEY.public_pem)
    made = copy.deepcopy(objects())
    made["pod"]["metadata"]["labels"] = {"app": "server"}
    made["cache"]["status"]["conditions"][0].update(status="False", reason="SignatureMissing", message=WORDS)
    second = copy.deepcopy(made["pod"])
    second["metadata"]["name"] = "another-server-" * 4 + "0"
    (tmp_path / "pod.json").write_bytes(json.dumps(made["pod"]).encode())
    api = DatedApi()
    kinds: dict[str, Resource[Any]] = {"driver": CSI_DRIVERS, "csinode": CSI_NODES, "node": NODES, "cache": GKMCACHES}
    kinds |= {"report": GKMCACHENODES, "pod": PODS, "second": PODS}
    for name, value in (made | {"second": second}).items():
        api.create(kinds[name], value)
        if "status" in value:
            meta = value["metadata"]
            api.merge(
                kinds[name], meta["name"], {"status": value["status"]}, meta.get("namespace"), subresource="status"
            )
    api.create(connection.NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for definition in crds.definitions().values():
        api.create(DEFINITIONS, definition)
    api.create(CLUSTERGKMCACHES, cache("shared", None, REF))
    api.create(RUNS.of(dict), run())
    monkeypatch.setattr(connection, "choose", lambda *_: KubeconfigSelection("", None, NAMESPACE))
    monkeypatch.setattr(client, "connect", lambda *_, **__: api)
    return Place(tmp_path, published)


@pytest.mark.parametrize("name", WITH_TABLE)
def test_a_table_is_whole_in_a_pipe(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = WITH_TABLE[name](place)
    done = {}
    for columns in (80, 20, 1000):
        monkeypatch.setenv("COLUMNS", str(columns))
        done[columns] = gkm_in_this_process(*arguments)
    assert done[80].returncode in (0, 1, 3), done[80].stderr
    lines = done[80].stdout.splitlines()
    assert lines, done[80].stderr
    assert [line for line in lines if line != line.rstrip()] == []
    # A width of 1,000 columns folds no line of these, so a word that 80 columns folded would differ.
    assert TIMES.sub("", done[80].stdout) == TIMES.sub("", done[1000].stdout)
    assert done[20].stdout.count("\n") == done[80].stdout.count("\n")


@pytest.mark.parametrize("name", ["why", "why -n"])
def test_a_long_message_is_one_line(name: str, place: Place) -> None:
    assert WORDS in gkm_in_this_process(*WITH_TABLE[name](place)).stdout
