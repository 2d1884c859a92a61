"""`gkm topology check`: which labels GKM or another scheduler misreads, and the commands that correct them."""

import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import yaml
from gkm.api.cliques import CLIQUE_LABEL
from gkm.api.topology_settings import Topology, TopologyLabels, TopologyLevel
from gkm.topology.lists import NodeList
from gkm.topology.nodes import Node
from gkm_cli.topology import hygiene
from gkm_cli.topology.hygiene import Hygiene, LabelSeverity
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert
from support.cli.command import gkm
from support.examples import examples
from support.topology.clusters import labeled, topology, written
from support.topology.kube_lists import Json

ZERO = "00000000-0000-0000-0000-000000000000"
ROOT = Path(__file__).resolve().parents[4]
RACKS_IN_PARENTS = Topology(
    labels=TopologyLabels(rack=[]),
    levels=[
        TopologyLevel("nvlink"),
        TopologyLevel("rack", keys=["rack"], unique="parent"),
        TopologyLevel("block"),
    ],
)


def healthy(racks: int = 4, nodes: int = 3) -> list[Json]:
    """Return nodes whose labels are right: two racks a block."""
    return [
        labeled(
            f"gpu-{rack}-{at}",
            region="eu",
            cluster="c1",
            block=f"b{rack // 2}",
            rack=f"r{rack}",
            fabric__domain=f"d{rack}",
        )
        for rack in range(racks)
        for at in range(nodes)
    ]


def checked(items: Iterable[Json], topology_settings: Topology | None = None) -> Hygiene:
    nodes = NodeList(tuple(convert(item, Node) for item in items))
    return hygiene.check(nodes, topology_settings or Topology())


def labels(item: Json) -> dict[str, str]:
    found: dict[str, str] = item["metadata"]["labels"]
    return found


def found_reasons(found: Hygiene) -> dict[str, set[str]]:
    reasons: dict[str, set[str]] = {}
    for finding in found.findings:
        reasons.setdefault(str(finding.reason), set()).update(finding.nodes)
    return reasons


def test_labels_that_are_right_have_no_finding(tmp_path: Path) -> None:
    done = gkm("topology", "check", "--nodes", written(tmp_path / "nodes.json", *healthy()))
    assert (done.returncode, done.stdout, done.stderr) == (0, "12 nodes: 0 problems, 0 warnings\n", "")


def test_a_warning_is_no_problem(tmp_path: Path) -> None:
    items = healthy()
    labels(items[0])["topology.gkm.io/block"] = "other"
    done = topology("check", "--nodes", written(tmp_path / "nodes.json", *items))
    assert (done.returncode, done.stdout.partition(": ")[0]) == (0, "warning")
    assert "12 nodes: 0 problems, 1 warning\n" in done.stdout


def test_nodes_without_gpus_and_domain_do_not_matter() -> None:
    control_plane = labeled("control", block="UNKNOWN")
    del control_plane["status"]["allocatable"]["nvidia.com/gpu"]
    del control_plane["metadata"]["labels"]["gpu.flavor"]
    assert checked([*healthy(), control_plane]).findings == ()


Fault = tuple[str, Callable[[Json], object], bool]
FAULTS: list[Fault] = [
    ("EmptyValue", lambda node: labels(node).update({"block": ""}), True),
    ("EmptyValue", lambda node: labels(node).update({"topology.gkm.io/block": ""}), True),
    ("Placeholder", lambda node: labels(node).update({"rack": "Unknown"}), True),
    ("Placeholder", lambda node: labels(node).update({"gpu.flavor": "none"}), True),
    ("Placeholder", lambda node: labels(node).update({"fabric.domain": f"{ZERO}.0"}), True),
    ("Placeholder", lambda node: labels(node).update({CLIQUE_LABEL: "N.A"}), True),
    ("DiffersInCase", lambda node: labels(node).update({"cluster": "C1"}), True),
    ("FlavorMissing", lambda node: labels(node).pop("gpu.flavor"), True),
    ("LabelMissing", lambda node: labels(node).pop("block"), False),
    ("KeysDisagree", lambda node: labels(node).update({"topology.gkm.io/block": "b9"}), False),
    ("NoPlainName", lambda node: labels(node).update({"fabric.domain": "NVL_1"}), False),
    ("HostnameMissing", lambda node: labels(node).pop("kubernetes.io/hostname"), False),
    ("HostnameShared", lambda node: labels(node).update({"kubernetes.io/hostname": "gpu-3-2"}), True),
    ("LabelInvalid", lambda node: labels(node).update({"block": "a b"}), True),
    ("LabelInvalid", lambda node: labels(node).update({"fabric.domain": "d" * 64}), True),
    ("GPUsInvalid", lambda node: node["status"]["allocatable"].update({"nvidia.com/gpu": "-1"}), True),
    ("DomainInSeveralBlocks", lambda node: labels(node).update({"block": "b7", "rack": "r7"}), True),
    ("SeveralParents", lambda node: labels(node).update({"cluster": "c2"}), True),
    ("RackInSeveralBlocks", lambda node: labels(node).update({"block": "b7", "fabric.domain": "d7"}), True),
]


@settings(max_examples=examples(60))
@given(at=st.integers(0, 8), fault=st.sampled_from(FAULTS))
def test_a_planted_fault_is_found_with_its_node(at: int, fault: Fault) -> None:
    reason, plant, is_problem = fault
    items = healthy()
    plant(items[at])
    found = checked(items)
    assert items[at]["metadata"]["name"] in found_reasons(found)[reason]
    assert found.ok is not is_problem


@settings(max_examples=examples(60))
@given(
    faults=st.lists(
        st.tuples(
            st.integers(0, 11),
            st.sampled_from(["block", "rack", "fabric.domain", "cluster"]),
            st.sampled_from(["", "unknown", "n-a", "upper", "b0", "r0", "d3"]),
        ),
        max_size=3,
    )
)
def test_the_sure_commands_mend_what_they_are_for(faults: list[tuple[int, str, str]]) -> None:
    items = healthy()
    for at, key, value in faults:
        labels(items[at])[key] = labels(items[at]).get(key, "").upper() if value == "upper" else value
    found = checked(items)
    mends = found.corrections
    applied(hygiene.commands(mends), items)
    mended = found_reasons(checked(items))
    assert not mended.keys() & {"EmptyValue", "Placeholder"}
    cases = [finding for finding in found.findings if finding.reason == "DiffersInCase"]
    if cases and all(mend.sure for finding in cases for mend in finding.corrections):
        assert "DiffersInCase" not in mended


def applied(commands: Iterable[str], items: list[Json]) -> None:
    """Do what the shell and kubectl do with commands."""
    by_name = {item["metadata"]["name"]: labels(item) for item in items}
    for command in commands:
        words = shlex.split(command, comments=True)
        if not words:
            continue
        assert words[:3] == ["kubectl", "label", "nodes"]
        *names, change = [word for word in words[3:] if word != "--overwrite"]
        key, is_set, value = change.partition("=")
        for name in names:
            if is_set:
                by_name[name][key] = value
            else:
                by_name[name].pop(key.removesuffix("-"), None)


def test_a_choice_between_two_blocks_is_a_comment(tmp_path: Path) -> None:
    items = healthy()
    labels(items[0])["block"] = "b1"
    nodes = written(tmp_path / "nodes.json", *items)
    done = topology("check", "--nodes", nodes, "-o", "commands")
    assert done.returncode == 3
    assert done.stdout.splitlines()[0] == "# kubectl label nodes gpu-0-0 block=b0 --overwrite"
    assert all(line.startswith("# ") for line in done.stdout.splitlines())


def test_one_rack_name_in_two_blocks_is_named_with_the_scheduler_that_it_breaks() -> None:
    items = [
        labeled(f"n{at}", region="eu", cluster="c1", rack="r", block=f"b{at % 2}", fabric__domain=f"d{at}")
        for at in range(4)
    ]
    planner, *_ = checked(items).findings
    assert (planner.reason, planner.misread_by) == ("RackInSeveralBlocks", ("Volcano's discovery by labels",))
    assert {mend.value for mend in planner.corrections} == {"b0", "b1-r"}
    # Configured as unique in its block only, it is right for GKM and Kueue, and a warning because of Volcano.
    found = checked(items, RACKS_IN_PARENTS)
    several = [finding for finding in found.findings if finding.reason == "SeveralParents"]
    assert [(one.severity, one.misread_by) for one in several] == [
        (LabelSeverity.WARNING, ("Volcano's discovery by labels",)),
    ]
    assert found.ok


def test_two_clusters_with_one_name_are_right_for_gkm_and_not_for_volcanos_discovery() -> None:
    items = [
        labeled(f"n{at}", region="eu", cluster=f"c{at}", rack="r", block="b", fabric__domain="d") for at in range(2)
    ]
    found = checked(items)
    assert not found.quarantined
    assert {(one.reason, one.misread_by) for one in found.findings} == {
        ("SeveralParents", ("Volcano's discovery by labels",))
    }


@pytest.mark.parametrize(
    ("key", "reason"), [("cluster", "DomainInSeveralClusters"), ("region", "DomainInSeveralRegions")]
)
def test_a_clique_in_two_clusters_or_regions_is_quarantined(key: str, reason: str) -> None:
    items = healthy()
    for item in items[:3]:
        labels(item)["fabric.domain"] = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"
    labels(items[0])[key] = "other"
    found = checked(items)
    assert [(entry.node, entry.why) for entry, _ in found.quarantined] == [(f"gpu-0-{at}", reason) for at in range(3)]
    assert found_reasons(found)[reason] == {f"gpu-0-{at}" for at in range(3)}


def test_a_domain_may_span_racks_and_a_rack_may_hold_several_flavors() -> None:
    items = healthy()
    for at, item in enumerate(items):
        labels(item).update({"rack": f"x{at}" if at % 2 else labels(item)["rack"], "gpu.flavor": f"f{at % 2}"})
    assert checked(items).findings == ()


def test_of_two_spellings_that_are_equally_frequent_a_person_chooses() -> None:
    items = healthy(racks=2, nodes=2)
    for item in items[2:]:
        labels(item)["cluster"] = "C1"
    assert mends_of(checked(items), "DiffersInCase") == {False}
    labels(items[2])["cluster"] = "c1"
    assert mends_of(checked(items), "DiffersInCase") == {True}


def mends_of(found: Hygiene, reason: str) -> set[bool]:
    return {mend.sure for finding in found.findings if finding.reason == reason for mend in finding.corrections}


def test_quarantined_nodes_stand_with_their_labels(tmp_path: Path) -> None:
    items = healthy()
    labels(items[0])["block"] = "b1"
    done = topology("check", "--nodes", written(tmp_path / "nodes.json", *items), "-o", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["ok"]) == (3, False)
    first = result["quarantined"][0]
    assert (first["node"], first["reason"], first["labels"]["block"]) == ("gpu-0-0", "DomainInSeveralBlocks", "b1")
    assert {each["reason"] for each in result["findings"]} == {"DomainInSeveralBlocks"}
    as_yaml = topology("check", "--nodes", tmp_path / "nodes.json", "-o", "yaml")
    assert yaml.load(as_yaml.stdout, yaml.CSafeLoader) == result


@settings(max_examples=examples(60))
@given(value=st.text("aZ0-_. '\"$`\\\n#;&|<>(){}!*?é\x1b", min_size=1, max_size=70), at=st.integers(0, 11))
def test_no_value_of_a_label_becomes_a_command(value: str, at: int) -> None:
    items = healthy()
    labels(items[at])["block"] = value
    found = checked(items)
    lines = list(hygiene.commands(found.corrections))
    before = [dict(labels(item)) for item in items]
    applied([line.removeprefix("# ") for line in lines], items)
    changed = {key for old, item in zip(before, items, strict=True) for key in old if old[key] != labels(item).get(key)}
    assert changed <= {"block", "rack", "fabric.domain"}


def test_a_configuration_decides_which_labels_count(tmp_path: Path) -> None:
    items = healthy()
    labels(items[0])["gpu.flavor"] = ""
    config = tmp_path / "config.yaml"
    config.write_text("topology: {labels: {flavor: [nvidia.com/gpu.product]}}\n")
    for item in items:
        labels(item)["nvidia.com/gpu.product"] = "h100"
    nodes = written(tmp_path / "nodes.json", *items)
    done = topology("check", "--nodes", nodes)
    assert (done.returncode, done.stdout.startswith("problem: EmptyValue: label gpu.flavor is empty")) == (3, True)
    assert topology("check", "--nodes", nodes, "--config", config).returncode == 0


@pytest.mark.parametrize("content", ["", "{}", '{"kind":"PodList","items":[]}'])
def test_a_file_without_nodes_is_wrong_usage(tmp_path: Path, content: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(content)
    done = topology("check", "--nodes", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("; give what `kubectl get nodes -o json` prints\n")
