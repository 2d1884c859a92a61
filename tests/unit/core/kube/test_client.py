"""The real client against a scripted server: the bounds of responses, and the errors it raises."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from gkm.kube import client
from gkm.kube.client import HttpApi
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHES, Json
from support.kube.raw_server import Answer, RawServer, query_of, response
from urllib3 import HTTPResponse

Answering = Callable[[dict[str, str]], tuple[int, bytes]]


class Server:
    """Answers a query as the test sets it, and records the requests."""

    def __init__(self) -> None:
        self.answer: Answering = lambda _: (200, b"{}")
        self.asked: list[dict[str, str]] = []
        self.raw = RawServer(self._respond)

    def api(self) -> HttpApi:
        return self.raw.api()

    def _respond(self, head: str) -> Answer:
        self.asked.append(query_of(head))
        status, body = self.answer(self.asked[-1])
        return response(f"{status} as the test says", body)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with made.raw.running():
        yield made


def a_cache(number: int) -> Json:
    return {"metadata": {"name": f"x{number}", "resourceVersion": "1"}, "spec": {"image": "i" * 500}}


def lists(count: int) -> Answering:
    """Answer as an API server that holds so many caches."""

    def answer(query: dict[str, str]) -> tuple[int, bytes]:
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        metadata = {"resourceVersion": "9"} | ({"continue": str(start + limit)} if start + limit < count else {})
        items = [a_cache(number) for number in range(start, min(count, start + limit))]
        return 200, json.dumps({"metadata": metadata, "items": items}).encode()

    return answer


def test_a_page_that_is_too_large_is_requested_in_smaller_ones(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BODY_BYTES", 4000)
    server.answer = lists(20)
    pages = list(server.api().list_pages(GKMCACHES, limit=16))
    assert [entry.name for page in pages for entry in page.entries] == [f"x{number}" for number in range(20)]
    assert [(query["limit"], query.get("continue")) for query in server.asked[:4]] == [
        ("16", None),
        ("8", None),
        ("4", None),
        ("4", "4"),
    ]


def test_a_page_is_in_memory_once_while_it_is_read() -> None:
    page = b"x" * client.MAX_PAGE_BYTES
    answered = HTTPResponse(BytesIO(page), preload_content=False)
    tracemalloc.start()
    try:
        body = client._read(answered, client.MAX_PAGE_BYTES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert body == page
    assert peak <= 1.25 * len(page)


def test_one_object_that_is_too_large_is_an_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BODY_BYTES", 400)
    server.answer = lists(5)
    with pytest.raises(ApiError, match="more than 400 bytes"):
        list(server.api().list_pages(GKMCACHES, limit=4))
    assert [query["limit"] for query in server.asked] == ["4", "2", "1"]


def test_only_the_start_of_an_endless_error_is_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BODY_BYTES", client.MAX_ERROR_BYTES)
    server.answer = lambda _: (404, b"not here\n" + b"x" * (client.MAX_ERROR_BYTES * 3))
    api = server.api()
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            api.get(GKMCACHES, "x", "a")
        assert (caught.value.not_found, caught.value.message) == (True, "not here")


def test_a_server_that_repeats_a_page_is_no_endless_list(server: Server) -> None:
    page = {"metadata": {"resourceVersion": "1", "continue": "again"}, "items": []}
    server.answer = lambda _: (200, json.dumps(page).encode())
    with pytest.raises(ApiError, match="repeats a page of gkmcaches"):
        list(server.api().list_pages(GKMCACHES))
    assert len(server.asked) == 2


def test_a_body_that_trickles_is_bounded_in_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_READ_BYTES", 10)
    server.answer = lambda _: (200, json.dumps(a_cache(1)).encode())
    assert server.api().get(GKMCACHES, "x1", "default").metadata.name == "x1"
    monkeypatch.setattr(client, "BODY_SECONDS", -1.0)
    with pytest.raises(ApiError, match="takes more than -1 seconds") as caught:
        server.api().get(GKMCACHES, "x1", "default")
    assert caught.value.status == 0
