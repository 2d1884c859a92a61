"""The choice of tokens: logins in their order, refresh tokens, and tenants that share connections but no secret."""

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.registries.auth import MAX_LOGINS, Challenge, Login
from support.images.private_registry import SECRET, as_user, client, everything_by_proxy, image_of, keyring, private
from support.registry import faults
from support.registry.auth import Auth
from support.registry.server import Registry

A, B = "tenant-a", "tenant-b"


def tenants(*, bearer: bool = True) -> Auth:
    return Auth("robot", SECRET, bearer=bearer, tenants={A: f"{A}/", B: f"{B}/"})


def scopes(registry: Registry) -> list[list[str]]:
    return [parse_qs(request.path.partition("?")[2])["scope"] for request in registry.seen("GET", "/token")]


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ('Bearer realm="https://a/t",service="s"', Challenge(bearer=True, realm="https://a/t", service="s")),
        ('bearer realm="https://a/t"', Challenge(bearer=True, realm="https://a/t")),
        ('Bearer Realm="https://a/t", Service=s', Challenge(bearer=True, realm="https://a/t", service="s")),
        ('Bearer realm="https://a/t",scope="x:y:pull,push"', Challenge(bearer=True, realm="https://a/t")),
        ('Basic realm="x"', Challenge(bearer=False)),
        ("BASIC", Challenge(bearer=False)),
        ('Basic realm="x", Bearer realm="https://a/t"', Challenge(bearer=True, realm="https://a/t")),
        ('Bearer realm="https://a/t", Basic realm="x"', Challenge(bearer=True, realm="https://a/t")),
        ("Bearer", Challenge(bearer=True)),
        ("Negotiate", None),
        ("", None),
        ("Basically none", None),
        ("x" * 10_000 + ", Basic", None),
    ],
)
def test_a_challenge_is_read(header: str, challenge: Challenge | None) -> None:
    assert Challenge.parse(header) == challenge


@pytest.mark.parametrize("bearer", [True, False])
def test_logins_are_tried_one_after_the_other(bearer: bool) -> None:  # noqa: FBT001 -- a column
    with private(Auth("robot", SECRET, bearer=bearer)) as registry:
        wrong = {registry.host: {"username": "robot", "password": "old"}}
        right = {registry.host: {"username": "robot", "password": SECRET}}
        for secrets in ([wrong, right], [right, wrong]):
            assert client(keyring(*secrets), registry).resolve(image_of(registry)).startswith("sha256:")


def test_a_login_that_gets_a_token_without_rights_is_not_the_last_word() -> None:
    with private(tenants(), f"{B}/x") as registry:
        both = [{registry.host: {"username": user, "password": SECRET}} for user in (A, B)]
        ours = client(keyring(*both), registry)
        ours.resolve(image_of(registry, f"{B}/x"))
        registry.requests.clear()
        ours.resolve(image_of(registry, f"{B}/x"))
        assert len(registry.requests) == 1  # the accepted login is cached, without the failed attempts


@pytest.mark.parametrize("bearer", [True, False])
def test_credentials_that_open_nothing_are_an_error_that_names_no_secret(bearer: bool) -> None:  # noqa: FBT001
    with private(Auth("robot", SECRET, bearer=bearer)) as registry:
        with pytest.raises(GKMError, match="denies access to team/x") as caught:
            client(as_user(registry, "robot", "wr0ng"), registry).resolve(image_of(registry))
        assert caught.value.reason is Reason.UNAUTHORIZED
        assert "wr0ng" not in str(caught.value)


def test_only_so_many_logins_are_tried() -> None:
    with private() as registry:
        wrong = [{registry.host: {"username": "robot", "password": str(number)}} for number in range(30)]
        with pytest.raises(GKMError) as caught:
            client(keyring(*wrong), registry).resolve(image_of(registry))
        assert caught.value.reason is Reason.UNAUTHORIZED
        assert len(registry.seen("GET", "/token")) == MAX_LOGINS


def test_the_same_login_twice_is_tried_once() -> None:
    with private() as registry:
        wrong = {registry.host: {"username": "robot", "password": "wrong"}}
        with pytest.raises(GKMError, match="denies access to team/x"):
            client(keyring(wrong, wrong), registry).resolve(image_of(registry))
        assert len(registry.seen("GET", "/token")) == 1


def test_a_refresh_token_gets_tokens_by_oauth2() -> None:
    with private(Auth("robot", SECRET, identity_token="refresh/+=")) as registry:
        ours = client(keyring({registry.host: {"identitytoken": "refresh/+="}}), registry)
        assert ours.resolve(image_of(registry)).startswith("sha256:")
        (request,) = registry.seen("POST", "/token")
        assert "authorization" not in request.headers
        assert "refresh" not in request.path


def test_a_refresh_token_that_is_spent_is_unauthorized() -> None:
    with private(Auth("robot", SECRET, identity_token="new")) as registry:
        with pytest.raises(GKMError) as caught:
            client(keyring({registry.host: {"identitytoken": "0ld"}}), registry).resolve(image_of(registry))
        assert caught.value.reason is Reason.UNAUTHORIZED
        assert "0ld" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (301, "its token server answers 301"),
        (307, "redirects an upload to thief.example"),
        (308, "redirects an upload to thief.example"),
    ],
)
def test_a_refresh_token_does_not_follow_a_redirect_to_another_host(
    monkeypatch: pytest.MonkeyPatch, status: int, why: str
) -> None:
    secret = Auth("robot", SECRET, identity_token="refresh")
    with everything_by_proxy(monkeypatch) as (thief, _), private(secret) as registry:
        registry.misbehave(
            faults.Fault(
                "/token",
                lambda _: faults.Answer(status, {"Location": "http://thief.example/token"}, b""),
                methods=frozenset({"POST"}),
            )
        )
        with pytest.raises(GKMError, match=why):
            client(keyring({registry.host: {"identitytoken": "refresh"}}), registry).resolve(image_of(registry))
        assert thief.requests == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, Reason.UNAUTHORIZED),
        (401, Reason.UNAUTHORIZED),
        (403, Reason.UNAUTHORIZED),
        (404, Reason.REGISTRY_UNAVAILABLE),
        (429, Reason.REGISTRY_UNAVAILABLE),
        (503, Reason.REGISTRY_UNAVAILABLE),
    ],
)
def test_a_token_server_that_is_busy_is_not_one_that_refuses(status: int, reason: Reason) -> None:
    with private() as registry:
        registry.misbehave(faults.status("/token", status))
        with pytest.raises(GKMError) as caught:
            client(as_user(registry, "robot"), registry).resolve(image_of(registry))
        assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{}", Reason.UNAUTHORIZED),
        (b'{"token":null,"access_token":null}', Reason.UNAUTHORIZED),
        (b'{"token":"a\\r\\nX-Evil: 1"}', Reason.UNAUTHORIZED),
        (b'{"token":"\\u00e4"}', Reason.UNAUTHORIZED),
        (b'{"token":7}', Reason.REGISTRY_UNAVAILABLE),
        (b"<html>", Reason.REGISTRY_UNAVAILABLE),
        (b'{"token":"' + b"x" * 100_000 + b'"}', Reason.REGISTRY_UNAVAILABLE),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_token_that_is_none_is_refused(body: bytes, reason: Reason) -> None:
    with private() as registry:
        registry.misbehave(faults.Fault("/token", lambda answer: answer._replace(body=body, headers={})))
        with pytest.raises(GKMError) as caught:
            client(as_user(registry, "robot"), registry).resolve(image_of(registry))
        assert caught.value.reason is reason


@pytest.mark.parametrize("seconds", [b"-5", b"0", b"1e300", b"59.9", b"null"])
def test_a_token_is_accepted_with_any_lifetime(seconds: bytes) -> None:
    with private() as registry:
        registry.misbehave(
            faults.tampered("/token", lambda body: body.replace(b'"expires_in":300', b'"expires_in":' + seconds))
        )
        ours = client(as_user(registry, "robot"), registry)
        assert ours.resolve(image_of(registry)) == ours.resolve(image_of(registry))


def test_a_token_request_names_one_repository_whatever_the_challenge_demands() -> None:
    with private(Auth("robot", SECRET), "team/x", "team/y") as registry:
        everything = 'Bearer realm="{}/token",service="gkm-testbed",scope="repository:team/y:pull,push,delete"'
        registry.misbehave(
            faults.Fault(
                "manifests/1",
                lambda _: faults.Answer(401, {"WWW-Authenticate": everything.format(registry.url)}, b""),
                times=1,
            )
        )
        client(as_user(registry, "robot"), registry).resolve(image_of(registry))
        assert scopes(registry) == [["repository:team/x:pull"]]


def test_a_token_for_one_repository_is_not_sent_for_another() -> None:
    with private(Auth("robot", SECRET), "team/x", "team/y") as registry:
        ours = client(as_user(registry, "robot"), registry)
        ours.resolve(image_of(registry, "team/x"))
        registry.requests.clear()
        ours.resolve(image_of(registry, "team/y"))
        assert "authorization" not in registry.seen("GET", "team/y/manifests")[0].headers


@pytest.mark.parametrize("bearer", [True, False])
def test_the_token_of_one_tenant_never_serves_another(bearer: bool) -> None:  # noqa: FBT001 -- a column
    with private(tenants(bearer=bearer), f"{A}/x") as registry:
        node = client(None, registry)
        ours = node.with_credentials(as_user(registry, A))
        ref = image_of(registry, f"{A}/x")
        ours.resolve(ref)
        for other in (node, node.with_credentials(as_user(registry, B)), ours.with_credentials(keyring())):
            with pytest.raises(GKMError) as caught:
                other.resolve(ref)
            assert caught.value.reason is Reason.UNAUTHORIZED
        ours.resolve(ref)


def test_tenants_share_connections() -> None:
    with private(tenants(), f"{A}/x", f"{B}/x") as registry:
        node = client(None, registry)
        views = [node.with_credentials(as_user(registry, user)) for user in (A, B)]
        assert views[0]._transports is views[1]._transports is node._transports


def test_the_tokens_of_many_threads_and_tenants_stay_separate() -> None:
    with private(tenants(), f"{A}/x", f"{B}/x") as registry:
        node = client(None, registry)
        views = {user: node.with_credentials(as_user(registry, user)) for user in (A, B)}

        def request_token(number: int) -> tuple[bool, str]:
            user, place = (A, B)[number % 2], (A, B)[number // 2 % 2]
            if number % 10 == 0 and registry.auth:
                registry.auth.revoke()
            try:
                views[user].resolve(image_of(registry, f"{place}/x"))
            except GKMError as error:
                return user == place, error.reason.value
            return user == place, "opened"

        with ThreadPoolExecutor(8) as threads:
            seen = set(threads.map(request_token, range(80)))
        # A token may be revoked between request and use: then its owner is refused, and no other tenant gets in.
        assert {(True, "opened"), (False, "Unauthorized")} <= seen
        assert seen <= {(True, "opened"), (True, "Unauthorized"), (False, "Unauthorized")}


def test_a_login_shows_nothing() -> None:
    login = Login("robot", SECRET, "refresh")
    assert (SECRET in repr(login), "refresh" in repr(login), SECRET in str([login])) == (False, False, False)
