"""An image gets what the runtime wrote, and nothing else; the right directory is named where a wrong one is given."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly.contents import CacheContents, scan_cache
from gkm.images.assembly.image import pack
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format
from gkm.images.cache_entries import entries_in
from gkm.images.pulling.extract import Extraction
from gkm.runtimes.layout import FileKind
from support.images.archives import content
from support.images.directories import KEY, OTHER_KEY, RANK, component, graphs, kernel
from support.images.inductor import artifact_file, directory
from support.images.vllm import put

VERSIONS = DependencyVersions()


def scanned(root: Path, *, all_files: bool = False, strict: bool = False) -> CacheContents:
    return scan_cache(root, (), VERSIONS, all_files=all_files, strict=strict)


def refusal(root: Path, *, strict: bool = False) -> GKMError:
    with pytest.raises(GKMError) as caught:
        scanned(root, strict=strict)
    return caught.value


def packed(root: Path, work: Path, *, all_files: bool = False) -> set[str]:
    """Build and extract an image; return the paths of its files."""
    contents = scanned(root, all_files=all_files)
    (work / "layer").mkdir(parents=True)
    (work / "out").mkdir()
    image = pack([contents], "x", work / "layer", versions=VERSIONS)
    made = Extraction(work / "out", [contents.format], 1 << 20)
    made.layer([content(image.blobs[1])])
    return {str(path.relative_to(made.destination)) for path in made.destination.rglob("*") if path.is_file()}


def left_out(contents: CacheContents) -> dict[FileKind, list[str]]:
    return {kind: found.examples for kind, found in contents.left_out.kinds.items()}


def architectures(contents: CacheContents) -> set[str]:
    summary = json.loads(contents.labels[contents.format.summary_label])
    return {target["arch"] for target in summary["targets"]}


def test_a_shared_volume_is_refused_with_the_cache_in_it_named(tmp_path: Path) -> None:
    kernel(tmp_path, "triton")
    put(tmp_path, "huggingface/token", b"hf_not_a_token")
    put(tmp_path, ".netrc", b"machine example.test login a password b\n")
    error = refusal(tmp_path)
    assert error.reason is Reason.METADATA_MISSING
    assert f"{tmp_path}/triton (Triton)" in error.message
    assert f"gkm cache build {tmp_path}/triton" in str(error.hint)


def test_the_root_of_several_caches_is_refused_with_each_one_named(tmp_path: Path) -> None:
    kernel(tmp_path, "triton")
    graphs(tmp_path, "inductor")
    kernel(tmp_path, "inductor/triton/0", OTHER_KEY)
    message = refusal(tmp_path).message
    assert f"{tmp_path}/inductor (TorchInductor), {tmp_path}/triton (Triton)" in message


@pytest.mark.parametrize(
    ("make", "inside"),
    [
        (kernel, KEY),
        (component, f"{RANK}/backbone"),
        (component, "torch_compile_cache"),
        (lambda root: graphs(root, "."), "fxgraph"),
    ],
)
def test_a_directory_inside_of_a_cache_is_refused_with_the_cache_named(
    tmp_path: Path, make: Callable[[Path], Path], inside: str
) -> None:
    make(tmp_path)
    assert f"gkm cache build {tmp_path}" in str(refusal(tmp_path / inside).hint)


def test_leftovers_of_triton_and_kernels_without_metadata_stay_out(tmp_path: Path) -> None:
    kernel(tmp_path / "cache")
    put(tmp_path / "cache", f"{KEY}/tmp.pid_4711_abc/fwd.json", b"{}")
    put(tmp_path / "cache", f"{OTHER_KEY}/tmp.pid_1_x/fwd.json", b"{}")
    put(tmp_path / "cache", f"{KEY}/.nfs0000000000a1b2c3")
    contents = scanned(tmp_path / "cache")
    assert len(entries_in(contents.manifest)) == 1
    assert left_out(contents) == {
        FileKind.LEFTOVER: [f"{KEY}/.nfs0000000000a1b2c3", f"{KEY}/tmp.pid_4711_abc"],
        FileKind.INCOMPLETE: [OTHER_KEY],
    }
    assert packed(tmp_path / "cache", tmp_path / "work") == {
        f"{KEY}/{name}" for name in ("fwd.json", "fwd.cubin", "__grp__fwd.json")
    }


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("fwd.cubin", None, "fwd.cubin is missing, which the group file names"),
        ("fwd.cubin", b"", "fwd.cubin is empty"),
        ("fwd.cubin", b"<html>", "fwd.cubin is no compiled code"),
        ("fwd.json", b'{"hash": "ab', "fwd.json is not what Triton writes"),
        ("__grp__fwd.json", b"[]", "__grp__fwd.json is not what Triton writes"),
    ],
)
def test_a_damaged_kernel_stays_out_by_name_and_strict_refuses_it(
    tmp_path: Path, name: str, data: bytes | None, problem: str
) -> None:
    kernel(tmp_path)
    kernel(tmp_path, key=OTHER_KEY)
    if data is None:
        (tmp_path / OTHER_KEY / name).unlink()
    else:
        (tmp_path / OTHER_KEY / name).write_bytes(data)
    contents = scanned(tmp_path)
    assert contents.damaged == {OTHER_KEY: problem}
    assert [entry.hash for entry in entries_in(contents.manifest)] == ["ab" * 32]
    error = refusal(tmp_path, strict=True)
    assert error.reason is Reason.METADATA_INVALID
    assert f"{OTHER_KEY}: {problem}" in error.message


def test_all_files_take_what_no_runtime_wrote_and_never_a_key_or_a_token(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kernel(cache)
    put(cache, "notes/readme.md", b"text")
    put(cache, "notes/mine", b"-----BEGIN EC PRIVATE KEY-----\n")
    put(cache, "huggingface/token", b"hf_not_a_token")
    assert not any("notes" in path for path in packed(cache, tmp_path / "without"))
    found = packed(cache, tmp_path / "with", all_files=True)
    assert "notes/readme.md" in found
    assert not any("token" in path or "mine" in path for path in found)
    assert left_out(scanned(cache, all_files=True))[FileKind.SECRET] == ["huggingface/token", "notes/mine"]


def test_all_files_do_not_take_a_damaged_kernel(tmp_path: Path) -> None:
    kernel(tmp_path / "cache")
    kernel(tmp_path / "cache", key=OTHER_KEY)
    (tmp_path / "cache" / OTHER_KEY / "fwd.cubin").unlink()
    assert not any(OTHER_KEY in path for path in packed(tmp_path / "cache", tmp_path / "work", all_files=True))


def test_a_neighbor_that_cannot_be_read_hides_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(tmp_path, "triton")
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def closed(directory: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if Path(directory).name == "closed":
            raise PermissionError(errno.EACCES, "no", str(directory))
        return scandir(directory)

    monkeypatch.setattr(os, "scandir", closed)
    assert f"{tmp_path}/triton (Triton)" in refusal(tmp_path).message


@pytest.mark.parametrize("name", ["model.artifacts", "cache.pt", "mega"])
def test_a_file_of_artifacts_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    cache = directory(tmp_path / "cache")
    put(cache, name, artifact_file({"inductor": [("f1", b"cc=90, ")]}))
    put(cache, "readme", b"text")
    found = packed(cache, tmp_path / "work")
    assert name in found
    assert "readme" not in found
    assert left_out(scanned(cache)) == {FileKind.FOREIGN: ["readme"]}


def test_a_cache_without_aot_and_kernels_is_one_of_vllm_for_its_gpu(tmp_path: Path) -> None:
    put(tmp_path, f"{RANK}/backbone/cache_key_factors.json", b"{}")
    graphs(tmp_path, f"{RANK}/inductor_cache")
    contents = scanned(tmp_path)
    assert contents.format is Format.VLLM
    assert architectures(contents) == {"sm_90"}
    assert {entry.form for entry in entries_in(contents.manifest)} == {"fxgraph", "aotautograd"}


@pytest.mark.parametrize(
    ("rank", "factors", "artifact"),
    [
        (f"{RANK}_dev0", True, "compile_range_1_8192"),  # 0.33
        (RANK, False, "shape_None"),  # to 0.11
    ],
)
def test_older_and_newer_names_of_vllm_are_entries(tmp_path: Path, rank: str, factors: bool, artifact: str) -> None:  # noqa: FBT001
    contents = scanned(component(tmp_path, rank, factors=factors, artifact=artifact))
    assert [entry.form for entry in entries_in(contents.manifest)] == ["binary"]
    assert architectures(contents) == {"sm_90"}


def test_the_stated_gpu_is_still_that_of_the_user(tmp_path: Path) -> None:
    kernel(tmp_path)
    with pytest.raises(GKMError, match="the stated GPU is for"):
        scan_cache(tmp_path, [GpuTarget("cuda", "80", 32)], VERSIONS)
