"""Realms, redirects and mirrors: credentials go to their own hosts only."""

from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import BlobDownload
from gkm.images.registries.registry import Registry as Client
from support.images.cache_registry import LIMITS
from support.images.private_registry import (
    SECRET,
    as_user,
    client,
    everything_by_proxy,
    fill,
    image_of,
    keyring,
    private,
    reason_of,
)
from support.registry import faults
from support.registry.auth import Auth
from support.registry.server import Registry
from support.registry.store import OCI_MANIFEST


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("login", [{"username": "robot", "password": SECRET}, {"identitytoken": SECRET}])
@pytest.mark.parametrize("realm", ["http://{}/token", "http://registry.example@{}/token", "http://169.254.169.254/{}"])
def test_a_realm_elsewhere_gets_nothing(login: dict[str, str], realm: str) -> None:
    with Registry.start() as thief, private(Auth("robot", SECRET, realm=realm.format(thief.host))) as registry:
        assert (
            reason_of(client(keyring({registry.host: login}), registry, thief), image_of(registry))
            is Reason.NOT_ALLOWED
        )
        assert thief.requests == []


def test_the_realm_of_basic_is_a_word_that_leads_nowhere() -> None:
    with Registry.start() as thief, private(Auth("robot", SECRET, bearer=False, realm=thief.url)) as registry:
        ours = client(as_user(registry, "robot"), registry, thief)
        assert ours.resolve(image_of(registry)).startswith("sha256:")
        assert thief.requests == []


def test_a_realm_without_tls_gets_nothing_of_a_registry_with_it(tmp_path: Path) -> None:
    with Registry.start() as listener:
        auth = Auth("robot", SECRET, realm=f"{listener.url}/token")
        with Registry.start(auth=auth, tls=tmp_path) as registry:
            host = RegistryHost(ca_file=str(registry.ca_file), auth_hosts=[listener.host])
            config = Registries(hosts={registry.host: host})
            ours = Client(config, as_user(registry, "robot"), LIMITS)
            assert reason_of(ours, image_of(registry)) is Reason.NOT_ALLOWED
        assert listener.requests == []


def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path) -> None:
    with Registry.start(tls=tmp_path) as registry:
        registry.misbehave(faults.redirected("manifests/", "http://registry.example/x"))
        config = Registries(hosts={registry.host: RegistryHost(ca_file=str(registry.ca_file))})
        with pytest.raises(GKMError, match="from https to http") as caught:
            Client(config, limits=LIMITS).resolve(image_of(registry))
        assert caught.value.reason is Reason.NOT_ALLOWED


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data/", Reason.NOT_ALLOWED),
        ("http://[fe80::1]/", Reason.NOT_ALLOWED),
        ("http://[::ffff:169.254.169.254]/", Reason.NOT_ALLOWED),
        ("http://metadata.google.internal/", Reason.NOT_ALLOWED),
        ("http://localhost/", Reason.NOT_ALLOWED),
        ("http://0.0.0.0/", Reason.NOT_ALLOWED),
        ("file:///etc/passwd", Reason.NOT_ALLOWED),
        ("http://user:password@blobs.example/", Reason.REGISTRY_UNAVAILABLE),
        ("", Reason.REGISTRY_UNAVAILABLE),
    ],
)
def test_a_redirect_to_a_non_registry_address_is_refused(location: str, reason: Reason) -> None:
    with private() as registry:
        registry.auth = None
        registry.misbehave(faults.redirected("manifests/", location))
        assert reason_of(client(None, registry), image_of(registry)) is reason


@pytest.mark.parametrize("bearer", [True, False])
def test_a_request_redirected_to_another_host_carries_no_credentials(
    bearer: bool,  # noqa: FBT001 -- a column
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with everything_by_proxy(monkeypatch) as (other, _), private(Auth("robot", SECRET, bearer=bearer)) as registry:
        fill(other, "team/x")
        moved = faults.redirected("manifests/1", "http://blobs.example/v2/team/x/manifests/1")
        registry.misbehave(replace(moved, skip=1))  # it demands credentials first
        ours = client(as_user(registry, "robot"), registry)
        assert ours.resolve(image_of(registry)).startswith("sha256:")
        assert any("authorization" in asked.headers for asked in registry.seen("GET", "manifests/1"))
        assert [asked.headers.get("authorization") for asked in other.requests] == [None] * len(other.requests)
        assert other.requests


def test_the_token_of_one_registry_is_not_sent_to_another() -> None:
    with private() as registry, private() as other:
        credentials = keyring({registry.host: {"username": "robot", "password": SECRET}})
        ours = client(credentials, registry, other)
        ours.resolve(image_of(registry))
        assert reason_of(ours, image_of(other)) is Reason.UNAUTHORIZED
        assert not any("authorization" in asked.headers for asked in other.requests)


@pytest.mark.parametrize("bearer", [True, False])
def test_a_mirror_gets_no_credentials_of_its_registry(bearer: bool) -> None:  # noqa: FBT001 -- a column
    with private() as registry, private(Auth("robot", SECRET, bearer=bearer)) as mirror:
        ours = client(as_user(registry, "robot"), registry, mirror, mirrors=[mirror.host])
        assert ours.resolve(image_of(registry)).startswith("sha256:")
        assert mirror.requests
        assert not any("authorization" in asked.headers for asked in mirror.requests)
        assert registry.seen("GET", "manifests/1")


def test_a_mirror_cannot_send_for_the_credentials_of_its_registry() -> None:
    with private() as registry, private(Auth("robot", SECRET, realm=f"{registry.url}/token")) as mirror:
        logins = {host: {"username": "robot", "password": SECRET} for host in (registry.host, mirror.host)}
        ours = client(keyring(logins), registry, mirror, mirrors=[mirror.host])
        assert ours.resolve(image_of(registry)).startswith("sha256:")
        assert len(registry.seen("GET", "/token")) == 1  # for itself
        assert not any("authorization" in asked.headers for asked in mirror.requests)


def test_a_mirror_is_opened_by_its_own_credentials() -> None:
    with private() as registry, private() as mirror:
        ours = client(as_user(mirror, "robot"), registry, mirror, mirrors=[mirror.host])
        assert ours.resolve(image_of(registry)).startswith("sha256:")
        assert registry.requests == []


def test_addresses_in_a_layer_descriptor_are_never_contacted() -> None:
    with Registry.start() as thief, Registry.start() as registry:
        layer = {"mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar", "size": 5, "urls": [thief.url]}
        layer["digest"] = "sha256:" + "1" * 64
        config = {"mediaType": "x", "size": 2, "digest": registry.store.put_blob("team/x", b"{}")}
        manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]}
        registry.store.put_manifest("team/x", manifest, tag="1")
        ours = client(None, registry, thief)
        found = ours.manifest(image_of(registry)).image().layers[0]
        with pytest.raises(GKMError) as caught:
            ours.blob(image_of(registry), BlobDownload(found, lambda _part: None))
        assert caught.value.reason is Reason.NOT_FOUND
        assert thief.requests == []
