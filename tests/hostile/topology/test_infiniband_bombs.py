"""Surveys that are small and become large: each is a fault by itself, in bounded memory, and the others count."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gkm_operator.hypernodes.providers.infiniband import SurveyReader
from gkm_operator.hypernodes.providers.polling import SourceMissing
from gkm_operator.hypernodes.providers.view import AgentReport
from support.topology import little_memory
from support.topology.infiniband_views import BY_GROUP, TEXT, groups, known
from support.topology.observed import packed, survey

_LINE = b'[1]\t"H-00000000000000aa"[1](00000000000000ab)\t\t# "' + b"n" * 63 + b'" lid 1 4xNDR\n'
BOMB = b'switchguid=0x1(1)\nSwitch\t64 "S-0000000000000001"\t# "leaf"\n' + _LINE * 524_000
"""178 kB compressed: its network has as many host ports as the parser takes."""


@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        (lambda: packed(b"\0" * ((64 << 20) + 1)), "the limit is 67108864"),
        (lambda: packed(BOMB), "25165824 are possible"),
    ],
    ids=["gzip bomb", "ports bomb"],
)
def test_a_survey_that_cannot_be_read_is_a_fault_and_the_others_count(bomb: Callable[[], bytes], why: str) -> None:
    reader, bad = SurveyReader(), AgentReport("Survey", "bad", bomb())
    with pytest.raises(SourceMissing, match=why):
        reader.read(known(bad))
    found = reader.read(known(survey("a", TEXT), bad))
    assert groups(found) == BY_GROUP
    (fault,) = found.faults
    assert fault.startswith("a survey cannot be read: ")
    assert why in fault


def test_a_process_with_little_memory_serves_beside_a_survey_that_needs_more(tmp_path: Path) -> None:
    """The command limits its memory as this child does; what it leaves out is a fault, and the others are read."""
    (tmp_path / "bomb").write_bytes(packed(BOMB))
    done = subprocess.run(
        [sys.executable, str(Path(little_memory.__file__)), str(160 << 20), str(tmp_path / "bomb")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "groups": BY_GROUP,
        "faults": ["a survey cannot be read: it takes more memory than the provider has"],
    }
