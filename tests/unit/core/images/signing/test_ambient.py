"""Tokens of GitHub Actions, GitLab CI and pods; no message contains one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.signing.ambient import token
from support.host.waiting import scaled

SECRET, TOKEN = "request-s3cret", "header.payload.signature"
NOWHERE = Path("/nowhere")


@contextmanager
def github(status: int = 200, body: bytes = json.dumps({"count": 1, "value": TOKEN}).encode()) -> Iterator[str]:
    """Run the token server of GitHub Actions; it answers only with its secret and the right audience."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            admitted = self.headers["Authorization"] == f"Bearer {SECRET}" and query == {
                "api-version": ["2.0"],
                "audience": ["sigstore"],
            }
            self.send_response(status if admitted else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token?api-version=2.0"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(scaled(10))


def job(url: str, secret: str = SECRET) -> dict[str, str]:
    return {
        "GITHUB_ACTIONS": "true",
        "ACTIONS_ID_TOKEN_REQUEST_URL": url,
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": secret,
    }


def test_a_job_of_github_gets_its_token() -> None:
    with github() as url:
        assert token(job(url), NOWHERE) == TOKEN


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"{}"), (200, b"[" * 5000), (200, b"\xff"), (500, b"x"), (200, b'{"value": 1}')]
)
def test_an_answer_without_a_token_is_one_error_without_its_body(status: int, body: bytes) -> None:
    with github(status, body) as url, pytest.raises(GKMError) as caught:
        token(job(url), NOWHERE)
    assert caught.value.reason is Reason.UNAUTHORIZED
    assert SECRET not in f"{caught.value.message} {caught.value.detail} {caught.value.hint}"


def test_an_endless_answer_is_bounded() -> None:
    with github(200, b"x" * (3 << 20)) as url, pytest.raises(GKMError, match="more than the 1048576 bytes"):
        token(job(url), NOWHERE)


def test_a_wrong_secret_and_a_server_that_is_away_are_errors() -> None:
    with github() as url:
        with pytest.raises(GKMError) as refused:
            token(job(url, "wrong"), NOWHERE)
        assert refused.value.reason is Reason.UNAUTHORIZED
    with pytest.raises(GKMError) as away:
        token(job(url), NOWHERE)
    assert away.value.reason is Reason.REGISTRY_UNAVAILABLE


@pytest.mark.parametrize(
    ("environment", "hint"),
    [({"GITHUB_ACTIONS": "true"}, "id-token: write"), ({"GITLAB_CI": "true"}, "id_tokens: {SIGSTORE_ID_TOKEN")],
)
def test_a_job_without_the_permission_learns_what_to_add(environment: dict[str, str], hint: str) -> None:
    with pytest.raises(GKMError) as caught:
        token(environment, NOWHERE)
    assert caught.value.reason is Reason.UNAUTHORIZED
    assert hint in str(caught.value.hint)


def test_gitlab_and_pods_have_it_ready(tmp_path: Path) -> None:
    assert token({"GITLAB_CI": "true", "SIGSTORE_ID_TOKEN": TOKEN}, NOWHERE) == TOKEN
    file = tmp_path / "oidc-token"
    file.write_text(f"{TOKEN}\n")
    assert token({}, file) == TOKEN
    assert token({"SIGSTORE_ID_TOKEN": "other"}, file) == "other"


def test_elsewhere_there_is_none() -> None:
    assert token({}, NOWHERE) is None
