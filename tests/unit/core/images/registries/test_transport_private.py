"""The addresses that a connection may use: checked after the name is resolved and before the first packet."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from support.host.waiting import scaled
from support.images.cache_registry import LIMITS
from support.images.private_registry import client, fill, image_of, reason_of
from support.registry import faults
from support.registry.server import Registry

CHILD = Path(__file__).parents[4] / "support" / "images" / "private_network.py"


@dataclass
class Port:
    """A port that counts its connections."""

    listening: socket.socket

    @property
    def number(self) -> int:
        return int(self.listening.getsockname()[1])

    def connections(self) -> int:
        self.listening.settimeout(0)
        count = 0
        try:
            while True:
                self.listening.accept()[0].close()
                count += 1
        except BlockingIOError:
            return count


@contextmanager
def a_port() -> Iterator[Port]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Port(listening)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def resolving(monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> None:
    """Resolve names below .example to given addresses; a name with several lists returns one after the other."""
    real = socket.getaddrinfo

    def lookup(host: str, port: int, *args: int, **more: int) -> object:
        if not host.endswith(".example"):
            return real(host, port, *args, **more)
        return [found for name in names[host.partition(".")[0]] for found in real(name, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_name_with_a_local_address_is_refused_before_a_packet_is_sent(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    with a_port() as port:
        resolving(monkeypatch, evil=[address])
        with pytest.raises(GKMError, match=r"evil\.example leads to an address of this machine or of a priv") as caught:
            Client(limits=LIMITS).resolve(Reference.parse(f"evil.example:{port.number}/team/x:1"))
        assert caught.value.reason is Reason.NOT_ALLOWED
        assert address not in str(caught.value)
        assert port.connections() == 0


def test_of_several_addresses_only_those_that_are_permitted_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def connect(address: tuple[str, int], *_: object) -> socket.socket:
        tried.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr("gkm.images.registries.connections.create_connection", connect)
    resolving(monkeypatch, evil=["10.0.0.1", "8.8.8.8", "fd00:ec2::254", "127.0.0.1", "1.1.1.1"])
    with pytest.raises(GKMError, match="could not be reached"):
        Client(limits=LIMITS).resolve(Reference.parse("evil.example/team/x:1"))
    assert tried[:2] == ["8.8.8.8", "1.1.1.1"]
    assert set(tried) == {"8.8.8.8", "1.1.1.1"}


def test_a_name_that_changes_its_address_after_the_check_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def connect(address: tuple[str, int], *_: object) -> socket.socket:
        tried.append(address[0])
        resolving(monkeypatch, evil=["127.0.0.1"])
        raise ConnectionRefusedError

    monkeypatch.setattr("gkm.images.registries.connections.create_connection", connect)
    resolving(monkeypatch, evil=["8.8.8.8"])
    with pytest.raises(GKMError, match="leads to an address of this machine") as caught:
        Client(limits=LIMITS).resolve(Reference.parse("evil.example/team/x:1"))
    assert caught.value.reason is Reason.NOT_ALLOWED
    assert tried == ["8.8.8.8"]  # the next attempt resolves and checks again


def test_a_name_with_hundreds_of_addresses_costs_no_more_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def connect(address: tuple[str, int], *_: object) -> socket.socket:
        tried.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr("gkm.images.registries.connections.create_connection", connect)
    resolving(monkeypatch, evil=[f"8.8.{n}.8" for n in range(200)])
    with pytest.raises(GKMError, match="could not be reached"):
        Client(limits=LIMITS).resolve(Reference.parse("evil.example/team/x:1"))
    assert len(tried) == 3 * 16


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1:22/",
        "http://192.168.0.1/",
        "http://100.64.0.1/",
        "http://100.100.100.200/latest/meta-data/",
        "http://[fd00:ec2::254]/latest/meta-data/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::10.0.0.1]/",
        "http://[2002:a00:1::]/",
        "http://127.1:{port}/",
        "http://2130706433:{port}/",
        "http://evil.example:{port}/",
    ],
)
def test_a_redirect_does_not_lead_inside(monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    with Registry.start() as registry, a_port() as port:
        resolving(monkeypatch, evil=["127.0.0.1"])
        fill(registry, "team/x")
        registry.misbehave(faults.redirected("manifests/", location.format(port=port.number)))
        assert reason_of(client(None, registry), image_of(registry)) is Reason.NOT_ALLOWED
        assert port.connections() == 0


@pytest.mark.parametrize("named", [False, True])
def test_a_private_token_server_is_contacted_only_if_it_is_configured(
    monkeypatch: pytest.MonkeyPatch,
    named: bool,  # noqa: FBT001 -- a column
) -> None:
    with Registry.start() as registry, a_port() as port:
        resolving(monkeypatch, auth=["127.0.0.1"])
        fill(registry, "team/x")
        realm = f'Bearer realm="http://auth.example:{port.number}/token",service="x"'
        registry.misbehave(faults.status("manifests/", 401, headers={"WWW-Authenticate": realm}))
        auth = f"auth.example:{port.number}"
        hosts = {registry.host: RegistryHost(plain_http=True, auth_hosts=[auth] if named else [])}
        if named:
            hosts[auth] = RegistryHost(plain_http=True)
        reason = reason_of(Client(Registries(hosts=hosts), limits=LIMITS), image_of(registry))
        assert reason is (Reason.REGISTRY_UNAVAILABLE if named else Reason.NOT_ALLOWED)
        assert (port.connections() > 0) is named


@pytest.mark.parametrize("image", ["10.9.8.7:5000/x:1", "[fd00:ec2::254]:80/x:1", "100.100.100.200/x:1", "127.1/x:1"])
def test_an_address_is_refused_by_a_proxy_too(monkeypatch: pytest.MonkeyPatch, image: str) -> None:
    with a_port() as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port.number}")
        assert reason_of(Client(limits=LIMITS), Reference.parse(image)) is Reason.NOT_ALLOWED
        assert port.connections() == 0


@pytest.mark.parametrize("allow", [[], ["*"], ["*/team/*"], ["10.*"], ["*:5000"]])
def test_a_glob_that_names_no_host_opens_no_address(allow: list[str]) -> None:
    refused = Reference.parse("10.9.8.7:5000/team/x:1")
    with pytest.raises(GKMError) as caught:
        Client(Registries(allow=allow), limits=LIMITS).check_allowed(refused)
    assert caught.value.reason is Reason.NOT_ALLOWED


def test_a_configured_registry_may_have_any_address() -> None:
    with Registry.start() as registry:
        fill(registry, "team/x")
        named = Registries(hosts={registry.host: RegistryHost(plain_http=True)})
        assert Client(named, limits=LIMITS).resolve(image_of(registry)).startswith("sha256:")


@pytest.mark.usefixtures("as_root")
@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
def test_in_a_private_network_only_configured_hosts_get_a_packet() -> None:
    """Run in a separate network namespace, where packets reach 10.9.8.7."""
    script = f"ip link set lo up && ip address add 10.9.8.7/32 dev lo && exec {sys.executable} {CHILD}"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "unnamed: NotAllowed, 0 connections",
        "a glob for all: NotAllowed, 0 connections",
        "another port: NotAllowed, 0 connections",
        "named in hosts: RegistryUnavailable, connected",
        "named in allow: RegistryUnavailable, connected",
    ]
