"""A watch over HTTP that is cut at any byte yields whole events, in order and once."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube import client
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Json, Resource
from support.host.waiting import until
from support.kube.raw_server import Answer, RawServer, response

THIN: Resource[Json] = Resource("gkm.io/v1alpha1", "GKMCache", "gkmcaches", namespaced=True, type=Json)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK_BYTES = 41
"""No event ends where a chunk does."""


def line(version: int) -> bytes:
    meta = {"name": f"x{version}", "namespace": "a", "resourceVersion": str(version)}
    return json.dumps({"type": "ADDED", "object": {"metadata": meta}}).encode() + b"\n"


def chunked(data: bytes) -> bytes:
    borders = [*range(0, len(data), CHUNK_BYTES), len(data)]
    return b"".join(b"%x\r\n%s\r\n" % (end - start, data[start:end]) for start, end in pairwise(borders))


LINES = [line(version) for version in (1, 2, 3)]
WHOLE = HEAD + chunked(b"".join(LINES)) + b"0\r\n\r\n"


@pytest.mark.parametrize("then", ["end", "reset"])
def test_a_watch_cut_at_any_byte_yields_whole_events_only(then: str) -> None:
    position = [0]
    counts = []
    with RawServer.start(lambda _: Answer(WHOLE[: position[0]], then)) as server:
        api = server.api()
        for position[0] in range(len(WHOLE) + 1):
            told = []
            # An end within the head looks like an answer without a body: that is an end, and no event either.
            with suppress(ApiError):
                for event in api.watch(THIN, "0"):
                    assert event.entry
                    told.append(event.resource_version)
            assert told == ["1", "2", "3"][: len(told)], position
            counts.append(len(told))
    if then == "end":
        assert counts == sorted(counts)
        assert set(counts) == {0, 1, 2, 3}


@pytest.mark.parametrize("then", ["end", "reset"])
def test_a_cut_in_the_middle_of_a_chunk_is_an_error(then: str) -> None:
    within = Answer(WHOLE[: len(HEAD) + CHUNK_BYTES + 20], then)
    with RawServer.start(lambda _: within) as server, pytest.raises(ApiError) as caught:
        list(server.api().watch(THIN, "0"))
    assert (caught.value.status, caught.value.expired) == (0, False)


def test_a_clean_end_in_the_middle_of_a_line_is_an_end_and_half_an_event_is_none() -> None:
    half = HEAD + chunked(LINES[0] + LINES[1][:30]) + b"0\r\n\r\n"
    with RawServer.start(lambda _: Answer(half)) as server:
        told = [event.resource_version for event in server.api().watch(THIN, "0")]
    assert told == ["1"]


def test_an_answer_without_a_length_that_ends_in_the_middle_of_a_line_is_an_end() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    with RawServer.start(lambda _: Answer(head + LINES[0] + LINES[1][:-1])) as server:
        told = [event.resource_version for event in server.api().watch(THIN, "0")]
    assert told == ["1"]


def test_a_watch_that_the_server_does_not_end_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WATCH_SECONDS", 0)
    monkeypatch.setattr(client, "READ_SECONDS", 0.2)
    with RawServer.start(lambda _: Answer(HEAD + chunked(LINES[0]), "silence")) as server:
        watch = iter(server.api().watch(THIN, "0"))
        assert next(watch).resource_version == "1"
        with pytest.raises(ApiError, match="broke off"):
            next(watch)


class Storing:
    """Answers as an API server with events 1 to `last`, cut somewhere else on each connection."""

    def __init__(self, last: int, cuts: Iterator[tuple[int, str]]) -> None:
        self.last = last
        self.cuts = cuts
        self.asked: list[int] = []

    def __call__(self, head: str) -> Answer:
        if "watch=true" not in head:
            body = json.dumps({"metadata": {"resourceVersion": "0"}, "items": []}).encode()
            return Answer(
                f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
            )
        found = re.search(r"resourceVersion=(\d+)", head)
        assert found
        self.asked.append(int(found[1]))
        events = b"".join(line(version) for version in range(int(found[1]) + 1, self.last + 1))
        cut, then = next(self.cuts, (None, "silence"))
        return Answer((HEAD + chunked(events))[:cut], then)


def test_resumed_after_every_cut_each_event_is_reported_once_and_in_order() -> None:
    cuts = iter([(position, ("end", "reset")[position % 2]) for position in range(0, len(HEAD) + 400, 3)])
    storing = Storing(12, cuts)
    told: list[str] = []

    def tell(_: Json | None, new: Json | None) -> None:
        assert new
        told.append(new["metadata"]["name"])

    with RawServer.start(storing) as server:
        reflector = Reflector(server.api(), THIN, tell, backoff=Backoff(0.0001, 0.0002))
        reflector.start()
        try:
            until(lambda: len(told) >= 12, "all is told")
        finally:
            reflector.close()
    assert told == [f"x{version}" for version in range(1, 13)]
    assert storing.asked == sorted(storing.asked)
    lists = [head for head in server.heads if "watch=true" not in head]
    assert len(lists) == 1


def test_a_list_gets_past_an_undecodable_response() -> None:
    told: list[str] = []
    garbage = [b'{"type":"ADDED","object":{}}\n', b'{"type":"BOOKMARK","object":{"metadata":{}}}\n']

    def answer(head: str) -> Answer:
        if "watch=true" in head:
            return Answer(HEAD + chunked(garbage.pop(0)) + b"0\r\n\r\n") if garbage else Answer(HEAD, "silence")
        item = {"metadata": {"name": f"x{len(garbage)}", "resourceVersion": "5"}}
        body = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [item]}).encode()
        return Answer(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)

    with RawServer.start(answer) as server:
        reflector = Reflector(
            server.api(),
            THIN,
            lambda _, new: told.append(new["metadata"]["name"] if new else "gone"),
            backoff=Backoff(0.001, 0.002),
        )
        reflector.start()
        try:
            until(lambda: len(told) == 5, "what came after is known")
        finally:
            reflector.close()
    assert told == ["x2", "x1", "gone", "x0", "gone"]


def test_a_refused_watch_is_an_error_with_the_requested_pause() -> None:
    refused = response("429 Too Many Requests", Retry_After="3")
    with RawServer.start(lambda _: refused) as server, pytest.raises(ApiError) as caught:
        server.api().watch(THIN, "0")
    assert (caught.value.status, caught.value.retry_after) == (429, 3.0)
