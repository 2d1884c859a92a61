"""The man pages have every option of their commands; groff has no complaint. tests/unit/core/api checks freshness."""

import re
import subprocess
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.peers import require

PAGES = sorted((Path(__file__).parents[3] / "docs" / "man").glob("*.1"))


def rendered(page: Path) -> str:
    groff = require.command("groff", "groff-base")
    done = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-P-cbou", page], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_has_every_option_of_its_command(page: Path) -> None:
    words = page.stem.split("-")[1:]
    shown = gkm(*words, "--help")
    assert shown.returncode == 0
    options = set(
        re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown.stdout.partition("Options")[2].partition("Example:")[0])
    )
    text = rendered(page)
    assert options
    assert not [option for option in options if option not in text]
    assert "EXIT STATUS" in text
