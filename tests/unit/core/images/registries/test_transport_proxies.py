"""Proxies of the environment, and certificate authorities of the configuration."""

import socket
import ssl
import time
from pathlib import Path

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries import addresses
from gkm.images.registries.connections import is_excluded, proxy_for
from gkm.images.registries.registry import Registry as Client
from gkm.images.registries.transport import RegistryRequest, Transport
from support.cluster.certificates import Authority
from support.images.cache_registry import LIMITS
from support.images.private_registry import SECRET, everything_by_proxy, fill, image_of, reason_of
from support.images.unreached import unreached
from support.registry.relay import Relay
from support.registry.server import Registry

NAMED = Reference.parse("registry.example/team/x:1")
"""A registry with a name, which only a proxy of the tests leads to: no address of this machine is one."""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("host", "no_proxy", "excepted"),
    [
        ("registry.example", "registry.example", True),
        ("registry.example", "other.example, registry.example", True),
        ("a.registry.example", "registry.example", True),
        ("a.registry.example", ".registry.example", True),
        ("registry.example", ".registry.example", False),
        ("a.registry.example", "*.registry.example", True),
        ("notregistry.example", "registry.example", False),
        ("registry.example", "REGISTRY.EXAMPLE", True),
        ("registry.example", "*", True),
        ("registry.example", "registry.example:5000", True),
        ("registry.example", "registry.example:5001", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:5000", True),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "[fd00::1]:5000", True),
        ("fd00::1", "fd00::1", True),
        ("registry.example", "10.0.0.0/8", False),
        ("registry.example", "registry.example/8", False),
        ("registry.example", "", False),
        ("registry.example", ",, ,", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(host: str, no_proxy: str, excepted: bool) -> None:  # noqa: FBT001 -- a column
    assert is_excluded(host, 5000, no_proxy) is excepted


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("proxy.example:3128", "http://proxy.example:3128"),
        ("https://proxy.example", "https://proxy.example:443"),
        ("http://[fd00::1]:3128/", "http://[fd00::1]:3128"),
        (f"http://robot:{SECRET}@proxy.example:3128", "http://proxy.example:3128"),
        (f"http://robot:{SECRET}€@proxy.example:3128", "http://proxy.example:3128"),
    ],
)
def test_a_proxy_is_parsed_and_its_password_hidden(monkeypatch: pytest.MonkeyPatch, value: str, url: str) -> None:
    monkeypatch.setenv("https_proxy", value)
    proxy = proxy_for(addresses.parse_address("https://registry.example/"))
    assert proxy is not None
    assert (proxy.url, SECRET in repr(proxy)) == (url, False)
    assert proxy_for(addresses.parse_address("https://127.0.0.1:5000/")) is None


@pytest.mark.parametrize(
    "value",
    [
        f"socks5://robot:{SECRET}@proxy.example",
        "http://",
        f"http://{SECRET}:x@:y",
        f"http://robot:{SECRET}#word@proxy.example:3128",
        f"http://robot:{SECRET}/word@proxy.example:3128",
        f"http://robot:{SECRET}?word@proxy.example:3128",
        f"http://robot:[{SECRET}@proxy.example:3128",
        f"http://robot:x@{SECRET} {SECRET}:3128",
    ],
)
def test_a_proxy_that_is_none_is_an_error_without_its_password(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("https_proxy", value)
    with unreached("proxy cannot be used") as error:
        Client(limits=LIMITS).resolve(NAMED)
    assert SECRET not in str(error.value) + error.value.detail


def named(**host: object) -> Client:
    return Client(Registries(hosts={NAMED.registry: RegistryHost(**host)}), limits=LIMITS)  # type: ignore[arg-type]


def test_of_both_spellings_the_upper_case_one_counts_as_in_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """golang.org/x/net/http/httpproxy, FromEnvironment."""
    monkeypatch.setenv("https_proxy", "http://lower.example:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://upper.example:2")
    proxy = proxy_for(addresses.parse_address("https://registry.example/"))
    assert proxy is not None
    assert proxy.url == "http://upper.example:2"


def test_a_registry_is_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with everything_by_proxy(monkeypatch) as (registry, relay):
        monkeypatch.setenv("http_proxy", f"http://robot:p%40ss@{relay.host}")
        fill(registry, "team/x")
        assert named(plain_http=True).resolve(NAMED).startswith("sha256:")
        assert relay.heads[0].startswith("GET http://registry.example/v2/team/x/manifests/1 ")
        assert "Basic cm9ib3Q6cEBzcw==" in relay.heads[0]


def test_a_registry_with_its_own_authority_is_reached_through_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority.create()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "other.crt").write_bytes(Authority.create("another").pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server([NAMED.registry]).write(tmp_path, "registry"))
    with Registry.start() as registry, Relay.start(registry.host, tls=context, proxy=True) as relay:
        fill(registry, "team/x")
        monkeypatch.setenv("https_proxy", f"http://robot:p%40ss@{relay.host}")
        assert named(ca_file=str(tmp_path / "ca.crt")).resolve(NAMED).startswith("sha256:")
        assert relay.heads[0].startswith("CONNECT registry.example:443 ")
        assert "Basic cm9ib3Q6cEBzcw==" in relay.heads[0]
        assert not any("proxy-authorization" in asked.headers for asked in registry.requests)
        with unreached("certificate is not trusted"):
            named(ca_file=str(tmp_path / "other.crt")).resolve(NAMED)


def test_a_proxy_that_is_away_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    monkeypatch.setenv("https_proxy", f"http://{address}")
    with unreached("its proxy does not answer"):
        named().resolve(NAMED)


def test_an_address_of_the_registry_that_is_none_is_not_the_proxy_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    nowhere = RegistryRequest("GET", "https://registry.example/v2/team/x/referrers/sha256:0?last=a b")
    transport = Transport(Registries(), NAMED.registry, LIMITS)
    with pytest.raises(GKMError, match="it sent an invalid address"):
        transport.send(nowhere, time.monotonic() + 60).__enter__()


def test_an_authority_that_is_none_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("not a certificate")
    with Registry.start(tls=tmp_path) as registry:
        config = Registries(hosts={registry.host: RegistryHost(ca_file=str(tmp_path / "ca.crt"))})
        assert reason_of(Client(config, limits=LIMITS), image_of(registry)) is Reason.REGISTRY_UNAVAILABLE


def test_an_invalid_registry_address_is_a_gkm_error() -> None:
    with pytest.raises(GKMError, match="not a valid registry address") as caught:
        Client().resolve(Reference.parse("registry.example:99999/x:1"))
    assert caught.value.reason is Reason.INVALID_REFERENCE
