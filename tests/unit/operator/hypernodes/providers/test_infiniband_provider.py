"""The provider `infiniband`: each survey is read once, and one that cannot be read is a fault of this survey alone."""

import base64
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from gkm.api.topology_settings import TopologyProvider
from gkm.topology.fabrics import infiniband as fabric
from gkm.topology.fabrics.ibnetdiscover import NotASurvey
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.subnet import Subnet
from gkm.topology.providers import Action, ClusterNode, Event
from gkm_operator.hypernodes.providers import infiniband, survey_text
from gkm_operator.hypernodes.providers.infiniband import AGAIN_SECONDS, SurveyReader
from gkm_operator.hypernodes.providers.messages import AgentReport, ToChild, Written
from gkm_operator.hypernodes.providers.polling import Known, SourceMissing
from gkm_operator.hypernodes.providers.view import LiveView
from gkm_operator.hypernodes.providers.written_names import ExistingNames
from support.topology.hosted_providers import hosted
from support.topology.infiniband_networks import Rails, adapter_guid, cabling, irregular, topology_file
from support.topology.observed import packed, ports, survey
from support.topology.provider_run import ProviderRun

NETWORK = Rails(groups=2, hosts_each=3, rails=2, spines=2)
TEXT = topology_file(cabling(NETWORK))
NODES = {f"node-{number:03}": position for number, position in enumerate(NETWORK.hosts)}
BY_GROUP = [sorted(name for name in NODES if NODES[name][2] == group) for group in range(2)]
REAL = Path(__file__).parents[5] / "tests" / "data" / "fabric" / "ibnetdiscover-40-switches.out"
_LINE = b'[1]\t"H-00000000000000aa"[1](00000000000000ab)\t\t# "' + b"n" * 63 + b'" lid 1 4xNDR\n'
BOMB = b'switchguid=0x1(1)\nSwitch\t64 "S-0000000000000001"\t# "leaf"\n' + _LINE * 524_000
"""178 kB compressed: its network has as many host ports as the parser takes."""


def cluster(*observed: AgentReport) -> list[ClusterNode | AgentReport]:
    """The nodes with the GUIDs of their ports, and what else agents report."""
    guids = [
        ports(name, *(adapter_guid(pod, group, number, rail) for rail in range(NETWORK.rails)))
        for name, (_, pod, group, number) in NODES.items()
    ]
    return [*map(ClusterNode, NODES), *guids, *observed]


def message(*surveys: AgentReport) -> ToChild:
    values = cluster(*surveys)
    nodes = [one for one in values if isinstance(one, ClusterNode)]
    observed = [one for one in values if isinstance(one, AgentReport)]
    return ToChild(nodes=tuple(nodes), observed=tuple(observed), synced=True)


def known(*surveys: AgentReport, existing: ExistingNames | None = None) -> Known:
    view = LiveView()
    view.update(message(*surveys))
    return Known(view, existing or ExistingNames(Written()))


def groups(found: FabricDiscovery | Event) -> list[list[str]]:
    """The nodes of each leaf group."""
    return sorted(sorted(member.name for member in one.members) for one in found.hypernodes if one.tier_name == "leaf")


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The surveys that are parsed."""
    seen: list[bytes] = []

    def parsed(text: bytes) -> Subnet:
        seen.append(text)
        return survey_text.parsed(text)

    monkeypatch.setattr(infiniband, "parsed", parsed)
    yield seen


def test_nodes_are_found_by_the_guids_of_their_ports() -> None:
    assert groups(SurveyReader().read(known(survey("a", TEXT)))) == BY_GROUP


def test_it_waits_for_a_survey_and_reads_the_view_again_when_it_changes() -> None:
    run = ProviderRun(infiniband.provider({}, {}))
    run.view.update(message())
    with run.running():
        waits = run.next()
        assert (waits.action, waits.hypernodes) == (Action.UPDATE, ())
        assert waits.faults == ("waits for a survey of a node that fabric.ibnetdiscover names or selects",)
        run.view.update(ToChild(observed=(survey("a", TEXT),)))
        assert groups(run.next(lambda event: event.action is Action.SNAPSHOT)) == BY_GROUP


def test_a_survey_is_parsed_once_also_one_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SurveyReader()
    good, bad = survey("a", TEXT), survey("b", b"# no switch\n")
    with counted(monkeypatch) as seen:
        for _ in range(3):
            assert groups(reader.read(known(good, bad, AgentReport("Survey", "c", good.data)))) == BY_GROUP
        assert sorted(seen) == sorted([good.data, bad.data])
        reader.read(known(good))
        reader.read(known(good, bad))
        assert len(seen) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "ends in the middle"),
        (b"not base64!", "not compressed by gzip"),
        (b"\xff", "not compressed by gzip"),
        (base64.b64encode(b"plain"), "not compressed by gzip"),
        (base64.b64encode(gzip.compress(b"x" * 1000)[:-4]), "ends in the middle"),
        (packed(b"nothing"), "names no switch"),
        (packed(b"\0" * ((64 << 20) + 1)), "the limit is 67108864"),
        (packed(BOMB), "25165824 are possible"),
    ],
    ids=["empty", "no base64", "no text", "no gzip", "no end", "no survey", "gzip bomb", "ports bomb"],
)
def test_a_survey_that_cannot_be_read_is_a_fault_and_the_others_count(text: bytes, why: str) -> None:
    bad = AgentReport("Survey", "bad", text)
    found = SurveyReader().read(known(survey("a", TEXT), bad))
    assert groups(found) == BY_GROUP
    (fault,) = found.faults
    assert fault.startswith("a survey cannot be read: ")
    assert why in fault
    with pytest.raises(SourceMissing, match=why):
        SurveyReader().read(known(bad))


def test_the_last_good_survey_of_a_node_counts_on_and_that_of_a_node_that_is_not_chosen_does_not() -> None:
    reader = SurveyReader()
    reader.read(known(survey("a", TEXT)))
    found = reader.read(known(survey("a", b"secret-switch")))
    assert groups(found) == BY_GROUP
    assert found.faults[0].endswith("; its last good one counts on")
    assert "secret-switch" not in str(found.faults)
    with pytest.raises(SourceMissing, match="names no switch"):
        reader.read(known(survey("b", b"secret-switch")))


def test_a_survey_that_takes_too_much_memory_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    large = survey("large", TEXT + b"# large\n")

    def parsed(text: bytes) -> Subnet:
        if text == large.data:
            raise MemoryError
        return survey_text.parsed(text)

    monkeypatch.setattr(infiniband, "parsed", parsed)
    found = SurveyReader().read(known(survey("a", TEXT), large))
    assert groups(found) == BY_GROUP
    assert found.faults == ("a survey cannot be read: it takes more memory than the provider has",)


def test_surveys_that_take_too_much_memory_together_lose_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    more = topology_file(cabling(Rails(pods=1, groups=3, hosts_each=40, rails=2, spines=2)))
    joined = fabric.from_subnets

    def from_subnets(subnets: list[Subnet], *others: object) -> FabricDiscovery:
        if len(subnets) > 1:
            raise MemoryError
        return joined(subnets, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(fabric, "from_subnets", from_subnets)
    found = SurveyReader().read(known(survey("a", TEXT), survey("b", more)))
    assert groups(found) == BY_GROUP
    assert found.faults == ("a survey is left out beside the others: it takes more memory than the provider has",)


LEFT_OUT = "a survey is left out beside the others: its switches share hosts in no order"


def test_a_survey_without_order_is_left_out_and_the_others_count() -> None:
    reader = SurveyReader()
    good, bad = survey("b", TEXT), survey("a", irregular())
    for surveys in ((good, bad), (good,), (good, bad), (survey("c", irregular("e")), good, bad)):
        found = reader.read(known(*surveys))
        assert groups(found) == BY_GROUP
        assert [fault.startswith(LEFT_OUT) for fault in found.faults] == [True] * (len(surveys) - 1)


def test_a_survey_that_loses_its_order_is_replaced_by_the_last_one_of_its_node() -> None:
    reader = SurveyReader()
    reader.read(known(survey("a", TEXT)))
    found = reader.read(known(survey("a", irregular())))
    assert groups(found) == BY_GROUP
    (fault,) = found.faults
    assert fault.startswith(LEFT_OUT)
    assert fault.endswith("; its last good one counts on")


def test_surveys_that_all_have_no_order_are_a_missing_source_not_an_empty_one() -> None:
    reader = SurveyReader()
    for _ in range(2):
        with pytest.raises(SourceMissing, match="no survey can be used: its switches share hosts in no order"):
            reader.read(known(survey("a", irregular()), survey("b", irregular("e"))))


def test_a_left_out_survey_is_looked_for_once_for_the_same_surveys(monkeypatch: pytest.MonkeyPatch) -> None:
    networks: list[int] = []
    join = fabric.from_subnets

    def from_subnets(subnets: list[Subnet], *others: object) -> FabricDiscovery:
        networks.append(len(subnets))
        return join(subnets, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(fabric, "from_subnets", from_subnets)
    now = [0.0]
    reader = SurveyReader(lambda: now[0])
    surveys = known(survey("a", irregular()), survey("b", TEXT))
    for _ in range(3):
        reader.read(surveys)
    assert networks == [2, 1, 1, 1, 1]
    now[0] = AGAIN_SECONDS
    reader.read(surveys)
    assert networks == [2, 1, 1, 1, 1, 2, 1, 1]


def test_a_search_takes_bounded_time() -> None:
    """With a clock that leaves no time to try, the survey that was not in the last tree is left out."""
    now = count(0.0, 100.0)
    reader = SurveyReader(lambda: next(now))
    larger = survey("b", topology_file(cabling(Rails(groups=2, hosts_each=1_000, rails=2, spines=2))))
    assert groups(reader.read(known(larger))) == BY_GROUP
    found = reader.read(known(survey("a", irregular()), larger))
    assert groups(found) == BY_GROUP
    assert found.faults[0].startswith(LEFT_OUT)


def test_memory_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    large = survey("large", TEXT + b"# large\n")
    seen: list[bytes] = []

    def parsed(text: bytes) -> Subnet:
        seen.append(text)
        if seen.count(large.data) == 1 and text == large.data:
            raise MemoryError
        return survey_text.parsed(text)

    monkeypatch.setattr(infiniband, "parsed", parsed)
    now = [0.0]
    reader = SurveyReader(lambda: now[0])
    surveys = known(survey("a", TEXT), large)
    for _ in range(3):
        assert len(reader.read(surveys).faults) == 1
    assert seen.count(large.data) == 1
    now[0] = AGAIN_SECONDS
    assert reader.read(surveys).faults == ()
    assert seen.count(large.data) == 2


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


def test_a_real_survey_is_read_and_is_refused_without_its_end() -> None:
    assert len(survey_text.parsed(packed(REAL.read_bytes())).switches) == 40
    with pytest.raises(NotASurvey):
        survey_text.parsed(packed(REAL.read_bytes())[:-8])
