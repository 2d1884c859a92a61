"""Credentials: every implementation and fake answers for any registry, the same each time, and shows no secret."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from gkm.images.registries import credentials
from gkm.images.registries.auth import Credentials, Login
from gkm.images.registries.credentials import Keyring
from gkm_cli.credential_helpers import PersonalCredentials
from support.images.hostile_scene import SECRET, USER, Fixed

HOST = "registry.example:5000"
CONFIG = credentials.parse(
    msgspec.json.encode(
        {
            "auths": {
                HOST: {"username": "host", "password": SECRET},
                f"{HOST}/team": {"username": "team", "password": SECRET},
            }
        }
    )
)
KINDS: dict[str, tuple[Credentials, Sequence[str]]] = {
    "anonymous": (Keyring(), []),
    "keyring": (Keyring([CONFIG]), ["team", "host"]),
    "personal": (PersonalCredentials([CONFIG]), ["team", "host"]),
    "fake": (Fixed(), [USER]),
}
REGISTRIES = (HOST, "docker.io", "localhost", "127.0.0.1:80", "[::1]:5000", "UPPER.example", "*", "")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Credentials, Sequence[str]]:
    return KINDS[request.param]


def test_the_most_specific_login_comes_first(kind: tuple[Credentials, Sequence[str]]) -> None:
    implementation, users = kind
    assert [login.user for login in implementation.logins(HOST, "team/cache")] == users


@pytest.mark.parametrize("registry", REGISTRIES)
def test_any_registry_has_an_answer_and_the_same_one_again(
    kind: tuple[Credentials, Sequence[str]], registry: str
) -> None:
    first = implementation_logins(kind, registry)
    assert all(isinstance(login, Login) for login in first)
    assert implementation_logins(kind, registry) == first


def implementation_logins(kind: tuple[Credentials, Sequence[str]], registry: str) -> list[Login]:
    return list(kind[0].logins(registry, "team/cache"))


def test_threads_get_the_same_logins(kind: tuple[Credentials, Sequence[str]]) -> None:
    implementation, users = kind
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda _: implementation.logins(HOST, "team/cache"), range(64))
        assert all([login.user for login in answer] == users for answer in answers)


def test_no_login_shows_its_secret(kind: tuple[Credentials, Sequence[str]]) -> None:
    assert SECRET not in repr(kind[0].logins(HOST, "team/cache"))
