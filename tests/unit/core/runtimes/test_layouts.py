"""Every path that a runtime writes is content, and no path of another program ever is."""

import random

import pytest
from gkm.runtimes import BY_NAME, INDUCTOR, RUNTIMES, TRITON, TVM_FFI, VLLM, Runtime
from gkm.runtimes.foreign import holds_secret
from gkm.runtimes.layout import PACKED, FileKind, kind_of
from support.images.families import FAMILIES
from support.images.families import TVM_FFI as UNMOVABLE_FILES

KEY, HEX = "A2" * 26, "0f" * 32
GRAPH = "fqhdaazhbxfu6rrpfwsmzzr5clf5ochth3htf6vsldyiqwyjlt3a"
AUTOGRAD = "azh3fx54pdpsa5wd3hnqsnfqjizw32kqta3shovfgn7jaekh5c2f"
CODE = "cpspxsizsfrh4t3ryf2xsciz7gbgxthxwmtzcvausjnszxf2zxdqa"
MODEL = "torch_compile_cache/d404ab212a"
BACKBONE = f"{MODEL}/rank_0_0/backbone"
WRITTEN: dict[Runtime, tuple[str, ...]] = {
    # triton/runtime/cache.py and the stages of its backends.
    TRITON: (
        f"{KEY}/fwd.json",
        f"{KEY}/__grp__fwd.json",
        f"{KEY}/fwd.cubin",
        f"{KEY}/fwd.hsaco",
        f"{KEY}/fwd.source",
        f"{HEX}/__triton_launcher.so",
        f"{KEY}/__triton_launcher.cpython-311-x86_64-linux-gnu.so",
        f"{KEY}/fwd.autotune.json",
    ),
    # torch/_inductor/codecache.py.
    INDUCTOR: (
        f"fxgraph/qh/{GRAPH}/nimkv2e4qhbffpwqfzeqgkb6vdb3w4xt",
        f"aotautograd/{AUTOGRAD}/jbofnkchfxbglc7pggidvqwor222ta36",
        f"triton/0/{KEY}/fwd.ptx",
        f"ps/{CODE}.py",
        f"ps/{CODE}.cpp",
        f"ps/{CODE}.best_config",
    ),
    # vllm/compilation/backends.py and caching.py, 0.10 to 0.33.
    VLLM: (
        f"{BACKBONE}/cache_key_factors.json",
        f"{BACKBONE}/vllm_compile_cache.py",
        f"{BACKBONE}/computation_graph.py",
        f"{BACKBONE}/artifact_compile_range_1_2048_subgraph_0",
        f"{BACKBONE}/artifact_shape_None_subgraph_17",
        f"{BACKBONE}/artifact_compile_range_1_2048_subgraph_0/fxgraph/qh/{GRAPH}/nimkv2e4",
        f"{MODEL}/rank_0_0_dev0/eagle_head/artifact_compile_range_1_1_subgraph_0",
        f"{MODEL}/rank_0_0/inductor_cache/fxgraph/qh/{GRAPH}/nimkv2e4",
        f"{MODEL}/rank_0_0/triton_cache/{KEY}/fwd.cubin",
        f"{MODEL}/triton_cache/{KEY}/fwd.cubin",
        f"torch_compile_cache/torch_aot_compile/{HEX}/rank_0_0/model",
        f"deep_gemm/cache/gemm.{HEX[:32]}/.committed",
        "flashinfer_autotune_cache/0.7.2/90a/0a1b2c3d/autotune_configs_dp0_rank1.json",
        f"rocm_segmented_attention/triton/{KEY}/fwd.hsaco",
        f"rocm_segmented_attention/{HEX}.json",
    ),
    **{BY_NAME[name]: tuple(files) for name, files in FAMILIES.items()},
    TVM_FFI: tuple(UNMOVABLE_FILES),
}
FOREIGN_NAMES = (
    *(
        "README.md",
        "train.py",
        "main.cpp",
        "notes.txt",
        "core.4711",
        "nohup.out",
        ".bash_history",
        ".DS_Store",
        "data.bin",
        ".hidden.ptx",
        ".x.lock",
        ".y.py",
    ),
    *("huggingface/token", "huggingface/hub/blobs/0af3", ".netrc", ".env", ".ssh/id_rsa", "cosign.key", "tls.pem"),
    *("hub/model.safetensors", "model-00001-of-00004.gguf", "wandb/run-1/logs.txt", "pip/http-v2/a/b", "kubeconfig"),
    *("tmp.pid_4711_abc/fwd.json", ".nfs0000000000a1b2c3", "fwd.json.tmp", "upload.part", "config.yaml~", "a b.json"),
    *(".aws/credentials", "Untitled.ipynb", "lib/python3.12/site-packages/x.py", "trace.json.gz", "checkpoint.pt"),
)
"""Files of other programs and people, below any directory of a cache."""


def directories(paths: tuple[str, ...]) -> list[str]:
    found = {""}
    for path in paths:
        parts = path.split("/")[:-1]
        found.update("/".join([*parts[: depth + 1], ""]) for depth in range(len(parts)))
    return sorted(found)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.name)
def test_each_file_that_a_runtime_writes_is_content(runtime: Runtime) -> None:
    kind = FileKind.UNMOVABLE if runtime is TVM_FFI else FileKind.CONTENT
    assert {path: runtime.kind_of(path, is_directory=False) for path in WRITTEN[runtime]} == dict.fromkeys(
        WRITTEN[runtime], kind
    )
    for directory in directories(WRITTEN[runtime])[1:]:
        assert runtime.kind_of(directory[:-1], is_directory=True) is kind


def test_no_file_of_another_program_is_ever_packed() -> None:
    draw = random.Random(36)
    for _ in range(10_000):
        runtime = draw.choice(RUNTIMES)
        path = draw.choice(directories(WRITTEN[runtime])) + draw.choice(FOREIGN_NAMES)
        kind = runtime.kind_of(path, is_directory=False)
        # The content decides about a file at the top of TorchInductor's directory (test_selection.py).
        decided_by_content = runtime is INDUCTOR and "/" not in path and kind is FileKind.ARTIFACTS
        assert kind not in PACKED or decided_by_content, path


def is_mark(runtime: Runtime, path: str) -> bool:
    return kind_of(runtime.marks, path, is_directory=False) is not None


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.name)
def test_a_runtime_has_a_mark_of_its_own_and_no_other_has_it(runtime: Runtime) -> None:
    marked = [path for path in WRITTEN[runtime] if is_mark(runtime, path)]
    assert marked
    for other in RUNTIMES:
        assert other is runtime or not any(is_mark(other, path) for path in marked)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("gpu_p2p_access_cache_for_0,1.json", FileKind.MACHINE),
        ("startup_plan/plan.json", FileKind.MACHINE),
        (f"modelinfos/vllm-model_executor-models-llama-{HEX}.json", FileKind.UNCAPTURED),
        (f"{BACKBONE}/.nfs0000a1", FileKind.LEFTOVER),
        (f"{KEY}/tmp.pid_12_x", FileKind.LEFTOVER),
        (f"{KEY}/signing.key", FileKind.SECRET),
        ("assets/image.bin", FileKind.FOREIGN),
        ("model.safetensors", FileKind.WEIGHTS),
    ],
)
def test_a_file_that_must_not_travel_is_named_by_its_kind(path: str, kind: FileKind) -> None:
    assert VLLM.kind_of(path, is_directory=False) is kind


def test_a_directory_of_files_of_one_kind_has_this_kind() -> None:
    assert VLLM.kind_of("startup_plan", is_directory=True) is FileKind.MACHINE
    assert VLLM.kind_of("modelinfos", is_directory=True) is FileKind.UNCAPTURED
    assert VLLM.kind_of("torch_compile_cache", is_directory=True) is FileKind.CONTENT
    assert TRITON.kind_of(KEY, is_directory=True) is FileKind.CONTENT


def test_each_runtime_has_one_name_and_variables_of_its_own() -> None:
    variables = [variable for runtime in RUNTIMES for variable in runtime.variables]
    assert len(set(variables)) == len(variables)
    assert list(BY_NAME) == [runtime.name for runtime in RUNTIMES]


@pytest.mark.parametrize(
    "text",
    [
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
        b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n",
        b"token: hf_abcdefghijklmnopqrst\n",
        b"# mine\nmachine example.test login a password b\n",
    ],
)
def test_a_key_or_token_is_found_by_its_content(text: bytes) -> None:
    assert holds_secret(text)
    assert not holds_secret(text.replace(b"PRIVATE", b"PUBLIC").replace(b"hf_", b"h_").replace(b"machine", b"host"))
