import json
from pathlib import Path

import pytest
from support.cli.command import CACHE, KEY, content, gkm
from support.fakes import nvml_library
from support.peers import require
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import sign_bundle

HERE = str(Path(__file__).parent)


def machine(directory: Path, *gpus: nvml_library.Gpu) -> dict[str, str]:
    require.gcc()
    library = nvml_library.build()
    return nvml_library.environment(directory, library=library, gpus=gpus)


def test_inspect_shows_the_image_that_build_pushed(image: str) -> None:
    done = gkm("cache", "inspect", image, "--plain-http", "-o", "json")
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert result["format"] == "triton"
    assert [target["arch"] for target in result["targets"]] == ["100", "90"]
    assert f"@{result['digest']}" in image


def test_people_get_a_table(image: str) -> None:
    done = gkm("cache", "inspect", image, "--plain-http")
    assert "BACKEND" in done.stdout
    assert "cuda" in done.stdout


def test_verify_exits_with_0_or_3(registry_server: Registry, image: str, key: Path) -> None:
    refused = gkm("cache", "verify", image, "--key", key, "--plain-http")
    assert (refused.returncode, refused.stderr) == (3, "")
    assert "no signature was found" in refused.stdout
    sign_bundle(Target(registry_server.host, "team/vector-add"), image.partition("@")[2], KEY)
    accepted = gkm("cache", "verify", image, "--key", key, "--plain-http", "-o", "json")
    assert accepted.returncode == 0
    assert json.loads(accepted.stdout)["verified"] is True


def test_extract_writes_all_original_files_or_nothing(
    registry_server: Registry, image: str, key: Path, tmp_path: Path
) -> None:
    refused = gkm("cache", "extract", image, "--to", tmp_path / "out", "--key", key, "--plain-http")
    assert (refused.returncode, "no signature was found" in refused.stdout) == (3, True), refused
    assert not (tmp_path / "out").exists()
    sign_bundle(Target(registry_server.host, "team/vector-add"), image.partition("@")[2], KEY)
    done = gkm("cache", "extract", image, "--to", tmp_path / "out", "--key", key, "--plain-http", "-o", "json")
    assert done.returncode == 0
    files, out = content(CACHE), tmp_path / "out"
    assert content(out) == files
    assert json.loads(done.stdout)["files"] == len(files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cosign.pub", "out"]
    again = gkm("cache", "extract", image, "--to", out, "--key", key, "--plain-http")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)


def test_check_lists_the_gpus_that_fit(image: str, tmp_path: Path) -> None:
    hopper = machine(tmp_path, nvml_library.H100)
    done = gkm("cache", "check", image, "--plain-http", "-o", "json", env=hopper)
    assert (done.returncode, json.loads(done.stdout)["compatibleGPUs"]) == (0, [{"ids": [0]}])


def test_check_exits_with_3_and_prints_the_reason(image: str, tmp_path: Path) -> None:
    ampere = machine(tmp_path, nvml_library.A100)
    done = gkm("cache", "check", image, "--plain-http", "-o", "json", env=ampere)
    (group,) = json.loads(done.stdout)["incompatibleGPUs"]
    assert (done.returncode, group["reason"]) == (3, "ArchitectureMismatch")
    assert "sm_80" in group["message"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["cache", "inspect", "https://registry.example/x"], 2, "leave out the scheme, such as https://"),
        (["cache", "inspect", "127.0.0.1:1/x", "--plain-http"], 1, "refuses connections"),
        (["cache", "verify", "registry.example/x"], 2, "no signer is named"),
        (
            ["cache", "build", HERE, "--image", "registry.example/x", "--push"],
            1,
            "holds no cache of SGLang, vLLM, TorchInductor, Triton",
        ),
        (["cache", "inspect", "registry.example/x", "--config", "/nowhere"], 1, "No such file"),
        (["cache", "inspect"], 2, "Missing argument"),
        (["cache", "inspect", "x", "-o", "xml"], 2, "xml"),
    ],
)
def test_an_error_is_one_line_with_the_problem(arguments: list[str], code: int, words: str) -> None:
    done = gkm(*arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
