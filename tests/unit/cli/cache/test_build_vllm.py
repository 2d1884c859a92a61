"""`gkm cache build` of vLLM caches: the GPU in the label, on a machine with other GPUs and on one without."""

import gzip
import json
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.fakes import nvml_library
from support.images.vllm import CONFIG, binary, properties, ptx
from support.peers import require
from support.registry.server import Registry

SM_75 = {"backend": "cuda", "arch": "sm_75", "warp_size": 32}
IMAGE = "registry.example/team/caches/llama:1"


def to(directory: Path) -> tuple[str, str]:
    """Return where the image goes: to a place that is not there yet."""
    return "--to", f"oci:{directory / 'made'}"


def hopper(directory: Path) -> dict[str, str]:
    require.gcc()
    library = nvml_library.build()
    return nvml_library.environment(directory, library=library, gpus=[nvml_library.H100])


def targets(stdout: str) -> object:
    return json.loads(json.loads(stdout)["labels"]["cache.vllm.image/summary"])["targets"]


def test_a_cache_for_sm_75_built_on_an_h100_is_labeled_sm_75_and_does_not_fit_there(
    registry_server: Registry, tmp_path: Path
) -> None:
    environment = hopper(tmp_path)
    cache = binary(tmp_path / "cache", CONFIG + ptx("75") * 24 + properties("75"), CONFIG + ptx("75") * 48)
    ref = f"{registry_server.host}/team/llama:1"
    built = gkm("cache", "build", cache, "--image", ref, "--push", "--plain-http", "-o", "json", env=environment)
    assert (built.returncode, targets(built.stdout)) == (0, [SM_75])
    checked = gkm("cache", "check", ref, "--plain-http", "-o", "json", env=environment)
    assert checked.returncode == 3
    assert json.loads(checked.stdout)["incompatibleGPUs"][0]["reason"] == "ArchitectureMismatch"


def test_a_machine_without_a_gpu_builds_a_cache_whose_artifacts_name_the_gpu(tmp_path: Path) -> None:
    built = gkm("cache", "build", binary(tmp_path, ptx("75")), "--image", IMAGE, *to(tmp_path), "-o", "json")
    assert (built.returncode, targets(built.stdout)) == (0, [SM_75])


def test_the_gpu_of_the_building_machine_is_not_used(tmp_path: Path) -> None:
    environment = hopper(tmp_path)
    built = gkm(
        "cache", "build", binary(tmp_path / "cache"), "--image", IMAGE, *to(tmp_path), "-o", "json", env=environment
    )
    assert (built.returncode, built.stdout) == (1, "")
    assert "--gpu cuda:75:32" in built.stderr


@pytest.mark.parametrize("gpu", ["cuda:75:32", "cuda:sm_75:32"])
def test_an_option_names_the_gpu_if_the_artifacts_do_not(tmp_path: Path, gpu: str) -> None:
    built = gkm("cache", "build", binary(tmp_path), "--image", IMAGE, *to(tmp_path), "--gpu", gpu, "-o", "json")
    assert (built.returncode, targets(built.stdout)) == (0, [SM_75])


def test_vllms_word_for_amd_becomes_tritons(tmp_path: Path) -> None:
    built = gkm(
        "cache", "build", binary(tmp_path), "--image", IMAGE, *to(tmp_path), "--gpu", "rocm:gfx942:64", "-o", "json"
    )
    assert (built.returncode, targets(built.stdout)) == (0, [{"backend": "hip", "arch": "gfx942", "warp_size": 64}])


def test_a_file_of_the_compiling_machine_names_the_gpu(tmp_path: Path) -> None:
    detected = gkm("node", "detect", "-o", "json", env=hopper(tmp_path))
    file = tmp_path / "gpus.json"
    file.write_text(detected.stdout)
    built = gkm(
        "cache", "build", binary(tmp_path / "cache"), "--image", IMAGE, *to(tmp_path), "--gpus", file, "-o", "json"
    )
    assert (built.returncode, targets(built.stdout)) == (0, [{"backend": "cuda", "arch": "sm_90", "warp_size": 32}])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpu", "cuda"], "--gpu 'cuda'"),
        (["--gpu", "cuda:75"], "BACKEND:ARCH:WARP"),
        (["--gpu", "cuda:75:0"], "--gpu"),
        (["--gpu", "cuda:gfx90a:64"], "--gpu"),
        (["--gpu", "cuda:75:²"], "--gpu"),
        (["--gpu", "cuda:75:32", "--gpus", "GPUS"], "--gpu and --gpus"),
        (["--gpus", "TWO"], "2 kinds of GPU"),
        (["--gpus", "NONE"], "lists no usable GPU"),
        (["--gpus", "/nowhere"], "/nowhere"),
    ],
)
def test_a_gpu_that_cannot_be_meant_is_a_wrong_command_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    one = {"ids": [0], "backend": "cuda", "arch": "75", "warpSize": 32}
    (tmp_path / "GPUS").write_text(json.dumps({"gpus": [one]}))
    (tmp_path / "TWO").write_text(json.dumps({"gpus": [one, {**one, "ids": [1], "arch": "90"}]}))
    (tmp_path / "NONE").write_text(json.dumps({"gpus": []}))
    named = [str(tmp_path / word) if (tmp_path / word).is_file() else word for word in arguments]
    done = gkm("cache", "build", binary(tmp_path / "cache"), "--image", IMAGE, *to(tmp_path), *named)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_stated_gpu_that_the_artifacts_contradict_is_refused(tmp_path: Path) -> None:
    done = gkm("cache", "build", binary(tmp_path, ptx("75")), "--image", IMAGE, *to(tmp_path), "--gpu", "cuda:90:32")
    assert (done.returncode, done.stdout) == (1, "")
    assert "sm_75" in done.stderr
    assert "sm_90" in done.stderr


def test_a_secret_of_the_compiling_machine_causes_a_warning_and_is_not_in_the_image(tmp_path: Path) -> None:
    cache = binary(tmp_path / "cache", ptx("75"), env={"VLLM_API_KEY": "sk-0123456789"})
    done = gkm("cache", "build", cache, "--image", IMAGE, "--to", f"oci:{tmp_path / 'image'}")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: ")
    assert (done.stderr.count("\n"), "VLLM_API_KEY" in done.stderr) == (1, True)
    blobs = [path.read_bytes() for path in (tmp_path / "image").rglob("*") if path.is_file()]
    unpacked = b"".join(gzip.decompress(blob) if blob[:2] == b"\x1f\x8b" else blob for blob in blobs)
    assert b"cache_key_factors.json" in unpacked
    assert b"sk-0123456789" not in unpacked
