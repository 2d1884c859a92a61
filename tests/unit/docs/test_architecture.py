"""The one-page map of the architecture says what the chart, the layout of a node and the code have."""

import re
from pathlib import Path

import pytest
from gkm.api.crds import KINDS
from gkm.api.installation import DRIVER
from gkm.hoststate.layout import Layout
from support.docs.tables import rows

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "design" / "architecture.md"
TEMPLATES = ROOT / "deploy" / "chart" / "gkm" / "templates"
WORKLOAD = re.compile(r"^kind: (DaemonSet|Deployment|Job)\nmetadata:\n(?:  #.*\n)*  name: (\S+)", re.MULTILINE)
PROCESSES = rows(PAGE, "## Processes")
FOLDERS = rows(PAGE, "## Source")
LAYOUT = Layout()


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_workloads_are_those_of_the_chart() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in TEMPLATES.rglob("*.yaml"))
    in_the_chart = {(kind, name if "{" not in name else "gkm-provider-NAME") for kind, name in WORKLOAD.findall(text)}
    assert {(row[0].split()[0], *words(row[0])) for row in PROCESSES} == in_the_chart


def test_the_ports_are_those_of_the_containers() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in TEMPLATES.rglob("*.yaml"))
    ports = {port for row in PROCESSES for port in re.findall(r"\b[0-9]{4}\b", row[4])}
    assert ports == set(re.findall(r"containerPort: ([0-9]+)", text))


def test_the_sockets_are_those_of_the_csi_driver() -> None:
    (csi,) = (row for row in PROCESSES if "gkm-csi" in row[0])
    assert words(csi[4]) == [f"plugins/{DRIVER}/csi.sock", f"plugins_registry/{DRIVER}-reg.sock"]
    assert "csi.sock" in (ROOT / "csi" / "gkm_csi" / "main.py").read_text(encoding="utf-8")


def test_each_path_of_a_node_is_in_the_table() -> None:
    values = [getattr(LAYOUT, name) for name, value in vars(Layout).items() if isinstance(value, property)]
    paths, roots = [value for value in values if isinstance(value, Path)], (LAYOUT.state, LAYOUT.run)
    first = {root / path.relative_to(root).parts[0] for path in paths for root in roots if path.is_relative_to(root)}
    assert len(first) > 15
    assert {Path(*words(row[0])) for row in rows(PAGE, "## Files on a node")} == first


def test_the_kinds_are_those_of_the_api() -> None:
    listed = [(*words(row[0]), row[1]) for row in rows(PAGE, "## Kinds")]
    assert listed == [(each.type.__name__, "namespace" if each.namespaced else "cluster") for each in KINDS]


@pytest.mark.parametrize("row", FOLDERS, ids=lambda row: row[0])
def test_the_packages_are_the_folders_of_the_source(row: list[str]) -> None:
    (folder,) = words(row[0])
    assert words(row[1]) == sorted(
        {path.relative_to(ROOT / folder).parts[0] for path in (ROOT / folder).glob("*/**/*.py")}
    )


def test_the_source_of_each_process_exists() -> None:
    assert {words(row[3])[0] for row in PROCESSES} < {words(row[0])[0] for row in FOLDERS}


def test_the_root_of_the_documents_has_four_pages() -> None:
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    assert pages == ["README.md", "concepts.md", "glossary.md", "quickstart.md"]
