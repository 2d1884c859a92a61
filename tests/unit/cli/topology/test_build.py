"""`gkm topology build`: sources as files, and the tree in every form."""

import gzip
import json
import shlex
from pathlib import Path

import pytest
import yaml
from support.cli.command import gkm
from support.topology.clusters import DATA, HOSTS, SURVEY, labeled, surveyed_cluster, topology, written
from support.topology.infiniband_networks import irregular
from support.topology.kube_lists import Json

FORMS = ("tree", "json", "hypernodes", "labels")


@pytest.fixture
def racks(tmp_path: Path) -> Path:
    """Return a list of eight nodes in four racks of two blocks, and one that has no label of a place."""
    nodes = [labeled(f"gpu-{at}", block=f"b{at // 4}", fabric__domain=f"rack{at // 2}") for at in range(8)]
    return written(tmp_path / "nodes.json", *nodes, labeled("alone"))


def built(*arguments: object) -> Json:
    done = topology("build", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def members(result: Json, level: str) -> dict[str, list[str]]:
    """Return the nodes of each domain of a level, by its name or that of its switch."""
    return {each["switch"] or each["name"]: each["nodes"] for each in result["domains"] if each["level"] == level}


def test_every_form_is_printed_by_the_program_itself(racks: Path) -> None:
    for form in FORMS:
        done = gkm("topology", "build", "--nodes", racks, "-o", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert "rack3" in done.stdout


def test_labels_alone_give_a_tree(racks: Path) -> None:
    result = built("--nodes", racks)
    assert members(result, "nvlink") == {f"rack{at}": [f"gpu-{2 * at}", f"gpu-{2 * at + 1}"] for at in range(4)}
    parents = {each["name"]: each["parent"] for each in result["domains"] if each["level"] == "nvlink"}
    assert parents == {"rack0": "block-b0", "rack1": "block-b0", "rack2": "block-b1", "rack3": "block-b1"}
    assert members(result, "cluster") == {"default": ["alone"]}
    assert (result["quarantined"], result["contradictions"], result["notes"]) == ([], [], [])


def test_the_tree_is_drawn_with_its_nodes(racks: Path) -> None:
    lines = topology("build", "--nodes", racks).stdout.splitlines()
    assert lines[0] == "region default"
    assert lines[1] == "`- cluster default: alone"
    assert lines[2] == "   |- block b0"
    assert lines[3] == "   |  |- nvlink rack0: gpu-[0-1]"
    assert lines[-1] == "      `- nvlink rack3: gpu-[6-7]"


def test_hypernodes_have_existing_members_and_rising_tiers(racks: Path) -> None:
    objects = list(yaml.load_all(topology("build", "--nodes", racks, "-o", "hypernodes").stdout, yaml.CSafeLoader))
    seen = {f"gpu-{at}": 0 for at in range(8)} | {"alone": 0}
    for found in objects:
        assert found["metadata"]["labels"] == {"volcano.sh/network-topology-source": "gkm"}
        names = [member["selector"]["exactMatch"]["name"] for member in found["spec"]["members"]]
        assert all(seen[name] < found["spec"]["tier"] for name in names)
        seen[found["metadata"]["name"]] = found["spec"]["tier"]
    assert len(objects) == 8


@pytest.mark.parametrize(("form", "group"), [("kueue", "kueue.x-k8s.io/v1beta2"), ("kai", "kai.scheduler/v1alpha1")])
def test_commands_write_the_labels_that_a_topology_names(racks: Path, form: str, group: str) -> None:
    (found,) = yaml.load_all(topology("build", "--nodes", racks, "-o", form).stdout, yaml.CSafeLoader)
    assert (found["apiVersion"], found["metadata"]["name"]) == (group, "gkm")
    keys = [level["nodeLabel"] for level in found["spec"]["levels"]]
    assert keys[-1] == "kubernetes.io/hostname"
    labels: dict[str, set[str]] = {}
    for command in topology("build", "--nodes", racks, "-o", "labels").stdout.splitlines():
        *words, change, overwrite = shlex.split(command)
        assert (words[:3], overwrite) == (["kubectl", "label", "nodes"], "--overwrite")
        for node in words[3:]:
            labels.setdefault(node, set()).add(change.partition("=")[0])
    assert labels == {node: set(keys[:-1]) for node in [*(f"gpu-{at}" for at in range(8)), "alone"]}


def test_labels_of_levels_that_vanished_are_removed_also_from_quarantined_nodes(tmp_path: Path) -> None:
    old = {
        "level.gkm.io/rack": "r1",
        "level.gkm.io/nvlink": "old",
        "level.gkm.io/block": "b0",
        "example.com/rack": "r1",
    }
    nodes = [labeled("kept", block="b0"), labeled("aside-0", block="b0"), labeled("aside-1", block="b1")]
    nodes[1]["metadata"]["labels"] |= {"fabric.domain": "d"}
    nodes[2]["metadata"]["labels"] |= {"fabric.domain": "d"}
    bare = labeled("cpu")
    bare["status"]["allocatable"] = {}
    for node in (*nodes, bare):
        node["metadata"]["labels"] |= old
    lines = topology(
        "build", "--nodes", written(tmp_path / "nodes.json", *nodes, bare), "-o", "labels"
    ).stdout.splitlines()
    changes = [shlex.split(line)[3:] for line in lines]
    removed = {change[-1]: change[:-1] for change in changes if change[-1] != "--overwrite"}
    assert removed == {
        "level.gkm.io/rack-": ["aside-0", "aside-1", "cpu", "kept"],
        "level.gkm.io/nvlink-": ["aside-0", "aside-1", "cpu"],
        "level.gkm.io/block-": ["aside-0", "aside-1", "cpu"],
    }
    assert {tuple(change[:-2]) for change in changes if change[-1] == "--overwrite"} == {("kept",)}


def test_no_form_creates_a_node_that_was_deleted_meanwhile(racks: Path) -> None:
    for form in ("hypernodes", "kueue", "kai", "grove", "nfd"):
        objects = yaml.load_all(topology("build", "--nodes", racks, "-o", form).stdout, yaml.CSafeLoader)
        assert "Node" not in {each["kind"] for each in objects}


def test_slurm_gets_the_same_domains_as_volcano_and_the_output_is_deterministic(racks: Path) -> None:
    texts = {form: topology("build", "--nodes", racks, "-o", form).stdout for form in ("slurm-tree", "slurm-block")}
    assert texts == {form: topology("build", "--nodes", racks, "-o", form).stdout for form in texts}
    ((tree,), (block,)) = (yaml.load(text, yaml.CSafeLoader) for text in texts.values())
    names = {each["switch"] for each in tree["tree"]["switches"]}
    objects = yaml.load_all(topology("build", "--nodes", racks, "-o", "hypernodes").stdout, yaml.CSafeLoader)
    assert {each["metadata"]["name"] for each in objects} <= names
    assert {each["block"] for each in block["block"]["blocks"]} <= names


def test_a_file_that_ends_slurmctld_is_not_printed(tmp_path: Path) -> None:
    nodes = written(tmp_path / "nodes.json", labeled("gpu-0", block="b0"))
    done = topology("build", "--nodes", nodes, "-o", "slurm-block")
    assert (done.returncode, done.stdout) == (2, "")
    assert "slurmctld would not start" in done.stderr
    assert "no node is in a domain of the closest level, nvlink" in done.stderr


def test_the_name_of_a_topology_is_the_configured_one(racks: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("topology: {kueue: fabric, nodeLabels: true}\n")
    done = topology("build", "--nodes", racks, "--config", config, "-o", "kueue")
    assert next(yaml.load_all(done.stdout, yaml.CSafeLoader))["metadata"]["name"] == "fabric"


def test_the_hosts_of_a_rack_are_in_the_leaf_group_of_its_switches(tmp_path: Path) -> None:
    nodes, _ = surveyed_cluster(tmp_path)
    result = built("--nodes", nodes, "--ibnetdiscover", SURVEY)
    groups = members(result, "leaf")
    assert groups.keys() == HOSTS.keys()
    for switch, names in groups.items():
        assert {name.rpartition("-")[0] for name in names} == {HOSTS[switch]}
    assert sum(map(len, groups.values())) == 119
    assert result["levels"] == ["nvlink", "leaf", "spine", "cluster", "region"]
    # 69 adapters with a factory's description, and 3 of a host "localhost".
    others = "2 hosts in it are no nodes, for example b11-p1-cufm-02, ubuntu; 72 adapters in it name no host"
    assert result["notes"] == [
        f"infiniband: 119 of 144 nodes are in it; {others}",
        "no --config is given: the levels are nvlink, leaf, spine, cluster, region",
    ]


def test_a_survey_that_an_agent_compressed_is_read_too(tmp_path: Path) -> None:
    nodes, _ = surveyed_cluster(tmp_path)
    packed = tmp_path / "survey.gz"
    packed.write_bytes(gzip.compress(SURVEY.read_bytes()))
    plain = topology("build", "--nodes", nodes, "--ibnetdiscover", SURVEY)
    assert topology("build", "--nodes", nodes, "--ibnetdiscover", packed).stdout == plain.stdout


def test_node_fabrics_locate_hosts_that_have_the_name_of_a_factory(tmp_path: Path) -> None:
    nodes, _ = surveyed_cluster(tmp_path)
    absent = "a06-p1-dgx-02-c05"
    assert absent not in members(built("--nodes", nodes, "--ibnetdiscover", SURVEY), "leaf")["A09-P1-IBLEAF-01-02"]
    guid = factory_guid("A09-P1-IBLEAF-01-02")
    fabric = {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "NodeFabric",
        "metadata": {"name": absent},
        "spec": {"nodeName": absent},
        "status": {"infiniband": [{"device": "mlx5_0", "port": 1, "portGUID": guid}]},
    }
    fabrics = written(tmp_path / "fabrics.json", fabric, {"kind": "NodeFabric", "metadata": {}})
    result = built("--nodes", nodes, "--ibnetdiscover", SURVEY, "--fabrics", fabrics)
    assert absent in members(result, "leaf")["A09-P1-IBLEAF-01-02"]
    assert result["notes"][0] == "1 NodeFabric cannot be read and is used for no node"


def factory_guid(switch: str) -> str:
    """Return the port GUID of an adapter with a factory's description in a port of a switch of SURVEY."""
    at_switch = False
    for line in SURVEY.read_text().splitlines():
        if line.startswith("Switch"):
            at_switch = f";{switch}:" in line
        if at_switch and line.startswith("[") and "MT4129 ConnectX7" in line:
            return line.partition('"H-')[2][:16]
    raise AssertionError(switch)


def test_ufm_gives_the_groups_of_the_hosts_that_share_their_switches(tmp_path: Path) -> None:
    ports = DATA / "ufm_ports_mock.json"
    nodes = written(tmp_path / "nodes.json", *(labeled(f"node{at}") for at in range(8)))
    groups = members(built("--nodes", nodes, "--ufm", ports), "leaf")
    assert sorted(groups.values()) == [[f"node{at}" for at in range(4)], [f"node{at}" for at in range(4, 8)]]


def test_lldp_neighbors_give_leaf_groups(tmp_path: Path) -> None:
    nodes = written(tmp_path / "nodes.json", *(labeled(f"gpu-{at}") for at in range(4)))
    lldp = tmp_path / "lldp.json"
    lldp.write_text(json.dumps({f"gpu-{at}": neighbor(f"00:00:00:00:00:0{at // 2}") for at in range(4)}))
    groups = [sorted(each) for each in members(built("--nodes", nodes, "--lldp", lldp), "leaf").values()]
    assert sorted(groups) == [["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"]]


def neighbor(chassis: str) -> Json:
    port = {"id": {"type": "ifname", "value": "swp1"}}
    entry = {"via": "LLDP", "chassis": {"leaf": {"id": {"type": "mac", "value": chassis}}}, "port": port}
    return {"lldp": {"interface": [{"eth1": entry}]}}


def test_neighbors_in_node_fabrics_count_where_the_configuration_lists_lldp(tmp_path: Path) -> None:
    nodes = written(tmp_path / "nodes.json", labeled("gpu-0"))
    links = [
        {"interface": name, "neighbour": {"chassisID": chassis, "portID": "1"}}
        for name, chassis in (("eth0", "management"), ("rail0", "leaf"), ("rail1", "leaf"))
    ]
    fabric = {"kind": "NodeFabric", "metadata": {"name": "gpu-0"}, "spec": {"nodeName": "gpu-0"}}
    fabrics = written(tmp_path / "fabrics.json", fabric | {"status": {"ethernet": links}})
    assert members(built("--nodes", nodes, "--fabrics", fabrics), "leaf") == {}
    config = tmp_path / "config.yaml"
    config.write_text("topology: {levels: [{name: leaf}], providers: [{name: lldp, config: {interfaces: [rail*]}}]}\n")
    result = built("--nodes", nodes, "--fabrics", fabrics, "--config", config)
    assert members(result, "leaf") == {"leaf": ["gpu-0"]}


def test_a_tree_file_brings_levels_of_its_own_and_they_stand_in_its_order(tmp_path: Path, racks: Path) -> None:
    file = tmp_path / "tree.yaml"
    row = {"name": "r1", "level": "rack", "nodes": ["gpu-[0-3]"]}
    file.write_text(json.dumps({"domains": [{"name": "row1", "level": "row", "domains": [row]}]}))
    result = built("--nodes", racks, "--tree-file", file)
    assert result["levels"] == ["nvlink", "rack", "row", "cluster", "region"]
    assert [each["parent"] for each in result["domains"] if each["name"] == "rack1"] == ["rack-r1"]


def test_levels_that_the_configuration_lacks_are_named(tmp_path: Path) -> None:
    nodes, _ = surveyed_cluster(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text("topology: {providers: [{name: ufm}, {name: labels}]}\n")
    result = built("--nodes", nodes, "--ibnetdiscover", SURVEY, "--config", config)
    assert result["notes"][1:] == [
        "topology.levels lacks leaf, spine, which the sources have: those domains do not count",
        "topology.providers has ufm, and no option gives its data",
    ]
    assert members(result, "leaf") == {}


@pytest.mark.parametrize(("order", "winner"), [(["labels", "tree-file"], "b0"), (["tree-file", "labels"], "file")])
def test_the_configured_order_decides_whom_to_trust(tmp_path: Path, racks: Path, order: list[str], winner: str) -> None:
    file = tmp_path / "tree.yaml"
    file.write_text(json.dumps({"domains": [{"name": "file", "level": "block", "nodes": ["gpu-[0-3]"]}]}))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"topology": {"providers": [{"name": name} for name in order]}}))
    result = built("--nodes", racks, "--tree-file", file, "--config", config)
    parents = {each["name"]: each["parent"] for each in result["domains"]}
    assert parents["rack0"] == f"block-{winner}"


def test_a_node_that_cannot_be_read_is_quarantined_whatever_a_source_reports(tmp_path: Path) -> None:
    wrong = labeled("gpu-1")
    wrong["spec"] = {"taints": "none"}
    nodes = written(tmp_path / "nodes.json", labeled("gpu-0"), wrong)
    file = tmp_path / "tree.yaml"
    file.write_text(json.dumps({"domains": [{"name": "one", "level": "block", "nodes": ["gpu-[0-1]"]}]}))
    result = built("--nodes", nodes, "--tree-file", file)
    assert [(each["node"], each["reason"]) for each in result["quarantined"]] == [("gpu-1", "Unreadable")]
    assert members(result, "block") == {"one": ["gpu-0"]}


def test_what_is_wrong_stands_on_standard_error_beside_objects(tmp_path: Path) -> None:
    nodes = written(
        tmp_path / "nodes.json",
        labeled("gpu-0", block="b0", fabric__domain="d"),
        labeled("gpu-1", block="b1", fabric__domain="d"),
        labeled("gpu-2", block="b1"),
    )
    done = topology("build", "--nodes", nodes, "-o", "hypernodes")
    assert done.returncode == 0
    assert "quarantined: DomainInSeveralBlocks: gpu-0, gpu-1: " in done.stderr
    assert [found["metadata"]["name"] for found in yaml.load_all(done.stdout, yaml.CSafeLoader)] == [
        "block-b1",
        "cluster-default",
        "region-default",
    ]


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        (
            "--ibnetdiscover",
            "nothing",
            "the text names no switch as ibnetdiscover does; give what `ibnetdiscover` prints",
        ),
        ("--ibnetdiscover", b"\x1f\x8bnothing", "it cannot be unpacked by gzip; give what `ibnetdiscover` prints"),
        ("--ufm", "[", "give what `curl -su USER https://UFM/ufmRest/resources/ports` prints"),
        ("--lldp", "{", "correct the file"),
        ("--tree-file", "{}", "the file has no `domains`, no `switches` and no blocks; correct the file"),
        ("--fabrics", "{}", "give what `kubectl get nodefabrics -o json` prints"),
    ],
)
def test_a_file_that_is_something_else_is_named(
    racks: Path, tmp_path: Path, option: str, content: str | bytes, message: str
) -> None:
    file = tmp_path / "wrong"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = topology("build", "--nodes", racks, option, file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {option} ")
    assert done.stderr.endswith(f"{message}\n")


def test_a_network_without_order_is_an_error_and_no_tree_without_its_nodes(tmp_path: Path, racks: Path) -> None:
    survey = tmp_path / "survey"
    survey.write_bytes(irregular())
    done = topology("build", "--nodes", racks, "--ibnetdiscover", survey)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "the network of infiniband cannot be used: the leaf switches of the fabric share hosts in no regular order"
        in done.stderr
    )


def test_standard_input_serves_one_option_only() -> None:
    done = topology("build", "--nodes", "-", "--ufm", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: standard input (-) is given for several options; give files for all but one\n"
