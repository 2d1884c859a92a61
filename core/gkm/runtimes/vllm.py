"""vLLM: compiled models by their hash, with the caches of TorchInductor and Triton inside. Pure.

Sources: vllm/compilation/{backends,compiler_interface,caching,decorators}.py, vllm/model_executor/models/registry.py,
0.10 to 0.33.

vLLM names the directory of a model by the digest of four factors, and writes them into cache_key_factors.json there:
every variable that it knows and does not ignore (vllm/envs.py, compile_factors), and digests of its configuration with
the release, of the traced code, and of the compiler with GPU and versions.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from gkm.runtimes.deepgemm import DEEPGEMM
from gkm.runtimes.inductor import GRAPH_PATH, GRAPHS
from gkm.runtimes.keys import MAX_FACTORS, Entries, Factor, Key, MissReason, digest
from gkm.runtimes.layout import FileKind, Place, file, folder
from gkm.runtimes.runtime import Runtime
from gkm.runtimes.triton import TRITON

ROOT: Final = "torch_compile_cache"
AOT: Final = "torch_aot_compile"
RANK: Final = r"rank_[0-9]{1,6}_[0-9]{1,6}(?:_dev[0-9]{1,4})?"
ARTIFACT: Final = r"artifact_(?:compile_range|shape)_[A-Za-z0-9_]{1,120}"
"""`artifact_compile_range_1_2048_subgraph_0`; to 0.11 `artifact_shape_None_subgraph_0`."""
INDEX: Final = "vllm_compile_cache.py"
_HASH: Final = r"[0-9a-f]{8,128}"
_MACHINE: Final = FileKind.MACHINE

_ARTIFACT: Final = (file(ARTIFACT), folder(ARTIFACT, *GRAPHS, file(r"[a-z_]{1,40}")))
"""A file in the format binary; in the format unpacked a directory of TorchInductor."""
_MODEL_FILES: Final = (
    file(r"cache_key_factors\.json"),
    file(r"(?:vllm_compile_cache|(?:computation_graph|transformed_code)(?:_[A-Za-z0-9_]{1,60})?)\.py"),
)
COMPILERS: Final = (folder(r"inductor_cache", *GRAPHS), folder(r"triton_cache", *TRITON.layout))
_COMPONENT: Final = folder(r"[A-Za-z][A-Za-z0-9_-]{0,80}", *_MODEL_FILES, *_ARTIFACT)
"""`backbone`, `eagle_head`, the encoders of a multimodal model."""
_RANK: Final = folder(RANK, *COMPILERS, *_MODEL_FILES, *_ARTIFACT, file(r"model"), _COMPONENT)
_MODEL: Final = folder(_HASH, *COMPILERS, *_MODEL_FILES, *_ARTIFACT, _RANK)


_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,80}"
_RESULTS: Final = folder(
    _HASH,
    file(r"autotune_configs_dp[0-9]{1,4}_rank[0-9]{1,4}\.json"),
    needs=(r"autotune_configs_dp([0-9]{1,4})_rank([0-9]{1,4})\.json",),
)
_TUNED: Final = folder(r"flashinfer_autotune_cache", folder(_NAME, folder(_NAME, _RESULTS)))
"""Results of rank 0 alone stop vLLM before 0.33 forever."""
_ROCM: Final = folder(
    r"rocm_segmented_attention",
    *(folder(r"triton", *TRITON.layout), file(r"[0-9a-f]{64}\.json"), file(r"[0-9a-f]{64}\.lock|\.lock")),
)


def _compiled(*models: Place) -> Place:
    return folder(ROOT, folder(AOT, *models), *models)


FACTORS: Final = "cache_key_factors.json"
MAX_FACTORS_BYTES: Final = 256 << 10
"""Limit of bytes of cache_key_factors.json; vLLM 0.33 writes about 12 KiB."""
SECRET_VARIABLE: Final = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_HASHES: Final = {
    "compiler_hash": (MissReason.OTHER_COMPILER, "the compiler (torch, Triton, CUDA or the model of the GPU)"),
    "config_hash": (MissReason.OTHER_CONFIGURATION, "the configuration (arguments, model or release of vLLM)"),
    "code_hash": (MissReason.OTHER_SOURCE, "the code of the model"),
}


def key_of(factors: bytes) -> Key | None:
    """Return the key in vLLM's cache_key_factors.json; None for any other file. Any author may have written it.

    Secrets are left out: images have null in their place. Numbers are settings and shown, texts are not.
    """
    try:
        value = json.loads(factors)
        env = value["env"]
        if len(env) > MAX_FACTORS:
            return None
        found = {text: Factor(reason, digest(value[name])) for name, (reason, text) in _HASHES.items()}
        # A release has the same names in each file.
        names = Factor(MissReason.OTHER_VERSION, digest(sorted(env)), f"{len(env)} names")
        variables = {name: _variable(each) for name, each in env.items() if not is_secret(name, each)}
        return {"the set of variables that vLLM knows": names, **found, **variables}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def environment_of(factors: bytes) -> Mapping[str, object]:
    """Return the environment variables in vLLM's cache_key_factors.json, without secrets; {} for any other file."""
    try:
        return {name: value for name, value in json.loads(factors)["env"].items() if not is_secret(name, value)}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}


def is_secret(name: str, value: object) -> bool:
    """Return whether an environment variable may hold a secret, judged by its name and value."""
    return not isinstance(value, bool | int | float) and SECRET_VARIABLE.search(name) is not None


def _variable(value: object) -> Factor:
    is_shown = value is None or isinstance(value, bool | int | float)
    return Factor(MissReason.OTHER_ENVIRONMENT, digest(value), json.dumps(value) if is_shown else "")


_IN_MODEL: Final = rf"(?P<home>{ROOT}/{_HASH})/(?:{RANK}/)?"
# Among several caches this one has a directory (gkm.runtimes.placement).
_ENTRY: Final = re.compile(
    rf"(?:vllm/)?(?P<entry>{ROOT}/{AOT}/{_HASH}/{RANK}/model"
    rf"|{_IN_MODEL}(?:(?:[^/]+/)?{ARTIFACT}(?=/|\Z)|inductor_cache/{GRAPH_PATH}))(?:/.*)?",
    re.ASCII | re.DOTALL,
)
_KEY_FILE: Final = re.compile(rf"(?:vllm/)?{_IN_MODEL}(?P<kind>(?:[A-Za-z][A-Za-z0-9_-]{{0,80}}/)?){FACTORS}", re.ASCII)

VLLM: Final = Runtime(
    name="vllm",
    title="vLLM",
    variables=("VLLM_CACHE_ROOT",),
    layout=(
        _compiled(_MODEL),
        folder(r"deep_gemm", *DEEPGEMM.layout),
        _TUNED,
        _ROCM,
        folder(r"dummy_cache"),
        folder(r"modelinfos", file(r"[A-Za-z0-9_-]{1,200}\.json", FileKind.UNCAPTURED)),
        folder(r"startup_plan", file(r".+", _MACHINE)),
        file(r"gpu_p2p_access_cache_for_.*\.json", _MACHINE),
        # A process may use one directory for both.
        *TRITON.layout,
    ),
    marks=(_compiled(_MODEL),),
    # Its kernels of attention and mixture of experts, which no graph contains.
    beside=(TRITON.name,),
    entries=Entries(
        _ENTRY,
        _KEY_FILE,
        key_of,
        MAX_FACTORS_BYTES,
        MissReason.NO_SUCH_KERNEL,
        "vLLM keys on digests of its configuration (arguments, model), code and compiler, which it makes at its start",
        environment=environment_of,
    ),
    # A hit of a model that was compiled ahead of time makes it.
    empty=(("", "dummy_cache"),),
)
