"""Surveys that are small and become large: each is a fault by itself, in bounded memory, and the others count."""

from collections.abc import Callable
from pathlib import Path

import pytest
from gkm.api.topology_settings import TopologyProvider
from gkm_operator.hypernodes.providers.infiniband import SurveyReader
from gkm_operator.hypernodes.providers.messages import AgentReport
from gkm_operator.hypernodes.providers.polling import SourceMissing
from support.topology.hosted_providers import hosted
from support.topology.infiniband_views import BY_GROUP, TEXT, cluster, groups, known
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


def test_a_real_child_with_little_memory_serves_beside_a_survey_that_needs_more(tmp_path: Path) -> None:
    provider = TopologyProvider("infiniband", max_memory_bytes=160 << 20)
    view = tuple(cluster(survey("a", TEXT), survey("bomb", BOMB)))
    with hosted(tmp_path, provider, view=view) as running:
        running.serves("infiniband")
        assert running.status("infiniband").faults == (
            "a survey cannot be read: it takes more memory than the provider has",
        )
        assert len(running.names("infiniband")) == 3
        assert running.status("infiniband").restarts == 0
