"""A directory of TorchInductor becomes an image of its own format; its pickles and code are never loaded."""

import json
import os
import pickle
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly.contents import CacheContents, scan_directory
from gkm.images.assembly.versions import DependencyVersions, stated_versions
from gkm.images.cache import Format
from gkm.images.cache_entries import CacheEntry, entries_in
from support.images.builds import build
from support.images.inductor import AUTOGRAD, GRAPH, artifact_file, directory, graph, system
from support.images.vllm import CONFIG, binary, properties, put

H100, A100 = GpuTarget("cuda", "90", 32), GpuTarget("cuda", "80", 32)
SM_90 = {"backend": "cuda", "arch": "90", "warp_size": 32, "cuda_version": "13.2"}


def scanned(root: Path, *stated: GpuTarget) -> CacheContents:
    return scan_directory(root, stated, DependencyVersions())


def targets(root: Path, *stated: GpuTarget) -> list[dict[str, object]]:
    return list(json.loads(scanned(root, *stated).labels["cache.inductor.image/summary"])["targets"])


def refusal(root: Path, *stated: GpuTarget) -> GKMError:
    with pytest.raises(GKMError) as caught:
        scanned(root, *stated)
    return caught.value


def test_a_directory_with_graphs_is_an_inductor_cache_with_its_entries(tmp_path: Path) -> None:
    contents = scanned(directory(tmp_path))
    assert contents.format is Format.INDUCTOR
    assert contents.labels["cache.inductor.image/entry-count"] == "3"
    assert [(entry.form, entry.hash) for entry in entries_in(contents.manifest)] == [
        ("aotautograd", AUTOGRAD),
        ("fxgraph", GRAPH),
        ("triton", "ab" * 32),
    ]
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert contents.labels["cache.inductor.image/cache-size-bytes"] == str(size)


def test_its_labels_are_not_those_of_a_format_of_mcv(tmp_path: Path) -> None:
    labels = scanned(directory(tmp_path)).labels
    assert {label.partition("/")[0] for label in labels} == {"cache.inductor.image"}


def test_graphs_state_gpu_and_cuda_and_kernels_state_triton(tmp_path: Path) -> None:
    contents = scanned(directory(tmp_path))
    assert json.loads(contents.labels["cache.inductor.image/summary"])["targets"] == [SM_90]
    assert contents.triton == "3.9.0"


def test_the_image_states_the_version_of_triton(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    versions = DependencyVersions.parse(["torch=2.15.0"])
    built = build(directory(tmp_path / "cache"), "model", tmp_path / "work", versions=versions)
    assert stated_versions(built.labels) == {"torch": "2.15.0", "triton": "3.9.0"}


def test_another_version_of_triton_than_that_of_the_kernels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(GKMError, match=r"of Triton 3\.9\.0, but triton=3\.8\.0 is stated") as caught:
        build(
            directory(tmp_path / "cache"),
            "model",
            tmp_path / "work",
            versions=DependencyVersions.parse(["triton=3.8.0"]),
        )
    assert caught.value.reason is Reason.METADATA_INVALID


def test_a_graph_without_kernels_names_its_gpu(tmp_path: Path) -> None:
    put(tmp_path, f"fxgraph/{GRAPH[1:3]}/{GRAPH}/x", graph("75", cuda=None))
    assert targets(tmp_path) == [{"backend": "cuda", "arch": "75", "warp_size": 32}]


def test_kernels_name_the_gpu_where_graphs_do_not(tmp_path: Path) -> None:
    assert targets(directory(tmp_path, CONFIG)) == [{"backend": "cuda", "arch": "90", "warp_size": 32}]


def test_a_graph_for_amd(tmp_path: Path) -> None:
    put(tmp_path, f"fxgraph/{GRAPH[1:3]}/{GRAPH}/x", CONFIG + properties("'gfx942'", "hip"))
    assert targets(tmp_path) == [{"backend": "hip", "arch": "gfx942", "warp_size": 64}]


def test_a_cache_for_processors_needs_a_stated_gpu(tmp_path: Path) -> None:
    put(tmp_path, f"fxgraph/{GRAPH[1:3]}/{GRAPH}/x", CONFIG + system("None", None))
    error = refusal(tmp_path)
    assert error.reason is Reason.METADATA_MISSING
    assert "--gpu" in str(error)
    assert targets(tmp_path, H100) == [{"backend": "cuda", "arch": "90", "warp_size": 32}]


@pytest.mark.parametrize("other", ["aotautograd", "code", "kernel", "stated"])
def test_parts_for_two_gpus_are_refused(tmp_path: Path, other: str) -> None:
    directory(tmp_path)
    match other:
        case "aotautograd":
            put(tmp_path, f"aotautograd/{AUTOGRAD}/other", graph("80"))
        case "code":
            put(tmp_path, f"ab/cab{'x' * 49}.py", properties("80"))
        case "kernel":
            kernel = {"hash": "h", "target": {"backend": "cuda", "arch": 80, "warp_size": 32}}
            put(tmp_path, "triton/1/KEY/mul.json", json.dumps(kernel).encode())
    error = refusal(tmp_path, *([A100] if other == "stated" else []))
    assert error.reason is Reason.METADATA_INVALID
    assert "80" in error.message


def test_the_version_of_cuda_is_found_across_two_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkm.images.assembly.tree.PIECE_BYTES", 7)
    assert targets(directory(tmp_path)) == [SM_90]


def test_a_file_of_artifacts_is_a_cache_of_its_own(tmp_path: Path) -> None:
    data = artifact_file({"inductor": [("fone", graph("90"))], "aot_autograd": [("aone", b"")]})
    contents = scanned(put(tmp_path, "model.artifacts", data))
    assert contents.format is Format.INDUCTOR
    assert json.loads(contents.labels["cache.inductor.image/summary"])["targets"] == [SM_90]
    assert entries_in(contents.manifest) == [CacheEntry("inductor", "fone"), CacheEntry("aot_autograd", "aone")]
    assert {entry["file"] for entry in json.loads(contents.manifest)["inductor"]} == {"model.artifacts"}


def test_a_damaged_file_of_artifacts_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "model.artifacts", artifact_file({"inductor": [("fone", graph("90"))]})[:-1])
    error = refusal(tmp_path)
    assert error.reason is Reason.METADATA_INVALID
    assert "model.artifacts" in error.message
    assert "cut off" in error.message


def test_all_files_of_artifacts_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkm.images.assembly.inductor.MAX_ARTIFACTS", 3)
    put(tmp_path, "a.artifacts", artifact_file({"inductor": [("fone", graph("90")), ("ftwo", b"")]}))
    put(tmp_path, "b.artifacts", artifact_file({"inductor": [("fone", graph("90"))]}))
    assert len(entries_in(scanned(tmp_path).manifest)) == 3
    put(tmp_path, "c.artifacts", artifact_file({"inductor": [("fone", graph("90"))]}))
    error = refusal(tmp_path)
    assert "c.artifacts" in error.message
    assert "at most 0" in error.message


def test_a_file_with_many_versions_of_cuda_states_a_few(tmp_path: Path) -> None:
    versions = b"".join(system(cuda=f"{major}.{minor}") for major in range(10, 99) for minor in range(10))
    assert len(targets(directory(tmp_path, graph() + versions))) == 8


def test_a_pickle_is_content_and_is_not_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "loaded"),)

    bomb = pickle.dumps(Bomb())
    cache = directory(tmp_path / "cache", graph() + bomb)
    put(cache, "model.artifacts", artifact_file({"inductor": [("fone", bomb)]}))
    put(cache, f"ab/cab{'x' * 49}.py", f"import os; os.mkdir({str(tmp_path / 'loaded')!r})".encode())
    assert scanned(cache).format is Format.INDUCTOR
    assert not (tmp_path / "loaded").exists()
    pickle.loads(bomb)  # noqa: S301 -- shows that loading would have left a mark
    assert (tmp_path / "loaded").exists()


def test_vllms_directory_with_graphs_inside_is_vllms(tmp_path: Path) -> None:
    binary(tmp_path)
    put(tmp_path, f"torch_compile_cache/0a1b2c3d4e/rank_0_0/inductor_cache/fxgraph/qh/{GRAPH}/x", graph("90"))
    assert scanned(tmp_path, H100).format is Format.VLLM


def test_kernels_below_triton_without_graphs_are_a_triton_cache_as_for_mcv(tmp_path: Path) -> None:
    cache = directory(tmp_path)
    for top in ("fxgraph", "aotautograd"):
        for path in sorted((cache / top).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    assert scanned(cache).format is Format.TRITON
