"""The kind of an address in every spelling, and the hosts that may have it."""

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.images.registries import addresses
from gkm.images.registries.addresses import NetworkKind
from gkm.images.registries.host_rules import HostRules

LOCAL = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",  # noqa: S104 -- nothing is bound to it
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "::",
    "::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "FD00:0EC2:0::254",
    "fd20:ce::254",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "::ffff:100.100.100.200",
    "::ffff:0:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::127.0.0.1",
    "64:ff9b:1::127.0.0.1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
]
PRIVATE = [
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "255.255.255.255",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "::ffff:10.0.0.1",
    "::ffff:0:192.168.1.1",
    "::ffff:100.64.0.1",
    "::10.0.0.1",
    "::8.8.8.8",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
    "2002:a00:1::1",
    "2002:c0a8:101::1",
]
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "169.253.255.255",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]


@pytest.mark.parametrize(
    ("address", "kind"),
    [(a, NetworkKind.LOCAL) for a in LOCAL]
    + [(a, NetworkKind.PRIVATE) for a in PRIVATE]
    + [(a, NetworkKind.PUBLIC) for a in PUBLIC],
)
def test_an_address_is_of_one_kind(address: str, kind: NetworkKind) -> None:
    assert addresses.kind(address) is kind
    assert addresses.kind_of_host(address) is kind
    assert addresses.kind_of_host(f"[{address}]") is kind


@pytest.mark.parametrize("text", ["", "registry.example", "300.1.1.1.1", "::g", "1.2.3.4.5"])
def test_an_invalid_address_counts_as_local(text: str) -> None:
    assert addresses.kind(text) is NetworkKind.LOCAL


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("localhost", NetworkKind.LOCAL),
        ("LOCALHOST.", NetworkKind.LOCAL),
        ("a.localhost", NetworkKind.LOCAL),
        ("metadata.google.internal", NetworkKind.LOCAL),
        ("127.1", NetworkKind.LOCAL),
        ("0x7f.0.0.1", NetworkKind.LOCAL),
        ("0177.0.0.1", NetworkKind.LOCAL),
        ("2130706433", NetworkKind.LOCAL),
        ("10.1", NetworkKind.PRIVATE),
        ("0xa000001", NetworkKind.PRIVATE),
        ("10.0.0.1.", NetworkKind.PRIVATE),
        ("registry.example", NetworkKind.PUBLIC),
        ("10.0.0.1.example", NetworkKind.PUBLIC),
        ("localhost.example", NetworkKind.PUBLIC),
    ],
)
def test_the_kind_of_a_host_before_its_name_is_resolved(host: str, kind: NetworkKind) -> None:
    assert addresses.kind_of_host(host) is kind


CONFIGURED = Registries(
    allow=["named.example/team/*", "*.corp.example", "*:5000", "*", "*.test", "1*", "*.0.0.9", "[fd00::9]:5000/x"],
    hosts={
        "registry.example": RegistryHost(mirrors=["mirror.example:5000"], auth_hosts=["auth.example"]),
        "plain.example": RegistryHost(plain_http=True),
        "docker.io": RegistryHost(),
    },
)


@pytest.mark.parametrize(
    ("host", "port", "private", "local"),
    [
        ("registry.example", 443, True, True),
        ("REGISTRY.example.", 443, True, True),
        ("registry.example", 22, False, False),
        ("auth.example", 443, True, True),
        ("plain.example", 80, True, True),
        ("plain.example", 443, False, False),
        ("mirror.example", 5000, True, False),
        ("mirror.example", 443, False, False),
        ("named.example", 443, True, False),
        ("named.example", 5000, False, False),
        ("a.corp.example", 443, True, False),
        ("a.b.corp.example", 443, True, False),
        ("corp.example", 443, False, False),
        ("a.corp.example", 22, False, False),
        ("registry-1.docker.io", 443, True, False),
        ("fd00::9", 5000, True, False),
        ("evil.test", 443, False, False),
        ("evil.example", 5000, False, False),
        ("10.0.0.9", 443, False, False),
    ],
)
def test_only_a_host_that_is_named_may_lie_in_a_private_network(
    host: str,
    port: int,
    private: bool,  # noqa: FBT001 -- a column
    local: bool,  # noqa: FBT001 -- a column
) -> None:
    rules = HostRules.of(CONFIGURED, "registry.example")
    permitted = [rules.permit(host, port, address) for address in ("8.8.8.8", "10.0.0.9", "127.0.0.1")]
    assert permitted == [True, private, local]


def test_a_token_server_serves_only_its_own_registry() -> None:
    assert not HostRules.of(CONFIGURED, "plain.example").permit("auth.example", 443, "10.0.0.9")


@pytest.mark.parametrize(
    ("registry", "may"),
    [
        ("registry.example", True),
        ("10.0.0.9", False),
        ("10.0.0.9:5000", False),
        ("[fd00::9]:5000", True),
        ("[fd00::9]", False),
        ("127.0.0.1:5000", False),
        ("[::1]:5000", False),
        ("localhost:5000", False),
        ("2130706433:443", False),
        ("elsewhere.example", True),
        ("8.8.8.8:443", True),
    ],
)
def test_a_registry_is_refused_by_its_name_alone_where_that_is_an_address(registry: str, may: bool) -> None:  # noqa: FBT001
    assert HostRules.of(CONFIGURED).permit_registry(registry) is may
