"""The driver's library, found in the directory where the node has its driver."""

import os
from pathlib import Path

import pytest
from gkm.gpus import nvidia
from gkm.gpus.inventory import InventoryReader
from support.fakes import nvml_library, pci_devices
from support.fakes.nvml_library import H100


@pytest.fixture
def variables(tmp_path: Path, nvml: Path) -> dict[str, str]:
    """The environment of an agent in a container without the driver's library, on a machine with one GPU."""
    described = nvml_library.environment(tmp_path, library=nvml, gpus=[H100])
    return {key: value for key, value in (os.environ | described).items() if key != "LD_LIBRARY_PATH"}


@pytest.mark.parametrize("directory", ["usr/lib64", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"])
def test_the_library_is_found_where_distributions_have_it(
    tmp_path: Path, nvml: Path, variables: dict[str, str], directory: str
) -> None:
    root = tmp_path / "driver"
    (root / directory).mkdir(parents=True)
    (root / directory / "libnvidia-ml.so.570.1").write_bytes((nvml / nvidia.LIBRARY).read_bytes())
    (root / directory / nvidia.LIBRARY).symlink_to("libnvidia-ml.so.570.1")
    # One for another architecture, and a libc that would break every process that loads it.
    if directory != "usr/lib64":
        (root / "usr/lib64").mkdir(parents=True, exist_ok=True)
        (root / "usr/lib64" / nvidia.LIBRARY).write_bytes(b"\x7fELF no library")
    (root / directory / "libc.so.6").write_bytes(b"no library")

    found = InventoryReader(variables | {nvidia.VARIABLE: str(root)}).read()
    assert [gpu.model for gpu in found.gpus] == [H100["name"]]
    assert found.errors == ()


@pytest.mark.parametrize(
    "target", ["/etc/alternatives/nvml", "../../../etc/alternatives/nvml", "../../../../../etc/alternatives/nvml"]
)
def test_links_are_those_of_the_node_and_not_of_the_container(
    tmp_path: Path, nvml: Path, variables: dict[str, str], target: str
) -> None:
    root = tmp_path / "driver"
    for directory in ("usr/lib/x86_64-linux-gnu", "etc/alternatives", "opt"):
        (root / directory).mkdir(parents=True)
    (root / "opt/libnvidia-ml.so").write_bytes((nvml / nvidia.LIBRARY).read_bytes())
    (root / "etc/alternatives/nvml").symlink_to("/opt/libnvidia-ml.so")
    (root / "usr/lib/x86_64-linux-gnu" / nvidia.LIBRARY).symlink_to(target)
    found = InventoryReader(variables | {nvidia.VARIABLE: str(root)}).read()
    assert [gpu.model for gpu in found.gpus] == [H100["name"]]


def test_a_link_to_itself_is_no_library(tmp_path: Path, variables: dict[str, str]) -> None:
    root = tmp_path / "driver"
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64" / nvidia.LIBRARY).symlink_to(f"/usr/lib64/{nvidia.LIBRARY}")
    assert InventoryReader(variables | {nvidia.VARIABLE: str(root)}).read().gpus == ()


@pytest.mark.parametrize(
    ("root", "action"),
    [
        ("", "or set agent.driverRoot"),
        ("/nowhere", "agent.driverRoot is set: name the directory with the usr/lib or usr/lib64 of the driver"),
    ],
)
def test_without_the_library_a_driver_that_holds_gpus_is_an_error_that_names_the_value(
    tmp_path: Path, variables: dict[str, str], root: str, action: str
) -> None:
    devices = tmp_path / "pci"
    pci_devices.plug(devices, pci_devices.NVIDIA, driver="nvidia")
    (error,) = InventoryReader(variables | {nvidia.VARIABLE: root}, devices=devices).read().errors
    assert action in error
