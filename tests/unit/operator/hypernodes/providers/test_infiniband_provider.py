"""The provider `infiniband`: each survey is read once, and one that cannot be read is a fault of this survey alone."""

import base64
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from gkm.topology.fabrics import infiniband as fabric
from gkm.topology.fabrics import rails
from gkm.topology.fabrics.ibnetdiscover import NotASurvey, with_earlier
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.subnet import Subnet
from gkm.topology.providers import Action
from gkm_operator.hypernodes.providers import infiniband
from gkm_operator.hypernodes.providers.infiniband import AGAIN_SECONDS, SurveyReader, subnet_of
from gkm_operator.hypernodes.providers.polling import SourceMissing
from gkm_operator.hypernodes.providers.view import AgentReport
from support.topology.infiniband_networks import (
    Cabling,
    Rails,
    adapter_guid,
    cabling,
    irregular,
    leaf_guid,
    topology_file,
)
from support.topology.infiniband_views import BY_GROUP, NETWORK, NODES, TEXT, cluster, groups, known
from support.topology.observed import packed, survey
from support.topology.provider_run import ProviderRun

REAL = Path(__file__).parents[5] / "tests" / "data" / "fabric" / "ibnetdiscover-40-switches.out"
SWITCHES = 200
"""In a network without order: more than LITTLE_WORK compares."""
LITTLE_WORK = 1 << 20


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a network without order be refused after a thirtieth of the work that the product allows."""
    monkeypatch.setattr(rails, "MAX_WORK", LITTLE_WORK)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The surveys that are parsed."""
    seen: list[bytes] = []

    def parsed(text: bytes) -> Subnet:
        seen.append(text)
        return subnet_of(text)

    monkeypatch.setattr(infiniband, "subnet_of", parsed)
    yield seen


def test_nodes_are_found_by_the_guids_of_their_ports() -> None:
    assert groups(SurveyReader().read(known(survey("a", TEXT)))) == BY_GROUP


def test_it_waits_for_a_survey_and_reads_the_view_again_when_it_changes() -> None:
    run = ProviderRun(infiniband.provider({}, {}))
    run.view.publish(cluster())
    with run.running():
        waits = run.next()
        assert (waits.action, waits.hypernodes) == (Action.UPDATE, ())
        assert waits.faults == ("waits for a survey of a node that fabric.ibnetdiscover names or selects",)
        run.view.publish([survey("a", TEXT)])
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
        (b"", "the survey is truncated"),
        (b"not base64!", "not compressed by gzip"),
        (b"\xff", "not compressed by gzip"),
        (base64.b64encode(b"plain"), "not compressed by gzip"),
        (base64.b64encode(gzip.compress(b"x" * 1000)[:-4]), "the survey is truncated"),
        (packed(b"nothing"), "names no switch"),
    ],
    ids=["empty", "no base64", "no text", "no gzip", "no end", "no survey"],
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


UNANSWERED = b"# unanswered: 2\n"


def half_of_the_network() -> Cabling:
    half = cabling(NETWORK)
    half.switches = {guid: name for guid, name in half.switches.items() if "leaf-00-001" not in name}
    half.plugged = [(adapter, switch) for adapter, switch in half.plugged if switch in half.switches]
    half.links = [link for link in half.links if set(link) <= half.switches.keys()]
    return half


def test_a_survey_without_all_answers_removes_no_node() -> None:
    reader, half = SurveyReader(), half_of_the_network()
    reader.read(known(survey("a", TEXT)))
    partial = survey("a", UNANSWERED + topology_file(half))
    for _ in range(2):
        found = reader.read(known(partial))
        assert groups(found) == BY_GROUP
        assert found.faults == (
            "2 queries of ibnetdiscover had no answer: what lies behind is missing",
            "a survey is not whole: nodes that an earlier one showed stay",
        )
    assert groups(reader.read(known(survey("a", topology_file(half))))) == BY_GROUP[:1]


def test_a_provider_that_starts_anew_finds_what_the_last_whole_survey_showed() -> None:
    text = with_earlier(UNANSWERED + topology_file(half_of_the_network()), TEXT)
    found = SurveyReader().read(known(survey("a", text)))
    assert groups(found) == BY_GROUP
    assert "a survey is not whole: nodes that an earlier one showed stay" in found.faults


def test_a_node_lies_where_a_survey_without_all_answers_shows_it() -> None:
    reader, half = SurveyReader(), cabling(NETWORK)
    moved = {adapter_guid(*NODES["node-000"][1:], rail): leaf_guid(0, 1, rail) for rail in range(NETWORK.rails)}
    half.plugged = [*moved.items(), *half.plugged[NETWORK.rails : NETWORK.rails * NETWORK.hosts_each]]
    reader.read(known(survey("a", TEXT)))
    found = reader.read(known(survey("a", UNANSWERED + topology_file(half))))
    assert groups(found) == [["node-000", *BY_GROUP[1]], BY_GROUP[0][1:]]


def test_the_first_survey_counts_though_it_lacks_answers() -> None:
    assert groups(SurveyReader().read(known(survey("a", UNANSWERED + TEXT)))) == BY_GROUP


def test_the_last_good_survey_of_a_node_counts_on_and_that_of_a_node_that_is_not_chosen_does_not() -> None:
    reader = SurveyReader()
    reader.read(known(survey("a", TEXT)))
    found = reader.read(known(survey("a", b"secret-switch")))
    assert groups(found) == BY_GROUP
    assert found.faults[0].endswith("; its last good one is still used")
    assert "secret-switch" not in str(found.faults)
    with pytest.raises(SourceMissing, match="names no switch"):
        reader.read(known(survey("b", b"secret-switch")))


def test_a_survey_that_takes_too_much_memory_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    large = survey("large", TEXT + b"# large\n")

    def parsed(text: bytes) -> Subnet:
        if text == large.data:
            raise MemoryError
        return subnet_of(text)

    monkeypatch.setattr(infiniband, "subnet_of", parsed)
    found = SurveyReader().read(known(survey("a", TEXT), large))
    assert groups(found) == BY_GROUP
    assert found.faults == ("a survey cannot be read: it takes more memory than the provider has",)


def test_surveys_that_take_too_much_memory_together_lose_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    more = topology_file(cabling(Rails(pods=1, groups=3, hosts_each=40, rails=2, spines=2)))
    joined = fabric.from_subnets

    def from_subnets(subnets: list[Subnet], *others: object, **settings: object) -> FabricDiscovery:
        if len(subnets) > 1:
            raise MemoryError
        return joined(subnets, *others, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(fabric, "from_subnets", from_subnets)
    found = SurveyReader().read(known(survey("a", TEXT), survey("b", more)))
    assert groups(found) == BY_GROUP
    assert found.faults == ("a survey is left out beside the others: it takes more memory than the provider has",)


LEFT_OUT = "a survey is left out beside the others: the leaf switches of the fabric share hosts in no regular order"


def test_a_survey_without_order_is_left_out_and_the_others_count() -> None:
    reader = SurveyReader()
    good, bad = survey("b", TEXT), survey("a", irregular(switches=SWITCHES))
    for surveys in ((good, bad), (good,), (good, bad), (survey("c", irregular("e", SWITCHES)), good, bad)):
        found = reader.read(known(*surveys))
        assert groups(found) == BY_GROUP
        assert [fault.startswith(LEFT_OUT) for fault in found.faults] == [True] * (len(surveys) - 1)


def test_a_survey_that_loses_its_order_is_replaced_by_the_last_one_of_its_node() -> None:
    reader = SurveyReader()
    reader.read(known(survey("a", TEXT)))
    found = reader.read(known(survey("a", irregular(switches=SWITCHES))))
    assert groups(found) == BY_GROUP
    (fault,) = found.faults
    assert fault.startswith(LEFT_OUT)
    assert fault.endswith("; its last good one is still used")


def test_surveys_that_all_have_no_order_are_a_missing_source_not_an_empty_one() -> None:
    reader = SurveyReader()
    for _ in range(2):
        with pytest.raises(
            SourceMissing,
            match="no survey can be used: the leaf switches of the fabric share hosts in no regular order",
        ):
            reader.read(known(survey("a", irregular(switches=SWITCHES)), survey("b", irregular("e", SWITCHES))))


def test_a_left_out_survey_is_looked_for_once_for_the_same_surveys(monkeypatch: pytest.MonkeyPatch) -> None:
    networks: list[int] = []
    join = fabric.from_subnets

    def from_subnets(subnets: list[Subnet], *others: object, **settings: object) -> FabricDiscovery:
        networks.append(len(subnets))
        return join(subnets, *others, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(fabric, "from_subnets", from_subnets)
    now = [0.0]
    reader = SurveyReader(clock=lambda: now[0])
    surveys = known(survey("a", irregular(switches=SWITCHES)), survey("b", TEXT))
    for _ in range(3):
        reader.read(surveys)
    assert networks == [2, 1, 1, 1, 1]
    now[0] = AGAIN_SECONDS
    reader.read(surveys)
    assert networks == [2, 1, 1, 1, 1, 2, 1, 1]


def test_a_search_takes_bounded_time() -> None:
    """With a clock that leaves no time to try, the survey that was not in the last tree is left out."""
    now = count(0.0, 100.0)
    reader = SurveyReader(clock=lambda: next(now))
    larger = survey("b", topology_file(cabling(Rails(groups=2, hosts_each=1_000, rails=2, spines=2))))
    assert groups(reader.read(known(larger))) == BY_GROUP
    found = reader.read(known(survey("a", irregular(switches=SWITCHES)), larger))
    assert groups(found) == BY_GROUP
    assert found.faults[0].startswith(LEFT_OUT)


def test_memory_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    large = survey("large", TEXT + b"# large\n")
    seen: list[bytes] = []

    def parsed(text: bytes) -> Subnet:
        seen.append(text)
        if seen.count(large.data) == 1 and text == large.data:
            raise MemoryError
        return subnet_of(text)

    monkeypatch.setattr(infiniband, "subnet_of", parsed)
    now = [0.0]
    reader = SurveyReader(clock=lambda: now[0])
    surveys = known(survey("a", TEXT), large)
    for _ in range(3):
        assert len(reader.read(surveys).faults) == 1
    assert seen.count(large.data) == 1
    now[0] = AGAIN_SECONDS
    assert reader.read(surveys).faults == ()
    assert seen.count(large.data) == 2


def test_a_real_survey_is_read_and_is_refused_without_its_end() -> None:
    assert len(subnet_of(packed(REAL.read_bytes())).switches) == 40
    with pytest.raises(NotASurvey, match="the survey is truncated"):
        subnet_of(packed(REAL.read_bytes())[:-8])
