"""`gkm cache build`, `push` and `inspect`: images from caches, in a registry and as files."""

import json
from pathlib import Path

import pytest
from support.cli.command import CACHE, content, gkm, pushed
from support.images.directories import component, kernel
from support.registry.server import Registry
from support.registry.store import OCI_EMPTY, OCI_MANIFEST, digest_of

KERNELS = sorted(
    json.loads(path.read_text())["hash"] for path in CACHE.rglob("*.json") if not path.name.startswith("__grp__")
)


@pytest.mark.parametrize("form", ["oci", "docker-archive"])
def test_a_written_image_can_be_pushed_and_is_the_same_cache(
    registry_server: Registry, tmp_path: Path, form: str
) -> None:
    built = gkm("cache", "build", CACHE, "--image", "x.example/team/llama:1", "--to", f"{form}:{tmp_path}/image")
    assert built.returncode == 0, built.stderr
    ref = f"{registry_server.host}/team/{form}:1"
    done = gkm("cache", "push", tmp_path / "image", ref, "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["image"] == ref
    refused = gkm("cache", "extract", ref, "--to", tmp_path / "out", "--policy", off(tmp_path), "--plain-http")
    assert refused.returncode == 0, refused.stderr
    assert content(tmp_path / "out") == content(CACHE)


def off(directory: Path) -> Path:
    path = directory / "policy.yaml"
    path.write_text("mode: off\n")
    return path


def test_a_layout_has_the_digest_that_was_printed(tmp_path: Path) -> None:
    built = gkm("cache", "build", CACHE, "--image", "x.example/a:1", "--to", f"oci:{tmp_path}/image", "-o", "json")
    index = json.loads((tmp_path / "image" / "index.json").read_text())
    assert [entry["digest"] for entry in index["manifests"]] == [json.loads(built.stdout)["digest"]]


def test_a_layout_is_pushed_with_the_artifacts_beside_its_image(registry_server: Registry, tmp_path: Path) -> None:
    layout, ref = tmp_path / "image", f"{registry_server.host}/team/beside:1"
    gkm("cache", "build", CACHE, "--image", ref, "--to", f"oci:{layout}")
    index = json.loads((layout / "index.json").read_text())
    (subject,) = index["manifests"]
    note = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "artifactType": "application/x.note", "subject": subject}
    note |= {"config": _stored(layout, b"{}", OCI_EMPTY), "layers": [_stored(layout, b"a note", "text/plain")]}
    index["manifests"].append(_stored(layout, json.dumps(note).encode(), OCI_MANIFEST))
    (layout / "index.json").write_text(json.dumps(index))
    done = gkm("cache", "push", layout, ref, "--plain-http", "-o", "json")
    attached = [{"digest": index["manifests"][1]["digest"], "subject": subject["digest"]}]
    assert json.loads(done.stdout) == {"image": ref, "digest": subject["digest"], "attached": attached}
    again = gkm("cache", "push", layout, ref, "--plain-http")
    assert again.stdout.strip().endswith(f"{subject['digest']} pushed with 1 artifact attached")


def _stored(layout: Path, data: bytes, media_type: str) -> dict[str, object]:
    digest = digest_of(data)
    (layout / "blobs" / "sha256" / digest.partition(":")[2]).write_bytes(data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "image").write_text("mine")
    done = gkm("cache", "build", CACHE, "--image", "x.example/a:1", "--to", f"docker-archive:{tmp_path}/image")
    assert (done.returncode, (tmp_path / "image").read_text()) == (2, "mine")
    assert done.stderr.startswith("error: ")


def test_dependency_versions_are_in_the_labels(registry_server: Registry) -> None:
    ref = f"{registry_server.host}/team/versions:1"
    versions = ["--dependency-version", "triton=3.5.1", "--dependency-version", "cuda=12.9"]
    built = gkm("cache", "build", CACHE, "--image", ref, *versions, "--push", "-o", "json")
    labels = json.loads(built.stdout)["labels"]
    assert labels["gkm.io/dependency-version.triton"] == "3.5.1"
    summary = json.loads(labels["cache.triton.image/summary"])
    assert {target["cuda_version"] for target in summary["targets"]} == {"12.9"}
    shown = json.loads(gkm("cache", "inspect", ref, "--plain-http", "-o", "json").stdout)
    assert {target["cudaVersion"] for target in shown["targets"]} == {"12.9"}


def test_labels_describe_the_content_without_fetching_it(registry_server: Registry, image: str) -> None:
    registry_server.requests.clear()
    result = json.loads(gkm("cache", "inspect", image, "--plain-http", "-o", "json").stdout)
    assert (result["entryCount"], result["files"]) == (2, None)
    assert {(entry["arch"], entry["hash"]) for entry in result["entries"]} == {("90", None), ("100", None)}
    assert len([request for request in registry_server.requests if "/blobs/" in request.path]) == 1  # the configuration


def test_every_entry_is_listed_on_demand(image: str) -> None:
    result = json.loads(gkm("cache", "inspect", image, "--entries", "--plain-http", "-o", "json").stdout)
    assert sorted(entry["hash"] for entry in result["entries"]) == KERNELS
    assert result["files"] == len(content(CACHE))
    assert all(entry["dummyKey"] for entry in result["entries"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["cache", "build", CACHE, "--image", "x.example/a:1", "--to", "tar:x"],
            2,
            "write oci:PATH or docker-archive:",
        ),
        (
            ["cache", "build", CACHE, "--image", "x.example/a:1", "--push", "--dependency-version", "x"],
            1,
            "is not name=version",
        ),
        (["cache", "push", "/nowhere", "x.example/a:1"], 1, "/nowhere does not exist"),
        (["cache", "push", __file__, "x.example/a:1"], 1, "is no OCI layout and no docker-archive"),
    ],
)
def test_mistakes_are_errors_of_one_line(arguments: list[object], code: int, words: str) -> None:
    done = gkm(*arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_images_of_one_cache_share_a_digest(registry_server: Registry) -> None:
    assert pushed(registry_server, "same").partition("@")[2] == pushed(registry_server, "same").partition("@")[2]


def test_several_caches_in_one_image_are_shown_each_with_its_variable(
    registry_server: Registry, tmp_path: Path
) -> None:
    component(tmp_path / "vllm")
    kernel(tmp_path / "kernels")
    ref = f"{registry_server.host}/team/several:1"
    built = gkm("cache", "build", tmp_path / "vllm", tmp_path / "kernels", "--image", ref, "--push", "--plain-http")
    assert (built.returncode, built.stderr) == (0, "")
    shown = json.loads(gkm("cache", "inspect", ref, "--entries", "--plain-http", "-o", "json").stdout)
    assert (shown["format"], shown["entryCount"], shown["files"]) == ("vllm-triton", 2, 6)
    assert [(each["directory"], each["variables"], each["entryCount"]) for each in shown["caches"]] == [
        ("vllm", ["VLLM_CACHE_ROOT"], 1),
        ("triton", ["TRITON_CACHE_DIR"], 1),
    ]
    assert [entry["form"] for entry in shown["entries"]] == ["binary", "triton"]
    printed = gkm("cache", "inspect", ref, "--plain-http").stdout
    assert "TRITON_CACHE_DIR" in printed
