"""GKM on arm64, where all multi-node NVLink machines are: tests and the demo under emulation, a folder at a time.

Emulation proves what the programs do. It proves nothing about time. tests/e2e/product_images has the images.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.arm64 import chroot, debian, machine
from support.peers import require
from support.product_images.build import ROOT

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3 * 3600)]
SECONDS = 2 * 3600.0
WITHOUT_PROCESSES = "not processes and not apiserver and not partners and not heavy"
ON_A_MACHINE = (
    "contract/test_mount_interface_contract.py",
    *(f"unit/agent/fabric/test_{name}.py" for name in ("infiniband", "lldp", "watch")),
    "unit/core/images/assembly/test_build.py",
    "unit/core/mounts",
    "unit/core/templates/rendering/test_process.py",
    *(f"unit/csi/test_{name}_misses.py" for name in ("graph", "kernel")),
)
"""Tests that ask the kernel for what qemu-user does not give: openat2, mounts, and limits of memory."""
OF_AN_INSTALLATION = "unit/cli/test_appearance.py"
"""Tests of the programs of an environment, which the images have and the root does not."""
FOLDERS = (
    *("contract", "unit/agent", "unit/cli", "unit/csi", "unit/operator"),
    *sorted({f"unit/core/{path.name}" for path in ROOT.glob("tests/unit/core/[a-z]*")} - {*ON_A_MACHINE}),
)
"""The folders whose other tests run our programs; the tests of no folder here read the files of the repository."""


@pytest.fixture(scope="module", autouse=True)
def _emulation() -> None:
    require.root()
    require.command(machine.QEMU, "qemu-system-arm")


def said(page_kib: int, script: str) -> str:
    """Return what a machine with pages of so many KiB says, where the script ends well."""
    with require.absences():
        ended = machine.run(page_kib, f"uname -m; getconf PAGESIZE\n{script}", SECONDS)
    _succeeded(ended)
    assert f"aarch64\n{page_kib * 1024}\n" in ended.console
    return ended.console


def _succeeded(ended: machine.Ended) -> None:
    print(ended.console)  # noqa: T201 -- shown by -rP
    assert ended.code == 0, ended.console[-8000:]


@pytest.mark.parametrize("page_kib", debian.KERNELS)
def test_a_cache_is_pulled_verified_mounted_and_read(page_kib: int) -> None:
    assert "All of it came true." in said(page_kib, "python3 -m demo.local")


@pytest.fixture(scope="module")
def unpacked() -> Iterator[Path]:
    with require.absences(), chroot.unpacked() as directory:
        yield directory


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_tests_of_a_folder_pass(folder: str, unpacked: Path) -> None:
    elsewhere = (f"--ignore=tests/{each}" for each in (*ON_A_MACHINE, OF_AN_INSTALLATION))
    script = machine.tests("-n", "2", "-m", WITHOUT_PROCESSES, *elsewhere, f"tests/{folder}")
    ended = chroot.run(unpacked, f"uname -m\n{script}", SECONDS)
    _succeeded(ended)
    assert ended.console.startswith("aarch64\n")


@pytest.mark.parametrize("path", ON_A_MACHINE)
def test_tests_pass_on_a_machine(path: str) -> None:
    said(4, machine.tests("-n", "2", "-m", WITHOUT_PROCESSES, f"tests/{path}"))


def test_mounts_hold_with_larger_pages() -> None:
    """Memory of a tmpfs is counted in pages, so each limit of a volume depends on their size."""
    said(16, machine.tests("-n", "2", "-m", WITHOUT_PROCESSES, "tests/unit/core/mounts"))
