"""Whose credentials open the registry of a cache: its own Secrets first, then those of the configuration."""

import base64
import json

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.names import CacheRef
from gkm.images.registries.credentials import PullSecrets
from gkm.kube.errors import ApiError
from gkm.kube.secrets import SECRETS, KubeSecrets
from gkm_agent.caches.model import WantedCache
from gkm_agent.standalone.source import BadManifest, manifests_in
from support.agent.node import IMAGE
from support.kube.fake_api import FakeApi

HOST = "registry.example"
CONFIGURED = Registries(hosts={HOST: RegistryHost(credentials_secret="ours")})


def docker_config(user: str, host: str = HOST) -> str:
    return json.dumps({"auths": {host: {"username": user, "password": f"of-{user}"}}})


def secret(namespace: str, name: str, text: str, key: str = ".dockerconfigjson") -> dict[str, object]:
    data = {key: base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}


def wanted(*secrets: str, namespace: str | None = "ml-apps") -> WantedCache:
    return WantedCache(CacheRef(namespace, "llama"), IMAGE, pull_secrets=secrets)


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    for namespace, name, user in (("ml-apps", "team", "team"), ("gkm-system", "ours", "cluster"), ("x", "team", "x")):
        api.create(SECRETS, secret(namespace, name, docker_config(user)))
    return api


def users(api: FakeApi, cache: WantedCache, registries: Registries = CONFIGURED) -> list[str]:
    secrets = PullSecrets(KubeSecrets(api), registries, "gkm-system")
    found = secrets.credentials(cache.image, cache.ref.namespace, cache.pull_secrets)
    return [] if found is None else [login.user for login in found.logins(HOST, "team/cache")]


def test_the_secrets_of_a_cache_come_before_those_of_the_configuration(api: FakeApi) -> None:
    assert users(api, wanted("team")) == ["team", "cluster"]
    assert users(api, wanted()) == ["cluster"]


def test_without_secrets_requests_are_anonymous(api: FakeApi) -> None:
    assert PullSecrets(KubeSecrets(api), Registries(), "gkm-system").credentials(IMAGE, "ml-apps", ()) is None
    assert "get" not in {verb for verb, _, _ in api.calls}


def test_only_the_secrets_of_its_registry_and_its_mirrors_are_read(api: FakeApi) -> None:
    hosts = {
        HOST: RegistryHost(mirrors=["mirror.example"]),
        "mirror.example": RegistryHost(credentials_secret="ours"),
        "other.example": RegistryHost(credentials_secret="missing"),
    }
    assert users(api, wanted(), Registries(hosts=hosts)) == ["cluster"]


def test_an_invalid_reference_is_reported_as_one(api: FakeApi) -> None:
    with pytest.raises(GKMError) as caught:
        PullSecrets(KubeSecrets(api), CONFIGURED, "gkm-system").credentials("http://x", "ml-apps", ())
    assert caught.value.reason is Reason.INVALID_REFERENCE


def test_only_the_namespace_of_the_cache_is_looked_into(api: FakeApi) -> None:
    assert users(api, wanted("team"), Registries()) == ["team"]
    assert users(api, wanted("team", namespace="x"), Registries()) == ["x"]


def test_the_secrets_of_a_cluster_wide_cache_are_our_own(api: FakeApi) -> None:
    assert users(api, wanted("ours", namespace=None), Registries()) == ["cluster"]


def test_the_old_form_of_secrets_is_read(api: FakeApi) -> None:
    old = json.dumps({HOST: {"username": "old", "password": "p"}})
    api.create(SECRETS, secret("ml-apps", "old", old, ".dockercfg"))
    assert users(api, wanted("old"), Registries()) == ["old"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "Secret ml-apps/absent does not exist; create it"),
        ("empty", "delete it, and make it with `kubectl create secret docker-registry empty -n ml-apps "),
        ("garbled", "Secret ml-apps/garbled"),
    ],
)
def test_a_secret_that_is_of_no_use_is_named(api: FakeApi, name: str, words: str) -> None:
    api.create(SECRETS, secret("ml-apps", "empty", "x", "other-key"))
    api.create(SECRETS, secret("ml-apps", "garbled", "{not json, of-secret"))
    with pytest.raises(GKMError) as caught:
        users(api, wanted(name))
    assert caught.value.reason is Reason.UNAUTHORIZED
    assert words in str(caught.value)
    assert "of-secret" not in str(caught.value)


@pytest.mark.parametrize(("status", "reason"), [(403, Reason.UNAUTHORIZED), (0, Reason.NODE_ERROR)])
def test_a_forbidden_secret_is_named_with_the_right_that_opens_it(api: FakeApi, status: int, reason: Reason) -> None:
    api.fault = lambda verb, _: ApiError(status, "x", "no") if verb == "get" else None
    with pytest.raises(GKMError) as caught:
        users(api, wanted("team"))
    assert caught.value.reason is reason
    assert ("RoleBinding" in str(caught.value)) is (status == 403)


def test_secrets_among_the_manifests_are_for_machines_without_kubernetes() -> None:
    clear = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}, "stringData": {".dockerconfigjson": "{}"}}
    text = f"{json.dumps(secret('ml-apps', 'a', 'x'))}\n---\n{json.dumps(clear)}\n"
    found = manifests_in(text.encode())
    assert found.secrets == {
        ("ml-apps", "a"): {".dockerconfigjson": base64.b64encode(b"x").decode()},
        ("default", "b"): {".dockerconfigjson": base64.b64encode(b"{}").decode()},
    }
    assert "eA==" not in repr(found)


def test_a_secret_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(BadManifest) as caught:
        manifests_in(b'{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": ["hidden"]}}')
    assert "hidden" not in str(caught.value)
