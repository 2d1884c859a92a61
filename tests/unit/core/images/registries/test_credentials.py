"""Image pull secrets: their parsing, and the repositories that they open by the kubelet's rules."""

import base64
import json

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.registries import credentials
from gkm.images.registries.auth import Login
from gkm.images.registries.credentials import MAX_CONFIG_BYTES, MAX_ENTRIES, MAX_SECRET_CHARACTERS, Keyring, parse
from hypothesis import given
from hypothesis import strategies as st

SECRET = "s3cret-passw0rd"


def coded(user: str, password: str = SECRET) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def secret(*places: str) -> bytes:
    """Return a .dockerconfigjson in which the user of each server is the server's name."""
    return json.dumps({"auths": {place: {"username": place, "password": SECRET} for place in places}}).encode()


def users(raw: bytes | list[bytes], registry: str, repository: str = "team/x") -> list[str]:
    configs = [parse(one) for one in ([raw] if isinstance(raw, bytes) else raw)]
    return [login.user for login in Keyring(configs).logins(registry, repository)]


@pytest.mark.parametrize(
    ("entry", "login"),
    [
        ({"auth": coded("robot")}, Login("robot", SECRET)),
        ({"auth": coded("robot").rstrip("=")}, Login("robot", SECRET)),
        ({"auth": coded("robot", "with:colons:")}, Login("robot", "with:colons:")),
        ({"auth": coded("robot", SECRET + "\0\0")}, Login("robot", SECRET)),
        ({"auth": coded("robot", "pässwörd")}, Login("robot", "pässwörd")),
        ({"username": "robot", "password": SECRET}, Login("robot", SECRET)),
        ({"username": "old", "password": "old", "auth": coded("robot")}, Login("robot", SECRET)),
        ({"identitytoken": "refresh"}, Login(identity_token="refresh")),
        ({"auth": coded("robot", ""), "identitytoken": "refresh"}, Login("robot", "", "refresh")),
        ({"auth": coded("robot"), "email": "robot@example.test", "unknown": [1]}, Login("robot", SECRET)),
    ],
)
def test_every_way_to_write_a_login_is_read(entry: dict[str, object], login: Login) -> None:
    raw = json.dumps({"auths": {"registry.example": entry}}).encode()
    assert Keyring([parse(raw)]).logins("registry.example", "team/x") == [login]


def test_the_old_form_has_its_entries_at_the_root() -> None:
    raw = json.dumps({"https://registry.example/v1/": {"auth": coded("robot"), "email": "x"}}).encode()
    assert users(raw, "registry.example") == ["robot"]


@pytest.mark.parametrize(
    "raw",
    [b"{}", b'{"auths":{}}', b'{"auths":{"registry.example":{}}}', b'{"HttpHeaders":{"a.b":"c"},"psFormat":"x"}'],
)
def test_a_file_may_hold_no_login(raw: bytes) -> None:
    assert parse(raw).entries == ()


def test_helpers_are_named_and_not_run() -> None:
    read = parse(b'{"credsStore":"desktop","credHelpers":{"registry.example":"cloud"}}')
    assert (read.store, read.helpers) == ("desktop", {"registry.example": "cloud"})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"auths":',
        b'{"auths":[]}',
        b'{"auths":{"registry.example":"' + SECRET.encode() + b'"}}',
        b'{"auths":{"registry.example":{"auth":7}}}',
        b'{"auths":{"registry.example":{"auth":"%%%"}}}',
        json.dumps({"auths": {"registry.example": {"auth": base64.b64encode(SECRET.encode()).decode()}}}).encode(),
        json.dumps({"auths": {"registry.example": {"auth": base64.b64encode(b"\xff:\xff").decode()}}}).encode(),
        json.dumps({"auths": {"registry.example": {"password": SECRET * MAX_SECRET_CHARACTERS}}}).encode(),
        json.dumps({"auths": {f"registry-{number}.example": {} for number in range(MAX_ENTRIES + 1)}}).encode(),
        b"[" * 100_000,
        b'{"auths":{}}' + b" " * MAX_CONFIG_BYTES,
    ],
    ids=lambda raw: raw[:40].decode(errors="replace"),
)
def test_an_invalid_docker_configuration_is_refused_without_quoting_it(raw: bytes) -> None:
    with pytest.raises(GKMError, match="Secret team/pull cannot be used") as caught:
        parse(raw, "Secret team/pull")
    assert caught.value.reason is Reason.UNAUTHORIZED
    assert SECRET not in str(caught.value)
    assert base64.b64encode(SECRET.encode()).decode() not in str(caught.value)


def test_no_repr_shows_a_login() -> None:
    read = parse(secret("registry.example"))
    assert SECRET not in repr(read)
    assert SECRET not in repr(Keyring([read]))


@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_any_bytes_are_a_configuration_or_an_error_of_ours(raw: bytes) -> None:
    try:
        read = parse(raw)
    except GKMError:
        return
    Keyring([read]).logins("registry.example", "team/x")


@given(st.text(max_size=60), st.sampled_from(["docker.io", "registry.example:5000", "[fd00::1]:5000", "a.b.example"]))
def test_every_registry_pattern_can_be_matched(place: str, registry: str) -> None:
    raw = json.dumps({"auths": {place: {"username": "robot"}}}).encode()
    assert users(raw, registry) in ([], ["robot"])


@pytest.mark.parametrize(
    ("place", "registry", "repository", "fits"),
    [
        ("registry.example", "registry.example", "team/x", True),
        ("https://registry.example", "registry.example", "team/x", True),
        ("http://registry.example", "registry.example", "team/x", True),
        ("https://registry.example/v1/", "registry.example", "team/x", True),
        ("registry.example/v2/", "registry.example", "team/x", True),
        ("registry.example/v2/team", "registry.example", "team/x", True),
        ("registry.example/v2", "registry.example", "team/x", False),  # only with the slash it is the API
        ("registry.example/", "registry.example", "team/x", True),
        ("Registry.Example", "registry.example", "team/x", True),
        ("registry.example:443", "registry.example", "team/x", True),
        ("registry.example", "other.example", "team/x", False),
        ("registry.example", "a.registry.example", "team/x", False),
        # Another port is another registry.
        ("registry.example:5000", "registry.example:5000", "team/x", True),
        ("registry.example:5000", "registry.example", "team/x", False),
        ("registry.example", "registry.example:5000", "team/x", False),
        ("*.example:5000", "registry.example:5000", "team/x", True),
        ("*.example:5000", "registry.example:5001", "team/x", False),
        ("[fd00::1]:5000", "[fd00::1]:5000", "team/x", True),
        # `*` stands for one label, or a part of one.
        ("*.example", "registry.example", "team/x", True),
        ("*.example", "example", "team/x", False),
        ("*.example", "a.registry.example", "team/x", False),
        ("*.*.example", "a.registry.example", "team/x", True),
        ("reg*.example", "registry.example", "team/x", True),
        ("r*g*y.example", "registry.example", "team/x", True),
        ("r*y*y.example", "registry.example", "team/x", False),
        ("*", "registry.example", "team/x", False),
        ("registry.*", "registry.example", "team/x", True),
        ("registry.example/*", "registry.example", "team/x", False),
        ("r?gistry.example", "registry.example", "team/x", False),
        ("[r]egistry.example", "registry.example", "team/x", False),
        # A path is a prefix of the repository's, character by character.
        ("registry.example/team", "registry.example", "team/x", True),
        ("registry.example/team/", "registry.example", "team/x", True),
        ("registry.example/team/", "registry.example", "team-b/x", False),
        ("registry.example/te", "registry.example", "team/x", True),
        ("registry.example/team/x", "registry.example", "team/x", True),
        ("registry.example/team/x/y", "registry.example", "team/x", False),
        ("registry.example/TEAM", "registry.example", "team/x", False),
        # Docker Hub has several names.
        ("https://index.docker.io/v1/", "docker.io", "library/busybox", True),
        ("index.docker.io", "docker.io", "library/busybox", True),
        ("docker.io", "docker.io", "library/busybox", True),
        ("https://index.docker.io/v1/", "registry.example", "library/busybox", False),
        ("index.docker.io/library", "docker.io", "library/busybox", False),
    ],
)
def test_a_pattern_matches_as_in_the_kubelet(place: str, registry: str, repository: str, fits: bool) -> None:  # noqa: FBT001 -- a column
    assert users(secret(place), registry, repository) == ([place] if fits else [])


def test_the_most_specific_login_comes_first() -> None:
    raw = secret("*.example", "registry.example", "registry.example/team", "registry.example/team/x", "reg*.example")
    expected = ["registry.example/team/x", "registry.example/team", "registry.example", "reg*.example", "*.example"]
    assert users(raw, "registry.example") == expected


def test_several_secrets_for_one_registry_are_tried_in_their_order() -> None:
    secrets = [json.dumps({"auths": {"registry.example": {"username": user}}}).encode() for user in ("b", "a", "c")]
    assert users(secrets, "registry.example") == ["b", "a", "c"]


def test_docker_hubs_own_entry_is_for_when_nothing_else_fits() -> None:
    raw = secret("https://index.docker.io/v1/", "docker.io/team")
    assert users(raw, "docker.io", "team/x") == ["docker.io/team"]
    assert users(raw, "docker.io", "library/x") == ["https://index.docker.io/v1/"]


def test_an_endless_server_name_is_truncated() -> None:
    assert all(len(part) <= 1024 for part in credentials.split_server("registry.example/" + "x" * 10_000))
