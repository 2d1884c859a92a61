"""One body for both: mounts in memory, and the real Mounter in a mount namespace of its own."""

import sys
from pathlib import Path

import pytest
from support.csi import mount_contract
from support.csi.mounts import MountsInMemory
from support.csi.namespaces import private_namespace


@pytest.mark.parametrize("case", mount_contract.CASES)
def test_mounts_in_memory_honor_the_contract(case: str, tmp_path: Path) -> None:
    mount_contract.CASES[case](MountsInMemory(), tmp_path / "target")


@pytest.mark.mounts
@pytest.mark.parametrize("case", mount_contract.CASES)
def test_the_kernel_honors_the_contract(case: str, tmp_path: Path) -> None:
    with private_namespace() as namespace:
        run = namespace.run(sys.executable, mount_contract.__file__, case, tmp_path)
    assert run.returncode == 0, run.stderr
