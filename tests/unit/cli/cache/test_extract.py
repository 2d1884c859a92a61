"""`gkm cache extract` and `check` beyond the plain case: another mount path, another machine's GPUs."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from support.cli.command import CACHE, KEY, content, gkm
from support.fakes import nvml_library
from support.images.directories import KEY as KERNEL
from support.images.directories import component, kernel
from support.peers import require
from support.registry import faults as registry_faults
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import sign_bundle

GROUPS = sorted(path.relative_to(CACHE) for path in CACHE.rglob("__grp__*.json"))


@pytest.fixture
def signed(registry_server: Registry, image: str) -> str:
    sign_bundle(Target(registry_server.host, "team/vector-add"), image.partition("@")[2], KEY)
    return image


def test_paths_are_rewritten_for_the_mount_path(signed: str, key: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    where = ["--to", out, "--mount-path", "/models/cache", "--key", key, "--plain-http", "-o", "json"]
    done = gkm("cache", "extract", signed, *where)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["rewritten"], json.loads(done.stdout)["incomplete"]) == (len(GROUPS), 0)
    for group in GROUPS:
        named = json.loads((out / group).read_text())["child_paths"]
        assert named == {name: f"/models/cache/{group.parent}/{name}" for name in named}
        assert all((out / group.parent / name).is_file() for name in named)
    others = {path: data for path, data in content(CACHE).items() if path not in GROUPS}
    assert {path: data for path, data in content(out).items() if path not in GROUPS} == others


def test_the_printed_way_to_use_the_cache_here_runs(signed: str, key: Path, tmp_path: Path) -> None:
    """It named the option alone: the directory exists, and its name stood without quotes."""
    out = tmp_path / "a b"
    where = ("cache", "extract", signed, "--to", out, "--key", key, "--plain-http")
    _, _, way = gkm(*where).stdout.strip().rpartition("to use it here, ")
    remove, _, option = way.partition(", and add ")
    assert shlex.split(remove) == ["rm", "-r", str(out)], way
    shutil.rmtree(out)
    done = gkm(*where, *shlex.split(option))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mount_path_that_cannot_be_is_refused_before_anything_is_fetched(signed: str, tmp_path: Path) -> None:
    done = gkm("cache", "extract", signed, "--to", tmp_path / "out", "--mount-path", "relative", "--plain-http")
    assert (done.returncode, "not an absolute path" in done.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrap", ["list", "detect", "node"])
def test_the_gpus_of_another_machine_are_checked(image: str, tmp_path: Path, wrap: str) -> None:
    groups = [
        {"ids": [0, 1], "backend": "cuda", "arch": "80", "warpSize": 32},
        {"ids": [2], "backend": "cuda", "arch": "90", "warpSize": 32},
    ]
    documents = {
        "list": groups,
        "detect": {"gpus": groups, "errors": []},
        "node": {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCacheNode", "status": {"gpus": groups, "caches": {}}},
    }
    file = tmp_path / "gpus.json"
    file.write_text(json.dumps(documents[wrap]))
    result = json.loads(gkm("cache", "check", image, "--gpus", file, "--plain-http", "-o", "json").stdout)
    assert result["compatibleGPUs"] == [{"ids": [2]}]
    assert [(group["ids"], group["reason"]) for group in result["incompatibleGPUs"]] == [
        ([0, 1], "ArchitectureMismatch")
    ]


def test_check_reads_the_output_of_detect(image: str, tmp_path: Path) -> None:
    require.gcc()
    library = nvml_library.build()
    hopper = nvml_library.environment(tmp_path, library=library, gpus=(nvml_library.H100,))
    (tmp_path / "gpus").write_text(gkm("node", "detect", "-o", "json", env=hopper).stdout)
    assert gkm("cache", "check", image, "--gpus", tmp_path / "gpus", "--plain-http").returncode == 0


@pytest.mark.parametrize("text", ["[1, 2]", "{", "gpus: [{ids: [-1]}]", "x" * (5 << 20), "\x00", "a: 2026-13-45"])
def test_a_file_that_lists_no_gpus_is_refused(image: str, tmp_path: Path, text: str) -> None:
    file = tmp_path / "gpus.json"
    file.write_text(text)
    done = gkm("cache", "check", image, "--gpus", file, "--plain-http")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: ")


def test_a_negative_result_is_printed_as_json_too(image: str, key: Path, tmp_path: Path) -> None:
    done = gkm("cache", "extract", image, "--to", tmp_path / "out", "--key", key, "--plain-http", "-o", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verified"]) == (3, False)
    assert "no signature was found" in result["message"]


def test_a_registry_without_an_answer_is_a_failure_and_not_a_verdict(
    registry_server: Registry, image: str, key: Path, tmp_path: Path
) -> None:
    registry_server.misbehave(registry_faults.status("referrers/", 503), registry_faults.status("\\\\.sig", 503))
    for command in (["verify", image], ["extract", image, "--to", tmp_path / "out"]):
        done = gkm("cache", *command, "--key", key, "--plain-http", "-o", "json")
        assert (done.returncode, done.stdout, done.stderr[:7]) == (1, "", "error: ")


def test_a_driver_that_does_not_answer_is_no_machine_without_gpus(image: str, tmp_path: Path) -> None:
    require.gcc()
    library = nvml_library.build()
    machine = nvml_library.environment(tmp_path, library=library, gpus=(), errors={"nvmlInit": "UNKNOWN"})
    done = gkm("cache", "check", image, "--plain-http", env=machine)
    assert (done.returncode, "cannot be read" in done.stderr) == (1, True)


@pytest.fixture
def several(registry_server: Registry, tmp_path: Path) -> str:
    """Return an image of a cache of vLLM and one of Triton."""
    component(tmp_path / "root/vllm")
    kernel(tmp_path / "root/triton")
    ref = f"{registry_server.host}/team/several-caches:1"
    built = gkm("cache", "build", tmp_path / "root", "--image", ref, "--push", "--plain-http", "-o", "json")
    assert built.returncode == 0, built.stderr
    digest = json.loads(built.stdout)["digest"]
    sign_bundle(Target(registry_server.host, "team/several-caches"), digest, KEY)
    return f"{registry_server.host}/team/several-caches@{digest}"


def test_each_of_several_caches_is_extracted_into_a_directory_of_its_own(
    several: str, key: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    where = ["--to", out, "--mount-path", "/models/cache", "--key", key, "--plain-http", "-o", "json"]
    done = gkm("cache", "extract", several, *where)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["triton", "vllm"]
    group = json.loads((out / "triton" / KERNEL / "__grp__fwd.json").read_text())["child_paths"]
    assert group == {name: f"/models/cache/triton/{KERNEL}/{name}" for name in group}
    source, found = content(tmp_path / "root"), content(out)
    assert found.keys() == source.keys()
    (index,) = (path for path in source if path.name == "vllm_compile_cache.py")
    assert f"/models/cache/{index.parent}/" in found[index].decode()
    rewritten = {index, Path("triton", KERNEL, "__grp__fwd.json")}
    assert {path for path in source if found[path] != source[path]} == rewritten
    assert json.loads(done.stdout)["rewritten"] == len(rewritten)
    assert json.loads(done.stdout)["files"] == len(found)


def test_inspect_shows_each_of_several_caches_with_its_directory_and_variable(several: str) -> None:
    result = json.loads(gkm("cache", "inspect", several, "--entries", "--plain-http", "-o", "json").stdout)
    caches = {each["format"]: each for each in result["caches"]}
    assert {name: (each["directory"], each["variables"]) for name, each in caches.items()} == {
        "vllm": ("vllm", ["VLLM_CACHE_ROOT"]),
        "triton": ("triton", ["TRITON_CACHE_DIR"]),
    }
    assert sum(each["size"] for each in caches.values()) == result["size"]
    assert sum(each["entryCount"] for each in caches.values()) == result["entryCount"]
    assert sorted(each["form"] for each in result["entries"]) == ["binary", "triton"]
    shown = gkm("cache", "inspect", several, "--entries", "--plain-http").stdout
    assert all(text in shown for text in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "vllm-triton cache"))
