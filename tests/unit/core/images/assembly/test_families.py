"""The caches of further runtimes go into an image whole or not at all, and what cannot hit after a mount stays out."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly import table_entries
from gkm.images.assembly.contents import CacheContents, scan_cache
from gkm.images.assembly.device_code import device_targets
from gkm.images.assembly.image import pack
from gkm.images.assembly.several import captured_in
from gkm.images.assembly.tree import walk
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format
from gkm.images.cache_entries import entries_in
from gkm.images.pulling.extract import Extraction
from gkm.runtimes import RUNTIMES
from gkm.runtimes.layout import FileKind
from hypothesis import given
from hypothesis import strategies as st
from support.images.archives import content
from support.images.families import (
    DEEPGEMM,
    FAMILIES,
    HEX,
    MODEL,
    OTHER_HEX,
    SHORT,
    STAMP,
    TVM_FFI,
    cubin,
    family,
    fatbin,
    tree,
)
from support.images.inductor import CODE, directory
from support.images.vllm import mega, properties, put

VERSIONS = DependencyVersions.parse(["helion=1.5.1", "triton=3.9.0", "torch=2.15.0"])
H100 = GpuTarget("cuda", "90", 32)
ENTRIES = {
    "sglang": 14,
    "deepgemm": 2,
    "flashinfer": 5,
    "tilelang": 2,
    "cutedsl": 1,
    "quack": 3,
    "sglangjit": 1,
    "helion": 2,
}


def scanned(root: Path, *, all_files: bool = False, versions: DependencyVersions = VERSIONS) -> CacheContents:
    return scan_cache(root, (), versions, all_files=all_files)


def extracted(root: Path, work: Path, *, all_files: bool = False) -> Path:
    """Build an image, extract it, and return the directory that a node mounts."""
    contents = scanned(root, all_files=all_files)
    (work / "layer").mkdir(parents=True)
    (work / "out").mkdir()
    image = pack([contents], "x", work / "layer", versions=VERSIONS)
    Extraction(work / "out", [contents.format], 1 << 20).layer([content(image.blobs[1])])
    return work / "out"


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def targets(contents: CacheContents) -> list[str]:
    summary = json.loads(contents.labels[contents.format.summary_label])
    return [f"{target['backend']}:{target['arch']}" for target in summary["targets"]]


@pytest.mark.parametrize("name", FAMILIES)
def test_an_image_has_every_file_of_the_family_its_gpu_and_its_entries(tmp_path: Path, name: str) -> None:
    root = family(tmp_path / "cache", name)
    contents = scanned(root)
    assert (contents.format.value, targets(contents)) == (name, ["cuda:90"])
    assert len(entries_in(contents.manifest)) == ENTRIES[name]
    assert contents.labels[contents.format.count_label] == str(ENTRIES[name])
    assert (contents.left_out.kinds, contents.damaged) == ({}, {})
    assert files(extracted(root, tmp_path / "work")) == FAMILIES[name]


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("deepgemm", "cache"),
        ("tilelang", "0.1.15/linux-x86_64"),
        ("flashinfer", ".cache/flashinfer"),
        ("sglang", "cute_aot"),
    ],
)
def test_a_directory_inside_of_a_family_is_refused_with_its_root_named(tmp_path: Path, name: str, inside: str) -> None:
    family(tmp_path / "root", name)
    if name == "sglang":
        # It is a whole cache itself.
        assert scanned(tmp_path / "root" / inside).format.value == "quack"
        return
    with pytest.raises(GKMError, match=f"gkm cache build {tmp_path}/root --image REF --dry-run$") as caught:
        scanned(tmp_path / "root" / inside)
    assert caught.value.reason is Reason.METADATA_MISSING


def test_a_root_of_vllm_without_models_names_the_cache_of_deepgemm_in_it(tmp_path: Path) -> None:
    family(tmp_path / "deep_gemm", "deepgemm")
    with pytest.raises(GKMError, match=r"/deep_gemm \(DeepGEMM\)"):
        scanned(tmp_path)


def test_each_row_of_the_table_has_a_format() -> None:
    assert {kind.value for kind in Format} == {runtime.name for runtime in RUNTIMES}


@pytest.mark.parametrize(
    ("name", "lost", "entry"),
    [
        ("deepgemm", f"cache/sm90_gemm.{SHORT}/.committed", f"cache/sm90_gemm.{SHORT}"),
        ("deepgemm", f"cache/kernel.gemm.{SHORT}/kernel.cu", f"cache/kernel.gemm.{SHORT}"),
        ("tilelang", f"0.1.15/linux-x86_64/kernels/{HEX}/manifest.json", f"0.1.15/linux-x86_64/kernels/{HEX}"),
        ("quack", f"{HEX}/{OTHER_HEX}.lock", f"{HEX}/{OTHER_HEX}.o"),
        ("helion", f"cute/0/cute_dsl_{HEX}.json", f"cute/0/cute_dsl_{HEX}.mlir"),
        ("sglang", f"{MODEL}/sglang_compile_cache.py", MODEL),
        ("sglangjit", f"sm90a/moe/build-{STAMP}/deps-{STAMP}/sgl_deps.json", f"sm90a/moe/build-{STAMP}/deps-{STAMP}"),
    ],
)
def test_an_entry_that_lost_a_file_stays_out_by_name(tmp_path: Path, name: str, lost: str, entry: str) -> None:
    root = family(tmp_path / "cache", name)
    copied = {path.replace(HEX, OTHER_HEX).replace(STAMP, STAMP[::-1]).replace(SHORT, SHORT[::-1]): data
              for path, data in FAMILIES[name].items()}  # fmt: skip
    tree(root, {path: data for path, data in copied.items() if path not in FAMILIES[name]})
    (root / lost).unlink()
    contents = scanned(root)
    assert list(contents.damaged) == [entry]
    assert "no file is there that matches" in contents.damaged[entry]
    assert entry not in {each.hash for each in entries_in(contents.manifest)}


def test_code_that_is_none_or_empty_stays_out_by_name(tmp_path: Path) -> None:
    root = family(tmp_path, "deepgemm")
    put(root, f"cache/sm90_gemm.{SHORT}/kernel.cubin", b"<html>")
    assert scanned(root).damaged == {f"cache/sm90_gemm.{SHORT}": "kernel.cubin is no compiled code"}
    put(root, f"cache/sm90_gemm.{SHORT}/kernel.cubin", b"")
    assert scanned(root).damaged == {f"cache/sm90_gemm.{SHORT}": "kernel.cubin is empty"}


def test_directories_that_a_start_makes_are_in_the_image_also_empty(tmp_path: Path) -> None:
    out = extracted(family(tmp_path / "tilelang", "tilelang"), tmp_path / "one")
    assert (out / "0.1.15/linux-x86_64/.staging").is_dir()
    root = mega(tmp_path / "vllm", properties("90"))
    put(root, "dummy_cache/x", b"x")
    assert not any((extracted(root, tmp_path / "two") / "dummy_cache").iterdir())


def test_modules_of_tvm_ffi_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(GKMError, match="a hit on a read-only mount waits for a lock for ever") as caught:
        scanned(tree(tmp_path, TVM_FFI), all_files=True)
    assert caught.value.reason is Reason.METADATA_MISSING


def test_operators_of_nvcc_stay_out_and_alone_they_are_refused(tmp_path: Path) -> None:
    cached = ".cache/flashinfer/0.7.2/90a/cached_ops/sampling"
    rebuilt = {f"{cached}/build.ninja": b"rule", f"{cached}/.ninja_log": b"#", f"{cached}/sampling.so": fatbin(90)}
    alone = tree(tmp_path / "alone", rebuilt)
    with pytest.raises(GKMError, match="ninja compiles operators of nvcc again"):
        scanned(alone)
    contents = scanned(tree(family(tmp_path / "cache", "flashinfer"), rebuilt), all_files=True)
    assert contents.left_out.kinds[FileKind.UNMOVABLE].examples == [cached]


def test_links_of_header_directories_stay_out_with_the_sources_and_other_links_are_refused(tmp_path: Path) -> None:
    root = family(tmp_path / "cache", "flashinfer")
    sources = ".cache/flashinfer/0.7.2/90a/generated"
    (root / sources / "flashinfer").mkdir(parents=True)
    (root / sources / "flashinfer/trtllmGen_bmm_export").symlink_to("/usr/include")
    assert scanned(root).left_out.kinds[FileKind.UNMOVABLE].examples == [sources]
    assert files(extracted(root, tmp_path / "work")) == FAMILIES["flashinfer"]
    (root / ".cache/flashinfer/0.7.2/90a/cached_ops/norm_90a_cute_dsl/x.o").symlink_to("/etc/passwd")
    with pytest.raises(GKMError, match="no file and no directory") as caught:
        scanned(root)
    assert caught.value.reason is Reason.UNSAFE_CONTENT


def test_a_pickle_that_a_hit_runs_never_travels(tmp_path: Path) -> None:
    root = family(tmp_path / "cache", "tilelang")
    put(root, f"0.1.15/linux-x86_64/autotuner/{HEX}/function.pkl")
    put(root, f"0.1.15/linux-x86_64/autotuner/{HEX}/best_config.json")
    for all_files in (False, True):
        found = files(extracted(root, tmp_path / str(all_files), all_files=all_files))
        assert not any("autotuner" in path for path in found)
    assert FileKind.PROGRAM in scanned(root).left_out.kinds


@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 2)])
def test_results_of_tuning_of_some_ranks_stay_out(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    root = mega(tmp_path, properties("90"))
    results = "flashinfer_autotune_cache/0.7.2/90a/0a1b2c3d"
    for rank in ranks:
        put(root, f"{results}/autotune_configs_dp0_rank{rank}.json", b"{}")
    assert list(scanned(root).damaged) == [results]
    for rank in (0, 1, 2):
        put(root, f"{results}/autotune_configs_dp0_rank{rank}.json", b"{}")
    assert scanned(root).damaged == {}


def test_results_of_tuning_that_are_too_large_to_check_are_named_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_entries, "MAX_JSON_BYTES", 8)
    root = mega(tmp_path, properties("90"))
    results = "flashinfer_autotune_cache/0.7.2/90a/0a1b2c3d"
    put(root, f"{results}/autotune_configs_dp0_rank0.json", b"{}")
    put(root, f"{results}/autotune_configs_dp0_rank1.json", b'{"a": 12}')
    assert scanned(root).damaged == {results: "autotune_configs_dp0_rank1.json has more than 8 bytes"}


def test_kernels_of_deepgemm_travel_in_the_root_of_vllm(tmp_path: Path) -> None:
    root = mega(tmp_path / "cache", properties("90"))
    expected = {f"deep_gemm/{path}": data for path, data in DEEPGEMM.items()}
    tree(root, expected)
    assert scanned(root).format is Format.VLLM
    assert expected.items() <= files(extracted(root, tmp_path / "work")).items()


def test_facts_of_one_gpu_stay_out_of_the_root_of_sglang(tmp_path: Path) -> None:
    root = family(tmp_path, "sglang")
    path = f"flashinfer/autotune/0.7.2/90/{STAMP}/rank_tp0_pp0_dp0_gpu{HEX}.json"
    put(root, path, b"{}")
    assert scanned(root).left_out.kinds[FileKind.MACHINE].examples == [path]


def test_versions_that_no_key_has_must_be_stated(tmp_path: Path) -> None:
    with pytest.raises(GKMError, match="do not have the versions of helion, triton, torch") as caught:
        scanned(family(tmp_path, "helion"), versions=DependencyVersions())
    assert "--dependency-version helion=VERSION" in str(caught.value.hint)


def test_a_family_without_code_needs_its_gpu_from_the_user(tmp_path: Path) -> None:
    put(tmp_path, f"{HEX}.best_config", b"{}")
    with pytest.raises(GKMError, match="does not say which GPU"):
        scanned(tmp_path)
    assert targets(scan_cache(tmp_path, [H100], VERSIONS)) == ["cuda:90"]
    family(tmp_path, "helion")
    with pytest.raises(GKMError, match="the stated GPU is for sm_80"):
        scan_cache(tmp_path, [GpuTarget("cuda", "80", 32)], VERSIONS)


def captured_paths(root: Path) -> set[str]:
    (part,) = captured_in(root)
    return {each.path for each in walk(part.directory, part.selection) if not each.directory}


def test_a_capture_takes_a_family(tmp_path: Path) -> None:
    assert captured_paths(family(tmp_path, "deepgemm")) == set(DEEPGEMM)


GRAPHS_OF = {"inductor": "", "vllm": "torch_compile_cache/0a1b2c3d4e/rank_0_0/inductor_cache/"}


@pytest.mark.parametrize("runtime", GRAPHS_OF)
def test_a_capture_takes_graphs_of_torch_and_a_build_takes_code_for_the_processor_too(
    tmp_path: Path, runtime: str
) -> None:
    graphs = directory(tmp_path / GRAPHS_OF[runtime])
    left = {f"{GRAPHS_OF[runtime]}{path}" for path in (f"ps/{CODE}.so", f"ps/{CODE}.main.o", f"locks/{CODE}.lock")}
    portable = set(files(tmp_path)) - left
    assert {path.removeprefix(GRAPHS_OF[runtime]).partition("/")[0] for path in portable} == {
        *("fxgraph", "aotautograd", "ps", "triton")
    }
    put(graphs, f"ps/{CODE}.so", b"\x7fELF")
    put(graphs, f"ps/{CODE}.main.o", b"\x7fELF")
    assert captured_paths(tmp_path) == portable
    built = scan_cache(tmp_path, (), DependencyVersions())
    assert built.format is Format(runtime)
    assert {each.path for each in walk(tmp_path, built.selection) if not each.directory} == portable | left


@pytest.mark.parametrize("written", [b"", b'{"XBLOCK": 64, "num_wa'], ids=["empty", "cut"])
def test_results_of_tuning_that_were_not_written_to_their_end_stay_out(tmp_path: Path, written: bytes) -> None:
    root = directory(tmp_path)
    whole, half = (f"ps/{letter}{CODE}.best_config" for letter in "ab")
    put(root, whole, b'{"XBLOCK": 64, "time_taken_ms": 12}')
    put(root, half, written)
    captured, left = captured_paths(root), scan_cache(root, (), DependencyVersions()).left_out.kinds
    assert (whole in captured, half in captured) == (True, False)
    assert left[FileKind.INCOMPLETE].examples == [half]


FRAGMENTS = [
    cubin(90),
    cubin(100, abi=8),
    fatbin(80, 86),
    fatbin(70, kind=1),
    b"\x7fELF",
    b"\x50\xed\x55\xba",
    bytes(40),
]


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=80)), max_size=8), st.data())
def test_any_bytes_name_the_same_gpus_however_they_are_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[start:end] for start, end in pairwise([0, *cuts, len(whole)])]
    assert device_targets(pieces) == device_targets([whole])


@pytest.mark.parametrize("piece", [1, 7, 64, 100, 4096])
def test_each_gpu_in_compiled_code_is_found_wherever_pieces_end(piece: int) -> None:
    data = b"x" * 37 + cubin(90) + b"y" * 90 + fatbin(80, 86) + cubin(100, abi=8) + fatbin(120)
    found = device_targets(data[start : start + piece] for start in range(0, len(data), piece))
    assert sorted(int(target.arch) for target in found) == [80, 86, 90, 100, 120]


@pytest.mark.parametrize("piece", [1, 64, 4096])
def test_a_header_that_begins_inside_a_broken_one_is_found_wherever_pieces_end(piece: int) -> None:
    data = cubin(90)[:40] + cubin(100) + bytes(64)
    found = device_targets(data[start : start + piece] for start in range(0, len(data), piece))
    assert "100" in {target.arch for target in found}


@pytest.mark.parametrize(
    "data",
    [
        fatbin(90, kind=1),
        cubin(90, abi=9),
        cubin(90)[:51],
        fatbin(90)[:40],
        fatbin(3, 0xFFFFFFFF),
        b"\x7fELF" * 1000,
        b"\x50\xed\x55\xba\x01\x00\x10\x00" + b"\xff" * 4000,
    ],
    ids=["PTX only", "unknown ABI", "short cubin", "short fatbin", "impossible GPUs", "magic alone", "endless entries"],
)
def test_code_that_names_no_gpu_names_none(data: bytes) -> None:
    assert device_targets([data]) == set()
