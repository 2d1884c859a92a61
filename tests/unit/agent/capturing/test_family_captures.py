"""A capture takes the kernels of each runtime, and none that would end the process that finds it."""

from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.gpus.values import Gpu, Inventory
from gkm_agent.capturing.inspection import inspect
from support.images.families import DEEPGEMM, SHORT, TVM_FFI, cubin, family, tree
from support.images.vllm import put

H100 = Inventory((Gpu(0, "cuda", "GPU-0", "NVIDIA H100", "590.1", "13.0", "90", 32),))
LIMIT = 1 << 20


def test_kernels_of_deepgemm_become_a_capture_of_their_gpu(tmp_path: Path) -> None:
    found = inspect(family(tmp_path, "deepgemm"), H100, LIMIT)
    assert (found.hardware.runtime, found.hardware.arch) == ("deepgemm", "sm_90")
    assert {file.path for file in found.files} == set(DEEPGEMM)


def test_half_a_kernel_of_deepgemm_stays_on_the_node(tmp_path: Path) -> None:
    root = family(tmp_path, "deepgemm")
    (root / f"cache/kernel.gemm.{SHORT}/kernel.cu").unlink()
    found = inspect(root, H100, LIMIT)
    assert {file.path for file in found.files} == {path for path in DEEPGEMM if "kernel.gemm" not in path}
    assert found.left_out == 1


def test_kernels_for_another_gpu_are_refused(tmp_path: Path) -> None:
    root = family(tmp_path, "deepgemm")
    put(root, f"cache/kernel.gemm.{SHORT}/kernel.cubin", cubin(80))
    with pytest.raises(GKMError, match="name hardware that this node lacks"):
        inspect(root, H100, LIMIT)


@pytest.mark.parametrize("files", [TVM_FFI, {"a.best_config": b"{}"}], ids=["TVM-FFI", "Helion"])
def test_what_cannot_hit_elsewhere_becomes_no_capture(tmp_path: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(GKMError) as caught:
        inspect(tree(tmp_path, files), H100, LIMIT)
    assert caught.value.reason is Reason.METADATA_MISSING
