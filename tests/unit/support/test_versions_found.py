"""pyproject.toml is the one place that states the version; what repeats it is generated from there."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
GENERATED = re.compile(r"docs/man/.*|docs/images/.*|csi/gkm_csi/server/version\.py")
"""From pyproject.toml by scripts/generate.py; they are tested to be current.

Pictures show the version that they are of.
"""
STATED = frozenset({"pyproject.toml", "deploy/chart/gkm/Chart.yaml", "CHANGELOG.md"})
OF_OTHERS = re.compile(r".*\.lock|.*/go\.(mod|sum)|tests/data/.*|tests/fuzz/corpus/.*")


def places(text: str, version: str) -> list[str]:
    """Return the lines that hold a version by itself, or an image of ours with any version."""
    alone = re.compile(rf"(?<![\w.-]){re.escape(version)}(?![\w-]|\.\d)")
    # 1.2.3 is what the pages call a version.
    image = re.compile(r"gkm-(agent|csi|operator):v?(?!1\.2\.3\b)\d+\.\d+\.\d+")
    return [line for line in text.splitlines() if alone.search(line) or image.search(line)]


def test_nothing_else_states_the_version() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    sources = [name for name in names if not GENERATED.fullmatch(name) and not OF_OTHERS.fullmatch(name)]
    found = {name: places((ROOT / name).read_text(errors="replace"), VERSION) for name in sources if name not in STATED}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert len(sources) > 1000


@pytest.mark.parametrize(
    "line", [f'version = "{VERSION}"', f"image: gkm-csi:{VERSION}", f"GKM {VERSION}.", f"v={VERSION}"]
)
def test_a_second_place_is_found(line: str) -> None:
    assert places(f"first\n{line}\n", VERSION) == [line]


def test_an_older_image_is_found_too() -> None:
    older = "9.8.7"
    assert places(f"image: gkm-agent:{older}", VERSION)
    assert not places("image: gkm-agent:1.2.3", VERSION)


@pytest.mark.parametrize("line", [f"{VERSION}-alpha.7", f"1{VERSION}", f"{VERSION}.1", f"x-{VERSION}"])
def test_other_versions_are_left_alone(line: str) -> None:
    assert not places(line, VERSION)


def test_the_chart_has_it_as_its_own_and_as_that_of_the_images() -> None:
    chart = yaml.load((ROOT / "deploy" / "chart" / "gkm" / "Chart.yaml").read_text(), yaml.CSafeLoader)
    assert {chart["version"], chart["appVersion"]} == {VERSION}
