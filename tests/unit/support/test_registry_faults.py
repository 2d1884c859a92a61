"""The registry misbehaves exactly as it is asked to, and only there."""

import gzip
import http.client
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.host.waiting import until
from support.registry import faults
from support.registry.auth import Auth
from support.registry.push import PushFailed, Target
from support.registry.server import Registry

DATA = bytes(range(200))


@pytest.fixture
def target(registry: Registry) -> Target:
    return Target(registry.host, "team/cache")


@pytest.fixture
def path(target: Target) -> str:
    return f"/v2/team/cache/blobs/{target.blob(DATA)['digest']}"


@pytest.fixture
def connection(registry: Registry) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(registry.host, timeout=5)
    yield connection
    connection.close()


def test_tampered_bytes_keep_their_length(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.tampered("/blobs/"))
    status, headers, body = target.request("GET", path)
    assert (status, len(body), int(headers["content-length"])) == (200, len(DATA), len(DATA))
    assert body != DATA


def test_overlong_content_is_announced_as_such(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.overlong("/blobs/", b"more"))
    assert target.request("GET", path)[2] == DATA + b"more"


def test_a_truncated_body_ends_early(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.truncated("/blobs/", 50))
    with pytest.raises(http.client.IncompleteRead) as caught:
        target.request("GET", path)
    assert caught.value.partial == DATA[:50]


def test_truncation_without_a_length_looks_like_success(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.without_length("/blobs/", cut_after=50))
    status, headers, body = target.request("GET", path)
    assert (status, body) == (200, DATA[:50])
    assert "content-length" not in headers


def test_a_wrong_length_is_sent_as_it_is(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.wrong_length("/blobs/", 10))
    _, headers, body = target.request("GET", path)
    assert (headers["content-length"], body) == ("10", DATA[:10])


def test_a_stall_before_the_answer_is_silence(
    registry: Registry, path: str, connection: http.client.HTTPConnection
) -> None:
    registry.misbehave(faults.stalled("/blobs/"))
    connection.timeout = 0.2
    connection.request("GET", path)
    with pytest.raises(TimeoutError, match="timed out"):
        connection.getresponse()


def test_a_stall_in_the_middle_sends_the_first_bytes(
    registry: Registry, path: str, connection: http.client.HTTPConnection
) -> None:
    registry.misbehave(faults.stalled("/blobs/", after=10))
    connection.timeout = 0.2
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.read(10) == DATA[:10]
    with pytest.raises(TimeoutError, match="timed out"):
        answer.read(1)


def test_a_stalled_answer_does_not_hold_up_the_end() -> None:
    with Registry.start() as registry:
        registry.misbehave(faults.stalled("."))
        connection = http.client.HTTPConnection(registry.host, timeout=30)
        connection.request("GET", "/v2/")
        until(lambda: registry.seen("GET", "/v2/"), "the registry has read the request and is silent")
    # The stall is of an hour: coming here at all is what this is about. The silence ended with the registry.
    with closing(connection):
        assert connection.getresponse().status == 200


def test_dripping_sends_everything_in_pieces(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.dripping("/blobs/", piece=100, pause=0.01))
    assert target.request("GET", path)[2] == DATA


def test_dripping_pauses_before_a_piece(registry: Registry, path: str, connection: http.client.HTTPConnection) -> None:
    registry.misbehave(faults.dripping("/blobs/", piece=100, pause=3600))
    connection.timeout = 0.2
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200
    with pytest.raises(TimeoutError, match="timed out"):
        answer.read(1)


def test_an_error_is_given_as_often_as_asked_for(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.status("/blobs/", 503, times=2, headers={"Retry-After": "1"}))
    answers = [target.request("GET", path) for _ in range(3)]
    assert [status for status, _, _ in answers] == [503, 503, 200]
    assert answers[0][1]["retry-after"] == "1"


def test_skipped_matches_are_answered_properly(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.Fault("/blobs/", lambda answer: answer._replace(status=500), skip=1, times=1))
    assert [target.request("GET", path)[0] for _ in range(3)] == [200, 500, 200]


def test_a_redirect_leads_to_the_configured_address(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.redirected("/blobs/", "http://127.0.0.1:9/elsewhere"))
    status, headers, _ = target.request("GET", path)
    assert (status, headers["location"]) == (307, "http://127.0.0.1:9/elsewhere")


def test_a_wrong_digest_header_comes_with_the_right_bytes(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.wrong_digest_header("/blobs/"))
    _, headers, body = target.request("GET", path)
    assert (headers["docker-content-digest"], body) == ("sha256:" + "0" * 64, DATA)


def test_an_unrequested_content_encoding(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.content_encoded("/blobs/", b"\0" * 100_000))
    _, headers, body = target.request("GET", path)
    assert headers["content-encoding"] == "gzip"
    assert len(body) < 1000
    assert gzip.decompress(body) == b"\0" * 100_000


def test_faults_meet_only_their_path_and_end_on_request(registry: Registry, target: Target, path: str) -> None:
    registry.misbehave(faults.status("/manifests/", 503))
    assert (target.request("GET", path)[0], target.get("manifests/v1")[0]) == (200, 503)
    registry.behave()
    assert target.get("manifests/v1")[0] == 404


def test_requests_are_recorded_with_their_headers(registry: Registry, target: Target, path: str) -> None:
    target.request("GET", path, headers={"Range": "bytes=1-2", "Authorization": "Basic c2VjcmV0"})
    (request,) = registry.seen("GET", path)
    assert (request.headers["range"], request.headers["authorization"]) == ("bytes=1-2", "Basic c2VjcmV0")


def test_basic_authentication() -> None:
    with Registry.start(auth=Auth("robot", "secret", bearer=False)) as registry:
        with pytest.raises(PushFailed, match="401"):
            Target(registry.host, "team/cache").blob(DATA)
        Target(registry.host, "team/cache", basic=("robot", "secret")).blob(DATA)


def test_bearer_authentication_names_realm_and_scope_and_takes_its_token_only_there() -> None:
    with Registry.start(auth=Auth("robot", "secret")) as registry:
        target = Target(registry.host, "team/cache", basic=("robot", "secret"))
        status, headers, _ = target.request("GET", "/v2/team/cache/tags/list")
        assert status == 401
        scope = "repository:team/cache:pull"
        challenge = f'Bearer realm="{registry.url}/token",service="gkm-testbed",scope="{scope}"'
        assert headers["www-authenticate"] == challenge
        _, _, body = target.request("GET", f"/token?scope={scope}")
        token = {"Authorization": f"Bearer {body.decode().split(chr(34))[3]}"}
        anonymous = Target(registry.host, "team/cache")
        assert anonymous.request("GET", "/v2/team/cache/tags/list", headers=token)[0] == 200
        assert anonymous.request("GET", "/v2/team/other/tags/list", headers=token)[0] == 401


def test_tls_with_an_authority_of_its_own(tmp_path: Path) -> None:
    with Registry.start(tls=tmp_path) as registry:
        target = Target(registry.host, "team/cache", ca_file=registry.ca_file)
        digest = target.blob(DATA)["digest"]
        assert target.get(f"blobs/{digest}") == (200, DATA)
