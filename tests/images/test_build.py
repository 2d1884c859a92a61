import json
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.build import build_triton
from gkm.images.cache import Format
from gkm.images.extract import Extraction

DATA = Path(__file__).parent.parent / "data"


def test_a_real_triton_cache_becomes_an_image_with_its_targets() -> None:
    built = build_triton(DATA / "triton-cache", "vector-add")
    summary = json.loads(built.labels["cache.triton.image/summary"])
    assert [target["arch"] for target in summary["targets"]] == ["100", "90"]
    assert built.labels["cache.triton.image/entry-count"] == "2"
    size = sum(path.stat().st_size for path in (DATA / "triton-cache").rglob("*") if path.is_file())
    assert built.labels["cache.triton.image/cache-size-bytes"] == str(size)


def test_the_same_files_give_the_same_digest() -> None:
    assert build_triton(DATA / "triton-cache", "x").digest == build_triton(DATA / "triton-cache", "x").digest


def test_what_was_built_is_what_is_extracted(tmp_path: Path) -> None:
    built = build_triton(DATA / "triton-cache", "x")
    layer = json.loads(built.manifest)["layers"][0]["digest"]
    made = Extraction(tmp_path, Format.TRITON, 1 << 30)
    made.layer([built.blobs[layer]])
    original = {p.relative_to(DATA / "triton-cache"): p.read_bytes() for p in (DATA / "triton-cache").rglob("*.*")}
    assert {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.*")} == original


def test_the_dummy_key_is_the_one_that_mcv_wrote(tmp_path: Path) -> None:
    # The metadata and the manifest entry of prior-art/gkm-02-mcv-image-format.md and testdata/mcv; MCV could not ask
    # Triton there, so the key is made of the fields alone.
    kernel = {
        "hash": "6088b9b2e5149e06670bcec5bb3df8c56758f20ec349dd5f77f1507fe7cdf5fa",
        "target": {"backend": "hip", "arch": "gfx90a", "warp_size": 64},
        "num_warps": 4,
        "num_stages": 2,
        "debug": False,
    }
    (tmp_path / "add_kernel.json").write_text(json.dumps(kernel))
    built = build_triton(tmp_path, "x")
    layer = json.loads(built.manifest)["layers"][0]["digest"]
    made = Extraction(tmp_path / "out", Format.TRITON, 1 << 30)
    made.destination.mkdir()
    made.layer([built.blobs[layer]])
    assert json.loads(made.manifest)["triton"] == [
        {
            "hash": "6088b9b2e5149e06670bcec5bb3df8c56758f20ec349dd5f77f1507fe7cdf5fa",
            "dummy_key": "049765a0815d7c5d44f663709bb813c4db6350c0eca7b79e9372d513daa57c58",
            "num_stages": 2,
            "num_warps": 4,
            "backend": "hip",
            "arch": "gfx90a",
            "warp_size": 64,
        }
    ]


def test_a_directory_without_kernels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(GKMError) as caught:
        build_triton(tmp_path, "x")
    assert caught.value.reason is Reason.METADATA_MISSING


def test_a_link_in_a_cache_is_refused(tmp_path: Path) -> None:
    kernel = {"hash": "h", "target": {"backend": "cuda", "arch": 90, "warp_size": 32}}
    (tmp_path / "k.json").write_text(json.dumps(kernel))
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(GKMError) as caught:
        build_triton(tmp_path, "x")
    assert caught.value.reason is Reason.UNSAFE_CONTENT
