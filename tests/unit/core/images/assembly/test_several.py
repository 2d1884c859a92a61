"""Several caches become one image: each with its labels, in a directory of its runtime's name."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly.image import pack
from gkm.images.assembly.several import ScannedCaches, scan_caches
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import CacheImage, Format, from_labels
from gkm.images.cache_entries import entries_in
from gkm.images.local_image import LocalImage
from gkm.images.manifest import Descriptor, ImageManifest
from gkm.images.pulling.extract import Extraction
from gkm.images.reference import Reference
from gkm.runtimes.layout import FileKind
from support.images.archives import content
from support.images.directories import KEY, OTHER_KEY, RANK, component, graphs, kernel
from support.images.vllm import put

VERSIONS = DependencyVersions()
REF = Reference("registry.example", "cache", None, "sha256:" + "1" * 64)
MANIFEST = ImageManifest(
    2, Descriptor("c", "sha256:" + "2" * 64, 10), [Descriptor("l", "sha256:" + "3" * 64, 100)], "m"
)
GROUP = f"{KEY}/__grp__fwd.json"
FILES = {GROUP, f"{KEY}/fwd.json", f"{KEY}/fwd.cubin"}


def scanned(*directories: Path, all_files: bool = False) -> ScannedCaches:
    return scan_caches(directories, (), VERSIONS, all_files=all_files)


def built(scanned: ScannedCaches, work: Path) -> LocalImage:
    work.mkdir()
    return pack(scanned.caches, "x", work, versions=VERSIONS)


def described(image: LocalImage) -> CacheImage:
    return from_labels(REF, MANIFEST, image.labels)


def extracted(image: LocalImage, directory: Path, formats: Sequence[Format]) -> Extraction:
    directory.mkdir()
    made = Extraction(directory, formats, 1 << 20)
    made.layer([content(image.blobs[1])])
    return made


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def pod_root(root: Path) -> Path:
    """Write the root of a pod with one directory for each runtime."""
    component(root / "vllm")
    kernel(root / "triton")
    return root


def refusal(*directories: Path) -> GKMError:
    with pytest.raises(GKMError) as caught:
        scanned(*directories)
    return caught.value


def test_a_root_with_a_directory_of_each_runtime_becomes_one_image(tmp_path: Path) -> None:
    image = built(scanned(pod_root(tmp_path / "root")), tmp_path / "work")
    found = described(image)
    assert (found.formats, found.runtime) == ((Format.VLLM, Format.TRITON), "vllm-triton")
    assert found.targets == (GpuTarget("cuda", "90", 32, 0, "13.0"),)
    made = extracted(image, tmp_path / "out", found.formats)
    assert {path for path in files(made.destination) if path.startswith("triton/")} == {
        f"triton/{path}" for path in FILES
    }
    assert f"vllm/{RANK}/backbone/vllm_compile_cache.py" in files(made.destination)
    assert found.size_bytes == made.size_bytes
    forms = [entry.form for manifest in made.manifests.values() for entry in entries_in(manifest)]
    assert (forms, found.entry_count) == (["binary", "triton"], 2)


def test_directories_with_any_names_become_the_same_image(tmp_path: Path) -> None:
    root = pod_root(tmp_path / "root")
    component(tmp_path / "a")
    kernel(tmp_path / "b")
    one = built(scanned(root), tmp_path / "one")
    assert built(scanned(tmp_path / "b", tmp_path / "a"), tmp_path / "two").digest == one.digest


def test_each_cache_has_the_members_and_labels_of_an_image_of_its_own(tmp_path: Path) -> None:
    """Programs that know one of the formats, as MCV does, read that cache as they read one alone."""
    several = built(scanned(pod_root(tmp_path / "root")), tmp_path / "work")
    for kind in (Format.VLLM, Format.TRITON):
        alone = built(scanned(tmp_path / "root" / kind.value), tmp_path / f"{kind.value}-work")
        in_both = extracted(several, tmp_path / f"{kind.value}-in-both", [kind])
        in_one = extracted(alone, tmp_path / f"{kind.value}-alone", [kind])
        assert (files(in_both.destination), in_both.manifest) == (files(in_one.destination), in_one.manifest)
        expected = {label: text for label, text in alone.labels.items() if label != kind.count_label}
        assert expected.items() <= several.labels.items()


def test_a_gkm_of_one_cache_finds_no_number_of_entries_and_refuses(tmp_path: Path) -> None:
    image = built(scanned(pod_root(tmp_path / "root")), tmp_path / "work")
    as_before = {label: text for label, text in image.labels.items() if label != "gkm.io/caches"}
    with pytest.raises(GKMError, match="'1, one of several caches: vllm-triton', not a number"):
        from_labels(REF, MANIFEST, as_before)


def test_kernels_beside_a_vllm_cache_are_a_second_cache(tmp_path: Path) -> None:
    """A pod whose two variables name the path and a directory in it leaves this."""
    component(tmp_path / "root")
    kernel(tmp_path / "root/triton")
    found = scanned(tmp_path / "root")
    assert [cache.format for cache in found.caches] == [Format.VLLM, Format.TRITON]
    assert not found.caches[0].left_out.kinds
    image = built(found, tmp_path / "work")
    component(tmp_path / "apart/vllm")
    kernel(tmp_path / "apart/triton")
    assert image.digest == built(scanned(tmp_path / "apart"), tmp_path / "other").digest


def test_all_files_of_a_cache_do_not_repeat_the_one_inside(tmp_path: Path) -> None:
    component(tmp_path)
    kernel(tmp_path / "triton")
    put(tmp_path, "notes.md")
    vllm, triton = scanned(tmp_path, all_files=True).caches
    assert vllm.selection.kind_of("triton", is_directory=True) is FileKind.OTHER_CACHE
    assert vllm.size_bytes + triton.size_bytes == sum(
        path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()
    )


def test_the_kernels_inside_of_torchinductor_are_no_second_cache(tmp_path: Path) -> None:
    graphs(tmp_path, ".")
    kernel(tmp_path, "triton/0")
    assert [cache.format for cache in scanned(tmp_path).caches] == [Format.INDUCTOR]


def test_what_stands_beside_the_caches_is_told(tmp_path: Path) -> None:
    pod_root(tmp_path)
    put(tmp_path, "huggingface/hub/model.safetensors")
    put(tmp_path, ".netrc", b"machine example.test login a password b\n")
    beside = scanned(tmp_path).beside.kinds
    assert {kind: found.examples for kind, found in beside.items()} == {
        FileKind.SECRET: [".netrc"],
        FileKind.FOREIGN: ["huggingface"],
    }


def test_a_name_alone_makes_no_cache(tmp_path: Path) -> None:
    kernel(tmp_path, "triton")
    put(tmp_path, "vllm/readme.md")
    assert "near it are" in refusal(tmp_path).message


def test_a_link_to_a_cache_is_no_cache_of_the_root(tmp_path: Path) -> None:
    component(tmp_path / "root/vllm")
    kernel(tmp_path / "elsewhere")
    (tmp_path / "root/triton").symlink_to(tmp_path / "elsewhere")
    assert "near it are" in refusal(tmp_path / "root").message


def test_two_caches_of_one_runtime_are_refused(tmp_path: Path) -> None:
    kernel(tmp_path / "a")
    kernel(tmp_path / "b", key=OTHER_KEY)
    error = refusal(tmp_path / "a", tmp_path / "b")
    assert (error.reason, error.hint) == (Reason.METADATA_INVALID, "build a separate image of each directory")
    assert f"{tmp_path}/a and {tmp_path}/b are both caches of Triton" in error.message


def test_caches_for_different_gpus_are_refused(tmp_path: Path) -> None:
    component(tmp_path / "vllm")
    kernel(tmp_path / "triton")
    metadata = tmp_path / "triton" / KEY / "fwd.json"
    metadata.write_text(metadata.read_text().replace("90", "80", 1))
    assert "different GPUs: vllm for sm_90, triton for sm_80" in refusal(tmp_path).message
