"""Images that MCV built from the project's caches: GKM extracts them byte for byte, and describes them as MCV does."""

import json
import tarfile
from pathlib import Path

import pytest
from gkm.images.archives.docker_archive import open_archive
from gkm.images.assembly.contents import CacheContents, scan_directory
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format
from gkm.images.local_image import LocalImage
from gkm.images.pulling.extract import Extraction
from support.images.archives import content
from support.images.mcv_built import CACHES, IMAGES, archive

NAMES = sorted(CACHES)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def theirs(name: str, work: Path) -> LocalImage:
    (work / "theirs").mkdir()
    return open_archive(archive(name, work), work / "theirs")


def ours(name: str, work: Path) -> CacheContents:
    (work / "ours").mkdir()
    return scan_directory(CACHES[name](work / "ours"), (), DependencyVersions())


def extracted(name: str, work: Path) -> Extraction:
    (work / "out").mkdir()
    extraction = Extraction(work / "out", [Format(name.partition("-")[0])], 1 << 20)
    extraction.layer([content(theirs(name, work).blobs[1])])
    return extraction


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_extracted_unchanged(name: str, tmp_path: Path) -> None:
    extraction = extracted(name, tmp_path)
    (tmp_path / "made").mkdir()
    made = files(CACHES[name](tmp_path / "made"))
    assert made
    assert files(extraction.destination) == made
    assert extraction.size_bytes == sum(map(len, made.values()))


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_of_the_same_cache_is_the_same(name: str, tmp_path: Path) -> None:
    assert ours(name, tmp_path).manifest == extracted(name, tmp_path).manifest


@pytest.mark.parametrize("name", NAMES)
def test_the_labels_of_the_same_cache_are_the_same_but_for_the_gpu_of_a_binary_one(name: str, tmp_path: Path) -> None:
    labels = dict(theirs(name, tmp_path).labels)
    assert labels.pop("org.opencontainers.image.title") == name
    own = dict(ours(name, tmp_path).labels)
    if name == "vllm-binary":
        # No file of the cache names sm_75: MCV writes it where it finds no GPU. The artifacts name sm_90.
        summary = "cache.vllm.image/summary"
        (stated,), (found,) = (json.loads(each.pop(summary))["targets"] for each in (labels, own))
        assert (stated.pop("arch"), found.pop("arch")) == ("sm_75", "sm_90")
        assert stated == found
    assert own == labels


def test_no_other_image_is_in_the_file() -> None:
    with tarfile.open(IMAGES) as images:
        assert sorted(images.getnames()) == [f"{name}.docker-archive.tar" for name in NAMES]
