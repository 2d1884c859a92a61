"""A registry that demands credentials, and clients with credentials for it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries.auth import Credentials
from gkm.images.registries.credentials import Keyring, parse
from gkm.images.registries.registry import Registry as Client
from support.images.cache_registry import LIMITS
from support.registry.auth import Auth
from support.registry.relay import Relay
from support.registry.server import Registry
from support.registry.store import OCI_MANIFEST

SECRET = "s3cret-passw0rd"


@contextmanager
def private(auth: Auth | None = None, *repositories: str) -> Iterator[Registry]:
    """Run a registry with an image `:1` in each repository; only `robot` may read them unless `auth` differs."""
    with Registry.start(auth=auth or Auth("robot", SECRET)) as registry:
        for repository in repositories or ("team/x",):
            fill(registry, repository)
        yield registry


def fill(registry: Registry, repository: str) -> None:
    config = {"digest": registry.store.put_blob(repository, b"{}"), "size": 2, "mediaType": "x"}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []}
    registry.store.put_manifest(repository, {**manifest, "annotations": {"of": repository}}, tag="1")


def image_of(registry: Registry, repository: str = "team/x") -> Reference:
    return Reference.parse(f"{registry.host}/{repository}:1")


def keyring(*secrets: Mapping[str, Mapping[str, str]]) -> Keyring:
    """Return the keyring of Secrets, each with these `auths`."""
    return Keyring(parse(json.dumps({"auths": auths}).encode()) for auths in secrets)


def as_user(registry: Registry, user: str, password: str = SECRET) -> Keyring:
    return keyring({registry.host: {"username": user, "password": password}})


def client(credentials: Credentials | None, *registries: Registry, **host: object) -> Client:
    """Return a client that may use plain http; `host` are settings of the first registry."""
    first, *others = (registry.host for registry in registries)
    hosts = {other: RegistryHost(plain_http=True) for other in others}
    hosts[first] = RegistryHost(plain_http=True, **host)  # type: ignore[arg-type]
    return Client(Registries(hosts=hosts), credentials, LIMITS)


def reason_of(ours: Client, ref: Reference) -> Reason:
    """Return the reason why a reference does not resolve."""
    with pytest.raises(GKMError) as caught:
        ours.resolve(ref)
    return caught.value.reason


@contextmanager
def everything_by_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Registry, Relay]]:
    """Run a registry that serves every name through a proxy, because no local address can be another host."""
    with Registry.start() as other, Relay.start(other.host, proxy=True) as relay:
        monkeypatch.setenv("http_proxy", f"http://{relay.host}")
        yield other, relay
