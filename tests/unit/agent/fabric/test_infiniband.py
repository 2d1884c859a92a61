"""InfiniBand ports from trees like /sys, as drivers may leave them."""

import os
from pathlib import Path

import pytest
from gkm.api.fabrics import MAX_PORTS, InfiniBandPort
from gkm_agent.fabric import sysfs
from gkm_agent.fabric.sysfs import active, decode
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from support.agent.fabric_values import NODE_GUID, PORT, adapter, interface

EXPECTED = InfiniBandPort("mlx5_0", 1, "e09d730300af125e", "e09d730300af125f", 0x29F, "ACTIVE", "400 Gb/sec (4X NDR)")
TEXTS = PORT | {"node_guid": NODE_GUID}


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir()
    return tmp_path


def test_a_port_is_read_as_the_kernel_shows_it(sys: Path) -> None:
    adapter(sys, "mlx5_0")
    assert sysfs.ports(sys) == sysfs.Ports((EXPECTED,))


def test_a_machine_without_infiniband_has_no_ports_and_no_problem(sys: Path) -> None:
    assert sysfs.ports(sys) == sysfs.Ports()
    assert sysfs.ports(sys / "nowhere") == sysfs.Ports()


def test_roce_is_not_infiniband(sys: Path) -> None:
    adapter(sys, "mlx5_0", {1: PORT | {"link_layer": "Ethernet\n"}, 2: PORT})
    found = sysfs.ports(sys)
    assert [port.port for port in found.ports] == [2]
    assert found.problems == ()


def test_ports_come_by_device_and_number_and_are_counted_for_people(sys: Path) -> None:
    down = PORT | {"state": "1: DOWN\n"}
    adapter(sys, "mlx5_1", {2: down, 10: PORT, 1: PORT})
    adapter(sys, "mlx5_0", {1: PORT})
    found = sysfs.ports(sys).ports
    assert [(port.device, port.port) for port in found] == [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_1", 10)]
    assert active(list(found)) == "3/4"
    assert active([]) == ""


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("node_guid", "", "node_guid", None),
        ("node_guid", "e09d:7303:00af", "node_guid", None),
        ("node_guid", "e09d:7303:00af:125e\n; rm -rf", "node_guid", None),
        ("gids/0", "fe80::1\n", "port_guid", None),
        ("gids/0", "x" * 39, "port_guid", None),
        ("lid", "671\n", "lid", 0),
        ("lid", "0x12345\n", "lid", 0),
        ("state", "ACTIVE\n", "state", ""),
        ("state", "4: \u0000\n", "state", ""),
        ("rate", "fast\n", "rate", ""),
        ("rate", "400 Gb/sec (4X NDR)" * 100, "rate", ""),
    ],
)
def test_a_garbled_file_costs_its_field_and_is_a_problem(name: str, text: str, field: str, value: object) -> None:
    found = decode("mlx5_0", 1, TEXTS | {name: text})
    assert found.port is not None
    assert getattr(found.port, field) == value
    (problem,) = found.problems
    assert problem.startswith(f"mlx5_0 port 1: {name} is ")
    assert len(problem) <= 256


@pytest.mark.parametrize("layer", ["", "Unspecified\n", "infiniband2"])
def test_a_port_without_a_type_is_skipped_and_reported(layer: str) -> None:
    found = decode("mlx5_0", 1, TEXTS | {"link_layer": layer})
    assert found.port is None
    assert "link layer" in found.problems[0]


@pytest.mark.parametrize(("name", "field"), [("node_guid", "node_guid"), ("gids/0", "port_guid")])
def test_zeroes_are_no_guid(name: str, field: str) -> None:
    zero = ":".join(["0000"] * (4 if name == "node_guid" else 8))
    found = decode("mlx5_0", 1, TEXTS | {name: zero})
    assert getattr(found.port, field) is None
    assert found.problems == ()


def test_a_missing_unreadable_or_huge_file_is_reported_and_only_its_field_is_absent(sys: Path) -> None:
    place = adapter(sys, "mlx5_0") / "ports" / "1"
    (place / "lid").unlink()
    (place / "rate").unlink()
    (place / "rate").mkdir()
    (place / "state").unlink()
    os.mkfifo(place / "state")
    (place / "gids" / "0").write_text(PORT["gids/0"] + "\n" * 5000)
    (place.parent.parent / "node_guid").write_bytes(b"\xff\xfe")
    found = sysfs.ports(sys)
    assert found.ports == (InfiniBandPort("mlx5_0", 1),)
    assert len(found.problems) == 5
    assert all(problem.endswith("missing or unreadable") for problem in found.problems)


def test_no_link_leads_out_of_the_tree(sys: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    adapter(outside, "mlx5_9")
    there = sys / "class" / "infiniband"
    there.mkdir()
    (there / "mlx5_9").symlink_to(outside / "class" / "infiniband" / "mlx5_9")
    (there / "mlx5_8").symlink_to("../" * 40 + str(outside / "devices/pci0000:00/mlx5_9/infiniband/mlx5_9")[1:])
    (there / "mlx5_7").symlink_to("mlx5_7")
    assert sysfs.ports(sys).ports == ()
    place = adapter(sys, "mlx5_0") / "node_guid"
    place.unlink()
    place.symlink_to(outside / "devices/pci0000:00/mlx5_9/infiniband/mlx5_9/node_guid")
    (port,) = sysfs.ports(sys).ports
    assert port.node_guid is None


def test_names_that_are_no_names_are_passed_over(sys: Path) -> None:
    adapter(sys, "mlx5_0")
    there = sys / "class" / "infiniband"
    for name in ("a b", "x" * 64, "-x", "caf\u00e9"):
        (there / name).symlink_to("mlx5_0")
    for number in ("0", "255", "999", "01", "one", "1000"):
        (there / "mlx5_0" / "ports" / number).symlink_to("1")
    found = sysfs.ports(sys)
    assert found.ports == (EXPECTED,)
    assert len(found.problems) == 4


def test_hundreds_of_ports_are_bounded(sys: Path) -> None:
    for device in range(MAX_PORTS // 128 + 1):
        adapter(sys, f"mlx5_{device}", dict.fromkeys(range(1, 129), PORT))
    found = sysfs.ports(sys)
    assert len(found.ports) == MAX_PORTS
    assert found.problems == (f"more than {MAX_PORTS} InfiniBand ports: the rest is not read",)


@given(st.dictionaries(st.sampled_from([*TEXTS]), st.text(max_size=200)), st.integers(1, 254))
def test_whatever_files_say_what_is_made_of_them_is_what_the_api_takes(texts: dict[str, str], number: int) -> None:
    found = decode("mlx5_0", number, {"link_layer": "InfiniBand"} | texts)
    if found.port is not None:
        assert convert(to_builtins(found.port), InfiniBandPort) == found.port
    assert all(len(problem) <= 256 and problem.isascii() for problem in found.problems)


def test_an_interface_is_hardware_when_it_has_a_device_and_is_no_virtual_function(sys: Path) -> None:
    interface(sys, "eth0")
    interface(sys, "eth0v0", virtual_function=True)
    interface(sys, "bond0", hardware=False)
    assert [sysfs.is_hardware(name, sys) for name in ("eth0", "eth0v0", "bond0", "gone", "../net/eth0")] == [
        True,
        False,
        False,
        None,
        None,
    ]


def test_the_addresses_of_a_machine_are_known(sys: Path) -> None:
    interface(sys, "eth0", address="02:00:00:AA:00:01")
    interface(sys, "lo", hardware=False, address="00:00:00:00:00:00")
    assert sysfs.addresses(sys) == {"02:00:00:aa:00:01"}
