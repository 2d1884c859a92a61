"""No topology file takes much more memory than the docstring of the parser states, whatever its lines are."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.host.memory import MemoryGroup
from support.host.waiting import scaled
from support.topology.parse_process import FORMS

SCRIPT = Path(__file__).parents[2] / "support" / "topology" / "parse_process.py"
FACTOR = 12
MEMORY_LIMIT = 512 << 20
"""Of the parser and the text; as the pod of the controllers has it."""


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_half_a_million_records_takes_bounded_memory(form: str) -> None:
    with MemoryGroup.of(MEMORY_LIMIT) as group:
        command = group.command([sys.executable, str(SCRIPT), form])
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=scaled(240))
    outcome, size, growth = done.stdout.split()
    assert outcome == ("refused" if form == "damaged" else "parsed")
    assert int(growth) <= FACTOR * int(size)
