"""ibnetdiscover on chosen nodes. There is no InfiniBand here: a stand-in prints what it printed on a real subnet."""

import gzip
import json
import logging
from pathlib import Path

import pytest
from gkm.api.config import ConfigInvalid, parse
from gkm.api.fabric_settings import Fabric, Ibnetdiscover, SettleThresholds
from gkm.api.fabrics import MAX_SURVEY_BYTES
from gkm.topology.fabrics import ibnetdiscover
from gkm_agent.fabric import survey as module
from gkm_agent.fabric.command import FabricCommandFailed
from gkm_agent.fabric.objects import survey_name, survey_object
from gkm_agent.fabric.survey import SubnetSurvey, UnusableSurvey, pack
from support.agent.fabric_fakes import FakeFabricSink
from support.host.waiting import until

PRINTED = Path(__file__).parents[3] / "data" / "fabric" / "ibnetdiscover-40-switches.out"
HERE = Ibnetdiscover(nodes=["node-1"])


def stand_in(directory: Path, script: str) -> str:
    program = directory / "ibnetdiscover"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def surveying(directory: Path, script: str, sink: FakeFabricSink, node: str = "node-1") -> SubnetSurvey:
    settings = Ibnetdiscover(nodes=["node-1"], command=stand_in(directory, script))
    return SubnetSurvey(settings, node, lambda: None, sink, directory / "state" / "whole.gz")


def test_the_output_is_stored_compressed_without_its_date(tmp_path: Path) -> None:
    sink = FakeFabricSink()
    assert surveying(tmp_path, f"cat {PRINTED}", sink).once()
    kept = gzip.decompress(sink.surveys[0])
    lines = PRINTED.read_bytes().splitlines(keepends=True)
    assert kept == b"".join(line for line in lines if b"generated on" not in line)
    assert kept.count(b"\nSwitch\t") == 40


def test_the_same_fabric_is_the_same_bytes_whenever_it_was_surveyed() -> None:
    printed = PRINTED.read_bytes()
    later = printed.replace(b"Wed Aug  6 16:11:23 2025", b"Thu Aug  7 00:00:00 2025")
    assert later != printed
    assert pack(later) == pack(printed)


@pytest.mark.parametrize("output", [b"", b"ibwarn: can't open UMAD port\n", b"#\n# Topology file\n", b"\xff" * 100])
def test_an_output_without_a_topology_is_not_stored(output: bytes) -> None:
    with pytest.raises(UnusableSurvey, match="prints no topology"):
        pack(output)


def test_a_topology_larger_than_a_configmap_is_not_stored() -> None:
    import random  # noqa: PLC0415 -- here only

    noise = random.Random(1).randbytes(2 * MAX_SURVEY_BYTES)
    with pytest.raises(UnusableSurvey, match=f"the limit is {MAX_SURVEY_BYTES}"):
        pack(b"#\nswitchguid=0x1\n" + noise)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", "prints no topology"),
        ("echo 'no ports found' >&2; exit 1", "ibnetdiscover ended with 1: no ports found"),
    ],
)
def test_a_failed_survey_stores_nothing_and_is_logged(
    tmp_path: Path, script: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FakeFabricSink()
    assert not surveying(tmp_path, script, sink).once()
    assert sink.surveys == []
    (line,) = [vars(line) for line in caplog.records if line.levelno == logging.WARNING]
    assert why in line["why"]


def test_without_ibnetdiscover_the_log_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANDIDATES", ("/nowhere/ibnetdiscover",))
    with pytest.raises(FabricCommandFailed, match="install infiniband-diags"):
        SubnetSurvey(HERE, "node-1", lambda: None, FakeFabricSink(), Path("/nowhere"))._output()


UNANSWERED = (
    "src/query_smp.c:228; umad (DR path slid 0; dlid 0; 0,1,31 Attr 0x11:0) bad status 110; Connection timed out"
)
UNSUPPORTED = "src/query_smp.c:235; mad (DR path slid 0; dlid 0; 0,1 Attr 0xff90:1) bad status 0x1c"


@pytest.mark.parametrize(
    ("errors", "marker"),
    [
        ([UNANSWERED, UNSUPPORTED, UNANSWERED], b"# unanswered: 2\n"),
        (["ibwarn: [7] discover: a sentence that nobody knows"], b"# unanswered: 1\n"),
        ([UNSUPPORTED, ""], b""),
    ],
)
def test_ports_that_do_not_answer_stand_in_the_survey_though_the_program_ends_with_0(
    tmp_path: Path, errors: list[str], marker: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A query for the vendor's speeds (0xff90) is refused by devices that have none: this hides nothing."""
    sink = FakeFabricSink()
    (tmp_path / "errors").write_text("".join(f"{error}\n" for error in errors))
    assert surveying(tmp_path, f"cat {tmp_path}/errors >&2; cat {PRINTED}", sink).once()
    assert gzip.decompress(sink.surveys[0]) == marker + gzip.decompress(pack(PRINTED.read_bytes()))
    assert [line.message for line in caplog.records] == (
        ["InfiniBand survey is partial, some devices did not answer"] if marker else []
    )


def partly(directory: Path, output: Path) -> str:
    (directory / "errors").write_text(f"{UNANSWERED}\n")
    return f"cat {directory}/errors >&2; cat {output}"


def half_of(directory: Path) -> Path:
    head, *blocks = PRINTED.read_bytes().split(b"\n\n")
    path = directory / "half.out"
    path.write_bytes(b"\n\n".join([head, *blocks[::2]]))
    return path


def switches_in(survey: bytes) -> set[str]:
    return {*ibnetdiscover.parse(gzip.decompress(survey)).switches}


def test_a_survey_without_all_answers_has_what_the_last_whole_one_showed_also_after_a_restart(tmp_path: Path) -> None:
    sink, half, whole = FakeFabricSink(), half_of(tmp_path), ibnetdiscover.parse(PRINTED.read_bytes())
    assert surveying(tmp_path, f"cat {PRINTED}", sink).once()
    for _ in range(2):
        assert surveying(tmp_path, partly(tmp_path, half), sink).once()
        assert switches_in(sink.surveys[-1]) == {*whole.switches} > switches_in(pack(half.read_bytes()))
    assert surveying(tmp_path, f"cat {half}", sink).once()
    assert switches_in(sink.surveys[-1]) == switches_in(pack(half.read_bytes()))
    assert surveying(tmp_path, partly(tmp_path, half), sink).once()
    assert switches_in(sink.surveys[-1]) == switches_in(pack(half.read_bytes()))


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"x" * 99)[:-4], gzip.compress(b"#\n")],
    ids=["empty", "no gzip", "cut", "no survey"],  # gzip stores the time, and workers must collect equal names
)
def test_a_damaged_file_of_the_last_whole_survey_costs_what_it_held(tmp_path: Path, content: bytes) -> None:
    sink, half = FakeFabricSink(), half_of(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "whole.gz").write_bytes(content)
    assert surveying(tmp_path, partly(tmp_path, half), sink).once()
    assert switches_in(sink.surveys[-1]) == switches_in(pack(half.read_bytes()))


def test_a_disk_that_takes_no_file_costs_no_survey(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = FakeFabricSink()
    (tmp_path / "state").write_text("no directory")
    assert surveying(tmp_path, f"cat {PRINTED}", sink).once()
    assert switches_in(sink.surveys[-1]) == {*ibnetdiscover.parse(PRINTED.read_bytes()).switches}
    assert [line.message for line in caplog.records] == [
        "complete InfiniBand survey not saved on this node, cannot fill gaps of later ones"
    ]


def test_a_sink_that_is_away_gets_it_later(tmp_path: Path) -> None:
    sink = FakeFabricSink(away=True)
    survey = surveying(tmp_path, f"cat {PRINTED}", sink)
    assert not survey.once()
    sink.away = False
    assert survey.once()
    assert len(sink.surveys) == 1


@pytest.mark.parametrize(
    ("settings", "labels", "expected"),
    [
        (Ibnetdiscover(), {"a": "b"}, False),
        (HERE, None, True),
        (Ibnetdiscover(nodes=["node-2"]), {}, False),
        (Ibnetdiscover(node_selector={"ib": "yes"}), {"ib": "yes", "x": "y"}, True),
        (Ibnetdiscover(node_selector={"ib": "yes"}), {"ib": "no"}, False),
        (Ibnetdiscover(node_selector={"ib": "yes"}), None, False),
        (Ibnetdiscover(nodes=["node-2"], node_selector={"ib": "yes"}), {"ib": "yes"}, True),
    ],
)
def test_only_chosen_nodes_survey(settings: Ibnetdiscover, labels: dict[str, str] | None, expected: bool) -> None:  # noqa: FBT001 -- a parameter
    assert settings.chooses("node-1", labels) is expected


@pytest.mark.parametrize("key", ["gkm.io/survey", "cache.gkm.io/x"])
def test_no_node_can_choose_itself_by_a_label_that_its_agent_writes(key: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"nodeSelector has '{key}', which agents can write"):
        parse(json.dumps({"fabric": {"ibnetdiscover": {"nodeSelector": {"a": "b", key: "x"}}}}))


def test_its_thread_surveys_the_chosen_node_and_ends_with_a_run_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    sink = FakeFabricSink()
    survey = surveying(tmp_path, f"cat {PRINTED}", sink)
    survey.start()
    until(lambda: sink.surveys, "it is surveyed")
    survey.stop(20)
    assert not survey._thread.is_alive()

    hanging = surveying(tmp_path, f"touch {tmp_path}/runs; exec sleep 600", sink)
    hanging.start()
    until((tmp_path / "runs").exists, "it runs")
    hanging.stop(20)
    assert not hanging._thread.is_alive()


def test_where_nothing_is_configured_no_thread_is_started() -> None:
    survey = SubnetSurvey(Ibnetdiscover(), "node-1", dict, FakeFabricSink(), Path("/nowhere"))
    survey.start()
    assert not survey._thread.is_alive()
    survey.stop(1)


def test_another_node_does_not_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    looked: list[int] = []
    settings = Ibnetdiscover(node_selector={"ib": "yes"}, command=stand_in(tmp_path, f"touch {tmp_path}/ran"))

    def labels() -> dict[str, str]:
        looked.append(1)
        return {}

    survey = SubnetSurvey(settings, "node-2", labels, FakeFabricSink(), tmp_path / "whole.gz")
    survey.start()
    until(lambda: len(looked) > 6, "it looked again and again")
    survey.stop(20)
    assert not (tmp_path / "ran").exists()


def test_a_configmap_holds_the_largest_stored_survey() -> None:
    whole = survey_object("node-1", "gkm-ibnetdiscover-node-1", b"x" * MAX_SURVEY_BYTES, "uid-1")
    assert len(whole["data"]["ibnetdiscover.gz.b64"]) < 1 << 20
    assert whole["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"}
    ]
    assert survey_name("n" * 235) is not None
    assert survey_name("n" * 236) is None


def test_what_is_configured_is_read() -> None:
    text = """
    fabric:
      cacheLabels: true
      lldpcli: /opt/lldpd/sbin/lldpcli
      settle: {readings: 5, seconds: 30}
      ibnetdiscover: {nodes: [node-1], nodeSelector: {ib: "yes"}, interval: 1h30m}
    """
    ibnetdiscover = Ibnetdiscover(["node-1"], {"ib": "yes"}, "1h30m")
    assert parse(text).fabric == Fabric(True, "/opt/lldpd/sbin/lldpcli", SettleThresholds(5, 30), ibnetdiscover)  # noqa: FBT003 -- a value
    assert ibnetdiscover.interval_seconds == 5400
    assert parse("").fabric.ibnetdiscover.nodes == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("fabric: {ibnetdiscover: {interval: 30s}}", "interval is '30s'; it must be from 1m"),
        ("fabric: {ibnetdiscover: {interval: ''}}", "interval is ''"),
        ("fabric: {ibnetdiscover: {interval: 1d}}", "$.fabric.ibnetdiscover.interval"),
        ("fabric: {ibnetdiscover: {interval: 999h}}", "must be from 1m"),
        ("fabric: {ibnetdiscover: {command: ibnetdiscover}}", "$.fabric.ibnetdiscover.command"),
        ("fabric: {lldpcli: /usr/../bin/sh}", "$.fabric.lldpcli"),
        ("fabric: {settle: {readings: 0}}", "$.fabric.settle.readings"),
        ("fabric: {settle: {seconds: .nan}}", "$.fabric.settle.seconds"),
        ("fabric: {nodes: []}", "nodes"),
    ],
)
def test_what_is_configured_wrongly_is_refused_with_its_path(text: str, path: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    assert path in str(caught.value)
