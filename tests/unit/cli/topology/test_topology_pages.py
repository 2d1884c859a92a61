"""The commands in the pages about topology and fallbacks print what the pages show; every reason is explained."""

import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from gkm.api.topology_settings import TopologyLabels
from gkm.topology.quarantine import QuarantineReason
from gkm_cli.topology.hygiene import LabelReason
from support.cli.command import gkm_in_this_process
from support.cli.plan_files import node, pod
from support.topology.clusters import HOSTNAME, SURVEY, labeled, surveyed_cluster, written

ROOT = Path(__file__).resolve().parents[4]
DOCS = ROOT / "docs"
REFERENCE, RUNBOOK, FALLBACKS = (
    DOCS / "features" / "topology.md",
    DOCS / "how-to" / "labels.md",
    DOCS / "how-to" / "fallbacks.md",
)
BLOCK = re.compile(r"```(console|yaml)\n(.*?)```", re.DOTALL)
LINES = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-"})
"""A pipe gets ASCII for the lines of a tree."""
OTHER_SOURCES = ("EqualCables", "ProviderContradictory", "PodInvalid")
"""Reasons that no label causes."""


class Shown(NamedTuple):
    """A command of a page with the lines below it; a line … stands for any lines."""

    command: str
    lines: tuple[str, ...]


def shown(page: Path) -> Iterator[Shown]:
    """Yield the commands of gkm in a page."""
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if kind == "console" else ():
            command, *lines = part.rstrip("\n").split("\n")
            if command.startswith("gkm "):
                yield Shown(command, tuple(line.translate(LINES).rstrip() for line in lines))


def files_of(page: Path, directory: Path) -> None:
    """Write the manifests of a page, whose first line is a comment with the name of the file."""
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "yaml" and (named := re.match(r"# ([\w-]+\.yaml)\n", text)):
            (directory / named[1]).write_text(text)


@pytest.fixture
def networked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files of the reference: the cluster of 40 switches, and five nodes with wrong labels."""
    monkeypatch.chdir(tmp_path)
    surveyed_cluster(tmp_path)
    shutil.copy(SURVEY, tmp_path / "ib.out")
    racks = [
        labeled(f"{name}-{at}", rack="rack-1", block=block)
        for name, block in (("a", "block-1"), ("b", "block-2"))
        for at in range(2)
    ]
    written(tmp_path / "labels.json", *racks, labeled("c-0", block="unknown"))


@pytest.fixture
def racked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files of the page of fallbacks: four racks, and pods of notebooks."""
    monkeypatch.chdir(tmp_path)
    nodes = [node(f"gpu-{rack}-{at}", f"rack-{rack}", f"block-{rack // 2}") for rack in range(4) for at in range(4)]
    for each in nodes:
        each["metadata"]["labels"][HOSTNAME] = each["metadata"]["name"]
    pods = [pod(f"notebook-{rack}", f"gpu-{rack}-0", gpus) for rack, gpus in enumerate((8, 8, 4))]
    for name, items in (("nodes", nodes), ("pods", pods), ("pods-after", pods[1:])):
        written(tmp_path / f"{name}.json", *items)
    files_of(FALLBACKS, tmp_path)


@pytest.mark.usefixtures("networked")
@pytest.mark.parametrize("example", list(shown(REFERENCE)), ids=lambda example: example.command[:60])
def test_a_command_of_the_reference_prints_what_the_page_shows(example: Shown) -> None:
    prints_as_shown(example)


@pytest.mark.usefixtures("racked")
@pytest.mark.parametrize("example", list(shown(FALLBACKS)), ids=lambda example: example.command[:60])
def test_a_command_of_the_fallbacks_prints_what_the_page_shows(example: Shown) -> None:
    prints_as_shown(example)


def prints_as_shown(example: Shown) -> None:
    words = shlex.split(re.split(r" [|>] ", example.command)[0])
    done = gkm_in_this_process(*words[1:])
    assert done.returncode in (0, 3), done.stderr
    found = [line.rstrip() for line in done.stdout.splitlines()]
    at, skips = 0, False
    for line in example.lines:
        if line == "…":
            skips = True
            continue
        at = found.index(line, at) if skips else at
        assert found[at] == line
        at, skips = at + 1, False
    assert skips or not example.lines or at == len(found)


def test_the_pages_show_every_command() -> None:
    commands = {each.command.split()[1:3][-1] for each in shown(REFERENCE)}
    assert commands == {"build", "check", "show"}
    assert sum(each.command.startswith("gkm plan ") for each in shown(FALLBACKS)) >= 8


def test_the_runbook_explains_every_reason_and_no_other() -> None:
    rows = re.findall(r"^\| ([A-Z]\w+) \| (?:problem|warning)", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    reasons = {str(reason.value) for reason in chain(QuarantineReason, LabelReason)} - set(OTHER_SOURCES)
    assert sorted(rows) == sorted(reasons)


def test_the_runbook_names_the_keys_in_their_order() -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    keys = TopologyLabels()
    for each in (keys.flavor, keys.domain, keys.block, keys.cluster, keys.region, keys.rack):
        assert f"| {', '.join(f'`{key}`' for key in each)} |" in text
