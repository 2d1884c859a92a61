"""Neighbors from what lldpcli prints, which is what whoever is at the other end of a cable sends."""

import json
from pathlib import Path
from typing import Any

import pytest
from gkm.api.fabrics import MAX_PORTS, EthernetLink, LldpNeighbor
from gkm_agent.fabric.lldp import Links, NotUnderstood, decode
from gkm_agent.fabric.watch import ARGUMENTS, Neighbors
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from support.agent.fabric_values import interface

LEAF = EthernetLink("eth0", LldpNeighbor("02:00:00:00:00:01", "swp1", "leaf-1"))


def entry(name: str = "eth0", chassis: str = "02:00:00:00:00:01", port: str = "swp1", system: str = "leaf-1") -> Any:  # noqa: ANN401 -- JSON
    """Return an interface as lldpd 1.0.16 prints it in json0."""
    return {
        "name": name,
        "via": "LLDP",
        "rid": "1",
        "age": "0 day, 00:00:01",
        "chassis": [
            {"id": [{"type": "mac", "value": chassis}], "name": [{"value": system}], "descr": [{"value": "x"}]}
        ],
        "port": [{"id": [{"type": "ifname", "value": port}], "ttl": [{"value": "120"}]}],
    }


def printed(*entries: Any) -> bytes:  # noqa: ANN401 -- JSON
    return json.dumps({"lldp": [{"interface": list(entries)}]}, indent=2).encode()


def always(_: str) -> bool:
    return True


def test_a_neighbor_has_the_ids_that_it_sends() -> None:
    assert decode(printed(entry()), always) == Links((LEAF,))


@pytest.mark.parametrize(
    "output", [b'{"lldp": []}', b'{"lldp": [{}]}', b'{"lldp": [{"interface": []}]}', b'{"lldp": {}}']
)
def test_an_empty_output_has_no_neighbors(output: bytes) -> None:
    assert decode(output, always) == Links()


def test_links_come_by_name_of_the_interface() -> None:
    found = decode(printed(entry("eth1"), entry("eth0")), always)
    assert [link.interface for link in found.links] == ["eth0", "eth1"]


def test_what_is_no_port_of_an_adapter_is_ignored() -> None:
    found = decode(printed(entry("eth0"), entry("eth0v3"), entry("br0")), {"eth0"}.__contains__)
    assert found == Links((LEAF,))


def test_a_loop_is_ignored() -> None:
    assert decode(printed(entry()), always, {"02:00:00:00:00:01"}) == Links()


def test_several_neighbors_on_one_interface_are_a_problem_and_the_first_by_name_is_reported() -> None:
    two = [entry(), entry(chassis="02:00:00:00:00:02")]
    for order in (two, two[::-1]):
        found = decode(printed(*order), always)
        assert found.links == (LEAF,)
        assert found.problems == ("2 neighbors on eth0: only the first by name is reported, switches before hosts",)


STATION = {"capability": [{"type": "Bridge", "enabled": False}, {"type": "Station", "enabled": True}]}


def test_a_station_is_reported_as_a_host() -> None:
    station = entry("eth1", system="storage-1")
    station["chassis"][0] |= STATION
    found = decode(printed(entry(), station), always)
    assert [link.neighbour.host for link in found.links] == [False, True]


def test_a_switch_comes_before_a_station_of_the_same_interface() -> None:
    station = entry(chassis="02:00:00:00:00:00", system="guest-1")
    station["chassis"][0] |= STATION
    assert decode(printed(station, entry()), always).links == (LEAF,)


def test_other_protocols_are_not_lldp() -> None:
    assert decode(printed(entry() | {"via": "CDPv2"}), always) == Links()


@pytest.mark.parametrize(
    "spoilt",
    [{"chassis": []}, {"port": []}, {"chassis": [{"id": []}]}, {"port": [{"id": [{"value": " "}]}]}, {"port": [{}]}],
)
def test_a_neighbor_without_ids_is_skipped(spoilt: dict[str, Any]) -> None:
    found = decode(printed(entry("eth1") | spoilt, entry()), always)
    assert found == Links((LEAF,), ("the neighbor on eth1 sends no chassis or port id: skipped",))


@pytest.mark.parametrize("name", ["", "../eth0", "x" * 64, "e th0", "caf\u00e9"])
def test_a_name_that_no_interface_has_is_passed_over(name: str) -> None:
    found = decode(printed(entry(name)), always)
    assert found.links == ()
    assert "skipped" in found.problems[0]


def test_the_texts_of_a_neighbor_are_bounded_and_printable() -> None:
    (link,) = decode(printed(entry(system="evil\x1b[31m" + "x" * 9000, port="\u2603")), always).links
    assert link.neighbour.port_id == "?"
    assert link.neighbour.system_name.startswith("evil?[31m")
    assert len(link.neighbour.system_name) == 255


def test_thousands_of_neighbours_are_bounded() -> None:
    found = decode(printed(*(entry(f"eth{index}") for index in range(5000))), always)
    assert len(found.links) == MAX_PORTS
    assert "the rest is skipped" in found.problems[-1]


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"lldpd is not running",
        b"[]",
        b'{"lldp": 7}',
        b'{"interface": []}',
        b'{"lldp": "\xff"}',
        b"[" * 9999,
    ],
)
def test_what_is_not_the_output_of_lldpcli_is_not_understood(output: bytes) -> None:
    with pytest.raises(NotUnderstood, match="output of lldpcli is invalid"):
        decode(output, always)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["lldp", "interface", "name", "via", "chassis", "port", "id", "value"]), inner
        )
    ),
    max_leaves=20,
)


@given(_JSON | st.builds(lambda text: {"lldp": [{"interface": [entry(*text)]}]}, st.tuples(*[st.text()] * 4)))
def test_whatever_is_printed_is_links_that_the_api_takes_or_an_error_of_ours(value: object) -> None:
    try:
        found = decode(json.dumps(value).encode(), always)
    except NotUnderstood:
        return
    assert all(convert(to_builtins(link), EthernetLink) == link for link in found.links)


def stand_in(directory: Path, script: str) -> str:
    program = directory / "lldpcli"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_lldpcli_is_asked_for_the_stable_form(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    interface(tmp_path, "eth1", virtual_function=True)
    (tmp_path / "answer").write_bytes(printed(entry(), entry("eth1")))
    script = f'[ "$*" = "{" ".join(ARGUMENTS)}" ] && cat {tmp_path}/answer'
    assert Neighbors(stand_in(tmp_path, script), tmp_path).read() == Links((LEAF,))
    assert ARGUMENTS == ("-f", "json0", "show", "neighbors", "details")


@pytest.mark.parametrize("of_pod", [(), ("eth0",)])
def test_neighbors_on_interfaces_that_the_sys_of_a_pod_lacks_are_a_problem(
    tmp_path: Path, of_pod: tuple[str, ...]
) -> None:
    for name in of_pod:
        interface(tmp_path, name, hardware=False)
    (tmp_path / "answer").write_bytes(printed(entry(), entry("eth1"), entry("eth1"), entry("eth2"), entry("eth3")))
    found = Neighbors(stand_in(tmp_path, f"cat {tmp_path}/answer"), tmp_path).read()
    assert found.links == ()
    (problem,) = found.problems
    assert problem.startswith("neighbors on eth0, eth1, eth2 and 1 more are left out: the agent's /sys ")
    assert "mount the node's /sys at /sys (agent.extraVolumes)" in problem[:256]


def test_a_bridge_of_the_node_is_no_unknown_interface(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    interface(tmp_path, "br0", hardware=False)
    (tmp_path / "answer").write_bytes(printed(entry(), entry("br0"), entry("eth9")))
    found = Neighbors(stand_in(tmp_path, f"cat {tmp_path}/answer"), tmp_path).read()
    assert found.links == (LEAF,)
    assert [problem.partition(" are left out")[0] for problem in found.problems] == ["neighbors on eth9"]


def test_a_machine_of_ones_own_address_is_a_loop(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    interface(tmp_path, "eth7", address="02:00:00:00:00:01")
    (tmp_path / "answer").write_bytes(printed(entry()))
    assert Neighbors(stand_in(tmp_path, f"cat {tmp_path}/answer"), tmp_path).read() == Links()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'unable to connect to socket' >&2; exit 1", "lldpcli ended with 1: unable to connect to socket"),
        ("echo '2026-01-02T03:04:05 [WARN] no' >&2; exit 1", "lldpcli ended with 1: [WARN] no"),
        ("echo '{'", "the output of lldpcli is invalid"),
        ("exec head -c 9000000 /dev/zero", "more than 8388608 bytes"),
    ],
)
def test_an_lldpcli_that_fails_is_a_problem_and_no_neighbour(tmp_path: Path, script: str, problem: str) -> None:
    found = Neighbors(stand_in(tmp_path, script), tmp_path).read()
    assert found.links == ()
    assert problem in found.problems[0]


def test_a_missing_configured_lldpcli_is_a_problem(tmp_path: Path) -> None:
    assert Neighbors(f"{tmp_path}/none").read().problems == (f"fabric.lldpcli: {tmp_path}/none is not there",)


def test_without_lldpd_there_are_no_neighbors_and_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkm_agent.fabric.watch.CANDIDATES", ("/nowhere/lldpcli",))
    assert Neighbors().read() == Links()
