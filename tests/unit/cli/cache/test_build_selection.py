"""`gkm cache build` tells what an image would have, what stays out, and which directory is meant."""

import json
from pathlib import Path

from support.cli.command import gkm
from support.images.directories import KEY, OTHER_KEY, component, kernel
from support.images.families import family
from support.images.vllm import put

IMAGE = ("--image", "registry.example/team/caches/llama:1")


def shared(root: Path) -> Path:
    """Write a cache in which other programs left files, with one damaged kernel."""
    kernel(root)
    kernel(root, key=OTHER_KEY)
    (root / OTHER_KEY / "fwd.cubin").unlink()
    put(root, "huggingface/token", b"hf_not_a_token")
    put(root, "notes/readme.md", b"text")
    return put(root, f"{KEY}/.nfs0000000000a1b2c3")


def test_a_dry_run_tells_the_contents_and_makes_nothing(tmp_path: Path) -> None:
    done = gkm("cache", "build", shared(tmp_path), "--dry-run", "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert found["format"] == "triton"
    assert [target["arch"] for target in found["targets"]] == ["90"]
    assert [entry["hash"] for entry in found["entries"]] == ["ab" * 32]
    assert found["damaged"] == {OTHER_KEY: "fwd.cubin is missing, which the group file names"}
    assert {each["kind"]: each["examples"] for each in found["leftOut"]} == {
        "files that no runtime wrote as a cache": ["huggingface", "notes"],
        "leftovers of interrupted programs": [f"{KEY}/.nfs0000000000a1b2c3"],
        "incomplete or damaged kernels": [OTHER_KEY],
    }


def test_a_dry_run_prints_the_same_for_people(tmp_path: Path) -> None:
    done = gkm("cache", "build", shared(tmp_path), "--dry-run")
    assert done.returncode == 0
    assert "target   backend=cuda arch=90 warp_size=32" in done.stdout
    assert f"entry    triton {'ab' * 32} 90" in done.stdout
    assert f"kernel {OTHER_KEY}: fwd.cubin is missing" in done.stdout


def test_a_dry_run_says_why_kernels_cannot_hit_after_a_mount(tmp_path: Path) -> None:
    operator = ".cache/flashinfer/0.7.2/90a/cached_ops/sampling"
    put(family(tmp_path, "flashinfer"), f"{operator}/build.ninja")
    done = gkm("cache", "build", tmp_path, "--dry-run")
    assert done.returncode == 0
    why = "because ninja compiles operators of nvcc again"
    assert f"kernels that cannot hit after a mount, {why}" in done.stdout
    assert operator in done.stdout
    assert "entry    flashinfer .cache/flashinfer/0.7.2/90a/cached_ops/norm_90a_cute_dsl" in done.stdout


def test_a_build_warns_about_each_kind_that_stays_out(tmp_path: Path) -> None:
    cache = shared(tmp_path / "cache")
    done = gkm("cache", "build", cache, *IMAGE, "--to", f"oci:{tmp_path / 'made'}", "-o", "json")
    assert done.returncode == 0
    assert "warning: left out 2 of files that no runtime wrote as a cache (0 bytes): huggingface, notes" in done.stderr
    assert len(json.loads(done.stdout)["leftOut"]) == 3


def test_strict_refuses_a_damaged_kernel(tmp_path: Path) -> None:
    cache = shared(tmp_path / "cache")
    done = gkm("cache", "build", cache, *IMAGE, "--to", f"oci:{tmp_path / 'made'}", "--strict")
    assert done.returncode == 1
    assert f"1 kernel of the cache cannot be used: {OTHER_KEY}" in done.stderr
    assert not (tmp_path / "made").exists()


def test_the_command_that_an_error_names_runs(tmp_path: Path) -> None:
    kernel(tmp_path, "volume/triton")
    refused = gkm("cache", "build", tmp_path / "volume", "--dry-run")
    assert (refused.returncode, "near it are" in refused.stderr) == (1, True)
    command = (
        refused.stderr.strip().rpartition("name that directory: ")[2].replace("REF", "registry.example/a:1").split()
    )
    assert command[:3] == ["gkm", "cache", "build"]
    assert gkm(*command[1:]).returncode == 0


def test_a_build_without_a_name_or_destination_is_an_error_of_usage(tmp_path: Path) -> None:
    cache = kernel(tmp_path)
    assert "add --image" in gkm("cache", "build", cache, "--push").stderr
    assert "add --push" in gkm("cache", "build", cache, *IMAGE).stderr


def test_a_dry_run_of_several_caches_tells_of_which_each_file_is(tmp_path: Path) -> None:
    shared(tmp_path / "triton")
    component(tmp_path / "vllm")
    put(tmp_path, "notes.md")
    found = json.loads(gkm("cache", "build", tmp_path, "--dry-run", "-o", "json").stdout)
    assert (found["format"], [entry["form"] for entry in found["entries"]]) == ("vllm-triton", ["binary", "triton"])
    assert list(found["damaged"]) == [f"triton/{OTHER_KEY}"]
    assert {example for each in found["leftOut"] for example in each["examples"]} == {
        "notes.md",
        "triton/huggingface",
        "triton/notes",
        f"triton/{KEY}/.nfs0000000000a1b2c3",
        f"triton/{OTHER_KEY}",
    }
