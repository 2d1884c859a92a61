"""The GPU of a vLLM cache comes from its artifacts or from the user, never from the machine that builds the image."""

import json
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly.compiled_targets import MAX_MARK_BYTES, CompiledTargets
from gkm.images.assembly.contents import scan_directory
from gkm.images.assembly.versions import DependencyVersions
from support.images.archives import DATA
from support.images.vllm import ARTIFACT, CONFIG, HASH, OTHER_HASH, binary, code_object, mega, properties, ptx, put

T4, H100, MI210 = GpuTarget("cuda", "75", 32), GpuTarget("cuda", "90", 32), GpuTarget("hip", "gfx90a", 64)
SM_75 = {"backend": "cuda", "arch": "sm_75", "warp_size": 32}


def targets(root: Path, *stated: GpuTarget) -> list[dict[str, object]]:
    labels = scan_directory(root, stated, DependencyVersions()).labels
    return list(json.loads(labels["cache.vllm.image/summary"])["targets"])


def refusal(root: Path, *stated: GpuTarget) -> GKMError:
    with pytest.raises(GKMError) as caught:
        scan_directory(root, stated, DependencyVersions())
    return caught.value


@pytest.mark.parametrize(
    ("artifact", "arch"),
    [
        (CONFIG + ptx("75"), "sm_75"),
        (CONFIG + ptx("90a"), "sm_90"),
        (CONFIG + ptx("100a"), "sm_100"),
        (CONFIG + ptx("120f"), "sm_120"),
        (CONFIG + properties("89"), "sm_89"),
        (CONFIG + ptx("75") * 48 + properties("75") * 3, "sm_75"),
        (b".target sm_75", "sm_75"),
        (b"cc=75", "sm_75"),
        (b'{"asm": ".version 8.7\\n.target sm_75\\n"}', "sm_75"),
    ],
)
def test_artifacts_name_the_cuda_gpu(tmp_path: Path, artifact: bytes, arch: str) -> None:
    assert targets(binary(tmp_path, artifact)) == [{"backend": "cuda", "arch": arch, "warp_size": 32}]


@pytest.mark.parametrize(
    ("artifact", "arch", "warp_size"),
    [
        (CONFIG + properties("'gfx90a'", "hip"), "gfx90a", 64),
        (CONFIG + code_object("gfx942"), "gfx942", 64),
        (CONFIG + b'module attributes {ttg.target = "hip:gfx950", "ttg.threads-per-warp" = 64 : i32}', "gfx950", 64),
        (CONFIG + b'attributes #0 = { "target-cpu"="gfx1100" }', "gfx1100", 32),
        (CONFIG + b'{"target": {"backend": "hip", "arch": "gfx1201", "warp_size": 32}}', "gfx1201", 32),
        (b"gfx90a", "gfx90a", 64),
    ],
)
def test_artifacts_name_the_amd_gpu(tmp_path: Path, artifact: bytes, arch: str, warp_size: int) -> None:
    assert targets(binary(tmp_path, artifact)) == [{"backend": "hip", "arch": arch, "warp_size": warp_size}]


@pytest.mark.parametrize(
    "artifact",
    [
        b"12345",
        CONFIG,
        b".target sm_7",
        b".target sm_1000",
        b".target sm_75_x",
        b"acc=75",
        b"cc=75.5",
        b"cc=755555",
        b"gfx90a_supported",
        b"has_gfx90a",
        b"gfx9-4-generic",
        b"['gfx90a', \"gfx942\"]",
    ],
)
def test_text_that_only_resembles_a_mark_names_no_gpu(tmp_path: Path, artifact: bytes) -> None:
    error = refusal(binary(tmp_path, artifact))
    assert error.reason is Reason.METADATA_MISSING
    assert "--gpu cuda:75:32" in error.hint
    assert targets(tmp_path, T4) == [SM_75]


def test_a_model_compiled_ahead_of_time_names_its_gpu(tmp_path: Path) -> None:
    assert targets(mega(tmp_path, CONFIG + ptx("75"))) == [SM_75]


def test_an_unpacked_artifact_names_its_gpu_in_any_of_its_files(tmp_path: Path) -> None:
    binary(tmp_path)
    put(tmp_path, f"torch_compile_cache/{OTHER_HASH}/rank_0_0/backbone/cache_key_factors.json", b"{}")
    put(tmp_path, f"torch_compile_cache/{OTHER_HASH}/rank_0_0/backbone/{ARTIFACT}0/triton/0/AB/triton_.ptx", ptx("75"))
    assert targets(tmp_path) == [SM_75]


@pytest.mark.parametrize("size", [1, 2, 7, 63, 64, 65, 1000])
def test_a_mark_is_found_wherever_two_pieces_are_cut(size: int) -> None:
    for text, target in ((ptx("75"), T4), (properties("75"), T4), (code_object("gfx90a"), MI210), (CONFIG, None)):
        data = b"." * (MAX_MARK_BYTES + 3) + text
        found = CompiledTargets()
        found.scan("artifact", (data[at : at + size] for at in range(0, len(data), size)))
        assert list(found.named_in) == ([target] if target else [])


def test_artifacts_of_two_gpus_are_refused_and_both_are_named(tmp_path: Path) -> None:
    error = refusal(binary(tmp_path, CONFIG + ptx("75"), CONFIG + ptx("90a")), H100)
    assert error.reason is Reason.METADATA_INVALID
    assert f"{ARTIFACT}0 is compiled for sm_75" in error.message
    assert f"{ARTIFACT}1 for sm_90" in error.message


@pytest.mark.parametrize(
    "build",
    [
        lambda root: binary(root, ptx("75") + code_object("gfx90a")),
        lambda root: binary(binary(root, ptx("75")), ptx("90"), rank="rank_1_0"),
        lambda root: binary(binary(root, ptx("75")), properties("90"), hashed=OTHER_HASH),
        lambda root: mega(binary(root, ptx("75")), ptx("90"), OTHER_HASH),
    ],
)
def test_parts_that_contradict_each_other_are_refused(tmp_path: Path, build: object) -> None:
    assert callable(build)
    assert refusal(build(tmp_path)).reason is Reason.METADATA_INVALID


@pytest.mark.parametrize("stated", [(H100,), (MI210,), (T4, H100)])
def test_a_stated_gpu_that_the_artifacts_contradict_is_refused(tmp_path: Path, stated: tuple[GpuTarget, ...]) -> None:
    error = refusal(binary(tmp_path, ptx("75")), *stated)
    assert error.reason is Reason.METADATA_INVALID
    assert "sm_75" in error.message


def test_a_stated_gpu_that_the_artifacts_confirm_changes_nothing(tmp_path: Path) -> None:
    binary(tmp_path, ptx("75"))
    assert scan_directory(tmp_path, [T4], DependencyVersions()) == scan_directory(tmp_path, (), DependencyVersions())


@pytest.mark.parametrize("stated", [(), (T4,)])
def test_a_variable_that_the_artifacts_contradict_is_refused(tmp_path: Path, stated: tuple[GpuTarget, ...]) -> None:
    error = refusal(binary(tmp_path, ptx("75"), env={"VLLM_PAGED_ATTN_ARCH": "90"}), *stated)
    assert error.reason is Reason.METADATA_INVALID
    assert "VLLM_PAGED_ATTN_ARCH" in error.message


def test_vllms_default_device_does_not_contradict_code_for_amd(tmp_path: Path) -> None:
    # envs.py of vLLM: the default of VLLM_TARGET_DEVICE is "cuda".
    assert targets(binary(tmp_path, code_object("gfx942"))) == [
        {"backend": "hip", "arch": "gfx942", "warp_size": 64},
    ]


def test_kernels_of_triton_that_the_artifacts_contradict_are_refused(tmp_path: Path) -> None:
    binary(tmp_path, ptx("75"))
    for path in (DATA / "triton-cache").rglob("*.json"):
        inside = f"torch_compile_cache/{HASH}/rank_0_0/triton_cache/{path.parent.name}/{path.name}"
        put(tmp_path, inside, path.read_bytes())
    assert refusal(tmp_path).reason is Reason.METADATA_INVALID


def test_a_stated_gpu_that_a_triton_cache_has_no_kernel_for_is_refused() -> None:
    assert refusal(DATA / "triton-cache", T4).reason is Reason.METADATA_INVALID
    assert scan_directory(DATA / "triton-cache", [H100], DependencyVersions()) == scan_directory(
        DATA / "triton-cache", (), DependencyVersions()
    )
