"""A capture takes the kernels of each runtime, and none that would end the process that finds it."""

from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.gpus.values import Gpu, Inventory
from gkm.images.assembly.selection import of_captured
from gkm.images.assembly.table_entries import EntryCheck
from gkm.images.assembly.tree import TreeEntry
from gkm.runtimes import BY_NAME
from gkm.runtimes.layout import FileKind
from gkm.runtimes.triton import ELF
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


def test_kernels_for_another_gpu_are_refused(tmp_path: Path) -> None:
    root = family(tmp_path, "deepgemm")
    put(root, f"cache/kernel.gemm.{SHORT}/kernel.cubin", cubin(80))
    with pytest.raises(GKMError, match="name hardware that this node lacks"):
        inspect(root, H100, LIMIT)


def test_the_limits_of_a_capture_hold_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = family(tmp_path, "deepgemm")
    read: list[str] = []

    def head(entry: TreeEntry, _most: int) -> bytes:
        read.append(entry.path)
        return b""

    monkeypatch.setattr(TreeEntry, "head", head)
    monkeypatch.setattr(TreeEntry, "pieces", lambda entry: iter([head(entry, 0)]))
    with pytest.raises(GKMError, match=r"more than the 1 bytes of capture\.maxBytes$") as caught:
        inspect(root, H100, 1)
    assert (caught.value.reason, read) == (Reason.TOO_LARGE, [])


def test_the_companions_of_many_entries_in_one_directory_are_found_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TreeEntry, "head", lambda _entry, _most: ELF)
    check = EntryCheck(of_captured(BY_NAME["quack"]))
    for number in range(20_000):
        for suffix in ("lock", "o")[number == 7 :]:
            path = f"{'a' * 64}/{number:064x}.{suffix}"
            check.add(TreeEntry(path, directory=False, size=4, executable=False, kind=FileKind.CONTENT, _parent=-1))
    assert check.finish() == {f"{'a' * 64}/{7:064x}.o": r"no file is there that matches \.lock"}


@pytest.mark.parametrize("files", [TVM_FFI, {"a.best_config": b"{}"}], ids=["TVM-FFI", "Helion"])
def test_what_cannot_hit_elsewhere_becomes_no_capture(tmp_path: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(GKMError) as caught:
        inspect(tree(tmp_path, files), H100, LIMIT)
    assert caught.value.reason is Reason.METADATA_MISSING
