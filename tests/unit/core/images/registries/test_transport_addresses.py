"""Addresses that registries send, and the ones that may receive credentials."""

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.images.registries import addresses
from gkm.images.registries.transport import Transport
from support.images.cache_registry import LIMITS


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://registry.example/x", ("https", "registry.example", 443)),
        ("https://REGISTRY.example:443/x", ("https", "registry.example", 443)),
        ("http://registry.example:5000", ("http", "registry.example", 5000)),
        ("http://[fd00::1]:5000/x?y=@#z", ("http", "fd00::1", 5000)),
        ("/other", ("https", "base.example", 443)),
        ("//other.example/x", ("https", "other.example", 443)),
    ],
)
def test_an_address_has_one_origin(text: str, origin: tuple[str, str, int]) -> None:
    assert addresses.parse_address(text, "https://base.example/v2/").origin == origin


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://registry.example@evil.example/", "no plain host and port"),
        ("https://registry.example:x@evil.example/", "no plain host and port"),
        ("https://evil.example\\@registry.example/", "too long, or with characters"),
        ("https://registry.example\\.evil.example/", "too long, or with characters"),
        ("https://registry.example\t.evil.example/", "too long, or with characters"),
        ("https://registry.example\r\nHost: evil.example/", "too long, or with characters"),
        ("https:// registry.example/", "too long, or with characters"),
        ("https://", "no plain host and port"),
        ("https:///x", "no plain host and port"),
        ("https://[::1/", "^no address$"),
        ("https://registry.example:99999/", "no plain host and port"),
        ("https://registry.example:0/", "no plain host and port"),
        ("https://registry.example:/", "no plain host and port"),
        ("https://-x/", "no plain host and port"),
        ("https://registry。example/", "no plain host and port"),
        ("file:///etc/passwd", "^file$"),
        ("gopher://registry.example/", "^gopher$"),
        ("https://registry.example/" + "x" * 20_000, "too long, or with characters"),
    ],
)
def test_an_address_that_two_readers_could_take_for_two_is_none(text: str, why: str) -> None:
    with pytest.raises(addresses.InvalidAddress, match=why):
        addresses.parse_address(text)


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://registry.example/token", True),
        ("https://REGISTRY.example:443/token", True),
        ("https://auth.example/token", True),
        ("https://ports.example:8443/token", True),
        ("http://plain.example/token", True),  # configured as plain http
        ("http://registry.example/token", False),
        ("http://auth.example/token", False),
        ("https://plain.example/token", False),
        ("https://ports.example/token", False),
        ("https://registry.example:8443/token", False),
        ("https://a.registry.example/token", False),
        ("https://registry.example.evil.example/token", False),
        ("https://registry.example@evil.example/token", False),
        ("https://evil.example/https://registry.example/", False),
        ("/token", False),
        ("", False),
    ],
)
def test_credentials_go_to_the_registry_and_to_named_hosts_only(url: str, may: bool) -> None:  # noqa: FBT001 -- a column
    host = RegistryHost(auth_hosts=["auth.example", "ports.example:8443", "plain.example"])
    hosts = {"registry.example": host, "plain.example": RegistryHost(plain_http=True)}
    assert Transport(Registries(hosts=hosts), "registry.example", LIMITS).may_send_credentials(url) is may


def test_docker_hub_has_its_token_server() -> None:
    hub = Transport(Registries(), "docker.io", LIMITS)
    assert hub.may_send_credentials("https://auth.docker.io/token")
    assert not hub.may_send_credentials("https://docker.io.evil.example/token")
    assert not Transport(Registries(), "registry.example", LIMITS).may_send_credentials("https://auth.docker.io/token")
