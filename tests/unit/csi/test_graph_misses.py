"""vLLM's and TorchInductor's graphs that a program compiled beside a cache: the first other factor is named."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
from gkm.hoststate.kernel_misses import KernelMissCounts, RuntimeMisses
from gkm.mounts.link_farm import MountedView
from gkm.runtimes.keys import MissReason
from gkm_csi import kernels
from support.images.inductor import GRAPH
from support.images.vllm import ARTIFACT, HASH, OTHER_HASH, put

ENV = {"VLLM_TARGET_DEVICE": "cuda", "VLLM_NIXL_SIDE_CHANNEL_PORT": 5600, "VLLM_USE_V1": True, "VLLM_API_KEY": None}
"""Some of the variables that vLLM writes, with their normalized values (vllm/envs.py, compile_factors)."""
FACTORS = {"env": ENV, "config_hash": "84b7dc96bd", "code_hash": "1a" * 32, "compiler_hash": "a92dbc9a80"}


def model(root: Path, hashed: str = HASH, graphs: int = 2, **changed: object) -> Path:
    """Write the compiled model of one rank, as vLLM 0.12 to 0.33 do."""
    inside = f"torch_compile_cache/{hashed}/rank_0_0/backbone"
    put(root, f"{inside}/cache_key_factors.json", json.dumps(FACTORS | changed, indent=2, sort_keys=True).encode())
    for number in range(graphs):
        put(root, f"{inside}/{ARTIFACT}{number}")
    return root


def graph(root: Path, key: str, *lines: str) -> Path:
    """Write a graph with the lines of its key, as torch pickles them."""
    attributes = {"source_code": "x" * 100_000, "_fx_graph_cache_debug_lines": list(lines), "bundle": b"x" * 100_000}
    return put(root, f"fxgraph/{key[1:3]}/{key}/content", pickle.dumps(attributes))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return model(tmp_path / "cache")


def misses(cache: Path, volume: Path, *written: Path) -> RuntimeMisses:
    """Return what the driver finds in a volume that shows `cache` and what a program wrote."""
    shutil.copytree(cache, volume, copy_function=shutil.copy2)
    for each in written:
        shutil.copytree(each, volume, dirs_exist_ok=True)
    mount, lower = (os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (volume, cache))
    try:
        return kernels.scan(MountedView(mount), [lower], 60.0)
    finally:
        os.close(mount)
        os.close(lower)


@pytest.mark.parametrize(
    ("changed", "reason", "text"),
    [
        (
            {"env": ENV | {"VLLM_NIXL_SIDE_CHANNEL_PORT": 20097}},
            MissReason.OTHER_ENVIRONMENT,
            "VLLM_NIXL_SIDE_CHANNEL_PORT: the cache has 5600, the pod has 20097",
        ),
        (
            {"env": ENV | {"VLLM_TARGET_DEVICE": "a-private-text"}},
            MissReason.OTHER_ENVIRONMENT,
            "VLLM_TARGET_DEVICE differs",
        ),
        (
            {"env": ENV | {"VLLM_NEW": 0}, "config_hash": "0"},
            MissReason.OTHER_VERSION,
            "the set of variables that vLLM knows: the cache has 4 names, the pod has 5 names",
        ),
        (
            {"compiler_hash": "0", "env": ENV | {"VLLM_USE_V1": False}},
            MissReason.OTHER_COMPILER,
            "the compiler (torch, Triton, CUDA or the model of the GPU) differs",
        ),
        (
            {"config_hash": "0"},
            MissReason.OTHER_CONFIGURATION,
            "the configuration (arguments, model or release of vLLM) differs",
        ),
        ({"code_hash": "0"}, MissReason.OTHER_SOURCE, "the code of the model differs"),
        # An image has null in the place of a secret.
        ({"env": ENV | {"VLLM_API_KEY": "secret"}}, MissReason.UNKNOWN, ""),
        ({"env": 5}, MissReason.UNKNOWN, ""),
        ({"env": {f"VLLM_{number}": 0 for number in range(2000)}}, MissReason.UNKNOWN, ""),
    ],
)
def test_the_first_factor_of_another_directory_of_vllm_is_named(
    cache: Path, tmp_path: Path, changed: dict[str, object], reason: MissReason, text: str
) -> None:
    chosen = model(tmp_path / "chosen", OTHER_HASH, 3, **changed)
    found = misses(cache, tmp_path / "volume", chosen)
    assert found == {"vllm": KernelMissCounts({reason: 3}, 2, difference=text)}


def test_among_several_caches_each_stands_in_its_own_directory(tmp_path: Path) -> None:
    several, chosen = tmp_path / "several", tmp_path / "chosen"
    model(several / "vllm")
    graph(several / "inductor", GRAPH, *LINES)
    model(chosen / "vllm", OTHER_HASH, 3, config_hash="0")
    graph(chosen / "inductor", GRAPH[:-1] + ("a" if GRAPH[-1] != "a" else "b"), *LINES[:-1])
    found = misses(several, tmp_path / "volume", chosen)
    counted = {name: (dict(each.reasons), each.mounted) for name, each in found.items()}
    assert counted == {
        "vllm": ({MissReason.OTHER_CONFIGURATION: 3}, 2),
        "inductor": ({MissReason.OTHER_OPTIONS: 1}, 1),
    }


def test_a_further_graph_of_the_mounted_directory_is_missing_there(cache: Path, tmp_path: Path) -> None:
    inside = f"torch_compile_cache/{HASH}/rank_0_0/backbone"
    further = put(tmp_path / "further", f"{inside}/artifact_compile_range_9_9_subgraph_0")
    assert misses(cache, tmp_path / "volume", further)["vllm"].reasons == {MissReason.NO_SUCH_KERNEL: 1}


def test_unpacked_and_ahead_of_time_models_and_graphs_without_them_count(cache: Path, tmp_path: Path) -> None:
    chosen = model(tmp_path / "chosen", OTHER_HASH, 0, env=ENV | {"VLLM_USE_V1": False})
    inside = f"torch_compile_cache/{OTHER_HASH}/rank_0_0"
    for name in ("a", "b"):
        put(chosen, f"{inside}/backbone/{ARTIFACT}0/{name}")
    put(chosen, f"torch_compile_cache/torch_aot_compile/{HASH}/rank_0_0/model")
    put(chosen, f"{inside}/inductor_cache/fxgraph/{GRAPH[1:3]}/{GRAPH}/content")
    found = misses(cache, tmp_path / "volume", chosen)
    text = "VLLM_USE_V1: the cache has true, the pod has false"
    assert found == {"vllm": KernelMissCounts({MissReason.OTHER_ENVIRONMENT: 3}, 2, difference=text)}


def test_without_a_file_of_factors_the_reason_is_unknown(cache: Path, tmp_path: Path) -> None:
    chosen = put(tmp_path / "chosen", f"torch_compile_cache/{OTHER_HASH}/rank_0_0/backbone/{ARTIFACT}0")
    assert misses(cache, tmp_path / "volume", chosen)["vllm"].reasons == {MissReason.UNKNOWN: 1}


def test_a_cache_from_before_the_files_of_factors_gives_no_reason(tmp_path: Path) -> None:
    cache = put(tmp_path / "cache", f"torch_compile_cache/{HASH}/rank_0_0/backbone/artifact_shape_None_subgraph_0")
    chosen = model(tmp_path / "chosen", OTHER_HASH)
    found = misses(cache, tmp_path / "volume", chosen)
    assert found == {"vllm": KernelMissCounts({MissReason.UNKNOWN: 2}, 1)}


def test_a_component_that_the_cache_lacks_is_missing_there(cache: Path, tmp_path: Path) -> None:
    inside = f"torch_compile_cache/{OTHER_HASH}/rank_0_0/eagle_head"
    chosen = put(tmp_path / "chosen", f"{inside}/{ARTIFACT}0")
    put(chosen, f"{inside}/cache_key_factors.json", json.dumps(FACTORS).encode())
    assert misses(cache, tmp_path / "volume", chosen)["vllm"].reasons == {MissReason.NO_SUCH_KERNEL: 1}


LINES = (
    f"[{'a' * 52}] gm: <lambda>()\n{'def forward(self): pass' * 40}",
    "[bbbb] torch_version: <bytes>",
    "[cccc] system_info[device]: {'name': 'NVIDIA H100'}",
    "[dddd] inductor_config[max_autotune]: False",
)


@pytest.mark.parametrize(
    ("line", "reason", "text"),
    [
        (
            "[cccd] system_info[device]: {'name': 'NVIDIA H200'}",
            MissReason.OTHER_GPU,
            "system_info[device]: the cache has {'name': 'NVIDIA H100'}, the pod has {'name': 'NVIDIA H200'}",
        ),
        ("[bbbc] torch_version: <bytes>", MissReason.OTHER_VERSION, "torch_version differs"),
        (
            "[dddc] inductor_config[max_autotune]: True",
            MissReason.OTHER_OPTIONS,
            "inductor_config[max_autotune]: the cache has False, the pod has True",
        ),
        ("[aaab] gm: a secret of the model", MissReason.OTHER_SOURCE, "gm differs"),
    ],
)
def test_the_first_line_of_a_graph_that_differs_is_named(
    tmp_path: Path, line: str, reason: MissReason, text: str
) -> None:
    name = line.split(" ", 1)[1].partition(":")[0]
    cache = graph(tmp_path / "cache", GRAPH, *LINES)
    far = [f"[ffff] {each.split(' ', 1)[1]}" for each in LINES]
    graph(cache, GRAPH.replace("q", "r"), *far)
    lines = [line if each.split(" ", 1)[1].startswith(f"{name}:") else each for each in LINES]
    written = graph(tmp_path / "written", GRAPH.replace("q", "s"), *lines)
    assert misses(cache, tmp_path / "volume", written) == {
        "inductor": KernelMissCounts({reason: 1}, 2, difference=text)
    }


def test_a_graph_without_lines_is_of_unknown_reason(tmp_path: Path) -> None:
    cache, written = graph(tmp_path / "cache", GRAPH), graph(tmp_path / "written", GRAPH.replace("q", "s"))
    assert misses(cache, tmp_path / "volume", written)["inductor"].reasons == {MissReason.UNKNOWN: 1}
