"""Which credentials a request bears, when they are read again, and that no message quotes them.

The server is one of ours that knows the right token: how often it is asked, and with what, is what counts here.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.kube import client, credentials
from gkm.kube.client import HttpApi
from gkm.kube.errors import MAX_RETRY_AFTER_SECONDS, ApiError
from gkm.kube.resources import NODES
from gkm_agent.report.publisher import BACKOFF
from support.kube import kubeconfigs
from support.kube.raw_server import UNAUTHORIZED, Answer, RawServer, header_of, response

OLD, NEW = "old-secret-of-the-agent", "new-secret-of-the-agent"


class Server:
    """Answers whoever bears the token `takes`; to others it says what it says of a token that has expired."""

    def __init__(self) -> None:
        self.takes = OLD
        self.heard: list[str] = []
        self.retry_after: str | None = None
        """The header of a 503 for everybody, until it is taken out."""
        self.raw = RawServer(self._respond)

    def _respond(self, head: str) -> Answer:
        self.heard.append(header_of(head, "Authorization"))
        if self.retry_after is not None:
            return response("503 Service Unavailable", Retry_After=self.retry_after)
        if self.heard[-1] != f"Bearer {self.takes}":
            return UNAUTHORIZED
        return response("200 OK", json.dumps({"metadata": {"name": "n"}}).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with made.raw.running():
        yield made


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(OLD)
    return file


@pytest.fixture
def api(server: Server, token: Path, tmp_path: Path) -> HttpApi:
    return client.connect(str(kubeconfigs.write(tmp_path / "kubeconfig", server.raw.url, {"tokenFile": str(token)})))


def status_of(api: HttpApi) -> int:
    try:
        api.get(NODES, "n")
    except ApiError as error:
        return error.status
    return 200


def test_a_refused_request_is_asked_again_with_the_token_of_now(api: HttpApi, server: Server, token: Path) -> None:
    assert status_of(api) == 200
    server.takes = NEW
    token.write_text(NEW)

    assert status_of(api) == 200
    assert server.heard == [f"Bearer {OLD}", f"Bearer {OLD}", f"Bearer {NEW}"]


def test_while_every_token_is_refused_the_file_is_read_at_times_only(
    api: HttpApi, server: Server, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "RELOAD_SECONDS", 3600.0)
    server.takes = NEW
    assert [status_of(api) for _ in range(20)] == [401] * 20
    # One of them was asked twice: the file was read for it.
    assert len(server.heard) == 21
    token.write_text(NEW)
    assert status_of(api) == 401

    api._credentials._next_load = 0.0

    assert status_of(api) == 200


@pytest.mark.parametrize("content", [f"{OLD}\n", f" {OLD}\r\n\n"])
def test_a_token_file_may_end_as_editors_end_files(server: Server, token: Path, content: str, api: HttpApi) -> None:
    server.takes = NEW
    token.write_text(content.replace(OLD, NEW))

    assert status_of(api) == 200


@pytest.mark.parametrize("content", [f"{NEW}\n{NEW}", f"{NEW}\x00", f"{NEW}\N{EURO SIGN}"])
def test_a_token_that_is_no_valid_header_is_neither_sent_nor_logged(
    api: HttpApi, server: Server, token: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    server.takes = NEW
    token.write_text(content)

    with pytest.raises(ApiError, match="not one line of ASCII") as caught:
        api.get(NODES, "n")

    assert caught.value.status == 401
    assert NEW not in caplog.text + str(caught.getrepr(style="long"))
    token.write_text(NEW)
    api._credentials._next_load = 0.0
    assert status_of(api) == 200


@pytest.mark.parametrize("content", ["", None], ids=["empty", "missing"])
def test_a_token_file_during_its_replacement_causes_no_anonymous_request(
    api: HttpApi, server: Server, token: Path, content: str | None
) -> None:
    server.takes = NEW
    if content is None:
        token.unlink()
    else:
        token.write_text(content)

    assert status_of(api) == 401

    assert set(server.heard) == {f"Bearer {OLD}"}
    token.write_text(NEW)
    api._credentials._next_load = 0.0
    assert status_of(api) == 200


def test_a_kubeconfig_that_cannot_be_read_now_is_not_quoted(
    api: HttpApi, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = (tmp_path / "kubeconfig").read_text()
    server.takes = NEW
    (tmp_path / "kubeconfig").write_text(f'{{"users": [{{"name": "u", "token": "{NEW}"}}], "clusters": {NEW}')
    assert status_of(api) == 401
    assert "API server credentials not reloaded" in caplog.text
    assert NEW not in caplog.text + "".join(str(vars(line)) for line in caplog.records)

    (tmp_path / "kubeconfig").write_text(whole.replace('"tokenFile"', '"token"').replace(str(tmp_path / "token"), NEW))
    api._credentials._next_load = 0.0

    assert status_of(api) == 200


@pytest.mark.parametrize("asked", ["86400", "99999999999", "9" * 400])
def test_a_retry_after_of_hours_is_bounded(api: HttpApi, server: Server, asked: str) -> None:
    """A pause of 300 years is more than a lock of Python can wait, and ended the thread that waited."""
    server.retry_after = asked

    with pytest.raises(ApiError) as caught:
        api.get(NODES, "n")

    assert caught.value.retry_after == MAX_RETRY_AFTER_SECONDS
    assert BACKOFF.pause(1, caught.value.retry_after) <= MAX_RETRY_AFTER_SECONDS * 1.5
