"""vLLM's layouts, from MCV's format and documentation, with real kernels where the format contains some."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly.contents import CacheContents, scan_directory
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format, from_labels
from gkm.images.manifest import Manifest
from gkm.images.pulling.extract import Extraction
from gkm.images.reference import Reference
from msgspec.structs import replace
from support.images.archives import DATA, content
from support.images.builds import build

REF = Reference("registry.example", "cache", None, "sha256:" + "1" * 64)
HASH, OTHER_HASH = "0a1b2c3d4e", "ffeeddccbb"
T4 = GpuTarget("cuda", "75", 32)
FACTORS: dict[str, Any] = {
    "code_hash": "c0de",
    "compiler_hash": "c03b",
    "config_hash": "c0f1",
    "env": {
        "VLLM_TARGET_DEVICE": "cuda",
        "VLLM_MAIN_CUDA_VERSION": "12.9",
        "VLLM_COMPILE_CACHE_SAVE_FORMAT": "binary",
        "A_NUMBER": 8472,
        "A_LIST": [1.5, None, True],
        "A<B": "x&y",
    },
}


def put(root: Path, path: str, data: bytes = b"x") -> Path:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)
    return root


def binary(root: Path, factors: dict[str, Any] | None = None, hashed: str = HASH) -> Path:
    """The binary format, as vLLM saves it."""
    prefix = f"torch_compile_cache/{hashed}/rank_0_0/backbone"
    put(root, f"{prefix}/cache_key_factors.json", json.dumps(FACTORS if factors is None else factors).encode())
    put(root, f"{prefix}/vllm_compile_cache.py", b"{}")
    put(root, f"{prefix}/computation_graph.py")
    put(root, f"{prefix}/artifact_compile_range_1_2048_subgraph_0", b"12345")
    return put(root, f"{prefix}/artifact_compile_range_1_2048_subgraph_1", b"678")


def mega(root: Path, hashed: str = HASH) -> Path:
    return put(root, f"torch_compile_cache/torch_aot_compile/{hashed}/rank_0_0/model", b"model")


def triton_in(root: Path, inside: str) -> Path:
    """Write real kernels to the directory where vLLM stores them."""
    shutil.copytree(DATA / "triton-cache", root / "torch_compile_cache" / inside)
    return root


def seen(root: Path, *stated: GpuTarget, versions: DependencyVersions | None = None) -> CacheContents:
    return scan_directory(root, stated, versions or DependencyVersions())


def targets(found: CacheContents) -> Any:  # noqa: ANN401 -- JSON
    return json.loads(found.labels["cache.vllm.image/summary"])["targets"]


def test_the_binary_format_has_the_documented_manifest(tmp_path: Path) -> None:
    # Structure and order of MCV's manifest.json; maps sorted and <>& escaped as encoding/json does.
    assert seen(binary(tmp_path), T4).manifest.decode() == (
        "{\n"
        '  "vllm": [\n'
        "    {\n"
        f'      "vllmHash": "{HASH}",\n'
        '      "cacheFormat": "binary",\n'
        '      "binary": [\n'
        "        {\n"
        '          "rank": "rank_0_0",\n'
        '          "prefix": "backbone",\n'
        '          "artifact_count": 2,\n'
        '          "artifact_names": [\n'
        '            "artifact_compile_range_1_2048_subgraph_0",\n'
        '            "artifact_compile_range_1_2048_subgraph_1"\n'
        "          ],\n"
        '          "code_hash": "c0de",\n'
        '          "config_hash": "c0f1",\n'
        '          "compiler_hash": "c03b",\n'
        '          "cache_save_format": "binary",\n'
        '          "target_device": "cuda",\n'
        '          "env": {\n'
        '            "A\\u003cB": "x\\u0026y",\n'
        '            "A_LIST": [\n'
        "              1.5,\n"
        "              null,\n"
        "              true\n"
        "            ],\n"
        '            "A_NUMBER": 8472,\n'
        '            "VLLM_COMPILE_CACHE_SAVE_FORMAT": "binary",\n'
        '            "VLLM_MAIN_CUDA_VERSION": "12.9",\n'
        '            "VLLM_TARGET_DEVICE": "cuda"\n'
        "          }\n"
        "        }\n"
        "      ]\n"
        "    }\n"
        "  ]\n"
        "}"
    )


def test_the_binary_format_has_the_documented_labels(tmp_path: Path) -> None:
    found = seen(binary(tmp_path), T4, versions=DependencyVersions.parse(["ptx=590"]))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert found.labels == {
        "cache.vllm.image/entry-count": "1",
        "cache.vllm.image/cache-size-bytes": str(size),
        # The sample of MCV's documentation, word for word.
        "cache.vllm.image/summary": '{"targets":[{"backend":"cuda","arch":"sm_75","warp_size":32,'
        '"ptx_version":590,"cuda_version":"12.9"}]}',
        "cache.vllm.image/format": "binary",
        "io.kserve.km/framework": "vllm",
        "io.kserve.km/cache-type": "torch-compile",
        "io.kserve.km/cache-hash": HASH,
        "io.kserve.km/cache-mount-subpath": "torch_compile_cache",
        "io.kserve.km/cache-root-env": "VLLM_CACHE_ROOT=/home/kserve/.cache/vllm",
    }


def test_artifacts_that_are_directories_are_called_unpacked(tmp_path: Path) -> None:
    binary(tmp_path, hashed=HASH)
    prefix = f"torch_compile_cache/{OTHER_HASH}/rank_0_0/backbone"
    put(tmp_path, f"{prefix}/cache_key_factors.json", json.dumps(FACTORS).encode())
    put(tmp_path, f"{prefix}/artifact_compile_range_1_2_subgraph_0/kernel.py")
    stated = json.loads(seen(tmp_path, T4).manifest)["vllm"]
    assert [entry["binary"][0]["cache_save_format"] for entry in stated] == ["binary", "unpacked"]
    assert stated[1]["binary"][0]["artifact_count"] == 1


def test_a_mega_aot_bundle_is_listed_as_binary_without_hashes(tmp_path: Path) -> None:
    found = seen(mega(tmp_path), T4)
    bundle = {
        "rank": "rank_0_0",
        "prefix": "",
        "artifact_count": 1,
        "artifact_names": ["model"],
        "cache_save_format": "mega-aot",
    }
    assert json.loads(found.manifest) == {"vllm": [{"vllmHash": HASH, "cacheFormat": "binary", "binary": [bundle]}]}
    assert found.labels["io.kserve.km/cache-mount-subpath"] == "torch_compile_cache/torch_aot_compile"
    assert targets(found) == [{"backend": "cuda", "arch": "sm_75", "warp_size": 32}]


def test_both_forms_together_are_counted_and_listed_by_their_hashes(tmp_path: Path) -> None:
    found = seen(mega(binary(tmp_path), OTHER_HASH), T4)
    assert found.labels["cache.vllm.image/entry-count"] == "2"
    assert found.labels["io.kserve.km/cache-hash"] == f"{HASH},{OTHER_HASH}"


def test_triton_in_vllm_lists_its_kernels_as_triton_alone_would(tmp_path: Path) -> None:
    put(tmp_path, f"torch_compile_cache/{HASH}/rank_0_0/inductor_cache/aa/graph.py")
    found = seen(triton_in(tmp_path, f"{HASH}/rank_0_0/triton_cache"))
    alone = scan_directory(DATA / "triton-cache", (), DependencyVersions())
    (entry,) = json.loads(found.manifest)["vllm"]
    assert (entry["vllmHash"], entry["cacheFormat"]) == (HASH, "triton")
    assert entry["triton"] == json.loads(alone.manifest)["triton"]
    assert found.labels["cache.vllm.image/format"] == "triton"
    assert found.labels["cache.vllm.image/summary"] == alone.labels["cache.triton.image/summary"]


def test_triton_kernels_name_the_gpu_if_no_artifact_does(tmp_path: Path) -> None:
    triton_in(mega(tmp_path), f"torch_aot_compile/{HASH}/inductor_cache/triton")
    assert [target["arch"] for target in targets(seen(tmp_path))] == ["sm_100", "sm_90"]


def test_the_variable_that_mcv_reads_names_the_gpu_if_no_kernel_does(tmp_path: Path) -> None:
    factors = {"env": {"VLLM_TARGET_DEVICE": "rocm", "VLLM_PAGED_ATTN_ARCH": "gfx942"}}
    # MCV's "rocm" is no backend of any GPU: preflight knows it as hip.
    assert targets(seen(binary(tmp_path, factors))) == [{"backend": "hip", "arch": "gfx942", "warp_size": 64}]


@pytest.mark.parametrize(
    ("stated", "words"),
    [((), "does not say which GPU"), ((T4, GpuTarget("cuda", "90", 32)), "2 kinds of GPU")],
)
def test_without_a_known_gpu_the_build_invents_no_label(
    tmp_path: Path, stated: tuple[GpuTarget, ...], words: str
) -> None:
    with pytest.raises(GKMError, match=words) as caught:
        seen(binary(tmp_path), *stated)
    assert caught.value.reason is Reason.METADATA_MISSING


def test_a_directory_with_both_is_detected_as_vllm(tmp_path: Path) -> None:
    shutil.copytree(DATA / "triton-cache", tmp_path / "triton")
    assert seen(binary(tmp_path)).format is Format.VLLM


def test_marks_of_vllm_without_its_directory_leave_it_a_triton_cache(tmp_path: Path) -> None:
    shutil.copytree(DATA / "triton-cache", tmp_path / "inductor_cache")
    assert seen(tmp_path).format is Format.TRITON


@pytest.mark.parametrize(
    "factors",
    [
        b"",
        b"[]",
        b"{",
        b'{"code_hash":7}',
        b'{"code_hash":"' + b"0" * 2000 + b'"}',
        b'{"env":[]}',
        b'{"env":{"A":1e999}}',
        b'{"env":{"A":' + b"[" * 40 + b"]" * 40 + b"}}",
        b'{"env":{"A":' + b"[" * 100_000,
    ],
)
def test_a_component_whose_factors_cannot_be_read_is_not_listed(tmp_path: Path, factors: bytes) -> None:
    binary(tmp_path)
    binary(tmp_path, hashed=OTHER_HASH)
    put(tmp_path, f"torch_compile_cache/{OTHER_HASH}/rank_0_0/backbone/cache_key_factors.json", factors)
    found = seen(tmp_path, T4)
    assert [entry["vllmHash"] for entry in json.loads(found.manifest)["vllm"]] == [HASH]
    assert found.labels["cache.vllm.image/entry-count"] == "2"  # as MCV counts: directories


def test_a_cache_that_vllm_has_not_finished_is_refused(tmp_path: Path) -> None:
    put(tmp_path, f"torch_compile_cache/{HASH}/rank_0_0/backbone/vllm_compile_cache.py")
    with pytest.raises(GKMError, match="no compiled model") as caught:
        seen(tmp_path, T4)
    assert caught.value.reason is Reason.METADATA_MISSING


def test_gkm_describes_and_extracts_the_image_that_it_built(tmp_path: Path) -> None:
    binary(tmp_path / "cache")
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    image = build(tmp_path / "cache", "x", tmp_path / "work", stated=[T4])
    described = from_labels(REF, Manifest.from_bytes(image.manifest, image.media_type).image(), image.labels)
    assert (described.formats, described.entry_count) == ((Format.VLLM,), 1)
    assert described.targets == (replace(T4, cuda_version="12.9"),)
    made = Extraction(tmp_path / "out", [Format.VLLM], 1 << 20)
    made.layer([content(image.blobs[1])])
    assert made.size_bytes == described.size_bytes
    assert json.loads(made.manifest)["vllm"][0]["vllmHash"] == HASH
