"""vLLM: compiled models by their hash, with the caches of TorchInductor and Triton inside. Pure.

Sources: vllm/compilation/{backends,compiler_interface,caching,decorators}.py, vllm/model_executor/models/registry.py,
0.10 to 0.33.
"""

from typing import Final

from gkm.runtimes.inductor import GRAPHS
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
_INNER: Final = (folder(r"inductor_cache", *GRAPHS), folder(r"triton_cache", *TRITON.layout))
_COMPONENT: Final = folder(r"[A-Za-z][A-Za-z0-9_-]{0,80}", *_MODEL_FILES, *_ARTIFACT)
"""`backbone`, `eagle_head`, the encoders of a multimodal model."""
_RANK: Final = folder(RANK, *_INNER, *_MODEL_FILES, *_ARTIFACT, file(r"model"), _COMPONENT)
_MODEL: Final = folder(_HASH, *_INNER, *_MODEL_FILES, *_ARTIFACT, _RANK)


def _compiled(*models: Place) -> Place:
    return folder(ROOT, folder(AOT, *models), *models)


VLLM: Final = Runtime(
    name="vllm",
    title="vLLM",
    variables=("VLLM_CACHE_ROOT",),
    layout=(
        _compiled(_MODEL),
        folder(r"modelinfos", file(r"[A-Za-z0-9_-]{1,200}\.json", FileKind.HINT)),
        folder(r"startup_plan", file(r".+", _MACHINE)),
        file(r"gpu_p2p_access_cache_for_.*\.json", _MACHINE),
        # A process may use one directory for both.
        *TRITON.layout,
    ),
    marks=(_compiled(_MODEL),),
    # Its kernels of attention and mixture of experts, which no graph contains.
    beside=(TRITON.name,),
)
