"""`gkm cache check --gpus FILE`: it reads output of kubectl and `gkm node detect`; any other file is an error."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from gkm_cli.inputs.gpu_names import MODELS
from support.cli.command import gkm

H100 = {"ids": [0, 1], "backend": "cuda", "arch": "90", "warpSize": 32, "driverVersion": "580.65.06"}
A100 = {**H100, "ids": [0], "arch": "80"}


def node(*groups: object, name: str = "n1", namespace: str = "team") -> dict[str, object]:
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCacheNode",
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": "7"},
        "spec": {"nodeName": name},
        "status": {"observedGeneration": 1, "gpus": list(groups), "caches": {}},
    }


def listed(*nodes: object, kind: str = "List") -> dict[str, object]:
    return {"apiVersion": "v1", "kind": kind, "items": list(nodes), "metadata": {"resourceVersion": ""}}


def check(tmp_path: Path, image: str, text: str) -> tuple[int, str, str]:
    file = tmp_path / "gpus"
    file.write_text(text)
    done = gkm("cache", "check", image, "--plain-http", "--gpus", file, "-o", "json")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
@pytest.mark.parametrize(
    "document",
    [
        node(H100),
        {**node(H100), "kind": "ClusterGKMCacheNode"},
        listed(node(H100)),
        listed(node(H100), kind="GKMCacheNodeList"),
        listed(node(H100), node(H100, namespace="other")),
        [node(H100)],
        {"gpus": [H100], "errors": []},
        [{"gpus": [H100], "errors": []}],
        [H100],
    ],
)
def test_lists_objects_and_arrays_are_read(
    image: str, tmp_path: Path, document: object, write: Callable[[object], str]
) -> None:
    code, stdout, stderr = check(tmp_path, image, write(json.loads(json.dumps(document))))
    assert (code, stderr) == (0, "")
    assert json.loads(stdout)["compatibleGPUs"] == [{"ids": [0, 1]}]


def test_a_long_list_without_white_space_is_read(image: str, tmp_path: Path) -> None:
    eight = {**H100, "ids": list(range(8))}
    text = json.dumps(listed(*(node(eight, name=f"n{number}") for number in range(500))), separators=(",", ":"))
    code, output, _ = check(tmp_path, image, text)
    assert code in {0, 3}
    result = json.loads(output)
    assert len(result["compatibleGPUs"] + result["incompatibleGPUs"]) == 500


def test_of_several_nodes_each_is_named(image: str, tmp_path: Path) -> None:
    nodes = listed(node(H100), node(A100, name="n2"), node(name="n3"))
    code, stdout, _ = check(tmp_path, image, json.dumps(nodes))
    result = json.loads(stdout)
    assert code == 0
    assert result["compatibleGPUs"] == [{"node": "n1", "ids": [0, 1]}]
    assert [(group["node"], group["reason"]) for group in result["incompatibleGPUs"]] == [
        ("n2", "ArchitectureMismatch"),
    ]
    table = gkm("cache", "check", image, "--plain-http", "--gpus", tmp_path / "gpus").stdout
    rows = [line.split()[:3] for line in table.splitlines() if not line.startswith(" ")]
    assert rows == [
        ["NODE", "GPUS", "FITS"],
        ["n1", "0,1", "yes"],
        ["n2", "0", "ArchitectureMismatch"],
        ["n3", "NoGPU", "this"],
    ]


def test_several_nodes_that_do_not_fit_are_a_no_that_names_them(image: str, tmp_path: Path) -> None:
    code, stdout, _ = check(tmp_path, image, json.dumps(listed(node(A100), node(A100, name="n2"))))
    assert code == 3
    assert "node n1: " in json.loads(stdout)["message"]
    assert "node n2: " in json.loads(stdout)["message"]


@pytest.mark.parametrize("document", [node(), {"gpus": [], "errors": []}, listed(node())])
def test_check_exits_with_3_on_a_machine_without_gpus(image: str, tmp_path: Path, document: object) -> None:
    code, stdout, _ = check(tmp_path, image, json.dumps(document))
    assert (code, "this node has no GPU" in stdout) == (3, True)


def test_a_status_without_gpus_is_that_of_a_node_without_any(image: str, tmp_path: Path) -> None:
    # The agent omits empty fields (NodeStatus, omit_defaults).
    without = {**node(), "status": {"observedGeneration": 1, "caches": {"a": {"state": "Ready"}}}}
    assert check(tmp_path, image, json.dumps(without))[0] == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not list GPUs"),
        ("null", "does not list GPUs"),
        ("7", "does not list GPUs"),
        ("{}", "without a status"),
        ("[]", "its list of machines is empty"),
        (json.dumps(listed()), "its list of machines is empty"),
        (json.dumps(listed(7)), "not an object"),
        (json.dumps(listed(listed(node(H100)))), "kind 'List'"),
        (json.dumps(listed({**node(H100), "kind": "Node"})), "kind 'Node'"),
        (json.dumps({"kind": "Pod", "gpus": [H100]}), "kind 'Pod'"),
        (json.dumps({"kind": "List", "items": {}}), "kind 'List'"),
        (json.dumps({"kind": "List"}), "kind 'List'"),
        (json.dumps({**node(), "status": {}}), "no agent has reported"),
        (json.dumps({key: value for key, value in node().items() if key != "status"}), "no agent has reported"),
        (json.dumps({**node(), "status": {"gpus": {}}}), "does not list GPUs"),
        (json.dumps({"gpu": [H100]}), "without a status"),
        (json.dumps({"gpus": None}), "does not list GPUs"),
        (json.dumps({"gpus": [], "errors": ["nvmlInit: DRIVER_NOT_LOADED"]}), "could not be read: nvmlInit"),
        (json.dumps([{"ids": [0]}]), "without ids or without a backend"),
        (json.dumps([{**H100, "ids": []}]), "without ids or without a backend"),
        (json.dumps([{**H100, "ids": [-1]}]), "does not list GPUs"),
        (json.dumps([{**H100, "ids": list(range(1025))}]), "more than 1024 GPUs"),
        (json.dumps(listed(node(H100), node(A100, namespace="other"))), "node n1 twice, with different GPUs"),
        ("items: &a [1]\nkind: List\nx: *a", "aliases"),
        ("\x00\x01", "does not list GPUs"),
        ("[" * 100_000, "does not list GPUs"),
        ("[" + "{}," * 1_500_000, "more than 4194304 bytes"),
        ("- {}\n" * 110_000, "more than 524288 bytes"),
        ('{"kind": "\x1b[31mx"}', "does not list GPUs"),
    ],
)
def test_anything_else_is_an_error_and_never_a_no(tmp_path: Path, text: str, words: str) -> None:
    # The file is read first: nothing listens at this address.
    code, stdout, stderr = check(tmp_path, "127.0.0.1:1/x", text)
    assert (code, stdout) == (2, "")
    assert words in stderr
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert stderr.strip().isprintable()


@pytest.mark.parametrize(("name", "why"), [("nowhere", "does not exist"), (".", "is a directory")])
def test_a_file_that_is_none_is_a_wrong_command_line(tmp_path: Path, name: str, why: str) -> None:
    done = gkm("cache", "check", "127.0.0.1:1/x", "--gpus", tmp_path / name)
    assert (done.returncode, done.stderr.count("\n"), why in done.stderr) == (2, 1, True), done


@pytest.mark.parametrize(("gpu", "code"), [("h100", 0), ("H100", 0), ("cuda:90:32", 0), ("a100", 3), ("mi300x", 3)])
def test_a_gpu_is_named_by_its_model_or_its_architecture(image: str, gpu: str, code: int) -> None:
    done = gkm("cache", "check", image, "--plain-http", "--gpu", gpu, "-o", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, bool(result["compatibleGPUs"])) == (code, not code)
    assert code == 0 or "Mismatch" in json.dumps(result["incompatibleGPUs"])


def test_an_unknown_model_is_a_mistake_of_usage_with_the_known_ones(image: str, tmp_path: Path) -> None:
    unknown = gkm("cache", "check", image, "--plain-http", "--gpu", "h1000")
    assert unknown.returncode == 2
    assert "--gpu 'h1000' names no GPU; write BACKEND:ARCH:WARP" in unknown.stderr
    assert "h100, h200" in unknown.stderr
    file = tmp_path / "gpus.json"
    file.write_text(json.dumps([H100]))
    both = gkm("cache", "check", image, "--plain-http", "--gpu", "h100", "--gpus", file)
    assert (both.returncode, "--gpu and --gpus exclude each other" in both.stderr) == (2, True)


def test_the_page_has_every_model_and_the_form_of_the_file() -> None:
    page = (
        (Path(__file__).parents[4] / "docs" / "reference" / "formats.md")
        .read_text()
        .partition("## GPUs")[2]
        .partition("\n## ")[0]
    )
    assert all(f"`{model}`" in page for model in MODELS)
    assert "`gkm node detect -o json`" in page
