"""There is a man page for each command; tests/partners/cli/test_man_pages_by_groff.py reads them."""

import re
from pathlib import Path

from support.cli.command import gkm

PAGES = sorted((Path(__file__).parents[3] / "docs" / "man").glob("*.1"))


def test_every_command_of_a_help_text_has_a_page() -> None:
    names = {page.stem for page in PAGES}
    for group in ((), ("cache",), ("node",), ("topology",), ("template",), ("plan",)):
        listed = gkm(*group, "--help").stdout.partition("Commands")[2]
        commands = re.findall(r"^  ([a-z]+)  ", listed, re.MULTILINE)
        assert commands
        assert {"-".join(["gkm", *group, command]) for command in commands} <= names
